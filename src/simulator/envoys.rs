//! A client of the cluster that is a gateway's for one Envoy: the real machine and the real session, the stream between
//! gateway and Envoy, and the Envoy, which acknowledges nothing.
//!
//! What such a client "may use" is what its *Envoy* believes and not what the gateway and the server count.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::{Amount, Millis};
use leaseway_envoy::{Action, Bucket, Envoy, EnvoySettings, Lease, Leases, Quota, REPORTS, TRANSIT, Usage, stays};
use leaseway_session::{self as session, Mode, Outgoing, Session, Wants as Asked};

/// How gateways serve Envoys here: with short assignments, so that many are under way.
fn settings() -> EnvoySettings {
    EnvoySettings { assignment_secs: 10, idle: Millis(60_000), first_wants: 10.0, buckets: 1 }
}

/// Reports are no later than this, until all is well.
const LATE: u64 = TRANSIT.0;
/// Each end of a stream that is broken notices within this.
const NOTICED: u64 = 20_000;
/// An Envoy without a stream opens one to any of so many gateways.
const GATEWAYS: usize = 2;
/// Requests of each session have numbers of their own.
const NUMBERS: u64 = 1 << 32;

/// A gateway's client, its Envoy, and what is on the way between them.
pub(crate) struct EnvoyClient {
    resource: Arc<str>,
    gateways: [Served; GATEWAYS],
    sessions: Sessions,
    played: Played,
    way: BTreeMap<(Millis, u64), OnTheWay>,
    /// Nothing comes over this stream any more.
    broken: Option<u64>,
    late: u64,
    /// Things on the way are numbered, and streams.
    number: u64,
    rng: fastrand::Rng,
}

/// Makes sessions: each stream begins with one of its own.
struct Sessions {
    settings: session::EnvoySettings,
    made: u64,
}

impl Sessions {
    fn make(&mut self) -> (u64, Session<Asked>) {
        self.made += 1;
        let settings = self.settings.clone();
        let seed = settings.seed.wrapping_add(self.made);
        (self.made, Session::new(session::EnvoySettings { seed, ..settings }))
    }
}

/// What a gateway keeps of an Envoy.
struct Served {
    envoy: Envoy<()>,
    /// The number of the session, and itself.
    session: (u64, Session<Asked>),
    stream: Option<u64>,
    has_begun: bool,
    here_until: Millis,
    in_use: f64,
    wanted: Option<f64>,
}

/// An Envoy as its source has it: of all that it was told it goes by the last that came, until its time is over.
#[derive(Default)]
struct Played {
    has_bucket: bool,
    believes: Option<(Quota, Millis)>,
    /// Where its stream goes, and its number.
    stream: Option<(usize, u64)>,
    offered: f64,
    /// Absent while it is not there.
    reports_at: Option<Millis>,
}

#[derive(Clone, Copy)]
enum OnTheWay {
    Told { stream: u64, assignment: Option<(Quota, u32)> },
    Reported { gateway: usize, stream: u64, usage: Usage },
    GatewayNotices { gateway: usize, stream: u64 },
    EnvoyNotices { stream: u64 },
}

/// The gateway's leases are those of its session.
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

    fn give_back(&mut self, resource: &Arc<str>) {
        (*self.in_use, *self.wanted) = (0.0, None);
        self.session.release(resource);
    }
}

impl Served {
    fn new(now: Millis, sessions: &mut Sessions) -> Served {
        Served {
            envoy: Envoy::new(settings(), now),
            session: sessions.make(),
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
        work: impl FnOnce(&mut Envoy<()>, &mut SessionLeases<'_>, bool) -> R,
    ) -> R {
        let Served { envoy, session: (_, session), in_use, wanted, stream, .. } = self;
        work(envoy, &mut SessionLeases { session, in_use, wanted, now }, stream.is_some())
    }

    /// As the task of a gateway does it.
    fn reported(&mut self, now: Millis, resource: &Arc<str>, stream: u64, usage: &Usage, sessions: &mut Sessions) {
        if self.stream.is_some_and(|current| current > stream) {
            return;
        }
        let begins = self.stream != Some(stream);
        if begins {
            self.stream = Some(stream);
            if std::mem::replace(&mut self.has_begun, true) {
                self.session = sessions.make();
                self.in_use = f64::INFINITY;
                self.with_leases(now, |_, leases, _| leases.say(resource));
            }
            self.envoy.connected(now);
        }
        self.here_until = self.here_until.max(now.plus(stays(begins, [usage].into_iter())));
        self.session.1.ask_until(self.here_until);
        let bucket = Bucket { id: (), resource: Arc::clone(resource) };
        self.with_leases(now, |envoy, leases, _| envoy.reported(now, bucket, usage, leases));
    }

    /// Its stream is gone.
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

impl Played {
    fn believed(&self, now: Millis) -> f64 {
        self.believes.filter(|(_, end)| now < *end).map_or(0.0, |(quota, _)| quota.rate())
    }
}

impl EnvoyClient {
    pub(crate) fn new(now: Millis, resource: Arc<str>, session: session::EnvoySettings, seed: u64) -> EnvoyClient {
        let mut sessions = Sessions { settings: session, made: 0 };
        EnvoyClient {
            resource,
            gateways: std::array::from_fn(|_| Served::new(now, &mut sessions)),
            sessions,
            played: Played::default(),
            way: BTreeMap::new(),
            broken: None,
            late: LATE,
            number: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The session that sent this request, if it is still there, with the number that the request has there.
    pub(crate) fn session_of(&mut self, number: u64) -> Option<(&mut Session<Asked>, u64)> {
        let made = number / NUMBERS;
        let served = self.gateways.iter_mut().find(|served| served.session.0 == made)?;
        Some((&mut served.session.1, number % NUMBERS))
    }

    pub(crate) fn hint(&mut self, now: Millis, resource: &str) {
        for served in &mut self.gateways {
            served.session.1.hint(now, resource);
        }
    }

    /// So much is offered to the Envoy from now on.
    pub(crate) fn offer(&mut self, now: Millis, offered: f64) {
        self.played.offered = offered;
        self.played.reports_at.get_or_insert(now);
    }

    /// The Envoy ends, and its stream with it, which the gateway notices at once.
    pub(crate) fn end(&mut self, now: Millis) {
        self.played = Played::default();
        self.way.clear();
        for served in self.gateways.iter_mut().filter(|served| served.stream.is_some()) {
            served.left(now);
        }
    }

    /// What was on its way down the stream is lost, and what is said from now on; its ends notice when they do.
    pub(crate) fn break_stream(&mut self, now: Millis) {
        let Some((gateway, stream)) = self.played.stream else { return };
        self.broken = Some(stream);
        self.way.retain(|_, what| !matches!(what, OnTheWay::Told { .. } | OnTheWay::Reported { .. }));
        let (by_gateway, by_envoy) = (self.rng.u64(0..NOTICED), self.rng.u64(0..NOTICED));
        self.put(now.plus(Millis(by_gateway)), OnTheWay::GatewayNotices { gateway, stream });
        self.put(now.plus(Millis(by_envoy)), OnTheWay::EnvoyNotices { stream });
    }

    /// The gateway that the Envoy reports to dies, and another begins in its place; the Envoy goes on with what it was
    /// told.
    pub(crate) fn kill_gateway(&mut self, now: Millis) {
        let Some((gateway, _)) = self.played.stream.take() else { return };
        self.gateways[gateway] = Served::new(now, &mut self.sessions);
        self.way.retain(|_, what| matches!(what, OnTheWay::GatewayNotices { gateway: other, .. } if *other != gateway));
    }

    /// From now on reports take the same time, so that rates look as they are.
    pub(crate) fn heal(&mut self) {
        self.late = 0;
    }

    /// What is wanted for it, where it reports to.
    pub(crate) fn wanted(&self) -> f64 {
        let gateway = self.played.stream.map_or(0, |(gateway, _)| gateway);
        self.gateways[gateway].wanted.unwrap_or_default()
    }

    /// What the Envoy believes.
    pub(crate) fn believed(&self, now: Millis) -> f64 {
        self.played.believed(now)
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Asked>> {
        while let Some(next) = self.way.first_entry().filter(|next| next.key().0 <= now) {
            let what = next.remove();
            self.arrives(now, what);
        }
        if self.played.reports_at.is_some_and(|at| at <= now) {
            self.report(now);
        }
        for gateway in 0..GATEWAYS {
            let served = &mut self.gateways[gateway];
            let actions = served.with_leases(now, |envoy, leases, takes| envoy.poll(now, leases, takes));
            let Some(stream) = served.stream.filter(|stream| self.broken != Some(*stream)) else { continue };
            for Action { assignment, .. } in actions {
                // In order, as over a stream.
                let told = |what: &OnTheWay| matches!(what, OnTheWay::Told { stream: other, .. } if *other == stream);
                let last = self.way.iter().rev().find(|(_, what)| told(what)).map_or(now, |((at, _), _)| *at);
                let at = last.max(now.plus(Millis(self.rng.u64(0..=TRANSIT.0))));
                self.put(at, OnTheWay::Told { stream, assignment });
            }
        }
        self.gateways.iter_mut().find_map(|served| {
            let (made, session) = &mut served.session;
            let outgoing = session.poll(now)?;
            Some(Outgoing { number: outgoing.number + *made * NUMBERS, ..outgoing })
        })
    }

    fn put(&mut self, at: Millis, what: OnTheWay) {
        self.number += 1;
        self.way.insert((at, self.number), what);
    }

    fn arrives(&mut self, now: Millis, what: OnTheWay) {
        let is_current = |played: &Played, stream: u64| played.stream.is_some_and(|(_, current)| current == stream);
        match what {
            OnTheWay::Told { stream, assignment } if is_current(&self.played, stream) => match assignment {
                // It counts from when it comes.
                Some((quota, secs)) if self.played.has_bucket => {
                    self.played.believes = Some((quota, now.plus(Millis::from_secs(secs.into()))));
                }
                Some(_) => {}
                None => (self.played.has_bucket, self.played.believes) = (false, None),
            },
            OnTheWay::Reported { gateway, stream, usage } => {
                self.gateways[gateway].reported(now, &self.resource, stream, &usage, &mut self.sessions);
            }
            OnTheWay::GatewayNotices { gateway, stream } if self.gateways[gateway].stream == Some(stream) => {
                self.gateways[gateway].left(now);
            }
            OnTheWay::EnvoyNotices { stream } if is_current(&self.played, stream) => self.played.stream = None,
            OnTheWay::Told { .. } | OnTheWay::GatewayNotices { .. } | OnTheWay::EnvoyNotices { .. } => {}
        }
    }

    /// The Envoy says what has passed, over a stream that it opens if it has none.
    fn report(&mut self, now: Millis) {
        self.played.reports_at = Some(now.plus(REPORTS));
        let (gateway, stream) = match self.played.stream {
            Some(stream) => stream,
            None => *self.played.stream.insert((self.rng.usize(0..GATEWAYS), self.number)),
        };
        if self.broken == Some(stream) {
            return;
        }
        let is_first = !std::mem::replace(&mut self.played.has_bucket, true);
        let seconds = if is_first { 0 } else { REPORTS.0 / 1000 };
        let offered = self.played.offered * seconds as f64;
        let passed = offered.min(self.played.believed(now) * seconds as f64);
        let denied = if is_first { 1 } else { (offered - passed) as u64 };
        let usage = Usage { elapsed: Millis::from_secs(seconds), allowed: passed as u64, denied };
        // In order, as over a stream.
        let reported = |what: &OnTheWay| matches!(what, OnTheWay::Reported { stream: other, .. } if *other == stream);
        let last = self.way.iter().rev().find(|(_, what)| reported(what)).map_or(now, |((at, _), _)| *at);
        let at = last.max(now.plus(Millis(self.rng.u64(0..=self.late))));
        self.put(at, OnTheWay::Reported { gateway, stream, usage });
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        let way = self.way.first_key_value().map(|((at, _), _)| *at);
        let end = self.played.believes.map(|(_, end)| end).filter(|end| now < *end);
        let gateways = self.gateways.iter().map(|served| served.wake(now));
        gateways.chain([way, end, self.played.reports_at]).flatten().min()
    }
}
