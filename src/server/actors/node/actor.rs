//! The actor: brings resources to life, and anew when they fail; puts configurations in force; stands where the peers
//! say.

use std::sync::{Arc, atomic::AtomicUsize};

use actix::{Actor, Addr, ArbiterHandle, Context, Handler, Message, dev::SendError};
use leaseway_core::{Amount, Birth, Epoch, Inherited, Kind, Millis, Repository, Settings, Source};
use leaseway_quorum::{Mastership, Reign};
use tokio::sync::{oneshot, watch};

use super::{
    super::{
        hinting::{Alarm, Hinting},
        resource::{self, Command, Listens, Managed, Noting, ResourceHandle, Turns, Upward},
        scribe::Scribe,
        uplink::{self, Board, Notice, Notices, Parent, Reigning, Surroundings},
    },
    ConfigInForce, Handover, MAILBOX, Memory, NodeStart, NotMaster, Refused,
    directory::{Directory, Standing},
    settings_for,
};
use crate::{clock::Clock, limits::Limits, metrics, subscribers::Subscribers, vouched::Vouched, watchers::Watchers};

pub(super) enum NodeCommand {
    Open { id: Arc<str>, dead: Option<u64>, reply: oneshot::Sender<Result<ResourceHandle, Refused>> },
    Ended { id: Arc<str>, generation: u64 },
    Configure { repository: Repository, version: u64, source: String },
    Reject(String),
    Stand(Mastership),
    Tick(Millis),
    Ping,
}

impl Message for NodeCommand {
    type Result = ();
}

/// What the node and its handles share.
pub(super) struct Shared {
    pub(super) directory: Directory,
    pub(super) config: watch::Sender<Arc<ConfigInForce>>,
    pub(super) watchers: Arc<Watchers>,
    pub(super) alarm: Arc<Alarm>,
    pub(super) board: Board,
    pub(super) vouched: Vouched,
    pub(super) subscribers: Arc<Subscribers>,
    /// Whether a master was known at any time.
    pub(super) known: watch::Sender<bool>,
}

pub(super) struct NodeActor {
    shared: Shared,
    limits: Arc<Limits>,
    clock: Clock,
    arbiters: Vec<ArbiterHandle>,
    seed: u64,
    next_arbiter: usize,
    generation: u64,
    last_epoch: u64,
    holders: Arc<AtomicUsize>,
    /// When this node became master; learning mode counts from here.
    since: Millis,
    memory: Option<(Memory, Scribe)>,
    turns: Turns,
    upward: Option<Uplinked>,
    guard: FailureGuard,
}

/// What a node with a parent has besides.
struct Uplinked {
    parent: Parent,
    notices: Arc<Notices>,
    /// While this peer is master.
    reigning: Option<Reigning>,
}

/// A node that ends without having been stopped has panicked, and takes the process with it: whoever supervises it
/// starts it anew.
struct FailureGuard(Option<Box<dyn FnOnce()>>);

impl Drop for FailureGuard {
    fn drop(&mut self) {
        if let Some(on_failure) = self.0.take() {
            on_failure();
        }
    }
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.guard.0 = None;
    }
}

impl Handler<NodeCommand> for NodeActor {
    type Result = ();

    fn handle(&mut self, command: NodeCommand, ctx: &mut Context<Self>) {
        match command {
            NodeCommand::Open { id, dead, reply } => {
                let opened = self.open(id, dead, ctx);
                // Whoever asked may have gone away meanwhile.
                let _ = reply.send(opened);
            }
            NodeCommand::Ended { id, generation } => self.ended(&id, generation, ctx),
            NodeCommand::Configure { repository, version, source } => {
                self.put_in_force(ConfigInForce { repository, version, source, rejected: None });
            }
            NodeCommand::Reject(why) => {
                let old = self.config();
                let (repository, source) = (old.repository.clone(), old.source.clone());
                self.put_in_force(ConfigInForce { repository, source, version: old.version, rejected: Some(why) });
            }
            NodeCommand::Stand(mastership) => self.stand(mastership),
            NodeCommand::Tick(now) => self.tick(now),
            NodeCommand::Ping => {}
        }
    }
}

impl NodeActor {
    pub(super) fn start(start: NodeStart, shared: Shared, on_failure: Box<dyn FnOnce()>) -> Addr<NodeActor> {
        let upward = start.parent.map(|parent| Uplinked { parent, notices: Arc::default(), reigning: None });
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
            holders: Arc::default(),
            turns: Turns::start(),
            memory: start.memory.map(|memory| {
                let scribe = Scribe::start(memory.quorum.clone());
                (memory, scribe)
            }),
            upward,
            guard: FailureGuard(Some(on_failure)),
        };
        if let Standing::Master(_) = actor.shared.directory.standing() {
            actor.look_up();
        }
        NodeActor::create(|ctx: &mut Context<NodeActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            actor
        })
    }

    fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.shared.config.borrow())
    }

    fn open(&mut self, id: Arc<str>, dead: Option<u64>, ctx: &mut Context<Self>) -> Result<ResourceHandle, Refused> {
        let reign = match self.shared.directory.standing() {
            Standing::Master(reign) => reign,
            Standing::Elsewhere(master) => return Err(Refused::NotMaster(NotMaster { master })),
        };
        match self.shared.directory.get(&id) {
            Some(handle) if Some(handle.generation()) != dead => Ok(handle),
            // It is gone, and its own message saying so is still under way.
            Some(handle) if handle.retired() => Ok(self.begin(id, reign, ctx)),
            Some(handle) => Ok(self.rebuild(id, handle.generation(), reign, ctx)),
            None => {
                if self.shared.directory.len() >= self.limits.resources {
                    metrics::resource_refused();
                    return Err(Refused::TooManyResources(self.limits.resources));
                }
                Ok(self.begin(id, reign, ctx))
            }
        }
    }

    /// A resource that nobody holds anything of, unless masters before this one gave it.
    fn begin(&mut self, id: Arc<str>, reign: Option<Reign>, ctx: &mut Context<Self>) -> ResourceHandle {
        let untold = match &self.memory {
            Some((memory, _)) if memory.handover == Handover::Promises => {
                Some(memory.quorum.read(|facts| (facts.listen_until().unwrap_or_default(), facts.listens_whole())))
            }
            _ => None,
        };
        let listens = Listens::AsSettingsSay(self.since);
        if self.upward.is_some() {
            // How long leases are the parent will say.
            let listens = untold.is_none_or(|(until, _)| until > self.clock.at()).then_some(listens);
            return self.bring_up(id, Millis(0), listens, reign, ctx);
        }
        let learning_until = listens.until(&settings_for(&self.config(), &id));
        let learning_until = match untold {
            None => learning_until,
            Some((until, true)) => until,
            Some((until, false)) => learning_until.min(until),
        };
        self.bring_up(id, learning_until, None, reign, ctx)
    }

    /// A resource that failed has lost its books. What the peers hold is as good; without it, it listens for one lease
    /// length before it divides again.
    fn rebuild(
        &mut self,
        id: Arc<str>,
        generation: u64,
        reign: Option<Reign>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        metrics::resource_restarted();
        if self.memory.as_ref().is_some_and(|(memory, _)| memory.handover == Handover::Promises) {
            tracing::error!(resource = %id, generation, "resource failed; built anew from what it has promised");
            return self.begin(id, reign, ctx);
        }
        tracing::error!(resource = %id, generation, "resource failed; built anew, it learns for one lease length");
        let listens = Listens::OneLease(self.clock.at());
        let learning_until = listens.until(&settings_for(&self.config(), &id));
        self.bring_up(id, learning_until, Some(listens), reign, ctx)
    }

    fn bring_up(
        &mut self,
        id: Arc<str>,
        learning_until: Millis,
        listens: Option<Listens>,
        reign: Option<Reign>,
        ctx: &mut Context<Self>,
    ) -> ResourceHandle {
        let config = self.config();
        let upward = self.upward.as_ref().map(|upward| Upward::new(Arc::clone(&upward.notices), listens, self.since));
        if upward.is_none() && config.repository.find(&id).is_none() {
            metrics::resource_unmatched();
            tracing::warn!(resource = %id, "no template matches: its requests are honoured as they come");
        }
        let (inherited, scribe) = self.inherit(&id);
        let birth = Birth {
            source: if upward.is_some() { Source::Parent } else { Source::Own },
            epoch: self.next_epoch(inherited.as_ref().and_then(|inherited| inherited.newest)),
            since: self.since,
            learning_until,
            max_holders: self.limits.clients_per_resource,
            seed: self.seed,
            settings: if upward.is_some() { placeholder() } else { settings_for(&config, &id) },
            inherited,
        };
        self.generation += 1;
        let generation = self.generation;
        let arbiter = &self.arbiters[self.next_arbiter % self.arbiters.len()];
        self.next_arbiter += 1;
        let on_end = {
            let (node, id) = (actix::AsyncContext::address(ctx), Arc::clone(&id));
            Box::new(move || tell_ended(&node, id, generation))
        };
        let noting = self.memory.as_ref().map(|(_, scribe)| Noting::new(scribe.clone(), self.turns.clone()));
        let Shared { watchers, alarm, vouched, subscribers, .. } = &self.shared;
        let start = resource::Start {
            id: Arc::clone(&id),
            generation,
            birth,
            config,
            clock: self.clock,
            limits: Arc::clone(&self.limits),
            holders: Arc::clone(&self.holders),
            hinting: Hinting::new(id.clone(), Arc::clone(watchers), Arc::clone(alarm)),
            reign,
            scribe,
            upward,
            managed: Managed::new(vouched.clone(), Arc::clone(subscribers), noting),
            on_end,
        };
        let handle = resource::start(start, arbiter);
        self.shared.directory.put(id, handle.clone());
        handle
    }

    /// What was promised before, and where to write what will be; neither if promises are not kept.
    fn inherit(&self, id: &str) -> (Option<Inherited>, Option<Scribe>) {
        let Some((memory, scribe)) = self.memory.as_ref().filter(|(memory, _)| memory.handover == Handover::Promises)
        else {
            return (None, None);
        };
        let now = self.clock.at();
        let inherited = memory.quorum.read(|facts| facts.promises(id).map(|promises| promises.inherited(now)));
        (Some(inherited.unwrap_or_default()), Some(scribe.clone()))
    }

    /// Terms only rise: they count milliseconds since the epoch, with room for four million tokens in each. Over
    /// restarts of the process they rise because time does; a clock that was set back shows where promises are kept.
    fn next_epoch(&mut self, before: Option<Epoch>) -> Epoch {
        let now = self.clock.unix_ms().saturating_mul(Inherited::EPOCHS_APART);
        let before = before.map_or(0, |epoch| epoch.0).max(self.last_epoch);
        self.last_epoch = now.max(before.saturating_add(Inherited::EPOCHS_APART));
        Epoch(self.last_epoch)
    }

    fn ended(&mut self, id: &Arc<str>, generation: u64, ctx: &mut Context<Self>) {
        let living = self.shared.directory.get(id).filter(|handle| handle.generation() == generation);
        // One that is not in the directory any more was left behind by a reign that is over.
        let Some(handle) = living else { return };
        match self.shared.directory.standing() {
            _ if handle.retired() => {
                self.shared.directory.remove(id);
                if let Some(upward) = &self.upward {
                    upward.notices.post(Notice::Retired(Arc::clone(id)));
                }
                tracing::debug!(resource = %id, "retired");
            }
            Standing::Master(reign) => drop(self.rebuild(Arc::clone(id), generation, reign, ctx)),
            Standing::Elsewhere(_) => self.shared.directory.remove(id),
        }
    }

    fn put_in_force(&mut self, config: ConfigInForce) {
        self.shared.config.send_replace(Arc::new(config));
        self.tick(self.clock.at());
    }

    /// A resource whose queue is full hears the next tick.
    fn tick(&mut self, now: Millis) {
        let config = self.config();
        for handle in self.shared.directory.living() {
            let _ = handle.send(Command::Tick { now, config: Arc::clone(&config) });
        }
    }

    /// Whatever is alive belongs to the reign before, and ends with it.
    fn stand(&mut self, mastership: Mastership) {
        let standing = match mastership {
            Mastership::Master(reign) => {
                if let Standing::Master(Some(before)) = self.shared.directory.standing()
                    && before.number() == reign.number()
                {
                    return;
                }
                tracing::info!(reign = reign.number(), "this peer is the master now");
                Standing::Master(Some(reign))
            }
            Mastership::Follower { of } => Standing::Elsewhere(of.map(|master| master.advertise.as_str().into())),
            Mastership::Unknown => Standing::Elsewhere(None),
        };
        self.since = self.clock.at();
        let is_master = matches!(standing, Standing::Master(_));
        let is_known = !matches!(standing, Standing::Elsewhere(None));
        self.shared.directory.stand(standing);
        if is_known {
            self.shared.known.send_replace(true);
        }
        self.shared.watchers.dismiss();
        self.shared.subscribers.dismiss();
        if is_master {
            self.look_up();
        } else if let Some(upward) = &mut self.upward {
            upward.reigning = None;
            self.shared.board.wipe();
        }
    }

    /// Whoever is master asks the parent, and knows nothing of what the parent lent to another (rule 7).
    fn look_up(&mut self) {
        let Some(upward) = &mut self.upward else { return };
        upward.reigning = None;
        let surroundings = Surroundings {
            parent: upward.parent.clone(),
            directory: self.shared.directory.clone(),
            notices: Arc::clone(&upward.notices),
            board: self.shared.board.clone(),
            clock: self.clock,
            seed: self.seed,
        };
        upward.reigning = Some(uplink::start(surroundings));
    }
}

/// Until the parent has said how a resource is run. Nothing is granted by this.
fn placeholder() -> Settings {
    Settings::new(Kind::FairShare, Amount::ZERO)
}

/// Called from wherever a resource's life ended; waiting is not possible there, so a full mailbox is tried again later
/// by whoever next needs the resource.
fn tell_ended(node: &Addr<NodeActor>, id: Arc<str>, generation: u64) {
    if let Err(SendError::Full(NodeCommand::Ended { id, .. })) = node.try_send(NodeCommand::Ended { id, generation }) {
        tracing::warn!(resource = %id, "the node is busy; it will notice later that this resource is gone");
    }
}
