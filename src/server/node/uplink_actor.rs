//! The uplink of a node with a parent: keeps what the parent lends, for as long as this peer is master.
//!
//! The machine that decides ([`UplinkEngine`](leaseway_uplink::UplinkEngine)) is owned by an actor that does
//! nothing else ([`actor`]). Time, the network and the resources are outside, in one task: the request driver that
//! clients have as well, with an [`asker`] that tells the actor what has happened, and does what it says. So no timer
//! runs in the actor, none of its messages waits for anything, and a slow parent delays nothing here. Notices of
//! resources come by a list ([`notices`]): a full mailbox must not lose the first request of a resource.
//!
//! Both belong to one reign. When either fails, the node builds both anew, and they forget the leases of the node
//! (rule 7): the resources keep theirs until they end, and what the parent is told comes from the resources.

mod actor;
mod asker;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use leaseway_client::transport::Token;
use leaseway_core::NodeInstance;
use leaseway_tls::ClientTls;
use tokio::task::JoinHandle;

pub(crate) use self::report::UplinkReport;
pub(super) use self::report::UplinkStatus;
use super::{directory::Directory, notices::Notices};
use crate::runtime::clock::Clock;

/// Where the capacity of a node comes from.
#[derive(Debug, Clone)]
pub(crate) struct Parent {
    /// What this node is called there: the same for all its peers.
    pub(crate) node: Arc<str>,
    /// Peers of the parent, as `host:port`.
    pub(crate) addresses: Vec<Arc<str>>,
    /// How it is reached, if over TLS.
    pub(crate) tls: Option<ClientTls>,
    /// What this node proves itself by there, besides its certificate.
    pub(crate) token: Option<Token>,
}

/// What an uplink has to do with.
#[derive(Clone)]
pub(super) struct UplinkContext {
    pub(super) parent: Parent,
    /// Which of all nodes of its name this is, and under which master.
    pub(super) instance: NodeInstance,
    pub(super) directory: Directory,
    pub(super) notices: Arc<Notices>,
    pub(super) status: UplinkStatus,
    pub(super) clock: Clock,
    pub(super) seed: u64,
}

/// The uplink of one reign. Ends when it is dropped.
pub(super) struct UplinkTask(JoinHandle<()>);

impl UplinkTask {
    /// Whether it has ended by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for UplinkTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts an uplink on the current arbiter.
pub(super) fn start(context: UplinkContext) -> UplinkTask {
    UplinkTask(actix_rt::spawn(asker::driver(context).run()))
}
