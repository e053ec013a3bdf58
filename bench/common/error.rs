//! Errors of a command, for the person who ran it. Errors of measured requests are not among them: they are counted as
//! results.

use std::{io, net::SocketAddr};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot reach {target}: {reason} — is the server running?")]
    Unreachable { target: SocketAddr, reason: String },

    #[error("{target} answers, but not as a Doorman server: {reason}")]
    NotDoorman { target: SocketAddr, reason: String },

    #[error("{target} is not the master; {master}")]
    NotMaster { target: SocketAddr, master: String },

    #[error(
        "{leased} of {clients} clients have a lease and no more came in {patience} s: does --resource-prefix match the \
         server's configuration, and does it allow that many clients?"
    )]
    Unfilled { leased: u64, clients: u64, patience: u64 },

    #[error("{0}")]
    Usage(String),

    #[error("cannot start `{command}`: {source}")]
    Spawn { command: String, source: io::Error },

    #[error("`{command}` {what}{said}")]
    Server { command: String, what: String, said: String },

    #[error("cannot read /proc/{pid}: {reason} — is {pid} the server's process id, and is it still running?")]
    Proc { pid: u32, reason: String },

    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },

    #[error("{runs} runs broke a promise; the commands above repeat them")]
    Broken { runs: usize },

    #[cfg(feature = "planted")]
    #[error("{faults} faults were not found; try more --seeds")]
    NotFound { faults: usize },

    #[error("{rule} was not found by {seeds} seeds; try more --seeds, or a longer --for")]
    Unnoticed { rule: String, seeds: u64 },

    #[error("{attacks} attacks did harm: well-behaved requests failed, or memory passed its budget")]
    Harmed { attacks: usize },

    #[error("{failed} of {cases} cases failed: docs/reference/client-protocol.md tells the rules")]
    NotConforming { failed: usize, cases: usize },

    #[error("interrupted; the unfinished measurement was discarded")]
    Interrupted,
}

impl Error {
    /// For `map_err`: uses the text of the error.
    pub(crate) fn usage(error: impl std::fmt::Display) -> Error {
        Error::Usage(error.to_string())
    }

    /// For `map_err`: the resource usage of a process cannot be read.
    pub(crate) fn process(pid: u32) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Proc { pid, reason: source.to_string() }
    }

    /// For `map_err`: "cannot `what`: …".
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
