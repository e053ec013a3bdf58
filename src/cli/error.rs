//! What can go wrong on the command line, and what to do next.

use std::process::ExitCode;

use leaseway_server::{ServeError, config::LoadError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Config(#[from] LoadError),
    #[error(
        "cannot reach a server at {address}: {why}. Is one running there? `leaseway serve` starts one; --server says where to look"
    )]
    Unreachable { address: String, why: String },
    #[error("{address} is not an address: {why}. Write host:port, like 127.0.0.1:5100")]
    BadAddress { address: String, why: String },
    #[error("the server at {address} refused: {why}")]
    Refused { address: String, why: String },
    #[error("{address} is not the master and does not know who is; ask again in a moment")]
    NoMaster { address: String },
    #[error("followed {count} redirects and found no master; the last said it is {last}")]
    TooManyRedirects { count: usize, last: String },
    #[error(
        "the server gave no lease for `{resource}`: {client} asked only just before, and still has what it got then"
    )]
    TooSoon { resource: String, client: String },
    #[error("no resource `{0}` is alive on this server; one comes to life when somebody asks for it")]
    NoSuchResource(String),
    #[error("{0}")]
    Client(String),
    #[error("there is no lease yet: {why}. It goes on trying; `show` tells when there is one")]
    NotYet { why: String },
    /// Each command that failed has been complained about.
    #[error("some commands failed")]
    ShellFailed,
    #[error("cannot write the result: {0}")]
    Output(std::io::Error),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}

impl CliError {
    /// As sysexits.h has them where it has one: scripts can tell a bad file from a server that is away.
    pub(crate) fn exit_code(&self) -> ExitCode {
        const EX_UNAVAILABLE: u8 = 69;
        const EX_CONFIG: u8 = 78;
        match self {
            CliError::Config(_) | CliError::Serve(ServeError::Config(_)) => ExitCode::from(EX_CONFIG),
            CliError::Unreachable { .. } | CliError::NoMaster { .. } | CliError::TooManyRedirects { .. } => {
                ExitCode::from(EX_UNAVAILABLE)
            }
            _ => ExitCode::FAILURE,
        }
    }
}
