//! The uplink of a node with a parent: keeps what the parent lends, for as long as this peer is master.
//!
//! The machine that decides ([`UplinkEngine`](leaseway_engine::uplink::UplinkEngine)) is owned by an actor that does
//! nothing else ([`actor`]). Time, the network and the resources are outside, in one task: the request driver that
//! clients have as well, with an [`asker`] that tells the actor what has happened, and does what it says. So no timer
//! runs in the actor, none of its messages waits for anything, and a slow parent delays nothing here. Notices of
//! resources come by a list ([`notices`]): a full mailbox must not lose the first request of a resource.
//!
//! Both belong to one reign. When either fails, both are built anew and forget the leases of the node (rule 7): the
//! resources keep theirs until they end, and what the parent is told comes from the resources.

mod actor;
mod asker;
mod notices;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

pub use self::report::UplinkReport;
pub(super) use leaseway_engine::uplink::Notice;

pub(super) use self::{notices::Notices, report::Board};
use super::node::Directory;
use crate::{clock::Clock, metrics};

/// Where the capacity of a node comes from.
#[derive(Debug, Clone)]
pub struct Parent {
    /// What this node is called there: the same for all its peers.
    pub node: Arc<str>,
    /// Peers of the parent, as `host:port`.
    pub addresses: Vec<Arc<str>>,
}

/// What an uplink has to do with.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) parent: Parent,
    pub(super) directory: Directory,
    pub(super) notices: Arc<Notices>,
    pub(super) board: Board,
    pub(super) clock: Clock,
    pub(super) seed: u64,
}

/// The uplink of one reign. Ends when it is dropped.
pub(super) struct Reigning(#[expect(dead_code, reason = "held, so that its task goes on")] JoinSet<()>);

/// An uplink that has failed is built anew after so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts an uplink on the current arbiter.
pub(super) fn start(context: Surroundings) -> Reigning {
    let mut tasks = JoinSet::new();
    tasks.spawn_local(supervise(context));
    Reigning(tasks)
}

async fn supervise(context: Surroundings) {
    loop {
        // Aborted with this one.
        let mut life = JoinSet::new();
        life.spawn_local(asker::driver(context.clone()).run());
        let _ = life.join_next().await;
        metrics::uplink_restarted();
        tracing::error!(parent = ?context.parent.addresses, "the uplink failed; it is built anew");
        tokio::time::sleep(PAUSE).await;
    }
}
