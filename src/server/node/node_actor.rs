//! The actor of this process as a peer of its node: its role, the directory of resources, and the configuration in
//! force. It supervises the resources and the uplink. Requests for active resources do not pass through it: the
//! [directory](super::resource_directory) is shared with the handles.

mod mastership;
mod raft_state;
mod resources;

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use actix::{Actor, Addr, ArbiterHandle, AsyncContext as _, Context, Handler, Message, ResponseFuture};
use futures_util::future::join_all;
use leaseway_core::{
    policy::{access::Policy, overrides::Overrides, settings::Settings, template::Repository},
    resource::NodeInstance,
    types::Millis,
};
use leaseway_raft::{Mastership, Overriding, RaftHandle};
use tokio::sync::watch;

use super::{
    config_in_force::{ConfigInForce, limit_of},
    request_error::RequestError,
    resource_actor::{
        self, ResourceContext, ResourceHandle, ResourceScheduler, note_rate_limit::NoteRateLimiter,
        uplink_notices::UplinkNotices,
    },
    resource_directory::{Directory, Role},
    uplink_actor::{self, Parent, UplinkContext, UplinkStatus, UplinkTask},
};
use crate::{
    auth::Authorizer,
    config::{initial_config::InitialConfiguration, limits::Limits},
    listen::accounts::{Accounts, RequestOrigin},
    node::{
        DropGuard,
        assignment_store::AssignmentStore,
        streams::{hints::Watchers, pool_events::Subscribers},
    },
    observe::{
        changes::{Change, ChangeKind},
        metrics,
    },
    runtime::clock::Clock,
};

/// The capacity of the mailbox. Beyond it senders wait.
pub(super) const MAILBOX: usize = 1024;
/// Maximum time that a stopping server waits for the last notes of its pools.
const PART_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of pools that write their last notes at the same time.
const PART_AT_ONCE: usize = 64;

/// The Raft handle and settings of a server with peers.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) raft: RaftHandle,
    pub(crate) handover: Handover,
    /// The configuration that this peer was started with.
    pub(crate) initial: Arc<InitialConfiguration>,
}

/// The state from which a new master starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Handover {
    /// The stored promises of earlier masters.
    #[default]
    Promises,
    /// The leases that holders report in learning mode, which lasts while leases of earlier masters may be valid.
    Learning,
}

/// The initial state of a node.
pub(crate) struct NodeStart {
    pub(crate) repository: Repository,
    /// The access policy of the configuration, if it has one.
    pub(crate) access: Option<Arc<Policy>>,
    /// The origin of the configuration.
    pub(crate) source: String,
    pub(crate) text: Arc<str>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) clock: Clock,
    /// The threads of the resources.
    pub(crate) arbiters: Vec<ArbiterHandle>,
    /// The random seed of hash tables, so that clients cannot cause hash collisions on purpose.
    pub(crate) seed: u64,
    /// `None` for a server without peers, which stores nothing.
    pub(crate) membership: Option<Membership>,
    /// `None` for a root, whose configuration sets the capacities.
    pub(crate) parent: Option<Parent>,
    pub(crate) accounts: Arc<Accounts>,
}

/// State shared by the node actor and its handles.
pub(super) struct NodeShared {
    pub(super) directory: Directory,
    pub(super) config: watch::Sender<Arc<ConfigInForce>>,
    /// Rises with every change of the configuration or of overrides.
    pub(super) revision: Arc<AtomicU32>,
    pub(super) watchers: Arc<Watchers>,
    /// The clients that have a stream of renewals. They are not hinted by it.
    pub(super) renewing: Arc<Watchers>,
    pub(super) streamed_entries: Arc<AtomicUsize>,
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) assignment_store: AssignmentStore,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) accounts: Arc<Accounts>,
    /// The number of holders of all resources.
    pub(super) holders: Arc<AtomicUsize>,
    pub(super) membership: Option<Membership>,
    pub(super) parent: Option<Parent>,
    pub(super) uplink_status: UplinkStatus,
    pub(super) clock: Clock,
    pub(super) limits: Arc<Limits>,
}

impl NodeShared {
    pub(super) fn new(start: &NodeStart) -> NodeShared {
        let NodeStart {
            repository, access, source, text, authorizer, limits, clock, membership, parent, accounts, ..
        } = start;
        // With peers and no parent, the first version in force is the one that the peers store; none is in force
        // before.
        let version = u64::from(membership.is_none() || parent.is_some());
        let (repository, access, source, text) = (repository.clone(), access.clone(), source.clone(), Arc::clone(text));
        authorizer.set_policy(access.clone());
        let first = ConfigInForce { repository, access, version, source, text, ..ConfigInForce::default() };
        NodeShared {
            directory: Directory::new(if membership.is_some() { Role::Elsewhere(None) } else { Role::Master(None) }),
            config: watch::Sender::new(Arc::new(first)),
            revision: Arc::new(AtomicU32::new(1)),
            watchers: Arc::new(Watchers::new(limits.watchers, limits.share())),
            renewing: Arc::new(Watchers::new(limits.watchers, limits.share())),
            streamed_entries: Arc::default(),
            subscribers: Arc::new(Subscribers::with_changes(Arc::clone(authorizer.audit().changes()))),
            assignment_store: AssignmentStore::new(membership.as_ref().map(|membership| &membership.raft)),
            authorizer: Arc::clone(authorizer),
            accounts: Arc::clone(accounts),
            holders: Arc::default(),
            membership: membership.clone(),
            parent: parent.clone(),
            uplink_status: UplinkStatus::default(),
            clock: *clock,
            limits: Arc::clone(limits),
        }
    }

    pub(super) fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.config.borrow())
    }

    /// The settings of a resource by the configuration and its limit.
    pub(super) fn settings_for(&self, id: &str) -> Arc<Settings> {
        self.config().settings_for(id, limit_of(self.membership.as_ref().map(|membership| &membership.raft), id))
    }
}

pub(super) struct NodeActor {
    shared: Arc<NodeShared>,
    /// One for each thread.
    schedulers: Vec<Arc<ResourceScheduler>>,
    next_scheduler: usize,
    seed: u64,
    /// The number of the newest incarnation of a resource.
    generation: u64,
    last_epoch: u64,
    /// What the resources of this term have in common. Absent before the first resource.
    context: Option<Arc<ResourceContext>>,
    /// The number of streams of hints that have ever started, at the last tick.
    watchers_seen: u64,
    /// When this peer took its role. Learning mode counts from here.
    since: Millis,
    /// The newest mastership reported by Raft.
    mastership: Mastership,
    /// Becomes true when a master is first known.
    master_known: watch::Sender<bool>,
    /// The time of the last sweep, and the last resource that it examined.
    swept: Millis,
    swept_up_to: Arc<str>,
    /// Whether the operator was warned that the configuration file differs from the one in force.
    has_warned_of_difference: bool,
    /// The newest configuration of the peers that was adopted or refused.
    adopted: u64,
    /// The templates that gateways have declared.
    declared: raft_state::Declared,
    /// The overrides in force.
    overrides: Arc<Overrides>,
    /// The same overrides, as Raft stores them.
    kept_overrides: Vec<Overriding>,
    note_rate_limiter: NoteRateLimiter,
    /// `None` for a root.
    notices: Option<Arc<UplinkNotices>>,
    /// Runs while this peer is master of a node with a parent.
    uplink: Option<UplinkTask>,
    /// The random instance number of a node without a cluster.
    drawn: NonZeroU64,
    /// Called unless the actor is stopped: a panic ends the process, which its supervisor restarts.
    on_failure: DropGuard,
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(membership) = &self.shared.membership {
            actix_rt::spawn(mastership::follow(membership.raft.clone(), ctx.address()));
        }
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.on_failure.disarm();
    }
}

/// Creates a resource that a request needs.
pub(super) struct Open {
    pub(super) id: Arc<str>,
    /// An incarnation of the resource that is known to have ended.
    pub(super) dead: Option<u64>,
    pub(super) from: Option<RequestOrigin>,
}

impl Message for Open {
    type Result = Result<ResourceHandle, RequestError>;
}

impl Handler<Open> for NodeActor {
    type Result = Result<ResourceHandle, RequestError>;

    fn handle(&mut self, Open { id, dead, from }: Open, ctx: &mut Context<Self>) -> Self::Result {
        self.open(id, dead, from, ctx)
    }
}

/// An incarnation of a resource has ended.
struct Ended {
    id: Arc<str>,
    generation: u64,
}

impl Message for Ended {
    type Result = ();
}

impl Handler<Ended> for NodeActor {
    type Result = ();

    fn handle(&mut self, Ended { id, generation }: Ended, ctx: &mut Context<Self>) {
        self.ended(&id, generation, ctx);
    }
}

/// Puts a configuration in force.
pub(super) struct Configure(pub(super) ConfigInForce);

impl Message for Configure {
    type Result = ();
}

impl Handler<Configure> for NodeActor {
    type Result = ();

    fn handle(&mut self, Configure(config): Configure, _: &mut Context<Self>) {
        self.put_in_force(config, SystemTime::now());
    }
}

/// A configuration was refused for this reason. The old one stays in force.
pub(super) struct Reject(pub(super) String);

impl Message for Reject {
    type Result = ();
}

impl Handler<Reject> for NodeActor {
    type Result = ();

    fn handle(&mut self, Reject(why): Reject, _: &mut Context<Self>) {
        self.reject(why);
    }
}

/// Raft has elected a master, or lost it.
struct Elected(Mastership);

impl Message for Elected {
    type Result = ();
}

impl Handler<Elected> for NodeActor {
    type Result = ();

    fn handle(&mut self, Elected(mastership): Elected, ctx: &mut Context<Self>) {
        self.elected(mastership, ctx);
    }
}

/// The Raft state may have changed.
pub(super) struct FollowRaft;

impl Message for FollowRaft {
    type Result = ();
}

impl Handler<FollowRaft> for NodeActor {
    type Result = ();

    fn handle(&mut self, _: FollowRaft, ctx: &mut Context<Self>) {
        self.follow_raft(ctx);
    }
}

/// The limits of these resources may have changed. Passes through this actor, which also creates resources, so that
/// none is created with an old limit afterwards.
pub(super) struct LimitsChanged(pub(super) Vec<Arc<str>>);

impl Message for LimitsChanged {
    type Result = ();
}

impl Handler<LimitsChanged> for NodeActor {
    type Result = ();

    fn handle(&mut self, LimitsChanged(ids): LimitsChanged, _: &mut Context<Self>) {
        ids.iter().filter_map(|id| self.shared.directory.get(id)).for_each(|handle| handle.limit_changed());
    }
}

/// This server is about to stop: pools write their last notes, and another peer may become master.
pub(super) struct PrepareShutdown;

impl Message for PrepareShutdown {
    type Result = ();
}

impl Handler<PrepareShutdown> for NodeActor {
    type Result = ResponseFuture<()>;

    /// Runs in a task, so that requests are answered meanwhile.
    fn handle(&mut self, _: PrepareShutdown, _: &mut Context<Self>) -> ResponseFuture<()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let _ = tokio::time::timeout(PART_TIMEOUT, part(&shared.directory)).await;
            if let Some(membership) = &shared.membership {
                membership.raft.shutdown().await;
            }
        })
    }
}

/// Asks all pools and budgets to write their last notes. Returns when these are stored or lost.
async fn part(directory: &Directory) {
    let writers: Vec<ResourceHandle> = directory.parts().flatten().filter(ResourceHandle::keeps_notes).collect();
    for some in writers.chunks(PART_AT_ONCE) {
        // A resource with too many pending messages is skipped; it has written notes with the last tick.
        let parting = some.iter().filter_map(|handle| handle.ask(resource_actor::Part).ok());
        for under_way in join_all(parting).await.into_iter().flatten().flatten() {
            while !under_way.is_over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// A second has passed.
pub(super) struct Tick;

impl Message for Tick {
    type Result = ();
}

impl Handler<Tick> for NodeActor {
    type Result = ();

    fn handle(&mut self, _: Tick, _: &mut Context<Self>) {
        self.supervise_uplink();
        self.announce_watchers();
    }
}

/// Checks that the actor makes progress.
pub(super) struct Ping;

impl Message for Ping {
    type Result = ();
}

impl Handler<Ping> for NodeActor {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Context<Self>) {}
}

impl NodeActor {
    pub(super) fn start(
        start: NodeStart,
        shared: Arc<NodeShared>,
        master_known: watch::Sender<bool>,
        on_failure: DropGuard,
    ) -> Addr<NodeActor> {
        let now = start.clock.at();
        let mut actor = NodeActor {
            schedulers: start
                .arbiters
                .into_iter()
                .map(|arbiter| ResourceScheduler::start(&arbiter, start.clock))
                .collect(),
            next_scheduler: 0,
            seed: start.seed,
            generation: 0,
            last_epoch: 0,
            context: None,
            watchers_seen: 0,
            since: now,
            mastership: Mastership::Unknown,
            master_known,
            swept: now,
            swept_up_to: Arc::default(),
            has_warned_of_difference: false,
            adopted: 0,
            declared: raft_state::Declared::default(),
            overrides: Arc::default(),
            kept_overrides: Vec::new(),
            note_rate_limiter: NoteRateLimiter::start(),
            notices: shared.parent.is_some().then(Arc::default),
            uplink: None,
            drawn: NonZeroU64::new(RandomState::new().build_hasher().finish()).unwrap_or(NonZeroU64::MIN),
            shared,
            on_failure,
        };
        NodeActor::create(|ctx: &mut Context<NodeActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            if actor.shared.membership.is_none() {
                // The uplink must exist before the first resource, because resources notify it when they are created.
                actor.begin_uplink();
            }
            actor
        })
    }

    fn record(&self, kind: ChangeKind, what: String, outcome: String) {
        self.shared.authorizer.audit().changes().tell(Change { outcome, ..Change::new(kind, what) });
    }

    /// `since`: when it was applied, which may be before this peer started.
    fn put_in_force(&mut self, config: ConfigInForce, since: SystemTime) {
        if config.rejected.is_none() {
            let what = format!("version {} in force, from {}", config.version, config.source);
            let change = Change { at: since, ..Change::new(ChangeKind::Configuration, what) };
            self.shared.authorizer.audit().changes().tell(change);
        }
        self.shared.authorizer.set_policy(config.access.clone());
        self.publish(config);
    }

    fn publish(&mut self, config: ConfigInForce) {
        let (overrides, declared) = (Arc::clone(&self.overrides), Arc::clone(&self.declared.repository));
        let config = ConfigInForce { overrides, declared, ..config };
        self.shared.config.send_replace(Arc::new(config));
        self.shared.revision.fetch_add(1, Ordering::Release);
        self.shared.directory.for_each(ResourceHandle::wake);
    }

    fn reject(&mut self, why: String) {
        let config = self.shared.config();
        let what = format!("refused; version {} stays in force", config.version);
        self.record(ChangeKind::Configuration, what, why.clone());
        let config = ConfigInForce { rejected: Some(why), ..ConfigInForce::clone(&config) };
        self.put_in_force(config, SystemTime::now());
    }

    /// Wakes the resources in which holders wait, if streams of hints have started, because one of these holders may
    /// have to be hinted. Other resources read the log of new streams with their next round.
    fn announce_watchers(&mut self) {
        let started = self.shared.watchers.started();
        if std::mem::replace(&mut self.watchers_seen, started) != started {
            self.shared.directory.for_each(|resource| {
                if resource.waits() {
                    resource.wake();
                }
            });
        }
    }

    /// Starts an uplink, which knows nothing of the leases that the parent gave to other masters (rule 7).
    fn begin_uplink(&mut self) {
        let (Some(parent), Some(notices)) = (&self.shared.parent, &self.notices) else { return };
        self.uplink = Some(uplink_actor::start(UplinkContext {
            parent: parent.clone(),
            instance: self.instance(),
            directory: self.shared.directory.clone(),
            notices: Arc::clone(notices),
            status: self.shared.uplink_status.clone(),
            clock: self.shared.clock,
            seed: self.seed,
        }));
    }

    /// The instance of this node: the peers of a node share the number of their cluster, and a server without a data
    /// directory is a new instance with each start.
    fn instance(&self) -> NodeInstance {
        let cluster = self.shared.membership.as_ref().and_then(|membership| membership.raft.cluster_number());
        let node = cluster.and_then(|cluster| NonZeroU64::new((cluster >> 64) as u64 ^ cluster as u64));
        let term = match self.shared.directory.role() {
            Role::Master(Some(master_lease)) => master_lease.term(),
            Role::Master(None) | Role::Elsewhere(_) => 0,
        };
        NodeInstance { node: node.unwrap_or(self.drawn), term }
    }

    fn end_uplink(&mut self) {
        self.uplink = None;
        self.shared.uplink_status.wipe();
    }

    /// Restarts an uplink that has failed. Called with ticks only, because it may fail again immediately.
    fn supervise_uplink(&mut self) {
        if self.uplink.as_ref().is_some_and(UplinkTask::has_failed) {
            metrics::uplink_restarted();
            let parent: Vec<_> = self.shared.parent.iter().flat_map(|parent| &parent.addresses).collect();
            tracing::error!(?parent, "uplink failed; restarting");
            self.begin_uplink();
        }
    }
}
