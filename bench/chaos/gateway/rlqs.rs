//! Envoys with a stream to the gateway (RLQS). They report buckets, and believe in their assignments as Envoy does.
//!
//! An assignment counts from its arrival until another replaces it or it expires, even if the stream is lost. After
//! that all requests are denied. For each bucket a competing client wants the whole capacity. So if an Envoy believes
//! in capacity that it no longer has, the competitor holds the same capacity, and the auditor notices.

use std::{
    array,
    future::pending,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::{Client, LeaseChange, LeaseTrace, Resource, Transport};
use leaseway_proto::envoy::quota::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, RateLimitStrategy,
    rate_limit_quota_response::bucket_action::{BucketAction, QuotaAssignmentAction},
    rate_limit_quota_service_client::RateLimitQuotaServiceClient,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
    rate_limit_strategy::{BlanketRule, Strategy},
};
use prost::Message as _;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval_at, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming, transport::Endpoint};

use crate::{chaos::cluster::Cluster, common::error::Error};

const ENVOYS: usize = 6;
const BUCKETS: usize = 2;

const DOMAIN: &str = "envoys";
const KEY: &str = "route";

/// The report interval, which is fixed in Envoy. Envoy reopens a lost stream with its next report.
const REPORTS: Duration = Duration::from_secs(5);

/// The timeout for opening a stream.
const DEADLINE: Duration = Duration::from_secs(1);

/// The maximum load of a bucket, as a fraction of the capacity.
const OFFERED: f64 = 0.5;

/// The time after the end of its last assignment for which an Envoy still counts as served, because short assignments
/// end before they are renewed.
const GAP: Duration = Duration::from_secs(2);

pub(crate) struct Envoys {
    envoys: Vec<EnvoyTask>,
    rivals: Vec<(Client, Resource)>,
}

struct EnvoyTask {
    contact: watch::Sender<Connectivity>,
    standing: watch::Receiver<Standing>,
    envoy: JoinHandle<Vec<LeaseChange>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Connectivity {
    Well,
    /// Its stream is broken, and it does not open another.
    Cut,
    /// It has a stream but does not read from it.
    Deaf,
    Left,
}

/// The time until which it has an assignment of each bucket, or the reason why it has none.
type Standing = Result<Instant, String>;

impl Envoys {
    /// Starts the Envoys. `capacity` is that of each bucket.
    pub(crate) fn gather(
        gateway: SocketAddr,
        capacity: f64,
        seed: u64,
        cluster: &Cluster,
        lease_trace: &LeaseTrace,
        runtime: &Handle,
    ) -> Result<Envoys, Error> {
        let _inside = runtime.enter();
        let transport = cluster.transport()?;
        let rival = |bucket: usize| {
            let node = cluster.nodes[bucket % cluster.nodes.len()].clone();
            let builder =
                Client::builder().endpoints(cluster.endpoints(node)).lease_trace(lease_trace).transport(&transport);
            let client = builder.id(format!("rival:{bucket}")).build().map_err(Error::usage)?;
            let resource = client.resource(resource(bucket)).wants(2.0 * capacity).open().map_err(Error::usage)?;
            Ok((client, resource))
        };
        let rivals = (0..BUCKETS).map(rival).collect::<Result<_, Error>>()?;
        let envoys = (0..ENVOYS).map(|number| EnvoyTask::take(number, gateway, capacity * OFFERED, seed)).collect();
        Ok(Envoys { envoys, rivals })
    }

    /// Makes every other Envoy lose its stream or stop reading.
    pub(crate) fn crash(&self, dice: u32) {
        for (number, task) in self.envoys.iter().enumerate().skip(dice as usize % 2).step_by(2) {
            let is_deaf = (number / 2 + dice as usize / 2).is_multiple_of(2);
            task.contact.send_replace(if is_deaf { Connectivity::Deaf } else { Connectivity::Cut });
        }
    }

    pub(crate) fn come_back(&self) {
        for task in &self.envoys {
            task.contact.send_replace(Connectivity::Well);
        }
    }

    /// A description of the problem if an Envoy has no assignments.
    pub(crate) fn complaint(&self) -> Option<String> {
        let why = |task: &EnvoyTask| match &*task.standing.borrow() {
            Ok(until) if *until + GAP < Instant::now() => Some("its assignments have expired".to_owned()),
            Ok(_) => None,
            Err(why) => Some(why.clone()),
        };
        let complaint = |(number, task)| Some(format!("envoy:{number} has no assignment: {}", why(task)?));
        self.envoys.iter().enumerate().find_map(complaint)
    }

    /// Stops all Envoys. Returns their records.
    pub(crate) async fn close(self) -> Vec<LeaseChange> {
        let mut entries = Vec::new();
        for task in self.envoys {
            task.contact.send_replace(Connectivity::Left);
            entries.extend(task.envoy.await.expect("an Envoy of ours does not panic"));
        }
        for (client, _resource) in self.rivals {
            client.close().await;
        }
        entries
    }
}

/// The number of assignments in these records.
pub(crate) fn assignments<'a>(entries: impl IntoIterator<Item = &'a LeaseChange>) -> usize {
    entries.into_iter().filter(|entry| entry.capacity > 0.0).count()
}

fn resource(bucket: usize) -> String {
    format!("{DOMAIN}/{KEY}={bucket}")
}

impl EnvoyTask {
    fn take(number: usize, gateway: SocketAddr, most: f64, seed: u64) -> EnvoyTask {
        let contact = watch::Sender::new(Connectivity::Well);
        let (stands, standing) = watch::channel(Err("it has not reported yet".to_owned()));
        let envoy = Envoy {
            name: format!("envoy:{number}").into(),
            gateway,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            most,
            buckets: array::from_fn(|bucket| Bucket { resource: resource(bucket).into(), rate: 0.0, ends: None }),
            stream: None,
            // Envoys report at different times.
            reported: Instant::now() + REPORTS.mul_f64(0.1 * (number + 1) as f64),
            stands,
            records: Vec::new(),
        };
        EnvoyTask { envoy: tokio::spawn(envoy.live(contact.subscribe())), contact, standing }
    }
}

struct Envoy {
    name: Arc<str>,
    gateway: SocketAddr,
    random: fastrand::Rng,
    /// The maximum load of a bucket, in requests per second.
    most: f64,
    buckets: [Bucket; BUCKETS],
    stream: Option<QuotaStream>,
    reported: Instant,
    stands: watch::Sender<Standing>,
    records: Vec<LeaseChange>,
}

struct Bucket {
    resource: Arc<str>,
    /// The rate that the Envoy believes it may allow, and the time until which it does.
    rate: f64,
    ends: Option<Instant>,
}

struct QuotaStream {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    told: Streaming<RateLimitQuotaResponse>,
}

impl Envoy {
    /// Reports until it is stopped. Its last assignments count until they expire.
    async fn live(mut self, mut contact: watch::Receiver<Connectivity>) -> Vec<LeaseChange> {
        let mut beat = interval_at(self.reported.into(), REPORTS);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = *contact.borrow_and_update();
            match now {
                Connectivity::Left => break,
                Connectivity::Cut => self.stream = None,
                Connectivity::Well | Connectivity::Deaf => {}
            }
            let is_well = now == Connectivity::Well;
            tokio::select! {
                _ = contact.changed() => if !is_well {
                    // Opens a new stream, and reports immediately.
                    self.stream = None;
                    beat.reset_immediately();
                },
                _ = beat.tick(), if is_well => self.report().await,
                told = next(&mut self.stream), if is_well => self.apply(told),
            }
        }
        self.expire(None);
        self.records
    }

    fn stand(&self, standing: Standing) {
        // Fails only if the receiver was dropped.
        let _ = self.stands.send(standing);
    }

    /// Records the end of assignments that have expired by `now`, or of all assignments if `now` is `None`.
    fn expire(&mut self, now: Option<Instant>) {
        for bucket in &mut self.buckets {
            if let Some(ends) = bucket.ends.take_if(|ends| now.is_none_or(|now| *ends <= now)) {
                bucket.rate = 0.0;
                self.records.push(bucket.entry(&self.name, ends));
            }
        }
    }

    async fn report(&mut self) {
        let is_new = self.stream.is_none();
        if is_new {
            let opened = timeout(DEADLINE, open(self.gateway, &self.name)).await;
            match opened.unwrap_or_else(|_| Err("no stream within a second".to_owned())) {
                Ok(stream) => self.stream = Some(stream),
                Err(why) => self.stand(Err(why)),
            }
        }
        self.expire(Some(Instant::now()));
        let secs = self.reported.elapsed().as_secs();
        let Some(stream) = &self.stream else { return };
        let usages = (0..BUCKETS).map(|number| {
            let offered = self.random.f64().powi(2) * self.most;
            self.buckets[number].usage(number, secs, offered).encode_to_vec()
        });
        let domain = if is_new { DOMAIN.to_owned() } else { String::new() };
        let reports = RateLimitQuotaUsageReports { domain, bucket_quota_usages: usages.collect() };
        match stream.reports.try_send(reports) {
            Ok(()) => self.reported = Instant::now(),
            Err(_) => self.stream = None,
        }
    }

    fn apply(&mut self, told: Result<RateLimitQuotaResponse, Status>) {
        let told = match told {
            Ok(told) => told,
            Err(status) => {
                self.stream = None;
                return self.stand(Err(status.to_string()));
            }
        };
        let now = Instant::now();
        self.expire(Some(now));
        for action in told.bucket_action {
            let number = action.bucket_id.and_then(|id| id.bucket.get(KEY)?.parse().ok());
            let Some(bucket) = number.and_then(|number: usize| self.buckets.get_mut(number)) else { continue };
            let (rate, ends) = match action.bucket_action {
                Some(BucketAction::QuotaAssignmentAction(assignment)) => read(assignment, now),
                Some(BucketAction::AbandonAction(_)) | None => (0.0, now),
            };
            (bucket.rate, bucket.ends) = (rate, Some(ends));
            self.records.push(bucket.entry(&self.name, now));
        }
        let standing = self.buckets.iter().map(|bucket| bucket.ends.filter(|_| bucket.rate > 0.0)).min().flatten();
        self.stand(standing.ok_or_else(|| "the gateway told it to deny all requests".to_owned()));
    }
}

impl Bucket {
    fn entry(&self, name: &Arc<str>, at: Instant) -> LeaseChange {
        LeaseChange {
            at: at.into(),
            client: Arc::clone(name),
            resource: Arc::clone(&self.resource),
            capacity: self.rate,
        }
    }

    /// The usage in the last `secs` seconds at a load of `offered` per second. The first request of a bucket is denied.
    fn usage(&self, number: usize, secs: u64, offered: f64) -> BucketQuotaUsage {
        let count = |rate: f64| (rate * secs as f64) as u64;
        let allowed = count(offered.min(self.rate));
        let elapsed = prost_types::Duration { seconds: secs as i64, nanos: 0 };
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [(KEY.to_owned(), number.to_string())].into() }),
            time_elapsed: Some(elapsed),
            num_requests_allowed: allowed,
            num_requests_denied: count(offered).saturating_sub(allowed).max(u64::from(secs == 0)),
        }
    }
}

/// The assigned rate per second, and the time of its expiry. Envoy truncates the time to live to whole seconds.
fn read(assignment: QuotaAssignmentAction, now: Instant) -> (f64, Instant) {
    let secs = assignment.assignment_time_to_live.map_or(u32::MAX, |ttl| u32::try_from(ttl.seconds).unwrap_or(0));
    (assignment.rate_limit_strategy.map_or(f64::INFINITY, rate), now + Duration::from_secs(secs.into()))
}

/// The rate of a strategy, per second. For a token bucket its maximum size counts as well as its fill rate. Envoy does
/// not limit requests if it does not understand the strategy.
fn rate(strategy: RateLimitStrategy) -> f64 {
    match strategy.strategy {
        Some(Strategy::BlanketRule(rule)) if rule == i32::from(BlanketRule::DenyAll) => 0.0,
        Some(Strategy::TokenBucket(bucket)) => {
            let tokens = bucket.tokens_per_fill.unwrap_or(1).max(bucket.max_tokens);
            f64::from(tokens) / bucket.fill_interval.map_or(0.0, |interval| interval.seconds as f64)
        }
        _ => f64::INFINITY,
    }
}

/// Opens a stream on a new connection.
async fn open(gateway: SocketAddr, name: &str) -> Result<QuotaStream, String> {
    let channel = Transport::new().connect_lazy(&gateway.to_string(), |endpoint: Endpoint| endpoint.tcp_nodelay(true));
    let channel = channel.expect("a socket address makes a URI, and there is no token");
    let (reports, sent) = mpsc::channel(4);
    let mut request = Request::new(ReceiverStream::new(sent));
    request.metadata_mut().insert("leaseway-client", name.parse().expect("its name is printable"));
    let told = RateLimitQuotaServiceClient::new(channel).stream_rate_limit_quotas(request).await;
    Ok(QuotaStream { reports, told: told.map_err(|status| status.to_string())?.into_inner() })
}

/// The next message of the stream. Without a stream it waits forever.
async fn next(stream: &mut Option<QuotaStream>) -> Result<RateLimitQuotaResponse, Status> {
    match stream {
        Some(stream) => stream.told.message().await?.ok_or_else(|| Status::unavailable("its stream has ended")),
        None => pending().await,
    }
}
