//! Envoys that ask the gateway about each request (RLS). Several ask for each route, half of the time faster than the
//! limit. For each route a competing client wants the whole capacity. So if the gateway allows requests without a
//! lease, the competitor holds the same capacity, and the check of [`passes`](super::passes) notices.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use leaseway_client::{LeaseChange, Transport};
use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry, rate_limit_response::Code,
    rate_limit_service_client::RateLimitServiceClient,
};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tonic::transport::Endpoint;

use crate::{
    chaos::{
        args::{ChaosArgs, REFRESH},
        clients::raw::{CapacityRequest, Holder, RawClient},
        cluster::Cluster,
        layout::{ROUTE_DOMAIN, ROUTE_KEY, ROUTES, route},
    },
    common::error::Error,
};

/// Envoys per route.
const ASKERS: usize = 4;

/// The timeout of a request, and the pause after a failed one.
const DEADLINE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which a route keeps its pace: long enough for the gateway to get a larger lease.
const SPELL: Duration = Duration::from_secs(4);

/// The time after its last request that passed for which a route still counts as served.
const GAP: Duration = Duration::from_secs(2);

pub(crate) struct Routes {
    away: watch::Sender<Away>,
    leave: watch::Sender<bool>,
    tasks: Vec<RouteTasks>,
}

struct RouteTasks {
    tally: Arc<Mutex<RouteTally>>,
    askers: Vec<JoinHandle<()>>,
    competitor: JoinHandle<Vec<LeaseChange>>,
}

/// The first Envoy that is down; every other one from there on is down as well. `None` if all are up.
type Away = Option<usize>;

/// The answers for one route.
#[derive(Default)]
pub(crate) struct RouteTally {
    /// For each request that passed, the times at which it was sent and answered.
    pub(crate) passed: Vec<(Instant, Instant)>,
    pub(crate) denied: usize,
    /// The capacity that the competitor believed in, and the time from which it did.
    pub(crate) believed: Vec<(Instant, f64)>,
    last: String,
}

/// The rules of the gateway, in the format of envoyproxy/ratelimit.
pub(crate) fn rules() -> String {
    let rule = |(number, limit): (usize, f64)| {
        format!(
            "- key: {ROUTE_KEY}
  value: \"{number}\"
  rate_limit: {{unit: second, requests_per_unit: {limit}}}
"
        )
    };
    let rules: String = ROUTES.into_iter().enumerate().map(rule).collect();
    format!("domain: {ROUTE_DOMAIN}\ndescriptors:\n{rules}")
}

impl Routes {
    pub(crate) fn gather(
        args: &ChaosArgs,
        seed: u64,
        gateway: SocketAddr,
        cluster: &Cluster,
        runtime: &Handle,
    ) -> Result<Routes, Error> {
        let _inside = runtime.enter();
        let transport = cluster.transport()?;
        let (away, leave) = (watch::Sender::new(None), watch::Sender::new(false));
        let began = Instant::now();
        let task = |number: usize| {
            let tally = Arc::<Mutex<RouteTally>>::default();
            let asker = |place: usize| {
                let random = fastrand::Rng::with_seed(seed.wrapping_add((number * ASKERS + place) as u64));
                let asker = RouteAsker { gateway, number, place, seed, began, random, tally: Arc::clone(&tally) };
                tokio::spawn(asker.live(away.subscribe()))
            };
            let askers = (0..ASKERS).map(asker).collect();
            let competitor = tokio::spawn(competitor(args, number, &transport, cluster).live(leave.subscribe()));
            RouteTasks { tally, askers, competitor }
        };
        let tasks = (0..ROUTES.len()).map(task).collect();
        Ok(Routes { away, leave, tasks })
    }

    /// Makes every other Envoy lose its connection. The others continue, because the gateway would release an idle
    /// route, and that route would start again with full savings.
    pub(crate) fn crash(&self, dice: u32) {
        self.away.send_replace(Some(dice as usize % 2));
    }

    pub(crate) fn come_back(&self) {
        self.away.send_replace(None);
    }

    /// A description of the problem if no request of a route passes.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.tasks.iter().enumerate().find_map(|(number, task)| {
            let tally = lock(&task.tally);
            let is_served = tally.passed.last().is_some_and(|(_, answered)| answered.elapsed() <= GAP);
            (!is_served).then(|| format!("the gateway allows no request for `{}`: {}", route(number), tally.last))
        })
    }

    /// Stops all Envoys. Returns the answers for each route.
    pub(crate) async fn close(self) -> Vec<RouteTally> {
        self.tasks.iter().flat_map(|task| &task.askers).for_each(JoinHandle::abort);
        self.leave.send_replace(true);
        let mut tallies = Vec::new();
        for task in self.tasks {
            let believed = task.competitor.await.expect("a client of ours does not panic");
            let believed = believed.iter().map(|entry| (entry.at.into_std(), entry.capacity)).collect();
            tallies.push(RouteTally { believed, ..std::mem::take(&mut *lock(&task.tally)) });
        }
        tallies
    }
}

/// Creates a competitor. Successive competitors ask different nodes.
fn competitor(args: &ChaosArgs, number: usize, transport: &Transport, cluster: &Cluster) -> Holder {
    let peers = &cluster.peers[cluster.nodes[number % cluster.nodes.len()].clone()];
    let peers = peers.iter().map(|peer| RawClient::to(transport, peer.grpc)).collect();
    let request = CapacityRequest {
        client: format!("competitor:{number}").into(),
        resource: route(number).into(),
        wants: 2.0 * ROUTES[number],
        drops_late: true,
    };
    Holder::new(peers, request, REFRESH, args.lease(), None)
}

struct RouteAsker {
    gateway: SocketAddr,
    number: usize,
    /// Its index among the Envoys of the route.
    place: usize,
    seed: u64,
    began: Instant,
    random: fastrand::Rng,
    tally: Arc<Mutex<RouteTally>>,
}

impl RouteAsker {
    async fn live(mut self, mut away: watch::Receiver<Away>) {
        let place = self.place;
        let is_here = |away: &Away| away.is_none_or(|first| place % 2 != first);
        while away.wait_for(is_here).await.is_ok() {
            tokio::select! {
                () = self.ask() => {}
                _ = away.wait_for(|away| !is_here(away)) => {}
            }
        }
    }

    async fn ask(&mut self) {
        let channel =
            Transport::new().connect_lazy(&self.gateway.to_string(), |endpoint: Endpoint| endpoint.tcp_nodelay(true));
        let channel = channel.expect("a socket address makes a URI, and there is no token");
        let mut client = RateLimitServiceClient::new(channel);
        let entries = vec![Entry { key: ROUTE_KEY.to_owned(), value: self.number.to_string() }];
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let request = RateLimitRequest { domain: ROUTE_DOMAIN.to_owned(), descriptors, hits_addend: 1 };
        loop {
            let sent = Instant::now();
            let answer = timeout(DEADLINE, client.should_rate_limit(request.clone())).await;
            let answer = answer.map(|answer| answer.map(|response| response.into_inner().overall_code()));
            let pause = match answer {
                Ok(Ok(code)) => {
                    self.note(sent, code);
                    self.pause()
                }
                Ok(Err(status)) => self.complain(status.to_string()),
                Err(_) => self.complain("no answer within a second".to_owned()),
            };
            sleep(pause).await;
        }
    }

    fn note(&self, sent: Instant, code: Code) {
        let answered = Instant::now();
        let mut tally = lock(&self.tally);
        match code {
            Code::Ok => tally.passed.push((sent, answered)),
            _ => tally.denied += 1,
        }
        tally.last = format!("it answers {}", code.as_str_name());
    }

    fn complain(&self, why: String) -> Duration {
        lock(&self.tally).last = why;
        PAUSE
    }

    /// The pause until its next request. All Envoys of a route keep the same pace.
    fn pause(&mut self) -> Duration {
        let spell = (self.began.elapsed().as_secs_f64() / SPELL.as_secs_f64()) as u64;
        let of_route = self.seed.wrapping_mul(31).wrapping_add(spell).wrapping_mul(31).wrapping_add(self.number as u64);
        let mut pace = fastrand::Rng::with_seed(of_route);
        let part = if pace.bool() { 1.2 + 1.8 * pace.f64() } else { 0.2 + 0.4 * pace.f64() };
        let mean = ASKERS as f64 / (ROUTES[self.number] * part);
        Duration::from_secs_f64(mean * (0.5 + self.random.f64()))
    }
}

fn lock(tally: &Mutex<RouteTally>) -> MutexGuard<'_, RouteTally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
