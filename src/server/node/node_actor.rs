//! This process as a peer of its node: its role, which resources are alive, which configuration is in force.
//!
//! This file is the handle that all other parts of the server have; [`actor`] receives its messages. What every request
//! needs is looked up in the directory, without a message.

mod actor;
mod election;
mod forecast;
mod opening;
mod overrides;
mod parting;
mod refused;
mod reports;
mod startup_gate;
mod sweep;

use std::sync::{Arc, atomic::AtomicUsize};

use actix::{Addr, ArbiterHandle};
use futures_util::future::join_all;
use leaseway_core::engine::LostMastership;
use leaseway_core::{Answer, HolderKind, Millis, Principal, Repository, Request, Resource, Settings, access::Policy};
use leaseway_raft::{Ineligible, MasterLease, RaftHandle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

pub(crate) use self::refused::Refused;
use self::{
    actor::{NodeActor, NodeMessage},
    startup_gate::StartupGate,
};
use super::{
    config_in_force::ConfigInForce,
    directory::{Directory, NotMaster, Role},
    on_end::OnEnd,
    resource_actor::{Full, PendingAnswer, ResourceHandle, ResourceMessage, SendError, YieldOnce},
    uplink_actor::{Parent, UplinkReport, UplinkStatus},
};
use crate::{
    auth::Authorizer,
    config::{initial_config::InitialConfiguration, limits::Limits},
    listen::accounts::{Accounts, RequestOrigin},
    node::{
        assignment_store::AssignmentStore,
        children::Children,
        subscribers::Subscribers,
        watchers::{TooManyWatchers, Watch, Watchers},
    },
    runtime::{
        clock::Clock,
        coop::{ChunkPermit, ENTRIES, pause},
    },
};

/// Callers wait when so many messages are under way to the node (each of them may put one more).
pub(super) const MAILBOX: usize = 1024;

/// How often a request is tried when the resource it was meant for turns out to be gone.
const TRIES: usize = 3;

/// The node actor is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// What a node needs to come to life.
pub(crate) struct NodeStart {
    pub(crate) repository: Repository,
    /// Who may do what, if that configuration says it.
    pub(crate) access: Option<Arc<Policy>>,
    /// Where it came from.
    pub(crate) source: String,
    /// Decides by it whether calls are allowed.
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) clock: Clock,
    /// Where resources live.
    pub(crate) arbiters: Vec<ArbiterHandle>,
    /// Makes hash collisions unpredictable.
    pub(crate) seed: u64,
    /// Its part in the quorum of the peers; none: it is alone, and nothing outlives it.
    pub(crate) membership: Option<Membership>,
    /// Where its capacity comes from; none: the configuration says how much there is.
    pub(crate) parent: Option<Parent>,
    /// What each principal has.
    pub(crate) accounts: Arc<Accounts>,
}

/// The part of a node in the quorum of its peers.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) quorum: RaftHandle,
    /// What a new master starts from.
    pub(crate) handover: Handover,
    /// The configuration that this peer was started with.
    pub(crate) initial: Arc<InitialConfiguration>,
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
pub(crate) struct NodeHandle {
    addr: Addr<NodeActor>,
    directory: Directory,
    config: watch::Receiver<Arc<ConfigInForce>>,
    watchers: Arc<Watchers>,
    parent: Option<Arc<Parent>>,
    uplink_status: UplinkStatus,
    assignment_store: AssignmentStore,
    subscribers: Arc<Subscribers>,
    authorizer: Arc<Authorizer>,
    /// The peers, if there are any or could be.
    quorum: Option<RaftHandle>,
    startup_gate: StartupGate,
    /// One plan is made at a time.
    planning: Arc<Semaphore>,
    accounts: Arc<Accounts>,
    holders: Arc<AtomicUsize>,
    children: Arc<Children>,
    /// Everything else may read the time from here.
    pub(crate) clock: Clock,
    /// The bounds in force.
    pub(crate) limits: Arc<Limits>,
}

fn busy(full: Full, id: &str) -> Refused {
    match full {
        Full::InAll => Refused::Busy(id.to_owned()),
        Full::OfPrincipal => Refused::QueueShare(id.to_owned()),
    }
}

impl NodeHandle {
    /// Starts the node on the current arbiter. `on_failure` is called should it ever panic.
    pub(crate) fn start(start: NodeStart, on_failure: impl FnOnce() + Send + 'static) -> NodeHandle {
        let (clock, limits) = (start.clock, Arc::clone(&start.limits));
        let role = if start.membership.is_some() { Role::Elsewhere(None) } else { Role::Master(None) };
        let directory = Directory::new(role);
        // Among peers the first is theirs; with a parent there is one for ever.
        let version = u64::from(start.membership.is_none() || start.parent.is_some());
        let (repository, access, source) = (start.repository.clone(), start.access.clone(), start.source.clone());
        let authorizer = Arc::clone(&start.authorizer);
        authorizer.set_policy(access.clone());
        let first = ConfigInForce { repository, access, version, source, ..ConfigInForce::default() };
        let (config_out, config) = watch::channel(Arc::new(first));
        let (known, has_known) = watch::channel(start.membership.is_none());
        let quorum = start.membership.as_ref().map(|membership| membership.quorum.clone());
        let watchers = Arc::new(Watchers::new(limits.watchers, limits.share()));
        let (parent, uplink_status) = (start.parent.clone().map(Arc::new), UplinkStatus::default());
        let assignment_store = AssignmentStore::new(start.membership.as_ref().map(|membership| &membership.quorum));
        let subscribers = Arc::new(Subscribers::telling(Arc::clone(authorizer.audit().changes())));
        let accounts = Arc::clone(&start.accounts);
        let holders = Arc::<AtomicUsize>::default();
        let shared = actor::NodeShared {
            holders: Arc::clone(&holders),
            accounts: Arc::clone(&accounts),
            assignment_store: assignment_store.clone(),
            subscribers: Arc::clone(&subscribers),
            authorizer: Arc::clone(&authorizer),
            directory: directory.clone(),
            config: config_out,
            watchers: Arc::clone(&watchers),
            uplink_status: uplink_status.clone(),
            known,
        };
        let addr = NodeActor::start(start, shared, OnEnd::new(on_failure));
        NodeHandle {
            addr,
            directory,
            config,
            watchers,
            parent,
            uplink_status,
            assignment_store,
            subscribers,
            authorizer,
            quorum,
            startup_gate: StartupGate::new(has_known),
            planning: Arc::new(Semaphore::new(1)),
            accounts,
            holders,
            children: Arc::default(),
            clock,
            limits,
        }
    }

    /// Asks the resource, which comes to life if need be.
    #[cfg(test)]
    pub(crate) async fn submit(&self, id: &Arc<str>, request: Request) -> Result<Answer, Refused> {
        self.submit_from(id, &request, None).await
    }

    /// As [`submit`](Self::submit), for one of whom is known where the request came from.
    pub(crate) async fn submit_from(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
    ) -> Result<Answer, Refused> {
        let mut dead = None;
        let asked = self.submit_if_alive(id, request, from)?;
        if let Some(asked) = asked {
            dead = Some(asked.generation());
            if let Some(answer) = asked.await {
                return answer.map_err(|LostMastership| self.lost_mastership());
            }
        } else if matches!(request, Request::Renew(ask) if ask.has.is_none()) {
            // The holder is unknown there, so nothing comes to life for this.
            return Ok(Answer::Unknown);
        }
        // Boxed: every request under way would have room for this, and hardly one needs it.
        Box::pin(self.submit_to_next(id, request, from, dead)).await
    }

    /// Submits a request if the resource is alive.
    fn submit_if_alive(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
    ) -> Result<Option<PendingAnswer>, Refused> {
        let Some(handle) = self.directory.look_up(id).map_err(Refused::NotMaster)? else { return Ok(None) };
        handle.submit(request.clone(), from).map(Some).map_err(|full| busy(full, id))
    }

    /// Asks a resource that is not alive, or of which one incarnation is known to be over.
    async fn submit_to_next(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
        mut dead: Option<u64>,
    ) -> Result<Answer, Refused> {
        for _ in 0..TRIES {
            let known = self.directory.look_up(id).map_err(Refused::NotMaster)?;
            let known = known.filter(|handle| Some(handle.generation()) != dead);
            let handle = match known {
                Some(handle) => handle,
                None => self.open(&id.into(), dead, from).await?,
            };
            let asked = handle.submit(request.clone(), from).map_err(|full| busy(full, id))?;
            if let Some(answer) = asked.await {
                return answer.map_err(|LostMastership| self.lost_mastership());
            }
            dead = Some(handle.generation());
        }
        Err(Refused::Failed(id.to_string()))
    }

    /// As [`submit_from`](Self::submit_from), of several resources: all requests are submitted before any answer is
    /// waited for, and those to resources that are alive cost no future each. Many are submitted in parts, between
    /// which the thread does other work, and take turns with others of their principal: all requests that others have
    /// made meanwhile wait for no more than a few parts.
    pub(crate) async fn submit_all(
        &self,
        requests: &[(String, Request)],
        from: Option<RequestOrigin>,
    ) -> Vec<Result<Answer, Refused>> {
        let account = from.filter(|_| requests.len() > ENTRIES).and_then(|from| self.accounts.of(from.principal));
        let place = match &account {
            Some(account) => account.turns.acquire().await.ok(),
            None => None,
        };
        let mut permit = if requests.len() > ENTRIES { Some(ChunkPermit::acquire().await) } else { None };
        let submit = |(id, request): &(String, Request)| self.submit_if_alive(id, request, from).ok().flatten();
        let (mut pending, mut answers): (Vec<Option<PendingAnswer>>, Vec<_>) = Default::default();
        for part in requests.chunks(ENTRIES) {
            let before = pending.len();
            if before > 0
                && let Some(last) = permit.take()
            {
                permit = Some(last.next().await);
            }
            pending.extend(part.iter().map(submit));
            let part = &mut pending[before..];
            if part.iter().flatten().any(PendingAnswer::leads) {
                YieldOnce::default().await;
            }
            part.iter_mut().flatten().for_each(PendingAnswer::run);
        }
        drop((permit, place));
        for (at, pending) in pending.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(ENTRIES) {
                pause().await;
            }
            answers.push(match pending {
                Some(pending) => pending.await.map(|answer| answer.map_err(|LostMastership| self.lost_mastership())),
                None => None,
            });
        }
        // Those that are not alive, that are not this peer's to answer, or that have ended meanwhile.
        let others = requests.iter().zip(&answers).filter(|(_, answer)| answer.is_none()).map(|(request, _)| request);
        let others = others.map(|(id, request)| self.submit_from(id, request, from));
        let mut others = join_all(others).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| others.next())).collect()
    }

    /// Asks the resource if it is alive; nothing comes to life for this.
    pub(crate) async fn submit_to_living(&self, id: &str, request: Request) -> Result<Option<Answer>, Refused> {
        let Some(asked) = self.submit_if_alive(id, &request, None)? else { return Ok(None) };
        asked.await.transpose().map_err(|LostMastership| self.lost_mastership())
    }

    /// Does something with the resource, which comes to life if need be. Should it fail meanwhile, that is done again
    /// with its next incarnation.
    pub(crate) async fn operate<T: Send + 'static>(
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
                None => self.open(id, dead, None).await?,
            };
            let (reply, done) = oneshot::channel();
            let work = work.clone();
            let work = Box::new(move |core: &mut Resource, now| {
                // The caller may have gone away meanwhile.
                let _ = reply.send(work(core, now));
            });
            match handle.send(ResourceMessage::Operate { work }) {
                Err(SendError::Busy) => return Err(Refused::Busy(id.to_string())),
                Err(SendError::Gone) => {}
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
    pub(crate) fn assignment_store(&self) -> &AssignmentStore {
        &self.assignment_store
    }

    /// The streams that listen for what happens in pools.
    pub(crate) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    /// Child nodes that have asked.
    pub(crate) fn children(&self) -> &Children {
        &self.children
    }

    /// Decides whether calls are allowed.
    pub(crate) fn authorizer(&self) -> &Arc<Authorizer> {
        &self.authorizer
    }

    /// How a resource would be run; nothing is known where the parent says it.
    pub(crate) fn settings(&self, id: &str) -> Option<Settings> {
        self.parent.is_none().then(|| self.config().settings_for(id))
    }

    /// The answer to a request that this peer may not decide now: which one does, if that is known by now.
    fn lost_mastership(&self) -> Refused {
        Refused::NotMaster(self.check().err().unwrap_or(NotMaster { master: None }))
    }

    /// Whether this peer may decide at this moment.
    pub(crate) fn check(&self) -> Result<(), NotMaster> {
        self.directory.role().check(self.clock.at())
    }

    /// Whether this peer is master, or hears from it and counts.
    pub(crate) fn has_heard_itself(&self) -> bool {
        self.quorum.as_ref().is_none_or(RaftHandle::hears_master)
    }

    /// Why this peer takes no part, if it does not.
    pub(crate) fn absence(&self) -> Option<Ineligible> {
        self.quorum.as_ref().and_then(RaftHandle::ineligible)
    }

    /// The reign under which it decides; none for a node that is alone.
    pub(crate) fn reign(&self) -> Result<Option<MasterLease>, NotMaster> {
        let role = self.directory.role();
        role.check(self.clock.at())?;
        match role {
            Role::Master(reign) => Ok(reign),
            Role::Elsewhere(master) => Err(NotMaster { master }),
        }
    }

    pub(super) fn lookup(&self, id: &str) -> Option<ResourceHandle> {
        self.directory.get(id)
    }

    pub(super) async fn open(
        &self,
        id: &Arc<str>,
        dead: Option<u64>,
        from: Option<RequestOrigin>,
    ) -> Result<ResourceHandle, Refused> {
        let (reply, handle) = oneshot::channel();
        let open = NodeMessage::Open { id: Arc::clone(id), dead, from, reply };
        self.tell(open).await.map_err(|Gone| Refused::ShuttingDown)?;
        handle.await.map_err(|_| Refused::ShuttingDown)?
    }

    async fn tell(&self, message: NodeMessage) -> Result<(), Gone> {
        self.addr.send(message).await.map_err(|_| Gone)
    }

    /// Where the capacity comes from; nothing for a root.
    pub(crate) fn parent(&self) -> Option<&Parent> {
        self.parent.as_deref()
    }

    /// How it gets on with the parent, while this peer is master.
    pub(crate) fn uplink(&self) -> Option<UplinkReport> {
        self.uplink_status.read()
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<ConfigInForce> {
        Arc::clone(&self.config.borrow())
    }

    /// Puts another configuration in force. Leases stay.
    pub(crate) async fn configure(&self, repository: Repository, access: Option<Arc<Policy>>) -> Result<(), Gone> {
        let version = self.config().version + 1;
        let source = self.config().source.clone();
        let config = ConfigInForce { repository, access, version, source, ..ConfigInForce::default() };
        self.tell(NodeMessage::Configure(config)).await
    }

    /// Has the node look at what the quorum has stored, before it does so anyway.
    pub(crate) async fn look_at_facts(&self) -> Result<(), Gone> {
        self.tell(NodeMessage::LookAtFacts).await
    }

    /// Remembers why a configuration was refused; the old one stays in force.
    pub(crate) async fn reject(&self, why: String) -> Result<(), Gone> {
        self.tell(NodeMessage::Reject(why)).await
    }

    /// Time passes: leases end, idle resources retire.
    pub(crate) async fn tick(&self) -> Result<(), Gone> {
        self.tell(NodeMessage::Tick).await
    }

    /// The holder listens for hints until what is returned is dropped.
    pub(crate) fn watch(
        &self,
        kind: HolderKind,
        id: Arc<str>,
        from: Option<RequestOrigin>,
    ) -> Result<Watch, TooManyWatchers> {
        self.watchers.start(kind, id, from.map_or(Principal::NONE, |from| from.principal))
    }

    /// How many holders listen for hints.
    pub(crate) fn watching(&self) -> usize {
        self.watchers.count()
    }

    /// Returns once the node has come round to it: it is not merely there, it makes progress.
    pub(crate) async fn ping(&self) -> Result<(), Gone> {
        self.tell(NodeMessage::Ping).await
    }

    /// How many resources are alive.
    pub(crate) fn resources(&self) -> usize {
        self.directory.len()
    }

    /// The ids of those.
    pub(crate) fn living(&self) -> Vec<Arc<str>> {
        self.directory.ids_after("")
    }

    /// Waits until no other plan is made: each has all holders of a resource in memory once more.
    pub(crate) async fn planning(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.planning).acquire_owned().await.ok()
    }

    /// Makes a resource panic, to see what happens then.
    #[cfg(test)]
    pub(crate) fn plant_panic(&self, id: &str) {
        if let Some(handle) = self.lookup(id) {
            handle.plant_panic();
        }
    }
}
