//! Why a request got no answer.

use leaseway_core::escaped;

use super::super::directory::NotMaster;

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Another peer has to be asked.
    #[error("this server is not the master{}", .0.master.as_ref().map_or_else(String::new, |master| format!(", {} is", master.grpc)))]
    NotMaster(NotMaster),
    /// The resources that came to life for its principal are its share of all.
    #[error(
        "you have as many resources as one identity or address may while others could need the rest of {0}; this server can be \
         started with a larger --max-resources or --address-share"
    )]
    ResourceShare(usize),
    /// Its principal has its share of the queue.
    #[error(
        "as many requests for resource `{}` wait as may of one identity or address while others could need the rest; \
         ask again later, or start the server with a larger --max-queue or --address-share",
        escaped(.0)
    )]
    QueueShare(String),
    /// Its queue is full.
    #[error("resource `{}` has as many requests waiting as it may; ask again later", escaped(.0))]
    Busy(String),
    /// The node has as many resources as it may.
    #[error("this server has as many resources as it may ({0}); it can be started with a larger --max-resources")]
    TooManyResources(usize),
    /// The resource failed while it worked on this request, more than once.
    #[error("resource `{}` failed while it worked on this request; ask again", escaped(.0))]
    Failed(String),
    /// The server is on its way out.
    #[error("this server is shutting down")]
    ShuttingDown,
}
