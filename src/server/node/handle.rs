//! The handle to the node. Requests go directly to their resources; changes of the node are messages to its actor.

mod child_nodes;
pub(crate) mod declarations;
pub(crate) mod limits;
pub(crate) mod plan;
mod reports;
mod startup_gate;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use actix::{Addr, Handler, Message};
use futures_util::future::join_all;
use leaseway_core::engine::LostMastership;
use leaseway_core::{
    policy::settings::Settings,
    resource::{Answer, Request, Resource},
    types::{HolderKind, Millis, Principal},
};
use leaseway_raft::{Ineligible, MasterLease, RaftHandle, Usage};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::{child_nodes::ChildNodes, startup_gate::StartupGate};
use super::{
    config_in_force::ConfigInForce,
    node_actor::{Configure, FollowRaft, NodeActor, NodeShared, NodeStart, Open, Ping, PrepareShutdown, Reject, Tick},
    request_error::{NotMaster, RequestError},
    resource_actor::{Full, Operate, PendingAnswer, ResourceHandle, SendError, WeakResourceHandle, YieldOnce},
    resource_directory::Role,
    uplink_actor::{Parent, UplinkReport},
};
use crate::{
    auth::Authorizer,
    config::{Loaded, limits::Limits},
    listen::accounts::RequestOrigin,
    node::{
        DropGuard,
        assignment_store::AssignmentStore,
        streams::{
            hints::{TooManyWatchers, Watch},
            pool_events::Subscribers,
        },
    },
    runtime::{
        clock::Clock,
        coop::{ChunkPermit, ENTRIES, pause},
    },
};

/// Maximum number of attempts for a request if the incarnation of the resource ends before it answers.
const TRIES: usize = 3;

/// The node actor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Sends to the node, and through its directory to resources.
#[derive(Clone)]
pub(crate) struct NodeHandle {
    addr: Addr<NodeActor>,
    shared: Arc<NodeShared>,
    startup_gate: StartupGate,
    /// One permit, because plans are made one at a time.
    planning: Arc<Semaphore>,
    children: Arc<ChildNodes>,
    pub(crate) clock: Clock,
    pub(crate) limits: Arc<Limits>,
}

fn busy(full: Full, id: &str) -> RequestError {
    match full {
        Full::InAll => RequestError::Busy(id.to_owned()),
        Full::OfPrincipal => RequestError::QueueShare(id.to_owned()),
    }
}

impl NodeHandle {
    /// Starts the node on the current arbiter. `on_failure` is called if it panics.
    pub(crate) fn start(start: NodeStart, on_failure: impl FnOnce() + Send + Sync + 'static) -> NodeHandle {
        let shared = Arc::new(NodeShared::new(&start));
        let (master_known, has_known) = watch::channel(start.membership.is_none());
        let (clock, limits) = (start.clock, Arc::clone(&start.limits));
        NodeHandle {
            addr: NodeActor::start(start, Arc::clone(&shared), master_known, DropGuard::new(on_failure)),
            shared,
            startup_gate: StartupGate::new(has_known),
            planning: Arc::new(Semaphore::new(1)),
            children: Arc::default(),
            clock,
            limits,
        }
    }

    /// Submits a request to a resource, and creates the resource if needed.
    #[cfg(test)]
    pub(crate) async fn submit(&self, id: &Arc<str>, request: Request) -> Result<Answer, RequestError> {
        self.submit_from(id, &request, None).await
    }

    /// Submits a request to a resource, and creates the resource if needed.
    pub(crate) async fn submit_from(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
    ) -> Result<Answer, RequestError> {
        let mut dead = None;
        let asked = self.submit_if_alive(id, request, from)?;
        if let Some(asked) = asked {
            dead = Some(asked.generation());
            if let Some(answer) = asked.await {
                return answer.map_err(|LostMastership| self.lost_mastership());
            }
        } else if matches!(request, Request::Renew(ask) if ask.has.is_none()) {
            // The resource has no holders, so there is nothing to renew.
            return Ok(Answer::Unknown);
        }
        // Boxed to keep the futures of all requests small, because few requests get here.
        Box::pin(self.submit_to_next(id, request, from, dead)).await
    }

    /// Submits a request if the resource is active.
    fn submit_if_alive(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
    ) -> Result<Option<PendingAnswer>, RequestError> {
        let Some(handle) = self.shared.directory.look_up(id).map_err(RequestError::NotMaster)? else { return Ok(None) };
        handle.submit(request.clone(), from).map(Some).map_err(|full| busy(full, id))
    }

    /// Submits a request to a resource that is not active, or whose incarnation `dead` has ended.
    async fn submit_to_next(
        &self,
        id: &str,
        request: &Request,
        from: Option<RequestOrigin>,
        mut dead: Option<u64>,
    ) -> Result<Answer, RequestError> {
        for _ in 0..TRIES {
            let known = self.shared.directory.look_up(id).map_err(RequestError::NotMaster)?;
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
        Err(RequestError::Failed(id.to_string()))
    }

    /// Like [`submit_from`](Self::submit_from), for several resources. Submits all requests before it awaits an answer.
    /// Requests to active resources need no future of their own. Long lists are submitted in chunks, yielding between
    /// them, and the number of concurrent long lists per principal is bounded.
    pub(crate) async fn submit_all(
        &self,
        requests: &[(String, Request)],
        from: Option<RequestOrigin>,
    ) -> Vec<Result<Answer, RequestError>> {
        let account =
            from.filter(|_| requests.len() > ENTRIES).and_then(|from| self.shared.accounts.of(from.principal));
        let turn = match &account {
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
        drop((permit, turn));
        for (at, pending) in pending.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(ENTRIES) {
                pause().await;
            }
            answers.push(match pending {
                Some(pending) => pending.await.map(|answer| answer.map_err(|LostMastership| self.lost_mastership())),
                None => None,
            });
        }
        // The resource is not active, its incarnation has ended meanwhile, or this peer is not the master.
        let others = requests.iter().zip(&answers).filter(|(_, answer)| answer.is_none()).map(|(request, _)| request);
        let others = others.map(|(id, request)| self.submit_from(id, request, from));
        let mut others = join_all(others).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| others.next())).collect()
    }

    /// Submits a request to a resource if it is active. `None` if it is not.
    pub(crate) async fn submit_to_living(&self, id: &str, request: Request) -> Result<Option<Answer>, RequestError> {
        let Some(asked) = self.submit_if_alive(id, &request, None)? else { return Ok(None) };
        asked.await.transpose().map_err(|LostMastership| self.lost_mastership())
    }

    /// Runs `work` on a resource, and creates the resource if needed. If its incarnation fails, `work` runs again on
    /// the next one.
    pub(crate) async fn operate<T: Send + 'static>(
        &self,
        id: &Arc<str>,
        work: impl Fn(&mut Resource, Millis) -> T + Clone + Send + 'static,
    ) -> Result<T, RequestError> {
        let mut dead = None;
        for _ in 0..TRIES {
            self.check().map_err(RequestError::NotMaster)?;
            let known = self.shared.directory.get(id).filter(|handle| Some(handle.generation()) != dead);
            let handle = match known {
                Some(handle) => handle,
                None => self.open(id, dead, None).await?,
            };
            match handle.ask(Operate(work.clone())) {
                Err(SendError::Busy) => return Err(RequestError::Busy(id.to_string())),
                Err(SendError::Gone) => {}
                Ok(done) => {
                    if let Ok(Some(done)) = done.await {
                        return Ok(done);
                    }
                }
            }
            dead = Some(handle.generation());
        }
        self.check().map_err(RequestError::NotMaster)?;
        Err(RequestError::Failed(id.to_string()))
    }

    pub(crate) fn assignment_store(&self) -> &AssignmentStore {
        &self.shared.assignment_store
    }

    pub(crate) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.shared.subscribers
    }

    /// The child nodes that have asked this server.
    pub(crate) fn children(&self) -> &ChildNodes {
        &self.children
    }

    pub(crate) fn authorizer(&self) -> &Arc<Authorizer> {
        &self.shared.authorizer
    }

    /// The settings of a resource by the configuration. `None` if they come from the parent.
    pub(crate) fn settings(&self, id: &str) -> Option<Arc<Settings>> {
        self.shared.parent.is_none().then(|| self.shared.settings_for(id))
    }

    /// The error for a request that needs the master. Names the master, if it is known.
    fn lost_mastership(&self) -> RequestError {
        RequestError::NotMaster(self.check().err().unwrap_or(NotMaster { master: None }))
    }

    /// Whether this peer may decide now.
    pub(crate) fn check(&self) -> Result<(), NotMaster> {
        self.shared.directory.role().check(self.clock.at())
    }

    /// Reads what holders of budgets have spent. `None` if no peers keep it.
    pub(crate) fn read_usage<T>(&self, read: impl FnOnce(&Usage) -> T) -> Option<T> {
        self.raft().map(|raft| raft.read(|state| read(state.usage())))
    }

    fn raft(&self) -> Option<&RaftHandle> {
        self.shared.membership.as_ref().map(|membership| &membership.raft)
    }

    /// Whether this peer is master, or is in contact with the master as a voter.
    pub(crate) fn has_master_contact(&self) -> bool {
        self.raft().is_none_or(RaftHandle::gets_heartbeats)
    }

    /// Why this peer is ineligible (neither votes nor serves). `None` if it is eligible.
    pub(crate) fn ineligible(&self) -> Option<Ineligible> {
        self.raft().and_then(RaftHandle::ineligible)
    }

    /// The lease of this master. `None` for a server without peers.
    pub(crate) fn master_lease(&self) -> Result<Option<MasterLease>, NotMaster> {
        let role = self.shared.directory.role();
        role.check(self.clock.at())?;
        match role {
            Role::Master(master_lease) => Ok(master_lease),
            Role::Elsewhere(master) => Err(NotMaster { master }),
        }
    }

    pub(super) async fn open(
        &self,
        id: &Arc<str>,
        dead: Option<u64>,
        from: Option<RequestOrigin>,
    ) -> Result<ResourceHandle, RequestError> {
        self.tell(Open { id: Arc::clone(id), dead, from }).await.map_err(|Gone| RequestError::ShuttingDown)?
    }

    async fn tell<M: Message<Result: Send> + Send + 'static>(&self, message: M) -> Result<M::Result, Gone>
    where
        NodeActor: Handler<M>,
    {
        self.addr.send(message).await.map_err(|_| Gone)
    }

    /// The parent. `None` for a root.
    pub(crate) fn parent(&self) -> Option<&Parent> {
        self.shared.parent.as_ref()
    }

    /// The state of the uplink. `None` unless this peer is master.
    pub(crate) fn uplink(&self) -> Option<UplinkReport> {
        self.shared.uplink_status.read()
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<ConfigInForce> {
        self.shared.config()
    }

    /// Puts another configuration in force. Leases stay.
    pub(crate) async fn configure(&self, loaded: Loaded) -> Result<(), Gone> {
        let Loaded { repository, access, text, .. } = loaded;
        let version = self.config().version + 1;
        let (source, text) = (self.config().source.clone(), text.into());
        let config = ConfigInForce { repository, access, version, source, text, ..ConfigInForce::default() };
        self.tell(Configure(config)).await
    }

    /// Applies the Raft state now rather than with the next poll.
    pub(crate) async fn apply_raft_state(&self) -> Result<(), Gone> {
        self.tell(FollowRaft).await
    }

    /// Records why a configuration was refused. The old one stays in force.
    pub(crate) async fn reject(&self, why: String) -> Result<(), Gone> {
        self.tell(Reject(why)).await
    }

    /// Makes the node restart a failed uplink, and announce new streams of hints.
    pub(crate) async fn tick(&self) -> Result<(), Gone> {
        self.tell(Tick).await
    }

    /// Prepares for the end of this server: pools write their last notes, and another peer may become master.
    pub(crate) async fn hand_over(&self) {
        // Fails if the node actor has ended, which then has nothing to hand over.
        let _ = self.tell(PrepareShutdown).await;
    }

    /// Collects hints for a holder until the result is dropped.
    pub(crate) fn watch(
        &self,
        kind: HolderKind,
        id: Arc<str>,
        from: Option<RequestOrigin>,
    ) -> Result<Watch, TooManyWatchers> {
        self.shared.watchers.start(kind, id, from.map_or(Principal::NONE, |from| from.principal))
    }

    /// Reserves the only stream of renewals of a client, until the result is dropped or another stream takes it.
    pub(crate) fn open_stream(&self, client: Arc<str>, from: Option<RequestOrigin>) -> Result<Watch, TooManyWatchers> {
        let principal = from.map_or(Principal::NONE, |from| from.principal);
        self.shared.renewing.start(HolderKind::Client, client, principal)
    }

    /// The number of entries of all streams of renewals.
    pub(crate) fn streamed_entries(&self) -> &Arc<AtomicUsize> {
        &self.shared.streamed_entries
    }

    /// Reaches a resource, if it is active, without keeping it alive.
    pub(crate) fn reach(&self, id: &str) -> Option<WeakResourceHandle> {
        Some(self.shared.directory.get(id)?.downgrade())
    }

    /// The number of watched holders.
    pub(crate) fn watching(&self) -> usize {
        self.shared.watchers.count()
    }

    /// Returns when the node actor has handled a message, which shows that it makes progress.
    pub(crate) async fn ping(&self) -> Result<(), Gone> {
        self.tell(Ping).await
    }

    /// The number of active resources.
    pub(crate) fn resources(&self) -> usize {
        self.shared.directory.len()
    }

    /// The number of holders of all resources.
    pub(crate) fn holders(&self) -> usize {
        self.shared.holders.load(Ordering::Relaxed)
    }

    /// The longest lease that this node grants out of leases of the parent. Zero without a parent.
    pub(crate) fn longest_loan(&self) -> Millis {
        self.shared.uplink_status.longest()
    }

    /// Descriptions of committed data that other peers have lost.
    pub(crate) fn losses(&self) -> Vec<String> {
        self.raft().map_or_else(Vec::new, RaftHandle::losses)
    }

    /// Waits for the permit to make a plan. There is one, because a plan copies all holders of a resource.
    pub(crate) async fn planning(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.planning).acquire_owned().await.ok()
    }

    /// Shortly after the start, waits until a master is first known; later, returns immediately. Returns whether one is
    /// or was known, so that another attempt is worthwhile.
    pub(crate) async fn until_first_master(&self) -> bool {
        self.startup_gate.wait().await
    }

    /// An active resource.
    #[cfg(test)]
    pub(super) fn lookup(&self, id: &str) -> Option<ResourceHandle> {
        self.shared.directory.get(id)
    }

    /// Makes a resource panic.
    #[cfg(test)]
    pub(crate) fn plant_panic(&self, id: &str) {
        if let Some(handle) = self.lookup(id) {
            handle.plant_panic();
        }
    }
}
