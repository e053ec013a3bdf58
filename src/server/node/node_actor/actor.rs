//! The node actor: it supervises the resources and the uplink, owns the election, and puts configurations in force.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    num::NonZeroU64,
    sync::{Arc, atomic::AtomicUsize},
};

use actix::{Actor, Addr, ArbiterHandle, Context, Handler, Message};
use leaseway_core::{Millis, NodeInstance, Overrides};
use leaseway_raft::{KeptOverride, Mastership};
use tokio::sync::{oneshot, watch};

use super::{
    super::{
        config_in_force::ConfigInForce,
        directory::{Directory, Role},
        note_turns::NoteTurns,
        notices::Notices,
        on_end::OnEnd,
        resource_actor::{ResourceHandle, ResourceMessage},
        uplink_actor::{self, Parent, UplinkContext, UplinkStatus, UplinkTask},
    },
    MAILBOX, Membership, NodeStart, Refused,
};
use crate::{
    auth::Authorizer,
    config::limits::Limits,
    listen::accounts::{Accounts, RequestOrigin, ResourcePlace},
    node::{assignment_store::AssignmentStore, subscribers::Subscribers, watchers::Watchers},
    observe::{
        changes::{Change, ChangeKind},
        metrics,
    },
    runtime::clock::Clock,
};

pub(super) enum NodeMessage {
    /// A resource is needed.
    Open {
        id: Arc<str>,
        dead: Option<u64>,
        from: Option<RequestOrigin>,
        reply: oneshot::Sender<Result<ResourceHandle, Refused>>,
    },
    /// An incarnation of a resource is over.
    Ended { id: Arc<str>, generation: u64 },
    /// Another configuration is to be in force.
    Configure(ConfigInForce),
    /// A configuration was refused; the old one stays in force.
    Reject(String),
    /// The quorum has decided which peer is master.
    Mastership(Mastership),
    /// What the quorum has stored may have changed.
    LookAtFacts,
    /// This server is going to stop; the caller waits until another may be master.
    HandOver { reply: oneshot::Sender<()> },
    /// Time has passed.
    Tick,
    /// The caller waits until the node has come round to it.
    Ping,
}

impl Message for NodeMessage {
    type Result = ();
}

/// What the node and its handles share.
pub(super) struct NodeShared {
    pub(super) holders: Arc<AtomicUsize>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) directory: Directory,
    pub(super) config: watch::Sender<Arc<ConfigInForce>>,
    pub(super) watchers: Arc<Watchers>,
    pub(super) uplink_status: UplinkStatus,
    pub(super) assignment_store: AssignmentStore,
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) authorizer: Arc<Authorizer>,
    /// Whether a master was known at any time.
    pub(super) known: watch::Sender<bool>,
}

pub(super) struct NodeActor {
    pub(super) shared: NodeShared,
    pub(super) limits: Arc<Limits>,
    pub(super) clock: Clock,
    pub(super) arbiters: Vec<ArbiterHandle>,
    pub(super) seed: u64,
    pub(super) next_arbiter: usize,
    pub(super) generation: u64,
    pub(super) last_epoch: u64,
    /// To whom resources are counted that are alive.
    pub(super) resource_places: HashMap<Arc<str>, ResourcePlace>,
    /// When this node became master; learning mode counts from here.
    pub(super) since: Millis,
    pub(super) membership: Option<Membership>,
    /// What the quorum decided last.
    pub(super) mastership: Mastership,
    /// When this peer looked last for what the others need not remember.
    pub(super) swept: Millis,
    /// The operator was told that the file differs from what is in force.
    pub(super) is_difference_told: bool,
    /// The newest version of the peers that was looked at.
    pub(super) adopted: u64,
    /// What operators have set for a time; as it was kept when that was last looked at.
    pub(super) overrides: Arc<Overrides>,
    pub(super) kept_overrides: Vec<(Arc<str>, KeptOverride)>,
    pub(super) note_turns: NoteTurns,
    pub(super) uplink: Option<Uplinked>,
    /// What tells it from others of its name, if it belongs to no cluster.
    drawn: NonZeroU64,
    /// A node that ends without having been stopped has panicked, and takes the process with it: what supervises the
    /// process starts it anew.
    on_failure: OnEnd,
}

/// What a node with a parent has besides.
pub(super) struct Uplinked {
    pub(super) parent: Parent,
    pub(super) notices: Arc<Notices>,
    /// While this peer is master.
    pub(super) task: Option<UplinkTask>,
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.take_part(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.on_failure.disarm();
    }
}

impl Handler<NodeMessage> for NodeActor {
    type Result = ();

    fn handle(&mut self, message: NodeMessage, ctx: &mut Context<Self>) {
        match message {
            NodeMessage::Open { id, dead, from, reply } => {
                let opened = self.open(id, dead, from, ctx);
                // The caller may have gone away meanwhile.
                let _ = reply.send(opened);
            }
            NodeMessage::Ended { id, generation } => self.ended(&id, generation, ctx),
            NodeMessage::Configure(config) => self.put_in_force(config),
            NodeMessage::Reject(why) => self.reject(why),
            NodeMessage::Mastership(mastership) => self.elected(mastership, ctx),
            NodeMessage::LookAtFacts => self.look_at_facts(ctx),
            NodeMessage::HandOver { reply } => self.hand_over(reply),
            NodeMessage::Tick => {
                self.supervise_uplink();
                self.tick();
            }
            NodeMessage::Ping => {}
        }
    }
}

impl NodeActor {
    pub(super) fn start(start: NodeStart, shared: NodeShared, on_failure: OnEnd) -> Addr<NodeActor> {
        let mut actor = NodeActor {
            shared,
            limits: start.limits,
            since: start.clock.at(),
            clock: start.clock,
            arbiters: start.arbiters,
            seed: start.seed,
            next_arbiter: 0,
            generation: 0,
            last_epoch: 0,
            resource_places: HashMap::new(),
            note_turns: NoteTurns::start(),
            drawn: NonZeroU64::new(RandomState::new().build_hasher().finish()).unwrap_or(NonZeroU64::MIN),
            membership: start.membership,
            mastership: Mastership::Unknown,
            swept: start.clock.at(),
            is_difference_told: false,
            adopted: 0,
            overrides: Arc::default(),
            kept_overrides: Vec::new(),
            uplink: start.parent.map(|parent| Uplinked { parent, notices: Arc::default(), task: None }),
            on_failure,
        };
        NodeActor::create(|ctx: &mut Context<NodeActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            if actor.membership.is_none() {
                // Alone, it is the master. Before the first resource is asked for, which tells the uplink itself.
                actor.begin_uplink();
            }
            actor
        })
    }

    pub(super) fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.shared.config.borrow())
    }

    pub(super) fn tell(&self, kind: ChangeKind, what: String, outcome: String) {
        self.shared.authorizer.audit().changes().tell(Change { outcome, ..Change::new(kind, what) });
    }

    pub(super) fn put_in_force(&mut self, config: ConfigInForce) {
        if config.rejected.is_none() {
            let what = format!("version {} in force, from {}", config.version, config.source);
            self.tell(ChangeKind::Configuration, what, String::new());
        }
        self.shared.authorizer.set_policy(config.access.clone());
        self.publish(config);
    }

    /// Resources follow it with the tick.
    pub(super) fn publish(&mut self, config: ConfigInForce) {
        let config = ConfigInForce { overrides: Arc::clone(&self.overrides), ..config };
        self.shared.config.send_replace(Arc::new(config));
        self.tick();
    }

    pub(super) fn reject(&mut self, why: String) {
        let what = format!("refused; version {} stays in force", self.config().version);
        self.tell(ChangeKind::Configuration, what, why.clone());
        self.put_in_force(ConfigInForce { rejected: Some(why), ..ConfigInForce::clone(&self.config()) });
    }

    /// A resource that has too many commands pending hears the next tick.
    fn tick(&mut self) {
        let config = self.config();
        for handle in self.shared.directory.resources() {
            let _ = handle.send(ResourceMessage::Tick { config: Arc::clone(&config) });
        }
    }

    /// The master asks the parent, and knows nothing of what the parent lent to another peer (rule 7).
    pub(super) fn begin_uplink(&mut self) {
        let instance = self.instance();
        let Some(uplink) = &mut self.uplink else { return };
        uplink.task = Some(uplink_actor::start(UplinkContext {
            parent: uplink.parent.clone(),
            instance,
            directory: self.shared.directory.clone(),
            notices: Arc::clone(&uplink.notices),
            status: self.shared.uplink_status.clone(),
            clock: self.clock,
            seed: self.seed,
        }));
    }

    /// The peers of a node share the number of their cluster. A server without a directory is a new node with each
    /// start.
    fn instance(&self) -> NodeInstance {
        let cluster = self.membership.as_ref().and_then(|membership| membership.quorum.cluster_number());
        let node = cluster.and_then(|cluster| NonZeroU64::new((cluster >> 64) as u64 ^ cluster as u64));
        let reign = match self.shared.directory.role() {
            Role::Master(Some(reign)) => reign.term(),
            Role::Master(None) | Role::Elsewhere(_) => 0,
        };
        NodeInstance { node: node.unwrap_or(self.drawn), reign }
    }

    pub(super) fn end_uplink(&mut self) {
        if let Some(uplink) = &mut self.uplink {
            uplink.task = None;
            self.shared.uplink_status.wipe();
        }
    }

    /// An uplink that has failed is built anew with the next tick: not at once, for it may fail again.
    fn supervise_uplink(&mut self) {
        let has_failed = |uplink: &Uplinked| uplink.task.as_ref().is_some_and(UplinkTask::has_failed);
        if let Some(uplink) = self.uplink.as_ref().filter(|uplink| has_failed(uplink)) {
            metrics::uplink_restarted();
            tracing::error!(parent = ?uplink.parent.addresses, "the uplink failed; it is built anew");
            self.begin_uplink();
        }
    }
}
