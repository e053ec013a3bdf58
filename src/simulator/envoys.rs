//! A client of the cluster that is a door's for one Envoy: the real machine and the real session, the stream between
//! door and Envoy, and the Envoy, which acknowledges nothing.
//!
//! What such a client "may use" is what its *Envoy* believes and not what the door and the server count.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::Millis;
use leaseway_envoy::{Action, Bucket, Envoy, Lease, Leases, Quota, REPORTS, Settings, TRANSIT, Usage};
use leaseway_session::{self as session, Mode, Outgoing, Session, Wants as Asked};

/// How doors serve Envoys here: with short assignments, so that many are under way.
fn settings() -> Settings {
    Settings { assignment_secs: 10, idle: Millis(60_000), first_wants: 10.0, buckets: 1 }
}

/// Reports are no later than this, until all is well.
const LATE: u64 = 4_000;
/// Each end of a stream that is broken notices within this.
const NOTICED: u64 = 20_000;

/// A door's client, its Envoy, and what is on the way between them.
pub(crate) struct EnvoyClient {
    resource: Arc<str>,
    door: Served,
    played: Played,
    way: BTreeMap<(Millis, u64), OnTheWay>,
    /// Nothing comes over this stream any more.
    broken: Option<u64>,
    late: u64,
    /// Things on the way are numbered, and streams.
    number: u64,
    rng: fastrand::Rng,
}

/// What a door keeps of an Envoy.
struct Served {
    envoy: Envoy<()>,
    session: Session<Asked>,
    stream: Option<u64>,
    in_use: f64,
    wanted: Option<f64>,
}

/// An Envoy as its source has it: of all that it was told it goes by the last that came, until its time is over.
#[derive(Default)]
struct Played {
    has_bucket: bool,
    believes: Option<(Quota, Millis)>,
    stream: Option<u64>,
    offered: f64,
    /// Absent while it is not there.
    reports_at: Option<Millis>,
}

#[derive(Clone, Copy)]
enum OnTheWay {
    Told { stream: u64, assignment: Option<(Quota, u32)> },
    Reported { stream: u64, usage: Usage },
    DoorNotices { stream: u64 },
    EnvoyNotices { stream: u64 },
}

/// The door's leases are those of its session.
struct SessionLeases<'s> {
    session: &'s mut Session<Asked>,
    in_use: &'s mut f64,
    wanted: &'s mut Option<f64>,
    now: Millis,
}

impl SessionLeases<'_> {
    fn say(&mut self, resource: &Arc<str>) {
        let Some(amount) = *self.wanted else { return };
        let asked = Asked { amount, outstanding: *self.in_use, ..Asked::default() };
        self.session.want(self.now, resource, asked, Mode::Pessimistic);
    }
}

impl Leases for SessionLeases<'_> {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        let is_new = self.wanted.replace(wants).is_none();
        self.say(resource);
        if is_new {
            // As the client library does: a door that ran before under this id may have told its Envoy something.
            self.session.name_from(resource, self.now.plus(settings().longest_belief()));
        }
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
    fn new(settings: Settings, now: Millis, session: session::Settings) -> Served {
        let session = Session::new(session);
        Served { envoy: Envoy::new(settings, now), session, stream: None, in_use: 0.0, wanted: None }
    }

    fn with_leases<R>(
        &mut self,
        now: Millis,
        work: impl FnOnce(&mut Envoy<()>, &mut SessionLeases<'_>, bool) -> R,
    ) -> R {
        let Served { envoy, session, in_use, wanted, stream } = self;
        work(envoy, &mut SessionLeases { session, in_use, wanted, now }, stream.is_some())
    }
}

impl Played {
    fn believed(&self, now: Millis) -> f64 {
        self.believes.filter(|(_, end)| now < *end).map_or(0.0, |(quota, _)| quota.rate())
    }
}

impl EnvoyClient {
    pub(crate) fn new(now: Millis, resource: Arc<str>, session: session::Settings, seed: u64) -> EnvoyClient {
        let door = Served::new(settings(), now, session);
        let rng = fastrand::Rng::with_seed(seed);
        EnvoyClient {
            resource,
            door,
            played: Played::default(),
            way: BTreeMap::new(),
            broken: None,
            late: LATE,
            number: 0,
            rng,
        }
    }

    pub(crate) fn session(&mut self) -> &mut Session<Asked> {
        &mut self.door.session
    }

    /// So much is offered to the Envoy from now on.
    pub(crate) fn offer(&mut self, now: Millis, offered: f64) {
        self.played.offered = offered;
        self.played.reports_at.get_or_insert(now);
    }

    /// The Envoy ends; the door notices that when it does, or when it is there again.
    pub(crate) fn end(&mut self, now: Millis) {
        self.played = Played::default();
        self.way.clear();
        if let Some(stream) = self.door.stream {
            let noticed = self.rng.u64(0..NOTICED);
            self.put(now.plus(Millis(noticed)), OnTheWay::DoorNotices { stream });
        }
    }

    /// What was on its way down the stream is lost, and what is said from now on; its ends notice when they do.
    pub(crate) fn break_stream(&mut self, now: Millis) {
        let Some(stream) = self.played.stream else { return };
        self.broken = Some(stream);
        self.way.retain(|_, what| !matches!(what, OnTheWay::Told { .. } | OnTheWay::Reported { .. }));
        let (door, envoy) = (self.rng.u64(0..NOTICED), self.rng.u64(0..NOTICED));
        self.put(now.plus(Millis(door)), OnTheWay::DoorNotices { stream });
        self.put(now.plus(Millis(envoy)), OnTheWay::EnvoyNotices { stream });
    }

    /// The door dies, and another begins under its id; the Envoy goes on with what it was told.
    pub(crate) fn kill_door(&mut self, now: Millis, session: session::Settings) {
        self.door = Served::new(settings(), now, session);
        self.played.stream = None;
        self.way.clear();
    }

    /// From now on reports take the same time, so that rates look as they are.
    pub(crate) fn heal(&mut self) {
        self.late = 0;
    }

    /// What the door wants for it.
    pub(crate) fn wanted(&self) -> f64 {
        self.door.wanted.unwrap_or_default()
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
        let actions = self.door.with_leases(now, |envoy, leases, takes| envoy.poll(now, leases, takes));
        if let Some(stream) = self.door.stream.filter(|stream| self.broken != Some(*stream)) {
            for Action { assignment, .. } in actions {
                let told = |what: &OnTheWay| matches!(what, OnTheWay::Told { .. });
                // In order, as over a stream.
                let last = self.way.iter().rev().find(|(_, what)| told(what)).map_or(now, |((at, _), _)| *at);
                let at = last.max(now.plus(Millis(self.rng.u64(0..=TRANSIT.0))));
                self.put(at, OnTheWay::Told { stream, assignment });
            }
        }
        self.door.session.poll(now)
    }

    fn put(&mut self, at: Millis, what: OnTheWay) {
        self.number += 1;
        self.way.insert((at, self.number), what);
    }

    fn arrives(&mut self, now: Millis, what: OnTheWay) {
        match what {
            OnTheWay::Told { stream, assignment } if self.played.stream == Some(stream) => match assignment {
                // It counts from when it comes.
                Some((quota, secs)) if self.played.has_bucket => {
                    self.played.believes = Some((quota, now.plus(Millis::from_secs(secs.into()))));
                }
                Some(_) => {}
                None => (self.played.has_bucket, self.played.believes) = (false, None),
            },
            OnTheWay::Reported { stream, usage } => {
                if self.door.stream.is_none_or(|current| current < stream) {
                    self.door.stream = Some(stream);
                    self.door.envoy.connected(now);
                }
                if self.door.stream == Some(stream) {
                    let bucket = Bucket { id: (), resource: Arc::clone(&self.resource) };
                    self.door.with_leases(now, |envoy, leases, _| envoy.reported(now, bucket, &usage, leases));
                }
            }
            OnTheWay::DoorNotices { stream } if self.door.stream == Some(stream) => {
                self.door.stream = None;
                self.door.envoy.disconnected(now);
            }
            OnTheWay::EnvoyNotices { stream } if self.played.stream == Some(stream) => self.played.stream = None,
            OnTheWay::Told { .. } | OnTheWay::DoorNotices { .. } | OnTheWay::EnvoyNotices { .. } => {}
        }
    }

    /// The Envoy says what has passed, over a stream that it opens if it has none.
    fn report(&mut self, now: Millis) {
        self.played.reports_at = Some(now.plus(REPORTS));
        let stream = *self.played.stream.get_or_insert(self.number);
        let is_first = !std::mem::replace(&mut self.played.has_bucket, true);
        let seconds = if is_first { 0 } else { REPORTS.0 / 1000 };
        let offered = self.played.offered * seconds.max(1) as f64;
        let passed = offered.min(self.played.believed(now) * seconds.max(1) as f64);
        let (allowed, denied) = (passed as u64, (offered - passed) as u64);
        if self.broken == Some(stream) {
            return;
        }
        let usage = Usage { elapsed: Millis::from_secs(seconds), allowed, denied };
        let reported = |what: &OnTheWay| matches!(what, OnTheWay::Reported { .. });
        let last = self.way.iter().rev().find(|(_, what)| reported(what)).map_or(now, |((at, _), _)| *at);
        let at = last.max(now.plus(Millis(self.rng.u64(0..=self.late))));
        self.put(at, OnTheWay::Reported { stream, usage });
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        let way = self.way.first_key_value().map(|((at, _), _)| *at);
        let end = self.played.believes.map(|(_, end)| end).filter(|end| now < *end);
        let door = [self.door.session.wake(now), self.door.envoy.wake(now)];
        door.into_iter().chain([way, end, self.played.reports_at]).flatten().min()
    }
}
