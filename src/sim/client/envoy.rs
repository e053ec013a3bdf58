//! A gateway's client for one Envoy: the real state machine and session of the gateway, the stream between gateway and
//! Envoy, and a simulated Envoy, which acknowledges nothing.
//!
//! The usable capacity of such a client is the capacity that its *Envoy* believes in, not the one that gateway and
//! server count.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_client::session::{self, Mode, Outgoing, Session, Wants as Asked};
use leaseway_core::types::{Amount, Millis};
use leaseway_gateway::rlqs::quotas::{
    Action, Bucket, EnvoyQuotas, Lease, Leases, Quota, QuotaSettings, REPORT_INTERVAL, TRANSIT, Usage,
    stay_after_report,
};

/// Assignments are short, so that many are in flight.
fn settings() -> QuotaSettings {
    QuotaSettings { assignment_secs: 10, idle: Millis(60_000), first_wants: 10.0, max_buckets: 1 }
}

/// Maximum delay of reports, until faults end.
const MAX_REPORT_DELAY_MS: u64 = TRANSIT.0;
/// Maximum time until an end of a broken stream notices the break.
const MAX_NOTICE_DELAY_MS: u64 = 20_000;
/// Number of gateways that an Envoy can open a stream to.
const GATEWAYS: usize = 2;
/// The requests of session n have numbers from n times this on.
const NUMBERS_PER_SESSION: u64 = 1 << 32;

/// The gateways, the Envoy, and the messages in transit between them.
pub(crate) struct EnvoyClient {
    resource: Arc<str>,
    gateways: [GatewaySide; GATEWAYS],
    session_factory: SessionFactory,
    simulated: SimulatedEnvoy,
    in_transit: BTreeMap<(Millis, u64), InTransit>,
    /// The stream that is broken, if any: it loses all messages.
    broken: Option<u64>,
    max_report_delay_ms: u64,
    /// The last number of a message or stream.
    number: u64,
    rng: fastrand::Rng,
}

/// Makes a new session for each stream.
struct SessionFactory {
    settings: session::Settings,
    made: u64,
}

impl SessionFactory {
    fn make(&mut self) -> (u64, Session<Asked>) {
        self.made += 1;
        let settings = self.settings.clone();
        let seed = settings.seed.wrapping_add(self.made);
        (self.made, Session::new(session::Settings { seed, ..settings }))
    }
}

/// The state of a gateway for an Envoy.
struct GatewaySide {
    envoy: EnvoyQuotas<()>,
    /// The session, and its number.
    session: (u64, Session<Asked>),
    stream: Option<u64>,
    has_begun: bool,
    here_until: Millis,
    in_use: f64,
    wanted: Option<f64>,
}

/// An Envoy. As in Envoy's source, the last assignment that arrived is in force until it expires.
#[derive(Default)]
struct SimulatedEnvoy {
    has_bucket: bool,
    believes: Option<(Quota, Millis)>,
    /// The gateway that its stream goes to, and the number of the stream.
    stream: Option<(usize, u64)>,
    offered: f64,
    /// The time of the next report; absent while the Envoy does not run.
    reports_at: Option<Millis>,
}

#[derive(Clone, Copy)]
enum InTransit {
    Assigned { stream: u64, assignment: Option<(Quota, u32)> },
    Reported { gateway: usize, stream: u64, usage: Usage },
    GatewayNotices { gateway: usize, stream: u64 },
    EnvoyNotices { stream: u64 },
}

/// The leases of a session, as the gateway's state machine sees them.
struct SessionLeases<'s> {
    session: &'s mut Session<Asked>,
    in_use: &'s mut f64,
    wanted: &'s mut Option<f64>,
    now: Millis,
}

impl SessionLeases<'_> {
    fn say(&mut self, resource: &Arc<str>) {
        let Some(amount) = *self.wanted else { return };
        let outstanding = self.in_use.min(Amount::MAX.get());
        let asked = Asked { amount, outstanding, ..Asked::default() };
        self.session.want(self.now, resource, asked, Mode::Pessimistic);
    }
}

impl Leases for SessionLeases<'_> {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        if self.wanted.replace(wants).is_none() {
            *self.in_use = f64::INFINITY;
        }
        self.say(resource);
    }

    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease> {
        *self.in_use = in_use;
        self.say(resource);
        let lease = self.session.lease(self.now, resource)?;
        Some(Lease { capacity: lease.capacity.get(), end: lease.end })
    }

    fn release(&mut self, resource: &Arc<str>) {
        (*self.in_use, *self.wanted) = (0.0, None);
        self.session.release(resource);
    }
}

impl GatewaySide {
    fn new(now: Millis, session_factory: &mut SessionFactory) -> GatewaySide {
        GatewaySide {
            envoy: EnvoyQuotas::new(settings(), now),
            session: session_factory.make(),
            stream: None,
            has_begun: false,
            here_until: now,
            in_use: 0.0,
            wanted: None,
        }
    }

    fn with_leases<R>(
        &mut self,
        now: Millis,
        work: impl FnOnce(&mut EnvoyQuotas<()>, &mut SessionLeases<'_>, bool) -> R,
    ) -> R {
        let GatewaySide { envoy, session: (_, session), in_use, wanted, stream, .. } = self;
        work(envoy, &mut SessionLeases { session, in_use, wanted, now }, stream.is_some())
    }

    /// Handles a report, as a task of the gateway does.
    fn reported(
        &mut self,
        now: Millis,
        resource: &Arc<str>,
        stream: u64,
        usage: &Usage,
        session_factory: &mut SessionFactory,
    ) {
        if self.stream.is_some_and(|current| current > stream) {
            return;
        }
        let begins = self.stream != Some(stream);
        if begins {
            self.stream = Some(stream);
            if std::mem::replace(&mut self.has_begun, true) {
                self.session = session_factory.make();
                self.in_use = f64::INFINITY;
                self.with_leases(now, |_, leases, _| leases.say(resource));
            }
            self.envoy.connected(now);
        }
        self.here_until = self.here_until.max(now.plus(stay_after_report(begins, [usage].into_iter())));
        self.session.1.ask_until(self.here_until);
        let bucket = Bucket { id: (), resource: Arc::clone(resource) };
        self.with_leases(now, |envoy, leases, _| envoy.reported(now, bucket, usage, leases));
    }

    /// The stream was closed.
    fn left(&mut self, now: Millis) {
        self.stream = None;
        self.here_until = now;
        self.session.1.ask_until(now);
        self.envoy.disconnected(now);
    }

    fn wake(&self, now: Millis) -> Option<Millis> {
        [self.session.1.wake(now), self.envoy.wake(now)].into_iter().flatten().min()
    }
}

impl SimulatedEnvoy {
    fn believed(&self, now: Millis) -> f64 {
        self.believes.filter(|(_, end)| now < *end).map_or(0.0, |(quota, _)| quota.rate())
    }
}

impl EnvoyClient {
    pub(crate) fn new(now: Millis, resource: Arc<str>, session: session::Settings, seed: u64) -> EnvoyClient {
        let mut session_factory = SessionFactory { settings: session, made: 0 };
        EnvoyClient {
            resource,
            gateways: std::array::from_fn(|_| GatewaySide::new(now, &mut session_factory)),
            session_factory,
            simulated: SimulatedEnvoy::default(),
            in_transit: BTreeMap::new(),
            broken: None,
            max_report_delay_ms: MAX_REPORT_DELAY_MS,
            number: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The session of a request, if it still exists, and the number of the request in it.
    pub(crate) fn session_of(&mut self, number: u64) -> Option<(&mut Session<Asked>, u64)> {
        let made = number / NUMBERS_PER_SESSION;
        let side = self.gateways.iter_mut().find(|side| side.session.0 == made)?;
        Some((&mut side.session.1, number % NUMBERS_PER_SESSION))
    }

    pub(crate) fn hint(&mut self, now: Millis, resource: &str) {
        for side in &mut self.gateways {
            side.session.1.hint(now, resource);
        }
    }

    pub(crate) fn offer(&mut self, now: Millis, offered: f64) {
        self.simulated.offered = offered;
        self.simulated.reports_at.get_or_insert(now);
    }

    /// The Envoy exits. The gateway notices immediately.
    pub(crate) fn end(&mut self, now: Millis) {
        self.simulated = SimulatedEnvoy::default();
        self.in_transit.clear();
        for side in self.gateways.iter_mut().filter(|side| side.stream.is_some()) {
            side.left(now);
        }
    }

    /// Breaks the stream: messages in transit and later ones are lost, and both ends notice after a while.
    pub(crate) fn break_stream(&mut self, now: Millis) {
        let Some((gateway, stream)) = self.simulated.stream else { return };
        self.broken = Some(stream);
        self.in_transit.retain(|_, what| !matches!(what, InTransit::Assigned { .. } | InTransit::Reported { .. }));
        let (by_gateway, by_envoy) = (self.rng.u64(0..MAX_NOTICE_DELAY_MS), self.rng.u64(0..MAX_NOTICE_DELAY_MS));
        self.put(now.plus(Millis(by_gateway)), InTransit::GatewayNotices { gateway, stream });
        self.put(now.plus(Millis(by_envoy)), InTransit::EnvoyNotices { stream });
    }

    /// Replaces the gateway of the Envoy, which continues with its last assignment.
    pub(crate) fn kill_gateway(&mut self, now: Millis) {
        let Some((gateway, _)) = self.simulated.stream.take() else { return };
        self.gateways[gateway] = GatewaySide::new(now, &mut self.session_factory);
        self.in_transit
            .retain(|_, what| matches!(what, InTransit::GatewayNotices { gateway: other, .. } if *other != gateway));
    }

    /// Removes the delay of reports, so that reported rates are accurate.
    pub(crate) fn heal(&mut self) {
        self.max_report_delay_ms = 0;
    }

    pub(crate) fn wanted(&self) -> f64 {
        let gateway = self.simulated.stream.map_or(0, |(gateway, _)| gateway);
        self.gateways[gateway].wanted.unwrap_or_default()
    }

    /// The rate that the Envoy believes it may let through.
    pub(crate) fn believed(&self, now: Millis) -> f64 {
        self.simulated.believed(now)
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Asked>> {
        while let Some(next) = self.in_transit.first_entry().filter(|next| next.key().0 <= now) {
            let what = next.remove();
            self.arrives(now, what);
        }
        if self.simulated.reports_at.is_some_and(|at| at <= now) {
            self.report(now);
        }
        for gateway in 0..GATEWAYS {
            let side = &mut self.gateways[gateway];
            let actions = side.with_leases(now, |envoy, leases, takes| envoy.poll(now, leases, takes));
            let Some(stream) = side.stream.filter(|stream| self.broken != Some(*stream)) else { continue };
            for Action { assignment, .. } in actions {
                // Streams keep the order of messages.
                let told =
                    |what: &InTransit| matches!(what, InTransit::Assigned { stream: other, .. } if *other == stream);
                let last = self.in_transit.iter().rev().find(|(_, what)| told(what)).map_or(now, |((at, _), _)| *at);
                let at = last.max(now.plus(Millis(self.rng.u64(0..=TRANSIT.0))));
                self.put(at, InTransit::Assigned { stream, assignment });
            }
        }
        self.gateways.iter_mut().find_map(|side| {
            let (made, session) = &mut side.session;
            let outgoing = session.poll(now)?;
            Some(Outgoing { number: outgoing.number + *made * NUMBERS_PER_SESSION, ..outgoing })
        })
    }

    fn put(&mut self, at: Millis, what: InTransit) {
        self.number += 1;
        self.in_transit.insert((at, self.number), what);
    }

    fn arrives(&mut self, now: Millis, what: InTransit) {
        let is_current =
            |simulated: &SimulatedEnvoy, stream: u64| simulated.stream.is_some_and(|(_, current)| current == stream);
        match what {
            InTransit::Assigned { stream, assignment } if is_current(&self.simulated, stream) => match assignment {
                // An assignment counts from its arrival.
                Some((quota, secs)) if self.simulated.has_bucket => {
                    self.simulated.believes = Some((quota, now.plus(Millis::from_secs(secs.into()))));
                }
                Some(_) => {}
                None => (self.simulated.has_bucket, self.simulated.believes) = (false, None),
            },
            InTransit::Reported { gateway, stream, usage } => {
                self.gateways[gateway].reported(now, &self.resource, stream, &usage, &mut self.session_factory);
            }
            InTransit::GatewayNotices { gateway, stream } if self.gateways[gateway].stream == Some(stream) => {
                self.gateways[gateway].left(now);
            }
            InTransit::EnvoyNotices { stream } if is_current(&self.simulated, stream) => self.simulated.stream = None,
            InTransit::Assigned { .. } | InTransit::GatewayNotices { .. } | InTransit::EnvoyNotices { .. } => {}
        }
    }

    /// The Envoy reports the number of requests that it let through. It opens a stream if it has none.
    fn report(&mut self, now: Millis) {
        self.simulated.reports_at = Some(now.plus(REPORT_INTERVAL));
        let (gateway, stream) = match self.simulated.stream {
            Some(stream) => stream,
            None => *self.simulated.stream.insert((self.rng.usize(0..GATEWAYS), self.number)),
        };
        if self.broken == Some(stream) {
            return;
        }
        let is_first = !std::mem::replace(&mut self.simulated.has_bucket, true);
        let seconds = if is_first { 0 } else { REPORT_INTERVAL.0 / 1000 };
        let offered = self.simulated.offered * seconds as f64;
        let passed = offered.min(self.simulated.believed(now) * seconds as f64);
        let denied = if is_first { 1 } else { (offered - passed) as u64 };
        let usage = Usage { elapsed: Millis::from_secs(seconds), allowed: passed as u64, denied };
        // Streams keep the order of messages.
        let reported = |what: &InTransit| matches!(what, InTransit::Reported { stream: other, .. } if *other == stream);
        let last = self.in_transit.iter().rev().find(|(_, what)| reported(what)).map_or(now, |((at, _), _)| *at);
        let at = last.max(now.plus(Millis(self.rng.u64(0..=self.max_report_delay_ms))));
        self.put(at, InTransit::Reported { gateway, stream, usage });
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        let in_transit = self.in_transit.first_key_value().map(|((at, _), _)| *at);
        let end = self.simulated.believes.map(|(_, end)| end).filter(|end| now < *end);
        let gateways = self.gateways.iter().map(|side| side.wake(now));
        gateways.chain([in_transit, end, self.simulated.reports_at]).flatten().min()
    }
}
