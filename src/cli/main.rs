//! The `leaseway` binary: servers, gateways, and the commands of clients and operators.

mod client;
mod connect;
mod error;
mod inspect;
mod operate;
mod output;
mod run;
mod setup;

use std::process::ExitCode;

use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use error::CliError;

/// A request allocates sixteen blocks of memory, most of them in hyper and h2. mimalloc spends less CPU on them than
/// glibc's allocator.
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
    Transfer(Box<operate::peers::Transfer>),
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

/// The command line. Every flag of `serve` and `gateway` can also be set by a variable.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "serve" | "gateway" => command.mut_args(with_variable),
        _ => command,
    })
}

/// Lets `--some-flag` be set by `LEASEWAY_SOME_FLAG`.
fn with_variable(flag: Arg) -> Arg {
    let Some(name) = flag.get_long() else { return flag };
    let variable = format!("LEASEWAY_{}", name.replace('-', "_").to_uppercase());
    // clap takes static names; the command line is built a few times at most.
    flag.env(&*variable.leak())
}

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches());
    let outcome = match cli.unwrap_or_else(|error| error.format(&mut command()).exit()).command {
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
            output::print_error(&error);
            error.exit_code()
        }
    }
}

/// The result of a command.
type Outcome = Result<(), CliError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_that_says_where_and_how_to_connect_has_its_variable() {
        const CONNECT: [&str; 8] =
            ["timeout", "tls", "tls_ca", "tls_cert", "tls_key", "tls_server_name", "token_file", "insecure"];
        let (clients, operators) = (&["server"][..], &["admin", "admin_token_file"][..]);
        let cli = command();
        for (flags, group, commands) in [
            (clients, None, &["check", "explain", "get", "release", "shell", "status", "top"][..]),
            (&["server", "admin_token_file"][..], Some("debug"), &["bundle"][..]),
            (operators, None, &["backup", "capacity", "transfer"]),
            (operators, Some("config"), &["plan", "apply", "diff", "show", "history", "rollback"]),
            (operators, Some("peers"), &["list", "add", "remove"]),
            (operators, Some("pool"), &["show", "set", "get", "clients", "watch", "load", "alarm"]),
        ] {
            let group = group.map_or(&cli, |group| cli.find_subcommand(group).expect(group));
            for command in commands {
                let command = group.find_subcommand(command).expect(command);
                for flag in flags.iter().chain(&CONNECT) {
                    let found = command.get_arguments().find(|argument| argument.get_id() == flag).expect(flag);
                    let variable = format!("LEASEWAY_{}", flag.to_uppercase());
                    assert_eq!(found.get_env(), Some(variable.as_ref()), "{}", command.get_name());
                }
            }
        }
    }
}
