//! Errors of the client.
//!
//! An unreachable server is not among them: the session retries, and [`Health`](crate::Health) shows it.

use crate::transport::{endpoint::BadEndpoint, quoted};
use leaseway_tls::TlsError;

/// The client could not be created. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No endpoint was given.
    #[error("no endpoint: pass at least one server of the node, as HOST:PORT")]
    NoEndpoint,
    /// An endpoint is invalid.
    #[error(transparent)]
    BadEndpoint(#[from] BadEndpoint),
    /// TLS could not be set up, for example because `https://` needs the CAs of the system and there are none.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS or a token was set on the client as well as on its shared transport.
    #[error("this client shares a transport: set TLS and the token on the transport, not on the client")]
    SharedTransport,
    /// The token would be sent unencrypted to this server.
    #[error("refusing to send the token to {0} without TLS: use TLS")]
    TokenInTheClear(String),
    /// The id of the client is invalid.
    #[error("the client's id {0}")]
    BadId(BadId),
    /// There is no tokio runtime to spawn the client's task on.
    #[error("no tokio runtime: build the client inside one, or use `build_blocking`")]
    NoRuntime,
    /// The thread of a blocking client could not be started.
    #[error("the client's thread could not be started: {0}")]
    NoThread(String),
}

/// A resource could not be opened. Other resources stay open.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The id of the resource is invalid.
    #[error("the resource's id {0}")]
    BadId(BadId),
    /// Wants have to be finite and not negative.
    #[error("invalid wants {0}: expected a number from 0 to {MAX_WANTS:e}")]
    BadWants(f64),
    /// The resource is open as another kind. All handles of a resource have the same kind.
    #[error(
        "resource `{}` is already open as a {is}: it cannot also be opened as a {asked}",
        leaseway_core::types::escaped(id)
    )]
    OtherKind {
        /// The resource.
        id: String,
        /// The kind that it is open as.
        is: &'static str,
        /// The kind that was asked for.
        asked: &'static str,
    },
    /// The resource is open with another value of this option. All handles of a resource share its options.
    #[error(
        "resource `{}` is already open with another `{option}`: use the same value in each place that opens it, or leave it out",
        leaseway_core::types::escaped(id)
    )]
    OtherOption {
        /// The resource.
        id: String,
        /// The option.
        option: &'static str,
    },
    /// Wants cannot be estimated without a limiter.
    #[error("the wants of `{0}` cannot be estimated without a limiter: set them with `.wants(…)`")]
    NoWants(String),
    /// Backends of [`Balanced`](crate::Balanced) need fixed wants: one without a lease gets no operations, so its wants
    /// would be estimated as 0 forever.
    #[error(
        "the wants of `{0}` cannot be estimated, because a backend gets no operations before it has a lease: set the \
         wants with `.wants(…)`"
    )]
    EstimatedWants(String),
    /// Usage of a resource with a limiter is counted by the limiter.
    #[error(
        "resource `{0}` has a limiter, which already counts usage: call `report_use` only for resources opened with \
         `open`"
    )]
    HasLimiter(String),
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

/// Some resources have no lease yet. The client keeps trying.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no lease yet for {}: {why}", named(.resources))]
pub struct NotReady {
    /// The resources without a lease. Empty if the client was closed before.
    pub resources: Vec<String>,
    /// The error of the last failed request, or a note that no request has failed.
    pub why: String,
}

/// The first of these resources, and the number of the others.
pub(crate) fn named(resources: &[impl AsRef<str>]) -> String {
    let named: Vec<_> = resources.iter().take(MAX_NAMED).map(|id| format!("`{}`", quoted(id.as_ref()))).collect();
    let more = resources.len().saturating_sub(MAX_NAMED);
    if named.is_empty() {
        return "any resource".to_owned();
    }
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// Maximum number of resources named in an error.
const MAX_NAMED: usize = 5;

/// Why an id is invalid. Servers have the same limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// It is empty.
    #[error("is empty")]
    Empty,
    /// It is longer than servers accept.
    #[error("is {0} bytes long; at most {MAX_ID_BYTES} are allowed")]
    TooLong(usize),
}

/// Servers reject longer ids.
const MAX_ID_BYTES: usize = 256;
/// Servers reject larger wants.
pub(crate) const MAX_WANTS: f64 = 1e15;

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
