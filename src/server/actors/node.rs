//! This process as a peer of its node: where it stands, which resources are alive, which configuration is in force.
//!
//! This file is the handle that everybody else has; [`actor`] is what stands behind it, [`directory`] what every
//! request looks up without asking it.

mod actor;
mod directory;
mod hold;
mod parting;
mod reports;

use std::{net::IpAddr, sync::Arc, time::Duration};

use actix::{Addr, ArbiterHandle};
use futures_util::future::join_all;
use leaseway_core::{Answer, HolderKind, Millis, Repository, Request, Resource, Settings, escaped};
use leaseway_quorum::{Absence, Mastership, Quorum, Reign};
use tokio::sync::{oneshot, watch};

pub(super) use self::directory::Directory;
use self::{
    actor::{NodeActor, NodeCommand},
    directory::Standing,
    hold::Hold,
};
use super::{
    hinting::{Alarm, EVERY},
    resource::{Asked, BehindOthers, Command, Full, Lapsed, ResourceHandle, SubmitError},
    uplink::{Board, Parent, UplinkReport},
};
use crate::{
    clock::Clock,
    limits::Limits,
    services::Services,
    subscribers::Subscribers,
    vouched::Vouched,
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

/// Another peer answers for this node, or none does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMaster {
    /// Where to ask instead, if that is known.
    pub master: Option<Services>,
}

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Somebody else has to be asked.
    #[error("this server is not the master{}", .0.master.as_ref().map_or_else(String::new, |master| format!(", {} is", master.grpc)))]
    NotMaster(NotMaster),
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

/// The node actor is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

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
    /// What this peer and the others keep; none: it is alone, and nothing outlives it.
    pub memory: Option<Memory>,
    /// Where its capacity comes from; none: the configuration says how much there is.
    pub parent: Option<Parent>,
}

/// What outlives a master.
#[derive(Clone)]
pub struct Memory {
    /// The peers.
    pub quorum: Quorum,
    /// What a new master starts from.
    pub handover: Handover,
}

/// What a new master starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Handover {
    /// Everything that masters before it have promised.
    #[default]
    Promises,
    /// What holders say that they have, for as long as leases of masters before it may live.
    Learning,
}

/// Talks to the node, and through its directory to resources.
#[derive(Clone)]
pub struct NodeHandle {
    addr: Addr<NodeActor>,
    directory: Directory,
    config: watch::Receiver<Arc<ConfigInForce>>,
    watchers: Arc<Watchers>,
    alarm: Arc<Alarm>,
    parent: Option<Arc<Parent>>,
    board: Board,
    vouched: Vouched,
    subscribers: Arc<Subscribers>,
    /// The peers, if there are any or could be.
    quorum: Option<Quorum>,
    hold: Hold,
    /// Everything else may read the time from here.
    pub clock: Clock,
    /// The bounds in force.
    pub limits: Arc<Limits>,
}

impl NodeHandle {
    /// Starts the node on the current arbiter. `on_failure` is called should it ever panic.
    pub fn start(start: NodeStart, on_failure: impl FnOnce() + 'static) -> NodeHandle {
        let (clock, limits) = (start.clock, Arc::clone(&start.limits));
        let standing = if start.memory.is_some() { Standing::Elsewhere(None) } else { Standing::Master(None) };
        let directory = Directory::new(standing);
        // Among peers the first is theirs; with a parent there is one for ever.
        let version = u64::from(start.memory.is_none() || start.parent.is_some());
        let (repository, source) = (start.repository.clone(), start.source.clone());
        let first = ConfigInForce { repository, version, source, rejected: None };
        let (config_out, config) = watch::channel(Arc::new(first));
        let (known, has_known) = watch::channel(start.memory.is_none());
        let quorum = start.memory.as_ref().map(|memory| memory.quorum.clone());
        let (watchers, alarm) = (Arc::new(Watchers::new(limits.watchers)), Arc::<Alarm>::default());
        let (parent, board) = (start.parent.clone().map(Arc::new), Board::default());
        let vouched = Vouched::new(start.memory.as_ref().map(|memory| &memory.quorum));
        let subscribers = Arc::<Subscribers>::default();
        let shared = actor::Shared {
            vouched: vouched.clone(),
            subscribers: Arc::clone(&subscribers),
            directory: directory.clone(),
            config: config_out,
            watchers: Arc::clone(&watchers),
            alarm: Arc::clone(&alarm),
            board: board.clone(),
            known,
        };
        let addr = NodeActor::start(start, shared, Box::new(on_failure));
        NodeHandle {
            addr,
            directory,
            config,
            watchers,
            alarm,
            parent,
            board,
            vouched,
            subscribers,
            quorum,
            hold: Hold::new(has_known),
            clock,
            limits,
        }
    }

    /// Asks the resource, which comes to life if need be.
    pub async fn submit(&self, id: &Arc<str>, request: Request) -> Result<Answer, Refused> {
        self.submit_from(id, &request, None).await
    }

    /// As [`submit`](Self::submit), for one of whom is known where the request came from.
    pub(crate) async fn submit_from(
        &self,
        id: &str,
        request: &Request,
        from: Option<IpAddr>,
    ) -> Result<Answer, Refused> {
        let mut dead = None;
        let asked = self.lay(id, request, from)?;
        if let Some(asked) = asked {
            dead = Some(asked.generation());
            if let Some(answer) = asked.await {
                return answer.map_err(|Lapsed| self.lapsed());
            }
        } else if matches!(request, Request::Renew(ask) if ask.has.is_none()) {
            // Nobody is known there, so nothing comes to life for this.
            return Ok(Answer::Unknown);
        }
        // Boxed: every request under way would have room for this, and hardly one needs it.
        Box::pin(self.submit_to_next_life(id, request, from, dead)).await
    }

    /// Lays down a request if the resource is alive.
    fn lay(&self, id: &str, request: &Request, from: Option<IpAddr>) -> Result<Option<Asked>, Refused> {
        let Some(handle) = self.directory.look_up(id).map_err(Refused::NotMaster)? else { return Ok(None) };
        handle.lay(request.clone(), from).map(Some).map_err(|Full| Refused::Busy(id.to_owned()))
    }

    /// Asks a resource that is not alive, or of which one life is known to be over.
    async fn submit_to_next_life(
        &self,
        id: &str,
        request: &Request,
        from: Option<IpAddr>,
        mut dead: Option<u64>,
    ) -> Result<Answer, Refused> {
        for _ in 0..TRIES {
            let known = self.directory.look_up(id).map_err(Refused::NotMaster)?;
            let known = known.filter(|handle| Some(handle.generation()) != dead);
            let handle = match known {
                Some(handle) => handle,
                None => self.open(&id.into(), dead).await?,
            };
            let asked = handle.lay(request.clone(), from).map_err(|Full| Refused::Busy(id.to_string()))?;
            if let Some(answer) = asked.await {
                return answer.map_err(|Lapsed| self.lapsed());
            }
            dead = Some(handle.generation());
        }
        Err(Refused::Failed(id.to_string()))
    }

    /// As [`submit_from`](Self::submit_from), of several resources: all requests are laid down before the first is
    /// answered, and those to resources that are alive cost no future each.
    pub(crate) async fn submit_all(
        &self,
        requests: &[(String, Request)],
        from: Option<IpAddr>,
    ) -> Vec<Result<Answer, Refused>> {
        let lay = |(id, request): &(String, Request)| self.lay(id, request, from).ok().flatten();
        let mut asked: Vec<Option<Asked>> = requests.iter().map(lay).collect();
        if asked.iter().flatten().any(Asked::leads) {
            BehindOthers::default().await;
        }
        asked.iter_mut().flatten().for_each(Asked::run);
        let mut answers = Vec::with_capacity(requests.len());
        for asked in asked {
            answers.push(match asked {
                Some(asked) => asked.await.map(|answer| answer.map_err(|Lapsed| self.lapsed())),
                None => None,
            });
        }
        // Those that are not alive, that are not this peer's to answer, or whose life is over.
        let others = requests.iter().zip(&answers).filter(|(_, answer)| answer.is_none()).map(|(request, _)| request);
        let others = others.map(|(id, request)| self.submit_from(id, request, from));
        let mut others = join_all(others).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| others.next())).collect()
    }

    /// Asks the resource if it is alive; nothing comes to life for this.
    pub async fn submit_to_living(&self, id: &str, request: Request) -> Result<Option<Answer>, Refused> {
        let Some(asked) = self.lay(id, &request, None)? else { return Ok(None) };
        asked.await.transpose().map_err(|Lapsed| self.lapsed())
    }

    /// Does something with the resource, which comes to life if need be. Should it fail meanwhile, that is done again
    /// with its next life.
    pub(crate) async fn manage<T: Send + 'static>(
        &self,
        id: &Arc<str>,
        work: impl Fn(&mut Resource, Millis) -> T + Clone + Send + 'static,
    ) -> Result<T, Refused> {
        let mut dead = None;
        for _ in 0..TRIES {
            self.check().map_err(Refused::NotMaster)?;
            let known = self.lookup(id).filter(|handle| Some(handle.generation()) != dead);
            let handle = match known {
                Some(handle) => handle,
                None => self.open(id, dead).await?,
            };
            let (reply, done) = oneshot::channel();
            let work = work.clone();
            let work = Box::new(move |core: &mut Resource, now| {
                // Whoever asked may have gone away meanwhile.
                let _ = reply.send(work(core, now));
            });
            match handle.send(Command::Manage { work }) {
                Err(SubmitError::Busy) => return Err(Refused::Busy(id.to_string())),
                Err(SubmitError::Gone) => {}
                Ok(()) => {
                    if let Ok(done) = done.await {
                        return Ok(done);
                    }
                }
            }
            dead = Some(handle.generation());
        }
        self.check().map_err(Refused::NotMaster)?;
        Err(Refused::Failed(id.to_string()))
    }

    /// What operators have said, and whether it is kept.
    pub(crate) fn vouched(&self) -> &Vouched {
        &self.vouched
    }

    /// Who listens for what happens in pools.
    pub(crate) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    /// How a resource would be run; nothing is known where the parent says it.
    pub(crate) fn settings(&self, id: &str) -> Option<Settings> {
        self.parent.is_none().then(|| settings_for(&self.config(), id))
    }

    /// What to say to a request that nobody may decide now: who does, if that is known by now.
    fn lapsed(&self) -> Refused {
        Refused::NotMaster(self.check().err().unwrap_or(NotMaster { master: None }))
    }

    /// Whether this peer may decide at this moment.
    pub fn check(&self) -> Result<(), NotMaster> {
        self.directory.standing().check(self.clock.at())
    }

    /// Whether this peer is master, or hears from it and counts.
    pub(crate) fn has_heard_itself(&self) -> bool {
        self.quorum.as_ref().is_none_or(Quorum::has_heard_itself)
    }

    /// Why this peer takes no part, if it does not.
    pub(crate) fn absence(&self) -> Option<Absence> {
        self.quorum.as_ref().and_then(Quorum::absence)
    }

    /// The reign under which it decides; none for a node that is alone.
    pub fn reign(&self) -> Result<Option<Reign>, NotMaster> {
        let standing = self.directory.standing();
        standing.check(self.clock.at())?;
        match standing {
            Standing::Master(reign) => Ok(reign),
            Standing::Elsewhere(master) => Err(NotMaster { master }),
        }
    }

    pub(super) fn lookup(&self, id: &str) -> Option<ResourceHandle> {
        self.directory.get(id)
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

    /// Where the capacity comes from; nothing for a root.
    pub fn parent(&self) -> Option<&Parent> {
        self.parent.as_deref()
    }

    /// How it gets on with the parent, while this peer is master.
    pub fn uplink(&self) -> Option<UplinkReport> {
        self.board.read()
    }

    /// The longest that a lease under the parent's settings may be believed, as far as the parent has said.
    pub(crate) fn longest_lent(&self) -> Millis {
        self.board.longest()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.config.borrow())
    }

    /// Puts another configuration in force. Leases stay.
    pub async fn configure(&self, repository: Repository) -> Result<(), Gone> {
        let next = self.config().version + 1;
        let source = self.config().source.clone();
        self.adopt(repository, next, source).await
    }

    /// Puts a configuration in force that has a version already.
    pub async fn adopt(&self, repository: Repository, version: u64, source: String) -> Result<(), Gone> {
        self.tell(NodeCommand::Configure { repository, version, source }).await
    }

    /// The peers have agreed on who answers.
    pub async fn stand(&self, mastership: Mastership) -> Result<(), Gone> {
        self.tell(NodeCommand::Stand(mastership)).await
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

    /// Waits until resources want to be reminded of hints, then a moment, and reminds them. One whose mailbox is full
    /// is reminded later.
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

    /// Whether anybody has asked for this resource lately.
    pub(crate) fn is_alive(&self, id: &str) -> bool {
        self.lookup(id).is_some()
    }

    /// How many resources are alive.
    pub fn resources(&self) -> usize {
        self.directory.len()
    }

    /// Makes a resource panic, to see what happens then.
    #[cfg(test)]
    pub fn plant_panic(&self, id: &str) {
        if let Some(handle) = self.lookup(id) {
            handle.plant_panic();
        }
    }
}
