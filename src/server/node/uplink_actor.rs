//! The actor of the uplink, which keeps the leases of the parent while this peer is master.
//!
//! [`UplinkActor`] owns the [engine](UplinkEngine) and does nothing else. A task outside, the [`parent_client`],
//! handles time, the network and the resources. It is run by the same request driver as clients, sends the actor its
//! inputs, and carries out the effects. So the actor has no timers, never waits, and is not delayed by a slow parent.
//! Notices of resources come through a [list](super::resource_actor::uplink_notices), because a full mailbox must not
//! lose the first request of a resource.
//!
//! Actor and task belong to one term of the master. If either fails, the node restarts both without leases (rule 7):
//! the resources keep theirs until they expire, and the new uplink reports their demand to the parent.

mod parent_client;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use actix::{Actor, Addr, Context, Handler, Message, MessageResult};
use leaseway_client::transport::Token;
use leaseway_core::{policy::settings::Settings, resource::NodeInstance, types::Millis};
use leaseway_tls::ClientTls;
use leaseway_uplink::{UplinkEffects, UplinkEngine, UplinkInput};
use tokio::{sync::watch, task::JoinHandle};

use super::{resource_actor::uplink_notices::UplinkNotices, resource_directory::Directory};
use crate::runtime::clock::Clock;

/// The capacity of the mailbox. Only the parent client sends, one message after the other.
const MAILBOX: usize = 4;

struct UplinkActor {
    engine: UplinkEngine,
}

impl UplinkActor {
    fn start(engine: UplinkEngine) -> Addr<UplinkActor> {
        UplinkActor::create(|ctx: &mut Context<UplinkActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            UplinkActor { engine }
        })
    }
}

impl Actor for UplinkActor {
    type Context = Context<Self>;
}

/// Applies all inputs since the last run.
struct Run {
    now: Millis,
    inputs: Vec<UplinkInput>,
}

impl Message for Run {
    type Result = UplinkEffects;
}

impl Handler<Run> for UplinkActor {
    type Result = MessageResult<Run>;

    fn handle(&mut self, run: Run, _: &mut Context<Self>) -> MessageResult<Run> {
        #[cfg(test)]
        assert!(!tests::panics(&run.inputs), "a planted fault");
        MessageResult(self.engine.run(run.now, run.inputs))
    }
}

/// The parent of a node.
#[derive(Debug, Clone)]
pub(crate) struct Parent {
    /// The name of this node at the parent: the same for all its peers.
    pub(crate) node: Arc<str>,
    /// Peers of the parent, as `host:port`.
    pub(crate) addresses: Vec<Arc<str>>,
    /// `None` for connections in plain text.
    pub(crate) tls: Option<ClientTls>,
    /// Authenticates this node, besides its certificate.
    pub(crate) token: Option<Token>,
}

/// The dependencies of an uplink.
#[derive(Clone)]
pub(super) struct UplinkContext {
    pub(super) parent: Parent,
    /// Distinguishes this node and the term of its master from others with its name.
    pub(super) instance: NodeInstance,
    pub(super) directory: Directory,
    pub(super) notices: Arc<UplinkNotices>,
    pub(super) status: UplinkStatus,
    pub(super) clock: Clock,
    pub(super) seed: u64,
}

/// A running uplink, which ends when this is dropped.
pub(super) struct UplinkTask(JoinHandle<()>);

impl UplinkTask {
    /// Whether the task has ended by itself, which is a failure.
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
    UplinkTask(actix_rt::spawn(parent_client::driver(context).run()))
}

/// The state of the uplink. Times are those of the server's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UplinkReport {
    /// The server that is asked: the parent's master, as far as known.
    pub(crate) master: Arc<str>,
    /// When the uplink started.
    pub(crate) since: Millis,
    /// When the parent's master last answered.
    pub(crate) answered: Option<Millis>,
    /// The number of failed requests since its last answer.
    pub(crate) failures: u32,
    /// The last failure, which a later answer does not clear.
    pub(crate) last_error: Option<String>,
    /// The page of the parent's master, if it reports one.
    pub(crate) page: Option<String>,
    /// The number of resources with leases.
    pub(crate) resources: usize,
}

/// The report of the running uplink. `None` unless this peer is master. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct UplinkStatus {
    report: Arc<watch::Sender<Option<UplinkReport>>>,
    /// The longest lease that this node grants under the settings received so far, in milliseconds.
    longest: Arc<AtomicU64>,
}

impl Default for UplinkStatus {
    fn default() -> UplinkStatus {
        UplinkStatus { report: Arc::new(watch::Sender::new(None)), longest: Arc::default() }
    }
}

impl UplinkStatus {
    pub(crate) fn read(&self) -> Option<UplinkReport> {
        self.report.borrow().clone()
    }

    pub(crate) fn wipe(&self) {
        self.report.send_replace(None);
    }

    pub(crate) fn longest(&self) -> Millis {
        Millis(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn note_settings(&self, settings: &Settings) {
        self.longest.fetch_max(settings.last_lease_over(Millis(0)).0, Ordering::Relaxed);
    }

    pub(super) fn write(&self, change: impl FnOnce(&mut UplinkReport)) {
        self.report.send_modify(|report| change(report.get_or_insert_default()));
    }
}
