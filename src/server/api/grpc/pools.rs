//! The pool service: assignments, connected clients, events. It shares the listener of the admin service.
//!
//! Only the master answers. Other peers name it, as in the admin service. A change is applied to the resource first and
//! then stored; if that fails, the resource is reset to the stored state.

pub(super) mod convert;

use std::sync::Arc;

use futures_util::{Stream, stream};
use leaseway_core::{
    policy::{
        access::{AccessRequest, Action},
        overrides::Load,
        settings::{AlgorithmKind, Settings},
    },
    pool::AssignError,
    resource::{LoadError, LoadReport, Resource as Core},
    types::{Millis, escaped},
};
use leaseway_proto::pools::{
    GetClientCapacityRequest, GetClientCapacityResponse, GetPoolRequest, GetPoolResponse, ListClientsRequest,
    ListClientsResponse, Memory, PoolEvent, ReportLoadRequest, ReportLoadResponse, SetAlarmRequest, SetAlarmResponse,
    SetClientCapacityRequest, SetClientCapacityResponse, SubscribeRequest, assigned::Amount as Portion,
    pools_server::Pools, report_load_request::Load as ReportedLoad,
};
use leaseway_raft::{MasterLease, ProposeError};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tonic::{Request, Response, Status};

use super::{admitted, not_master_status, page_size, proposal_failed};
use crate::{
    auth::Admitted,
    config::limits::Limits,
    node::{
        NodeHandle, RequestError,
        assignment_store::HolderName,
        streams::pool_events::{Dismissed, Subscription},
    },
    observe::metrics::CallKind,
    runtime::clock::Clock,
};

#[derive(Clone)]
pub(crate) struct PoolService {
    node: NodeHandle,
    stopped: watch::Receiver<bool>,
    /// Serializes changes, so that the last one stored is the one in force.
    changing: Arc<Mutex<()>>,
}

impl PoolService {
    /// Open streams end when `stopped` becomes true.
    pub(crate) fn new(node: NodeHandle, stopped: watch::Receiver<bool>) -> PoolService {
        PoolService { node, stopped, changing: Arc::default() }
    }

    /// Requires permission to read a pool.
    fn may_read<T>(&self, request: &Request<T>, resource: &str) -> Result<Admitted, Status> {
        let admitted = admitted(request, self.node.authorizer());
        admitted.check_any(CallKind::Pools, &reads(resource))?;
        Ok(admitted)
    }

    fn may<T>(&self, request: &Request<T>, action: Action, resource: &str) -> Result<Admitted, Status> {
        let admitted = admitted(request, self.node.authorizer());
        admitted.check(CallKind::Pools, &AccessRequest::on(action, resource))?;
        Ok(admitted)
    }

    fn record<T>(&self, admitted: &Admitted, what: &'static str, outcome: &Result<T, Status>, details: Value) {
        self.node.authorizer().record(admitted.event(what, super::outcome(outcome), details));
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.node.limits
    }

    fn master_lease(&self) -> Result<Option<MasterLease>, Status> {
        self.node.master_lease().map_err(|why| not_master_status(&why))
    }

    /// Runs `work` on a resource.
    async fn manage<T: Send + 'static>(
        &self,
        resource: &Arc<str>,
        work: impl Fn(&mut Core, Millis) -> T + Clone + Send + 'static,
    ) -> Result<T, Status> {
        self.node.operate(resource, work).await.map_err(|why| match why {
            RequestError::NotMaster(why) => not_master_status(&why),
            other => super::capacity::refused(&other),
        })
    }

    /// Like [`manage`](Self::manage), for pools only.
    async fn manage_pool<T: Send + 'static>(
        &self,
        resource: &Arc<str>,
        work: impl Fn(&mut Core, Millis) -> T + Clone + Send + 'static,
    ) -> Result<T, Status> {
        self.master_lease()?;
        let is_pool = |settings: &Settings| settings.kind == AlgorithmKind::PriorityPool;
        let settings = self.node.settings(resource);
        if let Some(settings) = settings.filter(|settings| !is_pool(settings)) {
            return Err(no_pool(resource, settings.kind));
        }
        let work = move |core: &mut Core, now| match is_pool(core.settings()) {
            true => Ok(work(core, now)),
            false => Err(core.settings().kind),
        };
        self.manage(resource, work).await?.map_err(|kind| no_pool(resource, kind))
    }

    fn memory(&self) -> Memory {
        if self.node.assignment_store().is_kept() { Memory::Quorum } else { Memory::Process }
    }

    async fn show(&self, request: GetPoolRequest) -> Result<GetPoolResponse, Status> {
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let look = |core: &mut Core, now| (core.pool(), core.reported_load(), now);
        let (pool, load, now) = self.manage_pool(&resource, look).await?;
        let pool = pool.ok_or_else(|| Status::internal("unexpected error: the pool did not answer"))?;
        Ok(GetPoolResponse {
            reported_load: load.map(|(capacity, _)| capacity.get()),
            reported_load_ms: load.and_then(|(_, until)| until).map(|until| until.since(now).0),
            memory: self.memory().into(),
            subscribers: self.node.subscribers().count_of(&resource) as u64,
            ..convert::pool(&resource, &pool, now)
        })
    }

    async fn set(&self, request: SetClientCapacityRequest) -> Result<SetClientCapacityResponse, Status> {
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let holder = convert::holder(request.holder, &self.node.limits)?;
        let assigned = convert::assigned(request.assigned)?;
        let _alone = self.changing.lock().await;
        let lease = self.master_lease()?;
        let (kind, id) = holder.clone();
        let before = self.manage_pool(&resource, move |core, now| core.assign(now, kind, &id, assigned)).await?;
        let before = before.map_err(|error| not_assigned(&resource, &error))?;
        let written = self.node.assignment_store().assign(lease.as_ref(), &resource, holder.clone(), assigned).await;
        self.reconcile(&resource, holder, written).await?;
        Ok(SetClientCapacityResponse { before: before.map(convert::to_assigned), memory: self.memory().into() })
    }

    /// Resets a resource to the stored assignment, if storing failed or the resource was recreated meanwhile.
    async fn reconcile(
        &self,
        resource: &Arc<str>,
        holder: HolderName,
        written: Result<(), ProposeError>,
    ) -> Result<(), Status> {
        let assigned = self.node.assignment_store().assigned(resource, &holder);
        let put = move |core: &mut Core, now| {
            let (kind, id) = holder.clone();
            match assigned {
                _ if core.assigned(kind, &id) == assigned => {}
                Some(assigned) => core.remember_assignments([(kind, id, assigned)]),
                // Removing an assignment always succeeds.
                None => drop(core.assign(now, kind, &id, None)),
            }
        };
        let put = self.manage_pool(resource, put).await;
        written.map_err(|error| proposal_failed(&error))?;
        put
    }

    async fn get(&self, request: GetClientCapacityRequest) -> Result<GetClientCapacityResponse, Status> {
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let (kind, id) = convert::holder(request.holder, &self.node.limits)?;
        let holder = (kind, Arc::clone(&id));
        let member = self.manage_pool(&resource, move |core, _| core.pool_member(kind, &id)).await?;
        // Read from the store, because the pool has an assignment before a majority of peers has stored it. The
        // mastership is checked last, because a peer that is not the master may lack the latest changes.
        let assigned = self.node.assignment_store().assigned(&resource, &holder);
        self.master_lease()?;
        let client = member.as_ref().map(convert::client);
        Ok(GetClientCapacityResponse { assigned: assigned.map(convert::to_assigned), client })
    }

    async fn list(&self, request: ListClientsRequest) -> Result<ListClientsResponse, Status> {
        let filter = convert::filter(request.filter());
        let from = convert::page_start(&request.page_token)?;
        let limit = page_size(request.page_size);
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let page = self.manage_pool(&resource, move |core, _| core.pool_members(filter, from.as_ref(), limit)).await?;
        Ok(ListClientsResponse {
            client: page.members.iter().map(convert::client).collect(),
            next_page_token: page.next.as_ref().map(convert::page_token).unwrap_or_default(),
        })
    }

    async fn alarm(&self, request: SetAlarmRequest) -> Result<SetAlarmResponse, Status> {
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let (kind, id) = convert::holder(request.holder, &self.node.limits)?;
        let mark = convert::mark(request.mark)?;
        let set = self.manage_pool(&resource, move |core, now| core.set_alarm(now, kind, &id, mark)).await?;
        set.map(|()| SetAlarmResponse {}).map_err(|error| not_assigned(&resource, &error))
    }

    async fn load(&self, request: ReportLoadRequest) -> Result<ReportLoadResponse, Status> {
        let load = convert::load(request.load.as_ref())?;
        let valid = request.valid_ms;
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        let _alone = self.changing.lock().await;
        let lease = self.master_lease()?;
        if self.node.settings(&resource).is_some_and(|settings| settings.load_bounds == (None, None)) {
            return Err(not_moved(&resource, &LoadError::NotAllowed));
        }
        let report = move |core: &mut Core, now: Millis| {
            let until = valid.map(|valid| now.plus(Millis(valid)));
            // Without a report, the template's capacity applies.
            let load = load.unwrap_or(Load::Factor(1.0));
            let capacity = core.report_load(now, LoadReport { load, until })?;
            Ok((capacity, core.load_bounds()))
        };
        let moved = self.manage(&resource, report).await?.map_err(|error| not_moved(&resource, &error))?;
        let (capacity, (floor, ceiling)) = moved;
        // Only the latest report counts; one that expires is not stored.
        let remembered = load.filter(|_| valid.is_none());
        let written = self.node.assignment_store().load(lease.as_ref(), &resource, remembered).await;
        written.map_err(|error| proposal_failed(&error))?;
        let memory = if valid.is_none() { self.memory() } else { Memory::Process };
        Ok(ReportLoadResponse {
            capacity: capacity.get(),
            floor: floor.get(),
            ceiling: ceiling.get(),
            memory: memory.into(),
        })
    }

    async fn begin(&self, request: SubscribeRequest, admitted: Admitted) -> Result<EventStream, Status> {
        let filter = convert::event_filter(&request)?;
        let resource = convert::resource(request.resource_id, &self.node.limits)?;
        // Subscribed before the pool is read, so that no event is missed.
        let subscription = self.node.subscribers().start(&resource, filter);
        let subscription = subscription.map_err(|why| Status::resource_exhausted(why.to_string()))?;
        let look = |core: &mut Core, now| (core.pool(), now);
        let (pool, now) = self.manage_pool(&resource, look).await?;
        let pool = pool.ok_or_else(|| Status::internal("unexpected error: the pool did not answer"))?;
        subscription.expect(pool.deadline);
        Ok(EventStream {
            subscription,
            stopped: self.stopped.clone(),
            admitted,
            resource,
            first: Some(convert::begin(&pool, now, &self.node.clock)),
            clock: self.node.clock,
            ended: false,
        })
    }
}

/// The permissions to read a pool. Either is sufficient.
fn reads(resource: &str) -> [AccessRequest<'_>; 2] {
    [Action::Read, Action::Pools].map(|action| AccessRequest::on(action, resource))
}

fn assignment_in_words(request: &SetClientCapacityRequest) -> Value {
    let assigned = request.assigned.and_then(|assigned| assigned.amount).map(|amount| match amount {
        Portion::Capacity(capacity) => json!(capacity),
        Portion::Share(share) => json!(format!("{}%", 100.0 * share)),
    });
    let holder = request.holder.as_ref().map(|holder| &holder.id);
    json!({ "resource": request.resource_id, "client": holder, "assigned": assigned })
}

fn load_in_words(load: Option<&ReportedLoad>) -> Value {
    match load {
        None => Value::Null,
        Some(ReportedLoad::Capacity(capacity)) => json!(capacity),
        Some(ReportedLoad::Factor(factor)) => json!(format!("{}%", 100.0 * factor)),
    }
}

/// Completes a change even if the caller gives up: a change that the resource applied must be stored.
async fn complete<T: Send + 'static>(
    change: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let made = tokio::spawn(change).await;
    made.unwrap_or_else(|_| {
        Err(Status::unavailable(
            "this server is shutting down, or has failed; check what is in force before you try again",
        ))
    })
}

/// The state of a stream between two events.
struct EventStream {
    subscription: Subscription,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
    resource: Arc<str>,
    first: Option<PoolEvent>,
    clock: Clock,
    ended: bool,
}

impl EventStream {
    async fn next(mut self) -> Option<(Result<PoolEvent, Status>, EventStream)> {
        if self.ended {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        let event = self.wait().await;
        // The policy may have changed, and the token may have expired.
        let event = event.and_then(|event| self.check_again().map(|()| event));
        self.ended = event.is_err();
        Some((event, self))
    }

    /// Waits for an event while the caller has permission.
    async fn wait(&mut self) -> Result<PoolEvent, Status> {
        loop {
            tokio::select! {
                biased;
                next = self.subscription.next() => return match next {
                    Ok(next) => Ok(convert::event(&next.event, next.deadline, &self.clock)),
                    Err(Dismissed) => Err(Status::unavailable("this server is no longer the master")),
                },
                // An error means that the sender is gone, which also ends the server.
                _ = self.stopped.wait_for(|stop| *stop) => {
                    return Err(Status::unavailable("this server is shutting down"));
                }
                () = self.admitted.until_outdated() => {}
            }
            self.check_again()?;
        }
    }

    fn check_again(&mut self) -> Result<(), Status> {
        self.admitted.check_again(CallKind::Pools, &reads(&self.resource))
    }
}

fn no_pool(resource: &str, kind: AlgorithmKind) -> Status {
    Status::not_found(format!(
        "`{}` is not a pool, because its algorithm is {}: set PRIORITY_POOL in its template",
        escaped(resource),
        kind.name()
    ))
}

fn not_assigned(resource: &str, error: &AssignError) -> Status {
    let text = format!("`{}`: {error}", escaped(resource));
    match error {
        AssignError::NoPool => Status::not_found(text),
        AssignError::BelowMinimum { .. } | AssignError::BadShare { .. } => Status::invalid_argument(text),
        AssignError::OverTotal { .. } => Status::aborted(text),
        AssignError::TooMany | AssignError::TooManyMarks => Status::resource_exhausted(text),
    }
}

fn not_moved(resource: &str, error: &LoadError) -> Status {
    let text = format!("`{}`: {error}", escaped(resource));
    match error {
        LoadError::BadFactor => Status::invalid_argument(text),
        LoadError::NotAllowed | LoadError::HasParent => Status::aborted(text),
    }
}

#[tonic::async_trait]
impl Pools for PoolService {
    type SubscribeStream = std::pin::Pin<Box<dyn Stream<Item = Result<PoolEvent, Status>> + Send>>;

    async fn get_pool(&self, request: Request<GetPoolRequest>) -> Result<Response<GetPoolResponse>, Status> {
        self.may_read(&request, &request.get_ref().resource_id)?;
        self.show(request.into_inner()).await.map(Response::new)
    }

    async fn set_client_capacity(
        &self,
        request: Request<SetClientCapacityRequest>,
    ) -> Result<Response<SetClientCapacityResponse>, Status> {
        let admitted = self.may(&request, Action::Pools, &request.get_ref().resource_id)?;
        let (service, request) = (self.clone(), request.into_inner());
        let details = assignment_in_words(&request);
        let set = complete(async move { service.set(request).await }).await;
        self.record(&admitted, "assigned", &set, details);
        set.map(Response::new)
    }

    async fn get_client_capacity(
        &self,
        request: Request<GetClientCapacityRequest>,
    ) -> Result<Response<GetClientCapacityResponse>, Status> {
        self.may_read(&request, &request.get_ref().resource_id)?;
        self.get(request.into_inner()).await.map(Response::new)
    }

    async fn list_clients(
        &self,
        request: Request<ListClientsRequest>,
    ) -> Result<Response<ListClientsResponse>, Status> {
        self.may_read(&request, &request.get_ref().resource_id)?;
        self.list(request.into_inner()).await.map(Response::new)
    }

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        let admitted = self.may_read(&request, &request.get_ref().resource_id)?;
        let streaming = self.begin(request.into_inner(), admitted).await?;
        Ok(Response::new(Box::pin(stream::unfold(streaming, EventStream::next))))
    }

    async fn set_alarm(&self, request: Request<SetAlarmRequest>) -> Result<Response<SetAlarmResponse>, Status> {
        self.may(&request, Action::Pools, &request.get_ref().resource_id)?;
        self.alarm(request.into_inner()).await.map(Response::new)
    }

    async fn report_load(&self, request: Request<ReportLoadRequest>) -> Result<Response<ReportLoadResponse>, Status> {
        let admitted = self.may(&request, Action::Override, &request.get_ref().resource_id)?;
        let (service, request) = (self.clone(), request.into_inner());
        let details = json!({ "resource": request.resource_id, "load": load_in_words(request.load.as_ref()) });
        let reported = complete(async move { service.load(request).await }).await;
        self.record(&admitted, "load_reported", &reported, details);
        reported.map(Response::new)
    }
}

#[cfg(test)]
mod tests;
