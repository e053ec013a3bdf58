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
    /// The principal has used up its share of all resources.
    #[error(
        "your identity or address has too many resources at this server: each may use only a share of {0}; raise the \
         server's --max-resources or --address-share"
    )]
    ResourceShare(usize),
    /// The principal has used up its share of the resource's queue.
    #[error(
        "too many requests of your identity or address wait for resource `{}`: try again later, or raise the server's --max-queue or --address-share",
        escaped(.0)
    )]
    QueueShare(String),
    /// The resource's queue is full.
    #[error("too many requests wait for resource `{}`: try again later, or raise the server's --max-queue", escaped(.0))]
    Busy(String),
    /// The limit of resources is reached.
    #[error("too many resources on this server (limit {0}): raise its --max-resources")]
    TooManyResources(usize),
    /// The resource failed repeatedly.
    #[error("resource `{}` failed while it handled this request; try again", escaped(.0))]
    Failed(String),
    #[error("this server is shutting down")]
    ShuttingDown,
}
