//! Why a request was not answered.

use leaseway_core::types::escaped;

use super::addresses::PeerEndpoints;

/// This peer is not the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotMaster {
    /// The master, if it is known.
    pub(crate) master: Option<PeerEndpoints>,
}

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("this server is not the master{}", .0.master.as_ref().map_or_else(String::new, |master| format!(", {} is", master.grpc)))]
    NotMaster(NotMaster),
    /// Its principal has created its share of all resources.
    #[error(
        "you have as many resources as one identity or address may while others could need the rest of {0}; this server can be \
         started with a larger --max-resources or --address-share"
    )]
    ResourceShare(usize),
    /// Its principal has its share of the resource's queue.
    #[error(
        "as many requests for resource `{}` wait as may of one identity or address while others could need the rest; \
         ask again later, or start the server with a larger --max-queue or --address-share",
        escaped(.0)
    )]
    QueueShare(String),
    /// The resource's queue is full.
    #[error("resource `{}` has as many requests waiting as it may; ask again later", escaped(.0))]
    Busy(String),
    /// The limit of resources is reached.
    #[error("this server has as many resources as it may ({0}); it can be started with a larger --max-resources")]
    TooManyResources(usize),
    /// The resource failed repeatedly.
    #[error("resource `{}` failed while it worked on this request; ask again", escaped(.0))]
    Failed(String),
    #[error("this server is shutting down")]
    ShuttingDown,
}
