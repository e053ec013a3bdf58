//! The one task of a client: sends what the session says, when it says so, and reports what comes back.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_proto::doorman::{DiscoveryRequest, capacity_client::CapacityClient};
use tokio::time::Instant;
use tonic::{Status, transport::Channel};

use crate::{
    endpoint, metrics,
    outage::Outage,
    pool::{PoolState, Usage},
    push::Hints,
    session::{Body, Given, Outgoing},
    shared::Shared,
    transport::{Connection, Transport},
    wants::Wants,
    wire,
};

pub(crate) struct Driver {
    shared: Arc<Shared>,
    transport: Transport,
    deadline: Duration,
    /// To whom the last request went.
    connection: Option<Arc<Connection>>,
    under_way: Option<UnderWay>,
    hints: Option<Hints>,
    discovery: Discovery,
    outage: Outage,
}

/// Who else there is: asked of every new master, and again now and then.
#[derive(Default)]
struct Discovery {
    /// Whom, and when.
    asked: Option<(Weak<Connection>, Instant)>,
    answer: Option<Pin<Box<dyn Future<Output = Option<Peers>> + Send>>>,
}

impl Discovery {
    /// The server behind `connection` has answered as master.
    fn follow(&mut self, connection: &Arc<Connection>, deadline: Duration) {
        let known = |(whom, at): &(Weak<Connection>, Instant)| {
            std::ptr::eq(whom.as_ptr(), Arc::as_ptr(connection)) && at.elapsed() < DISCOVER_AGAIN
        };
        if self.asked.as_ref().is_some_and(known) {
            return;
        }
        self.asked = Some((Arc::downgrade(connection), Instant::now()));
        self.answer = Some(Box::pin(peers(connection.channel.clone(), deadline)));
    }

    /// The peers, once they have been named.
    async fn next(&mut self) -> Option<Peers> {
        match &mut self.answer {
            Some(answer) => {
                let peers = answer.as_mut().await;
                self.answer = None;
                peers
            }
            None => std::future::pending().await,
        }
    }
}

/// Where they are.
type Peers = Vec<Arc<str>>;

/// Who the peers are changes rarely, and costs nothing to know late.
const DISCOVER_AGAIN: Duration = Duration::from_secs(300);

struct UnderWay {
    number: u64,
    method: &'static str,
    server: Arc<str>,
    sent: Instant,
    /// What it says of use, by resource.
    told: BTreeMap<Arc<str>, Usage>,
    answer: Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>,
}

enum Answer {
    Given {
        given: Vec<Given>,
        malformed: Vec<String>,
        pools: Vec<(Arc<str>, Option<PoolState>)>,
        priorities: Vec<(Arc<str>, i64)>,
    },
    Released,
    Elsewhere(Option<String>),
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, transport: Transport, deadline: Duration, hints: Option<Hints>) -> Driver {
        Driver {
            shared,
            transport,
            deadline,
            connection: None,
            under_way: None,
            hints,
            discovery: Discovery::default(),
            outage: Outage::default(),
        }
    }

    /// Runs until the client is closed and what it had has been given back.
    pub(crate) async fn run(mut self) {
        loop {
            let step = self.shared.step();
            if step.under_way != self.under_way.as_ref().map(|under_way| under_way.number) {
                self.give_up();
            }
            if let Some(outgoing) = step.outgoing {
                self.under_way = Some(self.send(outgoing));
            }
            if step.finished {
                return;
            }
            let wake = async {
                match step.wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let answer = async {
                match &mut self.under_way {
                    Some(under_way) => under_way.answer.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            let hint = async {
                match &mut self.hints {
                    Some(hints) => hints.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answer => self.landed(answer),
                () = wake => {}
                () = self.shared.nudge.notified() => {}
                () = self.shared.pressure.notified(), if step.heeds_pressure => self.shared.pressed(),
                hint = hint => self.shared.hinted(hint.as_deref()),
                peers = self.discovery.next() => {
                    if let Some(peers) = peers {
                        self.shared.learnt(peers);
                    }
                }
            }
        }
    }

    /// The session waits no longer for the answer.
    fn give_up(&mut self) {
        let Some(late) = self.under_way.take() else { return };
        metrics::requested(late.method, &late.server, late.sent.elapsed(), true);
        tracing::debug!(server = %late.server, method = late.method, "no answer in time");
        if let Some(connection) = self.connection.take() {
            self.transport.distrust(&connection);
            if let Some(hints) = &mut self.hints {
                hints.stop();
            }
        }
        let error = format!("{}: no answer within {:?}", late.server, self.deadline);
        self.failed(&late.server, &error);
        self.shared.landed(|_, _| (), Some(error));
    }

    fn failed(&mut self, server: &Arc<str>, error: &str) {
        if let Some(told) = self.outage.failed(server, error, || self.shared.meanwhile()) {
            tracing::warn!(client = %self.shared.id, "{told}");
        }
    }

    fn answered(&mut self, server: &str) {
        if let Some(told) = self.outage.over(server) {
            tracing::info!(client = %self.shared.id, "{told}");
        }
    }

    fn send(&mut self, outgoing: Outgoing<Wants>) -> UnderWay {
        let (number, server) = (outgoing.number, outgoing.target);
        let connection = self.connect(&server);
        let client = Arc::clone(&self.shared.id);
        let told = match &outgoing.body {
            Body::Ask(asks) => asks.iter().filter_map(|ask| Some((Arc::clone(&ask.id), ask.demand.usage?))).collect(),
            Body::Release(_) => BTreeMap::new(),
        };
        let (method, answer): (_, Pin<Box<dyn Future<Output = _> + Send>>) = match outgoing.body {
            Body::Ask(asks) => ("GetCapacity", Box::pin(ask(connection, wire::get_capacity(&client, asks)))),
            Body::Release(releases) => {
                ("ReleaseCapacity", Box::pin(release(connection, wire::release_capacity(&client, releases))))
            }
        };
        UnderWay { number, method, server, sent: Instant::now(), told, answer }
    }

    fn connect(&mut self, server: &Arc<str>) -> Result<Arc<Connection>, Status> {
        if let Some(connection) = self.connection.as_ref().filter(|connection| connection.address == *server) {
            return Ok(Arc::clone(connection));
        }
        let connection =
            self.transport.connection(server).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn landed(&mut self, answer: Result<Answer, Status>) {
        let Some(UnderWay { number, method, server, sent, told, .. }) = self.under_way.take() else { return };
        metrics::requested(method, &server, sent.elapsed(), answer.is_err());
        match answer {
            Ok(Answer::Given { given, malformed, pools, priorities }) => {
                self.answered(&server);
                if let Some(connection) = &self.connection {
                    self.discovery.follow(connection, self.deadline);
                    if let Some(hints) = &mut self.hints {
                        hints.follow(connection);
                    }
                }
                let error = (!malformed.is_empty()).then(|| {
                    format!("{server}: answered nonsense for {}", leaseway_core::escaped(&malformed.join(", ")))
                });
                if let Some(error) = &error {
                    tracing::warn!("{error}");
                }
                let mut counts = false;
                self.shared.landed(|session, now| counts = session.answered(now, number, given), error);
                if counts {
                    self.shared.placed(places(pools, &told));
                    self.shared.counted(priorities);
                }
            }
            Ok(Answer::Released) => {
                self.answered(&server);
                self.shared.landed(|session, now| _ = session.answered(now, number, vec![]), None);
            }
            Ok(Answer::Elsewhere(master)) => {
                metrics::redirected(&server);
                let error = match &master {
                    Some(master) => format!("{server}: is not the master, {master} is"),
                    None => format!("{server}: is not the master and knows none"),
                };
                tracing::debug!("{error}");
                if master.is_none() {
                    self.failed(&server, &error);
                }
                self.shared.landed(|session, now| _ = session.redirected(now, number, master.as_deref()), Some(error));
            }
            Err(status) => {
                let error = endpoint::explain(&server, &status);
                tracing::debug!(method, "{error}");
                self.failed(&server, &error);
                self.shared.landed(|session, now| _ = session.failed(now, number), Some(error));
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.driver_ended();
    }
}

/// What an answer says of pools, with what was said of use for it.
fn places(
    pools: Vec<(Arc<str>, Option<PoolState>)>,
    told: &BTreeMap<Arc<str>, Usage>,
) -> Vec<(Arc<str>, Option<PoolState>, Option<Usage>)> {
    let place = |(id, pool): (Arc<str>, _)| {
        let told = told.get(&id).copied();
        (id, pool, told)
    };
    pools.into_iter().map(place).collect()
}

type Connected = Result<Arc<Connection>, Status>;

async fn ask(connection: Connected, request: leaseway_proto::doorman::GetCapacityRequest) -> Result<Answer, Status> {
    let sent = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let response = CapacityClient::new(connection?.channel.clone()).get_capacity(request).await?.into_inner();
    if let Some(refusal) = wire::refusal(&response.problem, response.response.len()) {
        return Err(refusal);
    }
    Ok(wire::elsewhere(response.mastership).map_or_else(
        || {
            let pools = wire::pools(&response.response);
            let priorities = wire::priorities(&response.response);
            let (given, malformed) = wire::given(response.response, sent);
            Answer::Given { given, malformed, pools, priorities }
        },
        Answer::Elsewhere,
    ))
}

/// `None`: it does not say. Servers that speak only the original protocol name nobody, and so do those without peers.
async fn peers(channel: Channel, deadline: Duration) -> Option<Peers> {
    let mut client = CapacityClient::new(channel);
    let answer = tokio::time::timeout(deadline, client.discovery(DiscoveryRequest {})).await.ok()?.ok()?;
    Some(wire::peers(answer.get_ref())).filter(|peers| !peers.is_empty())
}

async fn release(
    connection: Connected,
    request: leaseway_proto::doorman::ReleaseCapacityRequest,
) -> Result<Answer, Status> {
    let response = CapacityClient::new(connection?.channel.clone()).release_capacity(request).await?.into_inner();
    Ok(wire::elsewhere(response.mastership).map_or(Answer::Released, Answer::Elsewhere))
}
