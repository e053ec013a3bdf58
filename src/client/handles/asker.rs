//! The client's [`Asker`]: it sends requests for what the handles want, and applies the answers.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use leaseway_proto::{
    doorman::{
        DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, Problem, ReleaseCapacityRequest,
        capacity_client::CapacityClient,
    },
    session::{RenewRequest, RenewResponse, session_client::SessionClient},
};
use tokio::{
    sync::mpsc,
    time::{Duration, Instant},
};
use tonic::{Code, Status, Streaming, codegen::tokio_stream::wrappers::ReceiverStream};

use crate::{
    error::named,
    handles::{
        metrics,
        outage::{Outage, Throttle},
        shared::{NextStep, Shared},
    },
    session::{
        Body, GrantedLease, Session, StreamReply, Wants,
        pool::{PoolState, Usage},
    },
    transport::{Asker, Call, Channel, Connection, Ended, Outcome, Reply, Step, endpoint, explain, quoted, wire},
};

pub(crate) struct ClientAsker {
    shared: Arc<Shared>,
    is_gateway: bool,
    /// Whether to use streams that a server offers.
    renews_by_stream: bool,
    deadline: Duration,
    discovery: Discovery,
    /// The stream of renewals, between two messages.
    stream: Option<RenewalStream>,
    outage: Outage,
    /// The method of the last request.
    method: &'static str,
    /// Usage that the last request reported, by resource.
    reported_usage: BTreeMap<Arc<str>, Usage>,
    /// Whether pressure at a limiter requires a step.
    watches_pressure: bool,
    left_out_log: Throttle,
    malformed_log: Throttle,
}

/// The answer of the master.
#[derive(Default)]
pub(crate) struct Leases {
    given: Vec<GrantedLease>,
    malformed: Vec<String>,
    pools: Vec<(Arc<str>, Option<PoolState>)>,
    priorities: Vec<(Arc<str>, i64)>,
    unlimited: Vec<(Arc<str>, bool)>,
    left_out: Option<LeftOut>,
    /// The answer on a stream of renewals.
    stream: Option<(StreamReply, RenewalStream)>,
}

/// Resources that were left out of an answer, and the first reason.
struct LeftOut {
    resources: usize,
    why: String,
}

impl LeftOut {
    fn of(problems: &[Problem], asked: usize, answered: usize) -> Option<LeftOut> {
        let resources = asked.saturating_sub(answered);
        let problem = problems.iter().find(|problem| !wire::is_transient(problem.reason()))?;
        (resources > 0).then(|| LeftOut { resources, why: problem.message().to_owned() })
    }
}

impl Leases {
    fn of(answer: GetCapacityResponse, sent: Duration, left_out: Option<LeftOut>) -> Leases {
        let (pools, priorities) = (wire::pools(&answer.response), wire::priorities(&answer.response));
        let unlimited = wire::unlimited(&answer.response);
        let (given, malformed) = wire::given(answer.response, sent);
        Leases { given, malformed, pools, priorities, unlimited, left_out, stream: None }
    }

    fn on_stream(answer: RenewResponse, sent: Duration, stream: RenewalStream) -> Leases {
        let (reply, malformed) = wire::renewed(&answer, sent);
        let left_out = LeftOut::of(&answer.problem, answer.left_out.len(), 0);
        let response: Vec<_> = answer.grant.into_iter().filter_map(|grant| grant.response).collect();
        let (pools, priorities) = (wire::pools(&response), wire::priorities(&response));
        let unlimited = wire::unlimited(&response);
        Leases { given: Vec::new(), malformed, pools, priorities, unlimited, left_out, stream: Some((reply, stream)) }
    }
}

impl ClientAsker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        is_gateway: bool,
        renews_by_stream: bool,
        deadline: Duration,
    ) -> ClientAsker {
        ClientAsker {
            shared,
            is_gateway,
            renews_by_stream,
            deadline,
            discovery: Discovery::default(),
            stream: None,
            outage: Outage::default(),
            method: "",
            reported_usage: BTreeMap::new(),
            watches_pressure: false,
            left_out_log: Throttle::default(),
            malformed_log: Throttle::default(),
        }
    }

    fn note_left_out(&mut self, server: &Arc<str>, LeftOut { resources, why }: &LeftOut) {
        metrics::left_out(*resources);
        if self.left_out_log.passes() {
            let why = quoted(why);
            tracing::warn!(client = %self.shared.id, resources, "{server}: no lease for some resources: {why}");
        }
    }

    fn failed(&mut self, server: &Arc<str>, error: &str) {
        if let Some(message) = self.outage.failed(server, error, || self.shared.describe_fallback()) {
            tracing::warn!(client = %self.shared.id, "{message}");
        }
    }

    fn leased(&mut self, number: u64, server: &Arc<str>, leases: Leases) {
        if let Some(message) = self.outage.over(server) {
            tracing::info!(client = %self.shared.id, "{message}");
        }
        let Leases { given, malformed, pools, priorities, unlimited, left_out, stream } = leases;
        let reply = stream.map(|(reply, stream)| {
            self.stream = Some(stream).filter(|_| !reply.restart);
            reply
        });
        if let Some(left_out) = &left_out {
            self.note_left_out(server, left_out);
        }
        let error = (!malformed.is_empty()).then(|| format!("{server}: malformed lease for {}", named(&malformed)));
        if let Some(error) = error.as_ref().filter(|_| self.malformed_log.passes()) {
            tracing::warn!("{error}");
        }
        let mut accepted = false;
        let apply = |session: &mut Session<Wants>, now| {
            accepted = match reply {
                Some(reply) => session.stream_answered(now, number, reply),
                None => session.answered(now, number, given),
            };
        };
        self.shared.finish_request(apply, error);
        if accepted {
            let with_usage = |(id, pool): (Arc<str>, _)| {
                let usage = self.reported_usage.get(&id).copied();
                (id, pool, usage)
            };
            self.shared.set_pool_states(pools.into_iter().map(with_usage).collect());
            self.shared.set_priorities(priorities);
            self.shared.set_unlimited(unlimited);
        }
    }

    /// The server is not the master. `named` is the master as far as it knows.
    fn redirected(&mut self, number: u64, server: &Arc<str>, named: Option<&str>) {
        metrics::redirected(server);
        let master = named.and_then(|named| endpoint::parse(named).ok());
        let error = match (&master, named) {
            (Some(master), _) => format!("{server}: not the master; the master is {master}"),
            (None, Some(named)) => {
                format!("{server}: not the master, and names an invalid master: {}", quoted(named))
            }
            (None, None) => format!("{server}: not the master, and knows no master"),
        };
        tracing::debug!("{error}");
        if master.is_none() {
            self.failed(server, &error);
        }
        let redirect = |session: &mut Session<Wants>, now| _ = session.redirected(now, number, master.as_deref());
        self.shared.finish_request(redirect, Some(error));
    }
}

impl Asker for ClientAsker {
    type Demand = Wants;
    type Answer = Leases;

    async fn step(&mut self) -> Option<Step<Wants>> {
        let NextStep { outgoing, in_flight, wake, watches_pressure, finished } = self.shared.step();
        self.watches_pressure = watches_pressure;
        (!finished).then_some(Step { outgoing, in_flight, wake })
    }

    fn call(&mut self, channel: Result<Channel, Status>, body: Body<Wants>) -> Call<Leases> {
        let client = &self.shared.id;
        self.reported_usage.clear();
        match body {
            Body::Ask(asks) => {
                self.method = "GetCapacity";
                self.reported_usage
                    .extend(asks.iter().filter_map(|ask| Some((Arc::clone(&ask.id), ask.demand.usage?))));
                Box::pin(ask(channel, wire::get_capacity(client, self.is_gateway, &asks)))
            }
            Body::Release(releases) => {
                self.method = "ReleaseCapacity";
                Box::pin(release(channel, wire::release_capacity(client, releases)))
            }
            Body::Stream(request) => {
                self.method = RENEW;
                let stated = request.stated.iter();
                self.reported_usage
                    .extend(stated.filter_map(|(_, ask)| Some((Arc::clone(&ask.id), ask.demand.usage?))));
                let open = self.stream.take().filter(|open| open.number == request.stream);
                let message = wire::renew(client, self.is_gateway, &request);
                Box::pin(renew(channel, request.stream, open, message))
            }
        }
    }

    fn ended(&mut self, ended: Ended<'_, Leases>) {
        let Ended { number, server, connection, took, outcome } = ended;
        metrics::requested(self.method, server, took, !matches!(outcome, Outcome::Replied(_)));
        let error = match outcome {
            Outcome::Replied(Reply::Master(leases)) => {
                if let Some(connection) = connection {
                    self.discovery.follow(connection, self.deadline);
                }
                return self.leased(number, server, leases);
            }
            Outcome::Replied(Reply::Redirect(master)) => return self.redirected(number, server, master.as_deref()),
            Outcome::Failed(status) if self.method == RENEW && refuses_streams(&status) => {
                let error = quoted(&explain(server, &status));
                tracing::debug!(method = self.method, "{error}");
                return self.shared.finish_request(|session, now| _ = session.stream_refused(now, number), Some(error));
            }
            Outcome::Failed(status) => quoted(&explain(server, &status)),
            Outcome::Late => format!("{server}: no answer within {:?}", self.deadline),
        };
        tracing::debug!(method = self.method, "{error}");
        self.failed(server, &error);
        // The session has already abandoned a late request, and may have sent another.
        self.shared.finish_request(|session, now| _ = session.failed(now, number), Some(error));
    }

    fn hinted(&mut self, resources: Option<Vec<String>>) {
        self.shared.hinted(resources.as_deref());
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.shared.wakeup.notified() => {}
            () = self.shared.pressure.notified(), if self.watches_pressure => self.shared.note_pressure(),
            found = self.discovery.next() => {
                if let Some(Discovered { server, peers, renews_by_stream }) = found {
                    let is_offered = self.renews_by_stream && renews_by_stream;
                    self.shared.discovered(&server, peers, is_offered.then_some(MIN_STREAMED));
                }
            }
        }
    }
}

impl Drop for ClientAsker {
    fn drop(&mut self) {
        self.shared.driver_ended();
    }
}

async fn ask(channel: Result<Channel, Status>, request: GetCapacityRequest) -> Result<Reply<Leases>, Status> {
    let sent = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let asked = request.resource.len();
    let mut answer = CapacityClient::new(channel?).get_capacity(request).await?.into_inner();
    let (mastership, problems) = (answer.mastership.take(), std::mem::take(&mut answer.problem));
    let left_out = LeftOut::of(&problems, asked, answer.response.len());
    wire::reply(mastership, &problems, answer.response.len(), || Leases::of(answer, sent, left_out))
}

async fn release(channel: Result<Channel, Status>, request: ReleaseCapacityRequest) -> Result<Reply<Leases>, Status> {
    let answer = CapacityClient::new(channel?).release_capacity(request).await?.into_inner();
    Ok(wire::released(answer, Leases::default()))
}

const RENEW: &str = "Renew";

/// With fewer resources a request for all of them is short.
const MIN_STREAMED: usize = 100;

/// A stream of renewals between two messages.
struct RenewalStream {
    /// Its number in the session.
    number: u64,
    requests: mpsc::Sender<RenewRequest>,
    responses: Streaming<RenewResponse>,
}

impl RenewalStream {
    async fn open(number: u64, channel: Channel, first: RenewRequest) -> Result<RenewalStream, Status> {
        let (requests, receiver) = mpsc::channel(1);
        // There is room for one message, and one is in flight at a time.
        let _ = requests.try_send(first);
        let responses = SessionClient::new(channel).renew(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(RenewalStream { number, requests, responses })
    }
}

/// Sends a message on a stream, which is opened by the first.
async fn renew(
    channel: Result<Channel, Status>,
    number: u64,
    open: Option<RenewalStream>,
    message: RenewRequest,
) -> Result<Reply<Leases>, Status> {
    let ended = || Status::unavailable("the stream of renewals has ended");
    let sent = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sequence = message.sequence;
    let mut stream = match open {
        Some(open) => {
            open.requests.send(message).await.map_err(|_| ended())?;
            open
        }
        None if message.sequence == 1 => RenewalStream::open(number, channel?, message).await?,
        None => return Err(ended()),
    };
    let mut answer = stream.responses.message().await?.ok_or_else(ended)?;
    if answer.sequence != sequence {
        // What it decides is for other leases, or was applied already.
        return Err(Status::data_loss(format!("message {sequence} got the answer to message {}", answer.sequence)));
    }
    let mastership = answer.mastership.take();
    if let Some(why) = &answer.restart {
        tracing::debug!("the server restarts the stream of renewals, so all leases are sent again: {}", quoted(why));
    }
    wire::reply(mastership, &[], 0, || Leases::on_stream(answer, sent, stream))
}

/// Whether a server, or a proxy before it, does not take streams from this client.
fn refuses_streams(status: &Status) -> bool {
    // Others may as well mean that the connection broke.
    matches!(status.code(), Code::Unimplemented | Code::Aborted | Code::ResourceExhausted)
}

/// Asks each new master for the peers of its node, and whether it accepts streams of renewals. Repeats this every
/// [`REDISCOVERY_INTERVAL`].
#[derive(Default)]
struct Discovery {
    /// The server that was asked, and when to ask it again.
    asked: Option<(Weak<Connection>, Instant)>,
    answer: Option<Pin<Box<dyn Future<Output = Option<Discovered>> + Send>>>,
}

/// What a master says about its node.
struct Discovered {
    server: Arc<str>,
    /// Addresses of peers. Empty if it has none, or speaks only the original protocol.
    peers: Vec<Arc<str>>,
    renews_by_stream: bool,
}

/// Peers change rarely, and a late update does no harm.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

/// The pause after a request for peers that has failed.
const DISCOVERY_RETRY: Duration = Duration::from_secs(10);

impl Discovery {
    /// Asks the server behind `connection`, which has answered as master, unless it was asked recently.
    fn follow(&mut self, connection: &Arc<Connection>, deadline: Duration) {
        let known = |(server, again): &(Weak<Connection>, Instant)| {
            std::ptr::eq(server.as_ptr(), Arc::as_ptr(connection)) && Instant::now() < *again
        };
        if self.asked.as_ref().is_some_and(known) {
            return;
        }
        self.asked = Some((Arc::downgrade(connection), Instant::now() + REDISCOVERY_INTERVAL));
        self.answer = Some(Box::pin(discover(Arc::clone(&connection.address), connection.channel.clone(), deadline)));
    }

    /// Waits for an answer. Cancel safe.
    async fn next(&mut self) -> Option<Discovered> {
        match &mut self.answer {
            Some(answer) => {
                let found = answer.as_mut().await;
                self.answer = None;
                if found.is_none()
                    && let Some((_, again)) = &mut self.asked
                {
                    *again = Instant::now() + DISCOVERY_RETRY;
                }
                found
            }
            None => std::future::pending().await,
        }
    }
}

/// `None` if the server does not answer.
async fn discover(server: Arc<str>, channel: Channel, deadline: Duration) -> Option<Discovered> {
    let mut client = CapacityClient::new(channel);
    let answer = match tokio::time::timeout(deadline, client.discovery(DiscoveryRequest {})).await.ok()? {
        Ok(answer) => answer.into_inner(),
        // A server that has no Discovery names no peers.
        Err(status) if status.code() == Code::Unimplemented => DiscoveryResponse::default(),
        Err(_) => return None,
    };
    Some(Discovered { server, peers: wire::peers(&answer), renews_by_stream: answer.renews_by_stream() })
}

#[cfg(test)]
mod tests;
