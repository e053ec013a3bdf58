//! The actor of this process: the directory of resources, the configuration in force, and the rebirth of resources that fail.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock, atomic::AtomicUsize},
    time::Duration,
};

use actix::{Actor, Addr, ArbiterHandle, Context, Handler, Message, dev::SendError};
use leaseway_core::{Answer, Birth, HolderKind, Millis, Repository, Request, Settings, Term};
use tokio::sync::{oneshot, watch};

use super::{
    hinting::{Alarm, EVERY, Hinting},
    resource::{self, Command, ResourceHandle, Status, SubmitError},
};
use crate::{
    clock::Clock,
    limits::Limits,
    metrics,
    watchers::{TooManyWatchers, Watch, Watchers},
};

/// Callers wait when so many messages are under way to the node (each of them may put one more).
pub(super) const MAILBOX: usize = 1024;

/// How often a request is tried when the resource it was meant for turns out to be gone.
const TRIES: usize = 3;

/// A configuration, and where it came from.
#[derive(Debug)]
pub struct ConfigInForce {
    /// The templates.
    pub repository: Repository,
    /// Counts replacements; the first is 1.
    pub version: u64,
    /// A file name, or what stands in for one.
    pub source: String,
    /// Why the newest attempt to replace it was refused.
    pub rejected: Option<String>,
}

impl ConfigInForce {
    pub(super) fn template_of(&self, id: &str) -> Option<String> {
        self.repository.find(id).map(|template| template.identifier_glob.clone())
    }
}

pub(super) fn settings_for(config: &ConfigInForce, id: &str) -> Settings {
    config.repository.find(id).map_or_else(Settings::unmatched, |template| template.settings.clone())
}

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its queue is full.
    #[error("resource `{0}` has as many requests waiting as it may; ask again later")]
    Busy(String),
    /// The node has as many resources as it may.
    #[error("this server has as many resources as it may ({0}); it can be started with a larger --max-resources")]
    TooManyResources(usize),
    /// The resource failed while it worked on this request, more than once.
    #[error("resource `{0}` failed while it worked on this request; ask again")]
    Failed(String),
    /// The server is on its way out.
    #[error("this server is shutting down")]
    ShuttingDown,
}

/// The node actor is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

type Directory = Arc<RwLock<HashMap<Arc<str>, ResourceHandle>>>;

/// What a node needs to come to life.
pub struct NodeStart {
    /// The first configuration.
    pub repository: Repository,
    /// Where it came from.
    pub source: String,
    /// Bounds.
    pub limits: Arc<Limits>,
    /// Time.
    pub clock: Clock,
    /// Where resources live.
    pub arbiters: Vec<ArbiterHandle>,
    /// Makes hash collisions unpredictable.
    pub seed: u64,
}

/// Talks to the node, and through its directory to resources.
#[derive(Clone)]
pub struct NodeHandle {
    addr: Addr<NodeActor>,
    directory: Directory,
    config: watch::Receiver<Arc<ConfigInForce>>,
    watchers: Arc<Watchers>,
    alarm: Arc<Alarm>,
    /// Everything else may read the time from here.
    pub clock: Clock,
    /// The bounds in force.
    pub limits: Arc<Limits>,
}

impl NodeHandle {
    /// Starts the node on the current arbiter. `on_failure` is called should it ever panic.
    pub fn start(start: NodeStart, on_failure: impl FnOnce() + 'static) -> NodeHandle {
        let directory: Directory = Arc::default();
        let NodeStart { repository, source, limits, clock, arbiters, seed } = start;
        let config = Arc::new(ConfigInForce { repository, version: 1, source, rejected: None });
        let (config_out, config_in) = watch::channel(config);
        let (watchers, alarm) = (Arc::new(Watchers::new(limits.watchers)), Arc::<Alarm>::default());
        let actor = NodeActor {
            directory: Arc::clone(&directory),
            config: config_out,
            watchers: Arc::clone(&watchers),
            alarm: Arc::clone(&alarm),
            limits: Arc::clone(&limits),
            clock,
            arbiters,
            seed,
            next_arbiter: 0,
            generation: 0,
            last_term: 0,
            holders: Arc::default(),
            since: clock.at(),
            guard: FailureGuard(Some(Box::new(on_failure))),
        };
        let addr = NodeActor::create(|ctx: &mut Context<NodeActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            actor
        });
        NodeHandle { addr, directory, config: config_in, watchers, alarm, clock, limits }
    }

    /// Asks the resource, which comes to life if need be.
    pub async fn submit(&self, id: &Arc<str>, request: Request) -> Result<Answer, Refused> {
        let mut dead = None;
        for _ in 0..TRIES {
            let known = self.lookup(id).filter(|handle| Some(handle.generation()) != dead);
            let handle = match known {
                Some(handle) => handle,
                None => self.open(id, dead).await?,
            };
            match handle.submit(request.clone()) {
                Err(SubmitError::Busy) => return Err(Refused::Busy(id.to_string())),
                Err(SubmitError::Gone) => {}
                Ok(answer) => {
                    if let Ok(answer) = answer.await {
                        return Ok(answer);
                    }
                }
            }
            dead = Some(handle.generation());
        }
        Err(Refused::Failed(id.to_string()))
    }

    /// Asks the resource if it is alive; nothing comes to life for this.
    pub async fn submit_to_living(&self, id: &str, request: Request) -> Result<Option<Answer>, Refused> {
        let Some(handle) = self.lookup(id) else { return Ok(None) };
        match handle.submit(request) {
            Err(SubmitError::Busy) => Err(Refused::Busy(id.to_owned())),
            Err(SubmitError::Gone) => Ok(None),
            Ok(answer) => Ok(answer.await.ok()),
        }
    }

    pub(super) fn lookup(&self, id: &str) -> Option<ResourceHandle> {
        self.directory.read().expect("nobody panics while holding the directory").get(id).cloned()
    }

    pub(super) async fn open(&self, id: &Arc<str>, dead: Option<u64>) -> Result<ResourceHandle, Refused> {
        let (reply, handle) = oneshot::channel();
        let open = NodeCommand::Open { id: Arc::clone(id), dead, reply };
        self.tell(open).await.map_err(|Gone| Refused::ShuttingDown)?;
        handle.await.map_err(|_| Refused::ShuttingDown)?
    }

    async fn tell(&self, command: NodeCommand) -> Result<(), Gone> {
        self.addr.send(command).await.map_err(|_| Gone)
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.config.borrow())
    }

    /// Puts another configuration in force. Leases stay.
    pub async fn configure(&self, repository: Repository) -> Result<(), Gone> {
        self.tell(NodeCommand::Configure(repository)).await
    }

    /// Remembers why a configuration was refused; the old one stays in force.
    pub async fn reject(&self, why: String) -> Result<(), Gone> {
        self.tell(NodeCommand::Reject(why)).await
    }

    /// Time passes: leases end, idle resources retire.
    pub async fn tick(&self) -> Result<(), Gone> {
        self.tell(NodeCommand::Tick(self.clock.at())).await
    }

    /// The holder listens for hints until what is returned is dropped.
    pub(crate) fn watch(&self, kind: HolderKind, id: Arc<str>) -> Result<Watch, TooManyWatchers> {
        self.watchers.start(kind, id)
    }

    /// How many holders listen for hints.
    pub(crate) fn watching(&self) -> usize {
        self.watchers.count()
    }

    /// Waits until resources want to be reminded of hints, then a moment, and reminds them. One whose mailbox is full is
    /// reminded later.
    pub async fn remind_of_hints(&self) {
        self.alarm.wanted().await;
        tokio::time::sleep(Duration::from_millis(EVERY.0)).await;
        let now = self.clock.at();
        for id in self.alarm.take() {
            let Some(handle) = self.lookup(&id) else { continue };
            if let Err(SubmitError::Busy) = handle.send(Command::Look { now }) {
                self.alarm.remind(id);
            }
        }
    }

    /// Returns once the node has come round to it: it is not merely there, it makes progress.
    pub async fn ping(&self) -> Result<(), Gone> {
        self.tell(NodeCommand::Ping).await
    }

    /// How many resources are alive.
    pub fn resources(&self) -> usize {
        self.directory.read().expect("nobody panics while holding the directory").len()
    }

    /// A resource with a page of holders.
    pub async fn resource_status(&self, id: &str, from: usize, limit: usize) -> Option<Status> {
        let handle = self.lookup(id)?;
        let (reply, status) = oneshot::channel();
        handle.send(Command::Report { from, limit, reply }).ok()?;
        status.await.ok()
    }

    /// Up to `limit` resources in the order of their ids, from the first after `after` on, and the id to go on after if there
    /// are more. Those too busy to say are left out.
    pub async fn statuses(&self, after: &str, limit: usize) -> (Vec<Status>, Option<Arc<str>>) {
        let mut ids: Vec<Arc<str>> = {
            let directory = self.directory.read().expect("nobody panics while holding the directory");
            directory.keys().filter(|id| id.as_ref() > after).cloned().collect()
        };
        ids.sort_unstable();
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).cloned();
        let statuses = ids.iter().map(|id| self.resource_status(id, 0, 0));
        (futures_util::future::join_all(statuses).await.into_iter().flatten().collect(), next)
    }

    /// Makes a resource panic, to see what happens then.
    #[cfg(test)]
    pub fn plant_panic(&self, id: &str) {
        if let Some(handle) = self.lookup(id) {
            let _ = handle.send(Command::Panic);
        }
    }
}

enum NodeCommand {
    Open { id: Arc<str>, dead: Option<u64>, reply: oneshot::Sender<Result<ResourceHandle, Refused>> },
    Ended { id: Arc<str>, generation: u64 },
    Configure(Repository),
    Reject(String),
    Tick(Millis),
    Ping,
}

impl Message for NodeCommand {
    type Result = ();
}

struct NodeActor {
    directory: Directory,
    config: watch::Sender<Arc<ConfigInForce>>,
    watchers: Arc<Watchers>,
    alarm: Arc<Alarm>,
    limits: Arc<Limits>,
    clock: Clock,
    arbiters: Vec<ArbiterHandle>,
    seed: u64,
    next_arbiter: usize,
    generation: u64,
    last_term: u64,
    holders: Arc<AtomicUsize>,
    /// When this node became master; learning mode counts from here.
    since: Millis,
    guard: FailureGuard,
}

/// A node that ends without having been stopped has panicked, and takes the process with it: whoever supervises it starts it
/// anew.
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
            NodeCommand::Configure(repository) => self.configure(repository),
            NodeCommand::Reject(why) => {
                let old = Arc::clone(&self.config.borrow());
                let (repository, source) = (old.repository.clone(), old.source.clone());
                let rejected = ConfigInForce { repository, source, version: old.version, rejected: Some(why) };
                self.config.send_replace(Arc::new(rejected));
            }
            NodeCommand::Tick(now) => self.tick(now),
            NodeCommand::Ping => {}
        }
    }
}

impl NodeActor {
    fn open(&mut self, id: Arc<str>, dead: Option<u64>, ctx: &mut Context<Self>) -> Result<ResourceHandle, Refused> {
        let living = self.directory.read().expect("nobody panics while holding the directory").get(&id).cloned();
        match living {
            Some(handle) if Some(handle.generation()) != dead => Ok(handle),
            // It is gone, and its own message saying so is still under way.
            Some(handle) if handle.retired() => Ok(self.begin(id, ctx)),
            Some(handle) => Ok(self.rebuild(id, handle.generation(), ctx)),
            None => {
                let count = self.directory.read().expect("nobody panics while holding the directory").len();
                if count >= self.limits.resources {
                    metrics::resource_refused();
                    return Err(Refused::TooManyResources(self.limits.resources));
                }
                Ok(self.begin(id, ctx))
            }
        }
    }

    /// A resource that nobody holds anything of, unless masters before this one gave it.
    fn begin(&mut self, id: Arc<str>, ctx: &mut Context<Self>) -> ResourceHandle {
        let settings = settings_for(&self.config.borrow(), &id);
        self.bring_up(id, settings.learning_until(self.since), ctx)
    }

    /// A resource that failed has lost its books: it listens for one lease length before it divides again.
    fn rebuild(&mut self, id: Arc<str>, generation: u64, ctx: &mut Context<Self>) -> ResourceHandle {
        tracing::error!(resource = %id, generation, "resource failed; built anew, it learns for one lease length");
        metrics::resource_restarted();
        let settings = settings_for(&self.config.borrow(), &id);
        self.bring_up(id, settings.last_lease_over(self.clock.at()), ctx)
    }

    fn bring_up(&mut self, id: Arc<str>, learning_until: Millis, ctx: &mut Context<Self>) -> ResourceHandle {
        let config = Arc::clone(&self.config.borrow());
        if config.repository.find(&id).is_none() {
            metrics::resource_unmatched();
            tracing::warn!(resource = %id, "no template matches: its requests are honoured as they come");
        }
        let birth = Birth {
            term: self.next_term(),
            since: self.since,
            learning_until,
            inherited: None,
            max_holders: self.limits.clients_per_resource,
            seed: self.seed,
            settings: settings_for(&config, &id),
        };
        self.generation += 1;
        let generation = self.generation;
        let arbiter = &self.arbiters[self.next_arbiter % self.arbiters.len()];
        self.next_arbiter += 1;
        let on_end = {
            let (node, id) = (actix::AsyncContext::address(ctx), Arc::clone(&id));
            Box::new(move || tell_ended(&node, id, generation))
        };
        let start = resource::Start {
            id: Arc::clone(&id),
            generation,
            birth,
            config,
            clock: self.clock,
            limits: Arc::clone(&self.limits),
            holders: Arc::clone(&self.holders),
            hinting: Hinting::new(id.clone(), Arc::clone(&self.watchers), Arc::clone(&self.alarm)),
            on_end,
        };
        let handle = resource::start(start, arbiter);
        self.directory.write().expect("nobody panics while holding the directory").insert(id, handle.clone());
        handle
    }

    /// Terms only rise, also over restarts of the process unless the clock is set back in between: they count milliseconds
    /// since the epoch, with room for four million tokens in each.
    fn next_term(&mut self) -> Term {
        const TOKENS_PER_MS: u32 = 22;
        self.last_term = (self.clock.unix_ms() << TOKENS_PER_MS).max(self.last_term + (1 << TOKENS_PER_MS));
        Term(self.last_term)
    }

    fn ended(&mut self, id: &Arc<str>, generation: u64, ctx: &mut Context<Self>) {
        let handle = self.directory.read().expect("nobody panics while holding the directory").get(id).cloned();
        let Some(handle) = handle.filter(|handle| handle.generation() == generation) else { return };
        if handle.retired() {
            self.directory.write().expect("nobody panics while holding the directory").remove(id);
            tracing::debug!(resource = %id, "retired");
        } else {
            self.rebuild(Arc::clone(id), generation, ctx);
        }
    }

    fn configure(&mut self, repository: Repository) {
        let (version, source) = {
            let old = self.config.borrow();
            (old.version + 1, old.source.clone())
        };
        self.config.send_replace(Arc::new(ConfigInForce { repository, version, source, rejected: None }));
        self.tick(self.clock.at());
    }

    /// A resource whose queue is full hears the next tick.
    fn tick(&mut self, now: Millis) {
        let config = Arc::clone(&self.config.borrow());
        for handle in self.directory.read().expect("nobody panics while holding the directory").values() {
            let _ = handle.send(Command::Tick { now, config: Arc::clone(&config) });
        }
    }
}

/// Called from wherever a resource's life ended; waiting is not possible there, so a full mailbox is tried again later by
/// whoever next needs the resource.
fn tell_ended(node: &Addr<NodeActor>, id: Arc<str>, generation: u64) {
    if let Err(SendError::Full(NodeCommand::Ended { id, .. })) = node.try_send(NodeCommand::Ended { id, generation }) {
        tracing::warn!(resource = %id, "the node is busy; it will notice later that this resource is gone");
    }
}
