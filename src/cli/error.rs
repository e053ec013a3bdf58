//! The errors of commands: their messages, and their exit codes.

use std::{env, fmt, path::PathBuf, process::ExitCode, time::Duration};

use leaseway_client::{BadToken, TlsError};
use leaseway_core::types::readable as number;
use leaseway_gateway::{GatewayError, PriceFileError, RulesError};
use leaseway_server::ServeError;
use leaseway_server::config::{ConfigError, LoadError};
use tonic::Code;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error("{0}")]
    Backup(String),
    #[error("cannot read {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Prices(#[from] PriceFileError),
    #[error(transparent)]
    Config(#[from] LoadError),
    #[error("cannot reach a server at {address}: {why}{}", sentence(". ", origin.as_ref()))]
    Unreachable { address: String, why: String, origin: Option<AddressSource> },
    #[error(
        "no server answered within {} s. Last error of each:{tried}{}",
        number(spent.as_secs_f64().round()),
        sentence("\n", origin.as_ref())
    )]
    NoAnswer {
        spent: Duration,
        tried: String,
        /// At least one server is waiting for a master.
        electing: bool,
        origin: Option<AddressSource>,
    },
    #[error("{address} {what}")]
    WrongPort { address: String, what: String },
    #[error("{address} is not the master; it redirects to {master}")]
    NotMaster { address: String, master: String },
    #[error("{0}")]
    Flags(String),
    #[error(
        "no answer at the admin address {address}: {why}. Servers with --data have an admin address (127.0.0.1:5160 by \
         default), other servers only with --admin{}", sentence(". ", origin.as_ref())
    )]
    NoAdmin { address: String, why: String, origin: Option<AddressSource> },
    #[error(
        "the server at {address} does not have this service: either the server runs without --data, so it has no peers \
         and stores no configuration, or this is not its admin address (--admin)"
    )]
    NotAdmin { address: String },
    #[error(
        "the server at {address} does not accept the token: {why}. Pass the operator token file of the server with --admin-token-file"
    )]
    WrongToken { address: String, why: String },
    #[error("the server at {address} refused: {why}. `leaseway access test` explains the decision")]
    Denied { address: String, why: String },
    /// The reason has been printed.
    #[error("denied")]
    NotAllowed,
    #[error(transparent)]
    BadToken(#[from] BadToken),
    #[error(transparent)]
    TlsFiles(#[from] TlsError),
    #[error("no connection to {address}: {why}")]
    Tls { address: String, why: String },
    #[error("the server at {address} requires an identity: {why}; pass --tls-cert and --tls-key, or --token-file")]
    Unknown { address: String, why: String },
    #[error("the server at {address} is unavailable: {why}; `leaseway peers list` shows the peers")]
    NoMasterNow { address: String, why: String },
    /// The call may have been executed.
    #[error(
        "connection to {address} lost before the answer: {why}; the request may have taken effect, so check before you retry"
    )]
    CutOff { address: String, why: String },
    #[error("the server at {address} stores no configuration: {why}")]
    HasParent { address: String, why: String },
    #[error("the server at {address} refuses this configuration, and nothing has changed:\n{mistakes}")]
    ConfigRefused { address: String, mistakes: String },
    #[error(
        "this leaseway cannot read version {version} of the configuration, which is in force: {error}\n\
         If the server runs a newer leaseway, use that version"
    )]
    UnreadableVersion { version: u64, error: ConfigError },
    /// The file of `leaseway up` is invalid. Nothing was started.
    #[error(transparent)]
    NodeSet(ConfigError),
    #[error("unknown peer `{name}`; known: {known}")]
    NoSuchPeer { name: String, known: String },
    /// Nothing was started.
    #[error(
        "cannot listen on all addresses:{0}\nIs another `leaseway up` running? Stop it, or choose other ports in a file: `leaseway up --example`"
    )]
    Ports(String),
    /// Nothing was started or deleted.
    #[error(
        "{} was not created by `leaseway up`, so `leaseway up` neither uses nor deletes it; choose another directory \
         with --data", directory.display()
    )]
    NotOurs { directory: PathBuf },
    #[error("cannot write {}: {error}", path.display())]
    Data { path: PathBuf, error: std::io::Error },
    #[error("cannot remove {}: {error}", path.display())]
    Removal { path: PathBuf, error: std::io::Error },
    /// Nothing was written.
    #[error("{} already exists, and nothing was written; --force replaces it", path.display())]
    FileExists { path: PathBuf },
    /// Unexpected, because the input was validated before.
    #[error("cannot create the certificate: {0}")]
    NotMade(#[from] rcgen::Error),
    #[error("{0}")]
    Certificates(String),
    #[error("cannot start {label}: {error}")]
    Spawn { label: String, error: std::io::Error },
    #[error("{label} did not start ({how}): see its log above. All other peers have been stopped")]
    PeerDidNotStart { label: String, how: String },
    #[error("exited unexpectedly: {0}")]
    PeersFailed(String),
    /// The differences have been printed.
    #[error("there are differences")]
    Different,
    /// The checks have been printed.
    #[error("the cluster works, with warnings")]
    Warned,
    #[error("the cluster is unhealthy: clients may get less capacity than they should")]
    NotWell,
    #[error("input or output is not a terminal; in scripts use `leaseway check -o json`, `leaseway status -o json`")]
    NoTerminal,
    /// Nothing was sent.
    #[error("{} has mistakes, and nothing has changed:\n{mistakes}", file.display())]
    LimitsFile { file: PathBuf, mistakes: String },
    #[error("{error}\nThe first {done} limits of {} are set; fix the cause and import the file again", file.display())]
    ImportStopped { file: PathBuf, done: usize, error: Box<CliError> },
    #[error("{resource} has no limit of its own: `leaseway limits list` lists the resources that have one")]
    NoLimit { resource: String },
    #[error("there is no declaration `{name}`: `leaseway declarations list` lists all declarations")]
    NoDeclaration { name: String },
    /// The user answered no.
    #[error("nothing has changed")]
    Declined,
    /// Nothing was sent.
    #[error(
        "this needs your confirmation, but input or output is not a terminal, or the output is JSON: pass --yes to confirm. Nothing has changed"
    )]
    NotConfirmed,
    #[error("the cost of an alarm must be a number like 10000, not a percentage")]
    PartOfNothing,
    #[error("the server at {address} refused: {why} ({code:?})")]
    Refused { address: String, code: Code, why: String },
    #[error("{address} is not the master and knows no master: try again in a moment")]
    NoMaster { address: String },
    #[error(
        "no master found after {count} redirects, the last to {last}: try again in a moment; if it persists, check --advertise of the servers"
    )]
    TooManyRedirects { count: usize, last: String },
    #[error(
        "no new lease for `{resource}`: {client} asked a moment ago, and keeps its current lease. Ask again in a few \
         seconds"
    )]
    TooSoon { resource: String, client: String },
    #[error(
        "there is no resource `{0}` on this server: no client has asked this master for it. After a change of master, clients ask again within their refresh interval"
    )]
    NoSuchResource(String),
    #[error(
        "the server at {address} knows no client `{client}` of `{resource}`: the client has sent no request, or its \
         lease has expired. `leaseway status {resource}` lists the clients; if `{client}` is a child node, pass --node"
    )]
    NoSuchHolder { client: String, resource: String, address: String },
    #[error(
        "the server at {address} knows no budget `{resource}`: either its template is not `kind: BUDGET`, or no client has asked for it in this period"
    )]
    NoBudget { resource: String, address: String },
    #[error("the server at {address} has no data directory to keep usage in: start it with --data")]
    UsageNotKept { address: String },
    #[error(
        "the budget `{resource}` has no period that would end the change (`period: none`): edit its capacity in \
             the configuration instead"
    )]
    UnendingBudget { resource: String },
    #[error(
        "the master of `{resource}` has no admin address, or shows it only to callers that may read all resources: \
         start the master with --admin, or pass the --token-file of such a caller"
    )]
    NoAdminAddress { resource: String },
    /// What the client did hold was released.
    #[error(
        "`{client}` holds no lease on {resources}: the client has sent no request, its lease has expired, or its id is \
         different"
    )]
    NothingHeld { client: String, resources: String },
    #[error("{0}")]
    Client(String),
    #[error("there is no lease yet: {why}. The shell keeps trying; `show` lists the leases")]
    NotYet { why: String },
    /// The failures have been printed.
    #[error("some commands failed; their errors are above")]
    ShellFailed,
    #[error("cannot write the result: {0}")]
    Output(std::io::Error),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}

/// The source of addresses as a sentence.
fn sentence(before: &str, origin: Option<&AddressSource>) -> String {
    origin.map_or_else(String::new, |origin| format!("{before}{origin}"))
}

impl CliError {
    /// Adds the source of the addresses at which no server was reached.
    pub(crate) fn with_origin(mut self, of_addresses: AddressSource) -> CliError {
        if let CliError::Unreachable { origin, .. }
        | CliError::NoAdmin { origin, .. }
        | CliError::NoAnswer { origin, .. } = &mut self
        {
            origin.get_or_insert(of_addresses);
        }
        self
    }

    /// Codes of sysexits.h where one fits: scripts can tell a bad file from an unreachable server.
    pub(crate) fn exit_code(&self) -> ExitCode {
        /// Used by `leaseway check`.
        const WARNED: u8 = 3;
        const NOT_WELL: u8 = 4;
        /// As clap exits.
        const WRONG_COMMAND_LINE: u8 = 2;
        const EX_UNAVAILABLE: u8 = 69;
        const EX_NOPERM: u8 = 77;
        const EX_CONFIG: u8 = 78;
        match self {
            CliError::Warned => ExitCode::from(WARNED),
            CliError::NotWell => ExitCode::from(NOT_WELL),
            CliError::Flags(_) | CliError::NoTerminal | CliError::NotConfirmed => ExitCode::from(WRONG_COMMAND_LINE),
            CliError::Config(_) | CliError::ConfigRefused { .. } | CliError::NodeSet(_) => ExitCode::from(EX_CONFIG),
            CliError::Serve(error) if error.is_configuration() => ExitCode::from(EX_CONFIG),
            CliError::Gateway(error) if error.is_configuration() => ExitCode::from(EX_CONFIG),
            CliError::Rules(_) | CliError::Prices(_) => ExitCode::from(EX_CONFIG),
            CliError::Backup(_) | CliError::LimitsFile { .. } => ExitCode::from(EX_CONFIG),
            CliError::BadToken(_) | CliError::TlsFiles(_) => ExitCode::from(EX_CONFIG),
            CliError::Refused { code: Code::PermissionDenied, .. } => ExitCode::from(EX_NOPERM),
            CliError::WrongToken { .. } | CliError::Unknown { .. } => ExitCode::from(EX_NOPERM),
            CliError::Denied { .. } | CliError::NotAllowed => ExitCode::from(EX_NOPERM),
            CliError::Unreachable { .. }
            | CliError::Tls { .. }
            | CliError::NoAdmin { .. }
            | CliError::NoMaster { .. }
            | CliError::NoMasterNow { .. }
            | CliError::CutOff { .. }
            | CliError::NotMaster { .. }
            | CliError::NoAnswer { .. }
            | CliError::WrongPort { .. }
            | CliError::TooManyRedirects { .. } => ExitCode::from(EX_UNAVAILABLE),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether the message has several lines on purpose.
    pub(crate) fn has_lines(&self) -> bool {
        matches!(
            self,
            CliError::Config(_)
                | CliError::ConfigRefused { .. }
                | CliError::UnreadableVersion { .. }
                | CliError::NodeSet(_)
                | CliError::Ports(_)
                | CliError::Serve(_)
                | CliError::Gateway(_)
                | CliError::Rules(_)
                | CliError::LimitsFile { .. }
                | CliError::ImportStopped { .. }
                | CliError::NoAnswer { .. }
        )
    }

    /// The message for a list in which it follows the address.
    pub(crate) fn brief(&self) -> String {
        match self {
            CliError::Unreachable { why, .. } | CliError::NoAdmin { why, .. } => why.clone(),
            CliError::NoMaster { .. } => "not the master, and knows no master".to_owned(),
            CliError::NotMaster { master, .. } => format!("not the master; it redirects to {master}"),
            CliError::NoMasterNow { why, .. } | CliError::Tls { why, .. } => why.clone(),
            CliError::CutOff { why, .. } => format!("connection lost before the answer: {why}"),
            CliError::Refused { why, code, .. } => format!("{why} ({code:?})"),
            other => other.to_string(),
        }
    }

    /// Whether there may soon be a master.
    pub(crate) fn awaits_master(&self) -> bool {
        match self {
            CliError::NoMaster { .. } | CliError::NoMasterNow { .. } | CliError::NotMaster { .. } => true,
            CliError::NoAnswer { electing, .. } => *electing,
            _ => false,
        }
    }
}

/// The listener of a node that a command calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Clients,
    Operators,
}

impl Port {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Port::Clients => "--server",
            Port::Operators => "--admin",
        }
    }

    pub(crate) fn variable(self) -> &'static str {
        match self {
            Port::Clients => "LEASEWAY_SERVER",
            Port::Operators => "LEASEWAY_ADMIN",
        }
    }

    pub(crate) fn default_address(self) -> &'static str {
        match self {
            Port::Clients => "127.0.0.1:5100",
            Port::Operators => "127.0.0.1:5160",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// A flag, or a redirect.
    Given(Port),
    Variable(Port),
    /// The run file of `leaseway up`.
    Up {
        process: u32,
        file: PathBuf,
    },
    /// Nothing else is known. `ended`: the process ID of a killed `leaseway up` that served there.
    Default {
        port: Port,
        ended: Option<u32>,
    },
}

impl fmt::Display for AddressSource {
    /// A sentence for an error. It must not advise to start a server in place of peers that are down: that could grant
    /// the same capacity twice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressSource::Given(port) => write!(f, "{} takes several addresses, separated by commas", port.flag()),
            AddressSource::Variable(port) => {
                write!(f, "The address is from {}; {} overrides it", port.variable(), port.flag())
            }
            AddressSource::Up { process, file } => {
                write!(f, "The addresses are those of `leaseway up` (process {process}), read from {}", file.display())
            }
            AddressSource::Default { port, ended: Some(process) } => write!(
                f,
                "This is the default address. `leaseway up` (process {process}) served there and was killed; run it again \
                 in the same directory to keep its state. {} sets other addresses",
                port.flag()
            ),
            AddressSource::Default { port, ended: None } => write!(
                f,
                "This is the default address; {} or {} sets other addresses, separated by commas. `leaseway --help` \
                 has examples",
                port.flag(),
                port.variable()
            ),
        }
    }
}

impl AddressSource {
    /// The source of addresses that a command was given.
    pub(crate) fn of_given(port: Port) -> AddressSource {
        let is_flag =
            |word: String| word.strip_prefix(port.flag()).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        let by_flag = env::args_os().any(|word| word.into_string().is_ok_and(is_flag));
        let is_set = env::var_os(port.variable()).is_some_and(|value| !value.is_empty());
        if is_set && !by_flag { AddressSource::Variable(port) } else { AddressSource::Given(port) }
    }
}
