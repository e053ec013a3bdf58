//! What can go wrong, whose fault it is, and what state is left.
//!
//! Servers that are away are not here: the session copes with them, and says so in [`Health`](crate::Health).

use crate::transport::endpoint::BadEndpoint;
use leaseway_tls::TlsError;

/// A client could not be made. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no server to ask.
    #[error("no endpoint: name at least one server of the node, as HOST:PORT")]
    NoEndpoint,
    /// An endpoint is not an address.
    #[error(transparent)]
    BadEndpoint(#[from] BadEndpoint),
    /// An endpoint begins with `https://`, and the system has no CAs to check its certificate with.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What connections are made with is said twice.
    #[error(
        "a transport that is shared says itself whether there is TLS and a token: give it both, and not the client"
    )]
    SharedTransport,
    /// The id of the client.
    #[error("the client's id {0}")]
    BadId(BadId),
    /// The client keeps its leases in a task of its own.
    #[error("not within a tokio runtime: build the client inside one, or use `build_blocking`")]
    NoRuntime,
    /// The blocking client could not start its thread.
    #[error("the client's thread could not be started: {0}")]
    NoThread(String),
}

/// A resource could not be opened. Everything that was open stays so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The id of the resource.
    #[error("the resource's id {0}")]
    BadId(BadId),
    /// Wants must be a finite number, not below zero.
    #[error("wants of {0} make no sense: they must be a finite number from 0 to {MAX_WANTS:e}")]
    BadWants(f64),
    /// One resource is either a rate, or a gauge, or neither, for all its handles.
    #[error(
        "resource `{}` is open already, as a {is}; the same resource cannot be a {asked} as well",
        leaseway_core::escaped(id)
    )]
    OtherKind {
        /// Which.
        id: String,
        /// What it is.
        is: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
    /// Without a limiter nothing can be estimated.
    #[error("resource `{0}` has no limiter to estimate its wants from: say `.wants(…)`")]
    NoWants(String),
    /// What passes a limiter is counted there.
    #[error(
        "resource `{0}` has a limiter, which counts what is used: `report_use` is for resources opened with `open`"
    )]
    HasLimiter(String),
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

/// Some resources have no lease yet. They go on trying.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no lease yet for {}: {why}", named(.resources))]
pub struct NotReady {
    /// Which.
    pub resources: Vec<String>,
    /// Why the last request failed, or that none did.
    pub why: String,
}

fn named(resources: &[String]) -> String {
    let named: Vec<_> = resources.iter().take(MAX_NAMED).map(|id| format!("`{id}`")).collect();
    let more = resources.len().saturating_sub(MAX_NAMED);
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// Of more resources an error does not say which.
const MAX_NAMED: usize = 5;

/// Why an id is refused. Servers have the same bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// It names nothing.
    #[error("is empty")]
    Empty,
    /// It has more bytes than servers take.
    #[error("is {0} bytes long; at most {MAX_ID_BYTES} are allowed")]
    TooLong(usize),
}

/// As the servers have it.
const MAX_ID_BYTES: usize = 256;
/// As the servers have it.
const MAX_WANTS: f64 = 1e15;

pub(crate) fn check_id(id: &str) -> Result<(), BadId> {
    match id.len() {
        0 => Err(BadId::Empty),
        length if length > MAX_ID_BYTES => Err(BadId::TooLong(length)),
        _ => Ok(()),
    }
}

pub(crate) fn check_wants(wants: f64) -> Result<f64, OpenError> {
    if (0.0..=MAX_WANTS).contains(&wants) { Ok(wants) } else { Err(OpenError::BadWants(wants)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_are_finite_and_not_negative() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e16] {
            assert!(check_wants(bad).is_err(), "{bad}");
        }
        assert!(check_wants(0.0).is_ok());
    }

    #[test]
    fn ids_are_neither_empty_nor_endless() {
        assert_eq!(check_id(""), Err(BadId::Empty));
        assert_eq!(check_id(&"x".repeat(257)), Err(BadId::TooLong(257)));
        assert!(check_id(&"x".repeat(256)).is_ok());
    }
}
