//! Clients that use the generated gRPC code.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use leaseway_proto::{
    doorman::{
        DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
        GetServerCapacityResponse, Lease, PriorityBandAggregate, Problem, ReleaseCapacityRequest,
        ReleaseCapacityResponse, ResourceRequest, ResourceResponse, ServerCapacityResourceRequest,
        capacity_client::CapacityClient,
    },
    push::{Hint, WatchRequest, push_client::PushClient},
    status::{GetStatusRequest, GetStatusResponse, status_client::StatusClient},
};
use tonic::{Code, Request, Status, Streaming, transport::Channel};

use super::wait::{block_on, eventually};

/// A client or child node that asks for one resource at a time.
pub(crate) trait Asks {
    /// Returns the granted capacity.
    fn ask(&mut self, resource: &str, wants: f64) -> f64;
}

/// A caller of the RPCs, with or without a bearer token.
#[derive(Clone)]
pub(crate) struct Doorman {
    channel: Channel,
    token: Option<String>,
}

impl Doorman {
    pub(crate) fn over(channel: Channel) -> Doorman {
        Doorman { channel, token: None }
    }

    pub(crate) fn with_token(channel: Channel, token: &str) -> Doorman {
        Doorman { channel, token: Some(token.to_owned()) }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    /// The generated client, for concurrent requests.
    pub(crate) fn inner(&self) -> CapacityClient<Channel> {
        CapacityClient::new(self.channel.clone())
    }

    pub(crate) fn discovery(&self) -> DiscoveryResponse {
        self.try_discovery().unwrap()
    }

    pub(crate) fn try_discovery(&self) -> Result<DiscoveryResponse, Status> {
        Ok(block_on(self.inner().discovery(self.request(DiscoveryRequest {})))?.into_inner())
    }

    pub(crate) fn get(&self, message: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        Ok(block_on(self.inner().get_capacity(self.request(message)))?.into_inner())
    }

    pub(crate) fn get_server(&self, message: GetServerCapacityRequest) -> Result<GetServerCapacityResponse, Status> {
        Ok(block_on(self.inner().get_server_capacity(self.request(message)))?.into_inner())
    }

    /// Fails if the answer is a redirect.
    pub(crate) fn release(&self, client: &str, resources: &[&str]) -> Result<(), Status> {
        let answer = self.try_release(client, resources, false)?;
        assert_eq!(answer.mastership, None);
        Ok(())
    }

    /// The answer may be a redirect.
    pub(crate) fn try_release(
        &self,
        id: &str,
        resources: &[&str],
        is_node: bool,
    ) -> Result<ReleaseCapacityResponse, Status> {
        let message = ReleaseCapacityRequest {
            client_id: Some(id.into()),
            resource_id: resources.iter().map(|&resource| resource.to_owned()).collect(),
            is_server: Some(is_node),
            ..ReleaseCapacityRequest::default()
        };
        Ok(block_on(self.inner().release_capacity(self.request(message)))?.into_inner())
    }

    pub(crate) fn watch(&self, client: &str) -> Result<Streaming<Hint>, Status> {
        let message = WatchRequest { client_id: Some(client.into()), server_id: None };
        Ok(block_on(PushClient::new(self.channel.clone()).watch(self.request(message)))?.into_inner())
    }

    pub(crate) fn status(&self, resource: &str) -> Result<GetStatusResponse, Status> {
        let message = GetStatusRequest { resource_id: resource.into(), ..Default::default() };
        Ok(block_on(StatusClient::new(self.channel.clone()).get_status(self.request(message)))?.into_inner())
    }

    /// The lease for a client id whose request contains `has`.
    pub(crate) fn ask(
        &self,
        client: &str,
        resource: &str,
        wants: f64,
        has: Option<Lease>,
    ) -> Result<Option<Lease>, Status> {
        let entry = ResourceRequest { has, ..entry(resource, wants) };
        let answer = self.get(request(client, vec![entry]))?;
        Ok(answer.response.into_iter().next().and_then(|response| response.gets))
    }
}

pub(crate) fn request(client: &str, resource: Vec<ResourceRequest>) -> GetCapacityRequest {
    GetCapacityRequest { client_id: Some(client.into()), resource, drops_late: None, is_gateway: None }
}

pub(crate) fn entry(resource: &str, wants: f64) -> ResourceRequest {
    ResourceRequest {
        resource_id: Some(resource.into()),
        priority: Some(0),
        has: None,
        spent: None,
        had: None,
        wants: Some(wants),
        usage: None,
        outstanding: None,
    }
}

/// A child node's request for one resource, with these bands of `(num_clients, wants)`.
pub(crate) fn node_request(node: &str, resource: &str, bands: &[(i64, f64)]) -> GetServerCapacityRequest {
    let band = |&(clients, wants): &(i64, f64)| PriorityBandAggregate {
        priority: Some(0),
        num_clients: Some(clients),
        wants: Some(wants),
    };
    let entry = ServerCapacityResourceRequest {
        resource_id: Some(resource.into()),
        wants: bands.iter().map(band).collect(),
        ..Default::default()
    };
    GetServerCapacityRequest {
        server_id: Some(node.into()),
        resource: vec![entry],
        ..GetServerCapacityRequest::default()
    }
}

pub(crate) fn capacity(lease: Option<Lease>) -> f64 {
    lease.and_then(|lease| lease.capacity).expect("every lease has a capacity")
}

/// Fails unless the request was refused with this code and a message that contains all of `says`.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, says: &[&str]) {
    let status = answer.expect_err("the call must be refused");
    assert_eq!(status.code(), code, "{status:?}");
    for part in says {
        assert!(status.message().contains(part), "`{part}` is not in: {}", status.message());
    }
}

/// An answer that lists problems with entries.
pub(crate) trait WithProblems {
    /// The problems, and the number of answered entries.
    fn problems(self) -> (Vec<Problem>, usize);
}

impl WithProblems for GetCapacityResponse {
    fn problems(self) -> (Vec<Problem>, usize) {
        (self.problem, self.response.len())
    }
}

impl WithProblems for GetServerCapacityResponse {
    fn problems(self) -> (Vec<Problem>, usize) {
        (self.problem, self.response.len())
    }
}

/// Fails unless the only entry was left out for this reason.
#[track_caller]
pub(crate) fn assert_left_out(answer: Result<impl WithProblems, Status>, reason: &str, says: &[&str]) {
    let (problems, answered) = answer.unwrap().problems();
    assert_eq!(answered, 0);
    assert_problem(&problems, reason, says);
}

/// Fails unless this is the only problem.
#[track_caller]
pub(crate) fn assert_problem(problems: &[Problem], reason: &str, says: &[&str]) {
    let [problem] = problems else { panic!("expected one problem: {problems:?}") };
    assert_eq!(problem.reason(), reason, "{problem:?}");
    for part in says {
        assert!(problem.message().contains(part), "`{part}` is not in: {}", problem.message());
    }
}

/// A client that remembers its leases and echoes them in requests.
pub(crate) struct Client {
    doorman: Doorman,
    id: String,
    leases: HashMap<String, Lease>,
}

/// Seconds since the epoch.
pub(crate) fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// A request with `drops_late`. It names a live lease only, and the client ignores answers to superseded requests.
pub(crate) fn one_of_ours(client: &str, resource: &str, wants: f64, has: Option<Lease>) -> GetCapacityRequest {
    let has = has.filter(|lease| lease.expiry_time() > unix_now());
    let request = request(client, vec![ResourceRequest { has, ..entry(resource, wants) }]);
    GetCapacityRequest { drops_late: Some(true), ..request }
}

impl Client {
    pub(crate) fn new(doorman: Doorman, id: &str) -> Client {
        Client { doorman, id: id.into(), leases: HashMap::new() }
    }

    /// `None` if the response omits the resource.
    pub(crate) fn try_ask(&mut self, resource: &str, wants: f64) -> Result<Option<ResourceResponse>, Status> {
        let answer = self.doorman.get(one_of_ours(&self.id, resource, wants, self.leases.get(resource).copied()))?;
        assert_eq!(answer.mastership, None);
        let Some(response) = answer.response.into_iter().next() else { return Ok(None) };
        self.leases.insert(resource.into(), response.gets.expect("every answer has a lease"));
        Ok(Some(response))
    }

    pub(crate) fn lease(&self, resource: &str) -> Lease {
        self.leases[resource]
    }

    /// Uses another server, with the same leases.
    pub(crate) fn moves_to(&mut self, doorman: Doorman) {
        self.doorman = doorman;
    }
}

impl Asks for Client {
    /// Retries while the response omits the resource. A node omits it while it waits for its parent.
    #[track_caller]
    fn ask(&mut self, resource: &str, wants: f64) -> f64 {
        let response = eventually("the request is answered", || self.try_ask(resource, wants).unwrap());
        assert_eq!(response.resource_id.as_deref(), Some(resource));
        capacity(response.gets)
    }
}
