//! The `leaseway` binary: runs a server, and asks one.

mod client;
mod connect;
mod error;
mod inspect;
mod operate;
mod output;
mod run;
mod setup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::CliError;

/// A request allocates and frees sixteen blocks of memory, most of them in hyper and h2: this allocator takes less CPU
/// for that than glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Fair shares of something limited - queries per second, open transactions, cost units - as short leases.
#[derive(Parser)]
#[command(name = "leaseway", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Try it:
  leaseway up                           start three peers on this machine: every resource has 100, shared fairly.
                                        Kill one, the others go on; a later start remembers what was promised
  leaseway get alice mysql 40           in another terminal: alice asks for 40 of `mysql`
  leaseway get bob mysql 1000           bob asks for more than there is, and gets what is left
  leaseway status mysql                 who has what
  leaseway explain bob mysql            why bob has what he has
  leaseway check                        whether all is well, and what to do if it is not
  leaseway shell                        several clients at once, with their leases kept refreshed
  leaseway up --tls                     three peers over TLS, with certificates that it makes
  leaseway serve                        start a single server that remembers nothing, for development

Every flag of serve, and those that say where a server is, can also be set by a variable: --listen is LEASEWAY_LISTEN. A
flag on the command line wins.
The server speaks the Doorman protocol: Doorman's Go clients work with it unchanged.";

#[derive(Subcommand)]
enum Command {
    /// Runs a server until SIGTERM or Ctrl-C; SIGHUP, or a change of its file, reloads the configuration
    Serve(Box<run::serve::Serve>),
    /// Lets in callers that speak another protocol: HTTP, Envoy's rate limit service
    Gateway(Box<run::gateway::RunGateway>),
    /// Runs the peers of a node on this machine, each a process of its own, until Ctrl-C; without a file: three
    Up(run::up::Up),
    /// Works with configuration files, and with the configuration that the peers of a node keep
    #[command(subcommand)]
    Config(operate::config::ConfigCommand),
    /// Explains what an access policy lets an identity do
    #[command(subcommand)]
    Access(operate::access::AccessCommand),
    /// Makes tokens by which callers prove who they are
    #[command(subcommand)]
    Token(setup::token::TokenCommand),
    /// Shows and changes the peers of a node
    #[command(subcommand)]
    Peers(operate::peers::PeersCommand),
    /// Moves mastership to another peer
    Transfer(Box<operate::transfer::Transfer>),
    /// Writes what the peers keep into a file, for the loss of all of them
    Backup(Box<operate::backup::MakeBackup>),
    /// Puts a backup into an empty data directory, for a server to begin with
    Restore(operate::backup::Restore),
    /// Sets capacities for a time, in place of what templates say, and lists what is set
    Capacity(Box<operate::capacity::Capacity>),
    /// Manages pools (PRIORITY_POOL): assignments, connected clients, events
    #[command(subcommand, after_help = operate::pool::EXAMPLES)]
    Pool(operate::pool::PoolCommand),
    /// Makes a private CA and certificates, for TLS without a PKI of one's own
    #[command(subcommand, after_help = setup::certs::EXAMPLES)]
    Certs(setup::certs::CertsCommand),
    /// Asks for capacity once, as a client would, and prints the lease
    Get(client::ask::Get),
    /// Gives capacity back
    Release(client::ask::Release),
    /// Plays several clients by hand, on a prompt or from a pipe: get, release, show, master, watch
    Shell(client::shell::Shell),
    /// Shows a server and its resources, or one resource and its holders
    Status(inspect::status::ShowStatus),
    /// Says whether a cluster is well, what is wrong, and what to do
    Check(inspect::check::Check),
    /// Shows a cluster as it is at this moment, at a terminal
    Top(Box<inspect::top::Top>),
    /// Gathers what a report of a fault needs
    #[command(subcommand)]
    Debug(inspect::debug::DebugCommand),
    /// Explains why a client has what it has, and when that changes
    Explain(inspect::explain::Explain),
    /// Prints what completes commands and flags in a shell
    Completions(setup::manual::Completions),
    /// Writes manual pages: leaseway.1 and one for each command
    Man(setup::manual::Man),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(serve) => {
            leaseway_process::tether::obey();
            serve.run()
        }
        Command::Gateway(gateway) => {
            leaseway_process::tether::obey();
            gateway.run()
        }
        Command::Up(up) => up.run(),
        Command::Access(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Peers(command) => command.run(),
        Command::Transfer(transfer) => transfer.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Capacity(capacity) => capacity.run(),
        Command::Pool(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Certs(command) => command.run(),
        Command::Get(get) => get.run(),
        Command::Release(release) => release.run(),
        Command::Shell(shell) => shell.run(),
        Command::Status(status) => status.run(),
        Command::Top(top) => top.run(),
        Command::Debug(command) => command.run(),
        Command::Explain(explain) => explain.run(),
        Command::Check(check) => check.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            error.exit_code()
        }
    }
}

/// What a subcommand ends with.
type Outcome = Result<(), CliError>;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn assert_has_its_variable(flag: &clap::Arg) {
        let name = flag.get_long().expect("flags are long").replace('-', "_").to_uppercase();
        let expected = format!("LEASEWAY_{name}");
        let variable = flag.get_env().map(|variable| variable.to_string_lossy().into_owned());
        assert_eq!(variable, Some(expected));
    }

    #[test]
    fn every_flag_of_serve_has_its_variable() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").expect("serve exists");
        serve.get_arguments().filter(|flag| flag.get_id() != "help").for_each(assert_has_its_variable);
    }

    #[test]
    fn every_flag_of_a_gateway_has_its_variable() {
        let cli = Cli::command();
        let gateway = cli.find_subcommand("gateway").expect("it exists");
        gateway.get_arguments().filter(|flag| flag.get_id() != "help").for_each(assert_has_its_variable);
    }

    /// What all commands have that connect.
    const SECURITY: [&str; 7] = ["tls", "tls_ca", "tls_cert", "tls_key", "tls_server_name", "token_file", "insecure"];

    #[test]
    fn every_command_that_asks_as_a_client_can_be_told_how_by_variables() {
        let cli = Cli::command();
        for command in ["check", "explain", "get", "release", "shell", "status", "top"] {
            let command = cli.find_subcommand(command).expect("it exists");
            for flag in ["server", "timeout"].iter().chain(&SECURITY) {
                let flag = command.get_arguments().find(|argument| argument.get_id() == flag);
                assert_has_its_variable(flag.unwrap_or_else(|| panic!("{}", command.get_name())));
            }
        }
    }

    #[test]
    fn a_bundle_is_gathered_with_the_same_variables() {
        let cli = Cli::command();
        let debug = cli.find_subcommand("debug").expect("it exists");
        let bundle = debug.find_subcommand("bundle").expect("it exists");
        for flag in ["server", "timeout", "admin_token_file"].iter().chain(&SECURITY) {
            assert_has_its_variable(bundle.get_arguments().find(|argument| argument.get_id() == flag).expect(flag));
        }
    }

    #[test]
    fn every_command_that_asks_a_peer_can_be_told_where_by_variables() {
        let cli = Cli::command();
        let asking = [
            ("config", &["plan", "apply", "diff", "show", "history", "rollback"][..]),
            ("peers", &["list", "add", "remove"]),
            ("pool", &["show", "set", "get", "clients", "watch", "load", "alarm"]),
        ];
        for flag in ["admin", "admin_token_file", "timeout"].iter().chain(&SECURITY) {
            for command in ["backup", "capacity", "transfer"] {
                let command = cli.find_subcommand(command).expect("it exists");
                let flag = command.get_arguments().find(|argument| argument.get_id() == flag);
                assert_has_its_variable(flag.expect("it asks a peer"));
            }
        }
        for (group, commands) in asking {
            let group = cli.find_subcommand(group).expect("it exists");
            for command in commands {
                let command = group.find_subcommand(command).expect("it exists");
                for flag in ["admin", "admin_token_file", "timeout"].iter().chain(&SECURITY) {
                    let flag = command.get_arguments().find(|argument| argument.get_id() == flag);
                    assert_has_its_variable(flag.unwrap_or_else(|| panic!("{}", command.get_name())));
                }
            }
        }
    }
}
