//! The Doorman service. Answers are in the order of the request.

use std::{sync::Arc, time::Instant};

use leaseway_core::{
    policy::access::{AccessRequest, Identity},
    resource::{Answer, Request as Asked},
};
use leaseway_proto::doorman::{
    self as wire, DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse,
    GetServerCapacityRequest, GetServerCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
    capacity_server::Capacity,
};
use leaseway_raft::RaftHandle;
use tonic::{Request, Response, Status};

use super::{
    admitted,
    convert::{self, ForResource, Parsed},
    not_master,
    problems::{Invalid, Problems},
};
use crate::{
    auth::Subject,
    listen::{
        Caller,
        accounts::RequestOrigin,
        waiting_bytes::{Charge, ConnectionBytes, ENTRY, NESTED_PER_ENTRY, TooManyBytes},
    },
    node::{NodeHandle, NotMaster, RequestError, addresses::PeerEndpoints, addresses::ServerInfo},
    observe::metrics::{CallKind, Reason, RequestMethod},
    runtime::coop::{ChunkPermit, ENTRIES},
};

#[derive(Clone)]
pub(crate) struct CapacityService {
    node: NodeHandle,
    info: ServerInfo,
    /// None on a server without peers.
    raft: Option<RaftHandle>,
}

impl CapacityService {
    pub(crate) fn new(node: NodeHandle, info: ServerInfo, raft: Option<RaftHandle>) -> CapacityService {
        CapacityService { node, info, raft }
    }

    /// The peers' addresses for clients.
    fn endpoints(&self) -> Vec<String> {
        let peers = self.raft.iter().flat_map(RaftHandle::peers);
        let endpoints = peers.map(|peer| PeerEndpoints::from(peer.advertise.as_str()).grpc);
        endpoints.filter(|endpoint| !endpoint.is_empty()).collect()
    }

    pub(super) async fn answer_get(
        &self,
        request: GetCapacityRequest,
        caller: Option<&Caller>,
        subject: Option<&Subject>,
    ) -> Result<GetCapacityResponse, Status> {
        let since = Instant::now();
        let from = subject.and_then(Subject::origin).or_else(|| caller.map(Caller::origin));
        metered(RequestMethod::GetCapacity, since, self.get(request, from, subject).await)
    }

    /// Removes entries that the caller has no permission for. Without a `subject`, everything is allowed.
    #[inline]
    fn admit(&self, subject: Option<&Subject>, call: CallKind, parsed: &mut Parsed) -> Result<(), Status> {
        let Some(subject) = subject else { return Ok(()) };
        let Parsed { requests, problems } = parsed;
        if requests.is_empty() {
            return self.node.authorizer().check_known(subject, call);
        }
        self.node.authorizer().retain(subject, call, requests, access_request, |(resource, request), why| {
            problems.note(Reason::Denied, holder(request), resource, why);
        })
    }

    /// Counts refused entries, and records a client that asked too soon in the audit log.
    #[inline]
    fn record(&self, problems: &Problems, from: Option<RequestOrigin>, subject: Option<&Subject>) {
        problems.count(self.node.authorizer().audit().refusals());
        let Some((client, resource)) = problems.too_soon() else { return };
        let who = subject.map_or(&Identity::Anonymous, |subject| subject.permissions().identity());
        self.node.authorizer().audit().too_soon(who, from.map(|from| from.address), client, resource);
    }

    async fn parse_in_chunks(&self, request: GetCapacityRequest) -> Result<Parsed, Invalid> {
        let mut permit = ChunkPermit::acquire().await;
        let mut reader = convert::RequestReader::new(request, &self.node.limits)?;
        while reader.read(ENTRIES, &self.node.limits)? {
            permit = permit.next().await;
        }
        Ok(reader.finish(&self.node.limits))
    }

    async fn ask_all(
        &self,
        requests: &[ForResource],
        from: Option<RequestOrigin>,
    ) -> Vec<Result<Answer, RequestError>> {
        if let [(resource, request)] = requests {
            let answer = self.node.submit_from(resource, request, from).await;
            return vec![answer];
        }
        // Boxed, so that the futures of requests for one resource stay small.
        Box::pin(self.node.submit_all(requests, from)).await
    }

    /// Asks all resources if this peer is the master; otherwise returns the master.
    async fn ask_master(
        &self,
        requests: &[ForResource],
        from: Option<RequestOrigin>,
    ) -> Result<Vec<Result<Answer, RequestError>>, Mastership> {
        if requests.is_empty() {
            return self.node.check().map(|()| Vec::new()).map_err(|why| mastership(&why));
        }
        let answers = self.ask_all(requests, from).await;
        match redirect_in(&answers) {
            None => Ok(answers),
            // Boxed, so that the future of a master, which never retries, stays small.
            Some(master) => Box::pin(self.retry_after_start(requests, from, master)).await,
        }
    }

    /// If this peer has just started, waits until it knows the master and asks again.
    async fn retry_after_start(
        &self,
        requests: &[ForResource],
        from: Option<RequestOrigin>,
        mastership: Mastership,
    ) -> Result<Vec<Result<Answer, RequestError>>, Mastership> {
        if mastership.master_address.is_some() || !self.node.until_first_master().await {
            return Err(mastership);
        }
        let answers = self.ask_all(requests, from).await;
        redirect_in(&answers).map_or(Ok(answers), Err)
    }

    async fn get(
        &self,
        request: GetCapacityRequest,
        from: Option<RequestOrigin>,
        subject: Option<&Subject>,
    ) -> Result<GetCapacityResponse, Status> {
        let mut parsed = match request.resource.len() {
            ..=ENTRIES => convert::get_capacity(request, &self.node.limits)?,
            // Boxed as in [`ask_all`](Self::ask_all).
            _ => Box::pin(self.parse_in_chunks(request)).await?,
        };
        self.admit(subject, CallKind::GetCapacity, &mut parsed)?;
        let Parsed { requests, mut problems } = parsed;
        let answers = match self.ask_master(&requests, from).await {
            Ok(answers) => answers,
            Err(master) => return Ok(GetCapacityResponse { mastership: Some(master), ..Default::default() }),
        };
        let response = granted(requests, answers, &mut problems, convert::resource_response).await?;
        self.record(&problems, from, subject);
        Ok(GetCapacityResponse { response, mastership: None, problem: problems.into_wire() })
    }

    async fn get_server(
        &self,
        request: GetServerCapacityRequest,
        from: Option<RequestOrigin>,
        subject: Option<&Subject>,
    ) -> Result<GetServerCapacityResponse, Status> {
        let child = request.server_id.clone().unwrap_or_default();
        let mut parsed = convert::get_server_capacity(request, &self.node.limits)?;
        self.admit(subject, CallKind::GetServerCapacity, &mut parsed)?;
        let Parsed { mut requests, mut problems } = parsed;
        requests.retain(|request| !convert::asks_for_nothing(request));
        let answers = match self.ask_master(&requests, from).await {
            Ok(answers) => answers,
            Err(master) => {
                return Ok(GetServerCapacityResponse { mastership: Some(master), ..Default::default() });
            }
        };
        let at = self.node.clock.at();
        self.node.children().asked(&child, requests.len(), at);
        if answers.iter().any(|answer| matches!(answer, Ok(Answer::NameTaken))) {
            self.node.children().refused(&child, at);
        }
        let response = granted(requests, answers, &mut problems, convert::server_response).await?;
        self.record(&problems, from, subject);
        let page = Some(self.info.http.to_string()).filter(|page| !page.is_empty());
        Ok(GetServerCapacityResponse { response, mastership: None, problem: problems.into_wire(), page })
    }

    /// Releases all entries. After a temporary failure of one, the answer is an error, so that the client retries.
    async fn release(
        &self,
        request: ReleaseCapacityRequest,
        subject: Option<&Subject>,
    ) -> Result<ReleaseCapacityResponse, Status> {
        let mut parsed = convert::release_capacity(request, &self.node.limits)?;
        self.admit(subject, CallKind::ReleaseCapacity, &mut parsed)?;
        let Parsed { requests, mut problems } = parsed;
        let mut error = None;
        for (resource, request) in requests {
            let client = Arc::clone(holder(&request));
            // Releases do not create resources.
            match self.node.submit_to_living(&resource, request).await {
                Ok(_) => {}
                Err(RequestError::NotMaster(mut why)) => {
                    if why.master.is_none() && self.node.until_first_master().await {
                        match self.node.check() {
                            // A new master has no resources yet.
                            Ok(()) => continue,
                            Err(now) => why = now,
                        }
                    }
                    return Ok(ReleaseCapacityResponse { mastership: Some(mastership(&why)), problem: Vec::new() });
                }
                Err(why) => error = temporary(&why, &client, &resource, &mut problems).or(error),
            }
        }
        problems.count(self.node.authorizer().audit().refusals());
        match error {
            Some(error) => Err(error),
            None => Ok(ReleaseCapacityResponse { mastership: None, problem: problems.into_wire() }),
        }
    }
}

/// The master to ask instead, if any answer is a redirect: an answer must not mix the leases of two masters.
pub(super) fn redirect_in(answers: &[Result<Answer, RequestError>]) -> Option<Mastership> {
    answers.iter().find_map(|answer| match answer {
        Err(RequestError::NotMaster(why)) => Some(mastership(why)),
        _ => None,
    })
}

pub(super) fn mastership(why: &NotMaster) -> Mastership {
    Mastership { master_address: why.master.as_ref().map(|master| master.grpc.clone()) }
}

/// The grants, in the order of the requests. A resource that did not answer is left out and reported as a problem. If
/// no resource answered and one of the causes is temporary, the request fails, so that callers retry. Permanent causes
/// do not fail it, because Doorman's clients repeat a failed request until it succeeds.
async fn granted<T>(
    requests: Vec<ForResource>,
    answers: Vec<Result<Answer, RequestError>>,
    problems: &mut Problems,
    response: impl Fn(String, &Answer) -> Option<T>,
) -> Result<Vec<T>, Status> {
    let mut grants = Grants { granted: Vec::with_capacity(answers.len()), error: None };
    let mut answered = requests.into_iter().zip(answers);
    grants.add(answered.by_ref().take(ENTRIES), problems, &response);
    if answered.len() > 0 {
        // Boxed as in [`CapacityService::ask_all`].
        let rest = async {
            let mut permit = ChunkPermit::acquire().await;
            while answered.len() > 0 {
                grants.add(answered.by_ref().take(ENTRIES), problems, &response);
                permit = permit.next().await;
            }
        };
        Box::pin(rest).await;
    }
    match grants.error {
        Some(error) if grants.granted.is_empty() => Err(error),
        _ => Ok(grants.granted),
    }
}

struct Grants<T> {
    granted: Vec<T>,
    error: Option<Status>,
}

impl<T> Grants<T> {
    fn add(
        &mut self,
        answered: impl Iterator<Item = (ForResource, Result<Answer, RequestError>)>,
        problems: &mut Problems,
        response: impl Fn(String, &Answer) -> Option<T>,
    ) {
        for ((resource, request), answer) in answered {
            match answer {
                Ok(answer @ (Answer::Granted(_) | Answer::Supplied(_))) => {
                    self.granted.extend(response(resource, &answer));
                }
                Ok(answer) => {
                    if let Some((reason, message)) = left_out(&answer) {
                        problems.note(reason, holder(&request), &resource, message);
                    }
                }
                Err(why) => {
                    self.error = temporary(&why, holder(&request), &resource, problems).or(self.error.take());
                }
            }
        }
    }
}

fn holder(request: &Asked) -> &Arc<str> {
    match request {
        Asked::Ask(ask) | Asked::Renew(ask) => &ask.id,
        Asked::Release(release) => &release.id,
    }
}

fn access_request((resource, request): &ForResource) -> AccessRequest<'_> {
    AccessRequest::of(resource, request)
}

/// The problem to report for an answer without a lease.
pub(super) fn left_out(answer: &Answer) -> Option<(Reason, &'static str)> {
    match answer {
        Answer::Full => Some((
            Reason::TooManyClients,
            "too many clients of this resource or server: raise the server's --max-clients-per-resource or --max-clients",
        )),
        Answer::NameTaken => Some((
            Reason::NameTaken,
            "another node with this name has leases here: give every node its own --node; if this is the same node without its old data directory, it is served when those leases have expired",
        )),
        Answer::ShareFull => Some((
            Reason::TooManyClients,
            "too many clients for your identity or address: raise the server's --max-clients or --address-share",
        )),
        Answer::NeedsReport => Some((
            Reason::NeedsReport,
            "this resource is a budget: only clients that report what they have spent (`spent`) get an allowance; open it as a budget in a Leaseway client",
        )),
        Answer::NeedsStorage => Some((
            Reason::NeedsStorage,
            "this resource is a budget, and this server does not store what was spent: start it with --data, and without --handover learning",
        )),
        Answer::TooSoon => Some((
            Reason::TooSoon,
            "requested again too soon (min_request_interval) although nothing has changed: \
                                    the client keeps its lease",
        )),
        Answer::NotYet => Some((
            Reason::NotYet,
            "this node cannot decide yet: it has no lease from its parent, or the budget is between two periods; ask \
             again in a second",
        )),
        // No client waits for a stale answer. The problem of an invalid entry was recorded before.
        Answer::Stale | Answer::Unknown | Answer::Released | Answer::Granted(_) | Answer::Supplied(_) => None,
    }
}

/// Records the cause of a refusal. Returns an error if it is temporary.
pub(super) fn temporary(why: &RequestError, client: &str, resource: &str, problems: &mut Problems) -> Option<Status> {
    let reason = match why {
        RequestError::TooManyResources(_) | RequestError::ResourceShare(_) => Reason::TooManyResources,
        RequestError::Busy(_) | RequestError::QueueShare(_) => Reason::Busy,
        RequestError::Failed(_) => Reason::Failed,
        RequestError::ShuttingDown | RequestError::NotMaster(_) => return Some(refused(why)),
    };
    problems.note(reason, client, resource, &why.to_string());
    (reason != Reason::TooManyResources).then(|| refused(why))
}

pub(super) fn refused(why: &RequestError) -> Status {
    let text = why.to_string();
    match why {
        RequestError::NotMaster(why) => not_master(why),
        RequestError::Busy(_)
        | RequestError::QueueShare(_)
        | RequestError::TooManyResources(_)
        | RequestError::ResourceShare(_) => Status::resource_exhausted(text),
        RequestError::Failed(_) => Status::internal(text),
        RequestError::ShuttingDown => Status::unavailable(text),
    }
}

fn metered<T>(method: RequestMethod, since: Instant, result: Result<T, Status>) -> Result<T, Status> {
    method.answered(since.elapsed(), result.is_err());
    result
}

/// Charges the entries of a child node's request.
fn charge_entries(request: &Request<GetServerCapacityRequest>) -> Result<Option<Charge>, TooManyBytes> {
    let Some(bytes) = request.extensions().get::<Arc<ConnectionBytes>>() else { return Ok(None) };
    let entries = request.get_ref().resource.iter().map(|entry| 1 + entry.wants.len() / NESTED_PER_ENTRY);
    Charge::part(bytes, ENTRY * entries.sum::<usize>()).map(Some)
}

#[tonic::async_trait]
impl Capacity for CapacityService {
    async fn discovery(&self, request: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        admitted.check_known(CallKind::Discovery)?;
        let (is_master, mastership, term) = match self.node.master_lease() {
            Ok(lease) => (
                true,
                Mastership { master_address: Some(self.info.advertise.to_string()) },
                lease.map(|lease| lease.term()),
            ),
            Err(why) => (false, mastership(&why), None),
        };
        let response = wire::DiscoveryResponse {
            mastership: Some(mastership),
            is_master: Some(is_master),
            endpoint: self.endpoints(),
            term,
            renews_by_stream: is_master.then_some(true),
        };
        metered(RequestMethod::Discovery, Instant::now(), Ok(response)).map(Response::new)
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        let caller = Caller::of(&request).cloned();
        self.answer_get(request.into_inner(), caller.as_ref(), admitted.subject()).await.map(Response::new)
    }

    async fn get_server_capacity(
        &self,
        request: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        let since = Instant::now();
        let admitted = admitted(&request, self.node.authorizer());
        let from = admitted.origin();
        let _charge = charge_entries(&request)?;
        let answer = self.get_server(request.into_inner(), from, admitted.subject()).await;
        metered(RequestMethod::GetServerCapacity, since, answer).map(Response::new)
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        let since = Instant::now();
        let admitted = admitted(&request, self.node.authorizer());
        let answer = self.release(request.into_inner(), admitted.subject()).await;
        metered(RequestMethod::ReleaseCapacity, since, answer).map(Response::new)
    }
}
