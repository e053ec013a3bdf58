//! The `leaseway` binary: servers, gateways, and the commands of clients and operators.

mod client;
mod connect;
mod error;
mod inspect;
mod operate;
mod output;
mod run;
mod setup;

use std::{ffi::OsString, process::ExitCode};

use clap::{Arg, ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use error::CliError;
use run::gateway::ratelimit_env::{self, Expanded};

/// A request allocates sixteen blocks of memory, most of them in hyper and h2. mimalloc uses less CPU than glibc's
/// allocator for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Share rate limits and other capacities fairly between clients, as short leases
#[derive(Parser)]
#[command(name = "leaseway", version, max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  leaseway up                           start three peers on this machine; each resource has a capacity of 100
  leaseway get alice mysql 40           in another terminal: request 40 of `mysql` for alice
  leaseway get bob mysql 1000           request more than the capacity; bob gets what is left
  leaseway status mysql                 show who holds what
  leaseway explain bob mysql            explain bob's lease
  leaseway check                        check the cluster's health
  leaseway shell                        run several clients interactively
  leaseway up --tls                     start three peers with TLS and generated certificates
  leaseway serve                        start one server without persistent state, for development

Flags of serve and gateway, and connection flags of other commands, can be set by environment variables: LEASEWAY_LISTEN
sets --listen. A flag on the command line takes precedence.
The server speaks the Doorman protocol, so Doorman's Go clients work unchanged.";

#[derive(Subcommand)]
enum Command {
    /// Run a server. It reloads changed certificates and tokens, also on SIGHUP
    Serve(Box<run::serve::Serve>),
    /// Run a gateway for HTTP callers and Envoy
    Gateway(Box<run::gateway::RunGateway>),
    /// Run a cluster on this machine. Three peers by default, each in its own process
    Up(run::up::Up),
    /// Check, plan and apply configurations
    #[command(subcommand)]
    Config(operate::config::ConfigCommand),
    /// Test what the access policy allows
    #[command(subcommand)]
    Access(operate::access::AccessCommand),
    /// Create authentication tokens
    #[command(subcommand)]
    Token(setup::token::TokenCommand),
    /// List, add and remove peers, the replicas of a server
    #[command(subcommand)]
    Peers(operate::peers::PeersCommand),
    /// Make another peer the master
    Transfer(Box<operate::peers::Transfer>),
    /// Back up the state that the peers store: configuration, limits, overrides and pools, but no leases
    Backup(Box<operate::backup::MakeBackup>),
    /// Restore a backup into an empty data directory
    Restore(operate::backup::Restore),
    /// Set capacities of single resources, such as one per tenant, user or key
    #[command(subcommand, after_help = operate::limits::EXAMPLES)]
    Limits(operate::limits::LimitsCommand),
    /// Show and delete the limits that gateways declare
    #[command(subcommand)]
    Declarations(operate::declarations::DeclarationsCommand),
    /// Override a capacity or group rule for a limited time. Without arguments, lists the overrides
    Capacity(Box<operate::capacity::Capacity>),
    /// Manage priority pools (PRIORITY_POOL), which guarantee capacity to chosen clients
    #[command(subcommand, after_help = operate::pool::EXAMPLES)]
    Pool(operate::pool::PoolCommand),
    /// Create a private CA and certificates for TLS
    #[command(subcommand, after_help = setup::certs::EXAMPLES)]
    Certs(setup::certs::CertsCommand),
    /// Ask for capacity once. Prints the lease
    Get(client::ask::Get),
    /// Release leases of a client
    Release(client::ask::Release),
    /// Run several clients interactively. Reads commands from the terminal or standard input
    Shell(client::shell::Shell),
    /// Show a server, or a resource and its holders
    Status(inspect::status::ShowStatus),
    /// Diagnose a cluster. Suggests fixes
    Check(inspect::check::Check),
    /// Show and change budgets, which limit use per period (resources of kind BUDGET)
    #[command(subcommand)]
    Budget(inspect::budget::BudgetCommand),
    /// Export what each client has spent of budgets
    #[command(subcommand)]
    Usage(inspect::usage::UsageCommand),
    /// Monitor a cluster in the terminal
    Top(Box<inspect::top::Top>),
    /// Collect a support bundle
    #[command(subcommand)]
    Debug(inspect::debug::DebugCommand),
    /// Explain why a client has its lease, and when it will change
    Explain(inspect::explain::Explain),
    /// Generate shell completions
    Completions(setup::manual::Completions),
    /// Write manual pages. There is one for each command
    Man(setup::manual::Man),
}

/// The command line. Every flag of `serve` and `gateway` can also be set by an environment variable.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "serve" => with_two_helps(command.mut_args(with_variable), SERVE_FLAGS),
        "gateway" => with_two_helps(command.mut_args(with_variable), GATEWAY_FLAGS),
        _ => command,
    })
}

/// The flags of `serve --help`.
const SERVE_FLAGS: &[&str] = &[
    "listen",
    "http",
    "config",
    "id",
    "advertise",
    "data",
    "peers",
    "peer_secret_file",
    "bootstrap",
    "parent",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "gateway_http",
    "gateway_rls",
];

/// The flags of `gateway --help`.
const GATEWAY_FLAGS: &[&str] = &[
    "gateway_http",
    "gateway_rls",
    "gateway_rlqs",
    "server",
    "ratelimit_config",
    "rls_xds",
    "declare",
    "window",
    "without_lease",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "token_file",
];

/// `--help` shows `common` flags, `--help-all` shows all.
fn with_two_helps(command: clap::Command, common: &[&str]) -> clap::Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help_heading("Help");
    let help_all = Arg::new("help_all").long("help-all").action(ArgAction::HelpLong).help_heading("Help");
    command
        .mut_args(|flag| if common.contains(&flag.get_id().as_str()) { flag } else { flag.hide_short_help(true) })
        .disable_help_flag(true)
        .arg(help.help("Print help with the common flags"))
        .arg(help_all.help("Print help with all flags"))
}

/// Adds the environment variable `LEASEWAY_SOME_FLAG` to `--some-flag`.
fn with_variable(flag: Arg) -> Arg {
    let Some(name) = flag.get_long() else { return flag };
    let variable = format!("LEASEWAY_{}", name.replace('-', "_").to_uppercase());
    // clap takes static names; the command line is built a few times at most.
    flag.env(&*variable.leak())
}

/// The words of the command line, with flags for the variables of envoyproxy/ratelimit if they are to be taken over.
fn words() -> Vec<OsString> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let variables = std::env::vars_os().filter_map(text).collect();
    match ratelimit_env::expand(std::env::args_os().collect(), &variables) {
        Ok(Expanded { arguments, without_effect }) => {
            if !without_effect.is_empty() {
                output::note(format_args!(
                    "--ratelimit-env: these variables have no effect on a gateway: {}",
                    without_effect.join(", ")
                ));
            }
            arguments
        }
        Err(error) => command().error(clap::error::ErrorKind::InvalidValue, error).exit(),
    }
}

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches_from(words()));
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
        Command::Limits(command) => command.run(),
        Command::Declarations(command) => command.run(),
        Command::Capacity(capacity) => capacity.run(),
        Command::Pool(command) => command.run(),
        Command::Config(command) => command.run(),
        Command::Certs(command) => command.run(),
        Command::Get(get) => get.run(),
        Command::Release(release) => release.run(),
        Command::Shell(shell) => shell.run(),
        Command::Status(status) => status.run(),
        Command::Budget(command) => command.run(),
        Command::Usage(command) => command.run(),
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
    fn the_common_flags_of_serve_and_gateway_exist() {
        for (name, common) in [("serve", SERVE_FLAGS), ("gateway", GATEWAY_FLAGS)] {
            let cli = command();
            let command = cli.find_subcommand(name).expect(name);
            let shown = command.get_arguments().filter(|flag| !flag.is_hide_short_help_set());
            assert_eq!(shown.count(), common.len() + 2, "{name}: the common flags and both helps");
        }
    }

    #[test]
    fn every_connection_flag_has_an_environment_variable() {
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
            (operators, Some("declarations"), &["list", "show", "delete"]),
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
