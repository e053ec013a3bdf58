//! Envoys as they are, played at random: streams that break with what was on its way, reports that are late, Envoys
//! that restart, doors that restart under the same id. Between the machine and the core's resource there is a real
//! session, over a network that loses, repeats and delays.

use std::collections::VecDeque;

use leaseway_client::{
    Mode, Wants,
    session::{self as session, Body, Given, Outgoing, Pace, Session, Wire},
};
use leaseway_core::{
    self as core, Amount, Answer, Birth, Claim, Epoch, HolderKind, Kind, Now, Request, Resource, Source, Token,
    Workspace,
};
use proptest::prelude::*;

use super::*;

const CAPACITY: f64 = 100.0;
const RESOURCE: &str = "shop/route=a";

/// An Envoy as its source has it: of all that it was told it goes by the last that came, until its time is over.
#[derive(Debug, Default)]
struct Played {
    has_bucket: bool,
    believes: Option<(Quota, Millis)>,
    /// Its stream, by number.
    stream: Option<u64>,
    offered: f64,
}

impl Played {
    fn believed(&self, now: Millis) -> f64 {
        self.believes.filter(|(_, end)| now < *end).map_or(0.0, |(quota, _)| quota.rate())
    }
}

/// What a door keeps of an Envoy.
struct Served {
    envoy: Envoy<BucketId>,
    session: Session<Wants>,
    stream: Option<u64>,
    in_use: f64,
    wanted: Option<f64>,
}

struct SessionLeases<'s> {
    session: &'s mut Session<Wants>,
    in_use: &'s mut f64,
    wanted: &'s mut Option<f64>,
    now: Millis,
}

impl SessionLeases<'_> {
    fn say(&mut self) {
        let Some(amount) = *self.wanted else { return };
        let wants = Wants { amount, outstanding: *self.in_use, ..Wants::default() };
        self.session.want(self.now, &RESOURCE.into(), wants, Mode::Pessimistic);
    }
}

impl Leases for SessionLeases<'_> {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        let is_new = self.wanted.replace(wants).is_none();
        self.say();
        if is_new {
            self.session.name_from(resource, self.now.plus(settings().longest_belief()));
        }
    }

    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease> {
        *self.in_use = in_use;
        self.say();
        let lease = self.session.lease(self.now, resource)?;
        Some(Lease { capacity: lease.capacity.get(), end: lease.end })
    }

    fn give_back(&mut self, resource: &Arc<str>) {
        (*self.in_use, *self.wanted) = (0.0, None);
        self.session.release(resource);
    }
}

#[derive(Debug)]
enum Event {
    /// Of a session to the master, of this life of the door.
    Asked(usize, u64, u64, Request),
    Answered(usize, u64, u64, Vec<Given>),
    /// Down a stream.
    Told(usize, u64, Option<(Quota, u32)>),
    /// Up a stream.
    Reported(usize, u64, Usage),
    /// The other end of a stream has noticed that it is broken.
    DoorNotices(usize, u64),
    EnvoyNotices(usize, u64),
    ReportTimer(usize),
    Trouble,
}

#[derive(Debug, Clone, Copy)]
struct Bad {
    percent: u64,
    delay: u64,
    trouble: u64,
}

struct World {
    resource: Resource,
    door: Vec<Served>,
    life: u64,
    envoys: Vec<Played>,
    queue: BTreeMap<(Millis, u64), Event>,
    sequence: u64,
    rng: fastrand::Rng,
    bad: Bad,
    now: Millis,
    log: VecDeque<String>,
}

fn served(n: usize, life: u64, now: Millis) -> Served {
    let pace = Pace { deadline: Millis(1_500), ..Pace::default() };
    let (endpoints, seed) = (vec!["a:1".into()], n as u64 ^ (life << 8));
    let session = Session::new(session::Settings { endpoints, pace, resources_per_request: 10, seed });
    Served { envoy: Envoy::new(settings(), now), session, stream: None, in_use: 0.0, wanted: None }
}

impl World {
    fn new(envoys: usize, seed: u64, bad: Bad) -> World {
        let how = core::Settings {
            lease: Millis(20_000),
            refresh: Millis(2_000),
            learning: Some(Millis(0)),
            ..core::Settings::new(Kind::FairShare, Amount::clamped(CAPACITY))
        };
        let birth = Birth {
            source: Source::Own,
            settings: how,
            epoch: Epoch(1),
            since: Millis(0),
            learning_until: Millis(0),
            inherited: None,
            max_holders: 100,
            seed,
        };
        let mut world = World {
            resource: Resource::new(birth),
            door: (0..envoys).map(|n| served(n, 0, Millis(0))).collect(),
            life: 0,
            envoys: (0..envoys).map(|_| Played::default()).collect(),
            queue: BTreeMap::new(),
            sequence: 0,
            rng: fastrand::Rng::with_seed(seed),
            bad,
            now: Millis(0),
            log: VecDeque::new(),
        };
        for n in 0..envoys {
            world.envoys[n].offered = world.rng.f64() * 100.0;
            let at = world.rng.u64(0..5_000);
            world.after(at, Event::ReportTimer(n));
        }
        world.after(bad.trouble, Event::Trouble);
        world
    }

    fn after(&mut self, span: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now.plus(Millis(span)), self.sequence), event);
    }

    /// Over the network between door and master.
    fn send(&mut self, event: impl Fn() -> Event) {
        let lost = self.rng.u64(0..100) < self.bad.percent;
        let copies = if lost { 0 } else { 1 + u64::from(self.rng.u64(0..100) < self.bad.percent) };
        for _ in 0..copies {
            let delay = self.rng.u64(0..=self.bad.delay);
            self.after(delay, event());
        }
    }

    fn run(&mut self, span: Millis, troubled: bool) {
        let end = self.now.plus(span);
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 200_000, "it spins at {:?}", self.now);
            let wake = |served: &Served| {
                [served.session.wake(self.now), served.envoy.wake(self.now)].into_iter().flatten().min()
            };
            let wake = self.door.iter().filter_map(wake).min();
            let arrival = self.queue.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = wake.into_iter().chain(arrival).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some((_, event)) = self.queue.pop_first()
            {
                self.log.push_back(format!("{:?} {event:?}", self.now));
                self.handle(event, troubled);
            }
            for n in 0..self.door.len() {
                self.step(n);
            }
            self.log.drain(..self.log.len().saturating_sub(60));
            self.check();
        }
        self.now = end;
    }

    fn check(&self) {
        let believed: Vec<f64> = self.envoys.iter().map(|envoy| envoy.believed(self.now)).collect();
        let all: f64 = believed.iter().sum();
        if all > CAPACITY * (1.0 + 1e-9) {
            let log: Vec<_> = self.log.iter().map(String::as_str).collect();
            panic!("{believed:?} are believed at {:?}\n{}", self.now, log.join("\n"));
        }
    }

    fn step(&mut self, n: usize) {
        let (now, life) = (self.now, self.life);
        let Served { envoy, session, in_use, wanted, stream } = &mut self.door[n];
        let actions = envoy.poll(now, &mut SessionLeases { session, in_use, wanted, now }, true);
        let outgoing = session.poll(now);
        if let Some(stream) = *stream {
            for Action { assignment, .. } in actions {
                // In order, as over a stream: the same time on the way for all.
                self.after(self.bad.delay.min(TRANSIT.0), Event::Told(n, stream, assignment));
            }
        } else {
            assert_eq!(actions, [], "there is no stream");
        }
        if let Some(Outgoing { number, body, .. }) = outgoing {
            let request = request(n, body);
            self.send(|| Event::Asked(n, life, number, request.clone()));
        }
    }

    fn handle(&mut self, event: Event, troubled: bool) {
        let now = self.now;
        match event {
            Event::Asked(n, life, number, request) => {
                let at = Now { at: now, unix: (now.0 / 1000) as i64 };
                let (mut requests, mut answers) = (vec![request], Vec::new());
                self.resource.round(at, &mut requests, &mut answers, &mut Workspace::default());
                let given: Vec<_> = answers.iter().filter_map(as_given).collect();
                self.send(|| Event::Answered(n, life, number, given.clone()));
            }
            Event::Answered(n, life, number, given) if life == self.life => {
                self.door[n].session.answered(now, number, given);
            }
            Event::Told(n, stream, assignment) if self.envoys[n].stream == Some(stream) => {
                let envoy = &mut self.envoys[n];
                match assignment {
                    // It counts from when it comes.
                    Some((quota, secs)) if envoy.has_bucket => {
                        envoy.believes = Some((quota, now.plus(Millis::from_secs(secs.into()))));
                    }
                    Some(_) => {}
                    None => (envoy.has_bucket, envoy.believes) = (false, None),
                }
            }
            Event::Reported(n, stream, usage) => {
                let Served { envoy, session, in_use, wanted, stream: current } = &mut self.door[n];
                if current.is_none_or(|current| current < stream) {
                    *current = Some(stream);
                    envoy.connected(now);
                }
                if *current == Some(stream) {
                    envoy.reported(now, bucket("a"), &usage, &mut SessionLeases { session, in_use, wanted, now });
                }
            }
            Event::DoorNotices(n, stream) if self.door[n].stream == Some(stream) => {
                self.door[n].stream = None;
                self.door[n].envoy.disconnected(now);
            }
            Event::EnvoyNotices(n, stream) if self.envoys[n].stream == Some(stream) => self.envoys[n].stream = None,
            Event::ReportTimer(n) => {
                self.report(n);
                self.after(5_000, Event::ReportTimer(n));
            }
            Event::Trouble => {
                if troubled {
                    self.trouble();
                }
                let again = self.rng.u64(1..=self.bad.trouble.max(1));
                self.after(again, Event::Trouble);
            }
            _ => {}
        }
    }

    fn report(&mut self, n: usize) {
        let (now, sequence) = (self.now, self.sequence);
        let envoy = &mut self.envoys[n];
        let stream = *envoy.stream.get_or_insert(sequence);
        let (seconds, count) = if std::mem::replace(&mut envoy.has_bucket, true) { (5, 5.0) } else { (0, 1.0) };
        let passed = (envoy.believed(now) * count).min(envoy.offered * count);
        let denied = (envoy.offered * count - passed).max(0.0);
        let usage = usage(seconds, passed as u64, denied as u64);
        let delay = self.bad.delay.min(4_000);
        self.after(delay, Event::Reported(n, stream, usage));
    }

    fn trouble(&mut self) {
        let n = self.rng.usize(0..self.envoys.len());
        match self.rng.u64(0..10) {
            // A stream breaks, and its ends notice when they do.
            0..=2 => {
                if let Some(stream) = self.envoys[n].stream {
                    self.queue.retain(|_, event| !matches!(event, Event::Told(m, _, _) if *m == n));
                    let (door, envoy) = (self.rng.u64(0..20_000), self.rng.u64(0..20_000));
                    self.after(door, Event::DoorNotices(n, stream));
                    self.after(envoy, Event::EnvoyNotices(n, stream));
                }
            }
            3 => self.envoys[n] = Played { offered: self.envoys[n].offered, ..Played::default() },
            4 => {
                self.life += 1;
                for n in 0..self.door.len() {
                    self.door[n] = served(n, self.life, self.now);
                    self.envoys[n].stream = None;
                }
                self.queue.retain(|_, event| !matches!(event, Event::Told(..) | Event::Reported(..)));
            }
            _ => self.envoys[n].offered = self.rng.f64() * if self.rng.bool() { 100.0 } else { 5.0 },
        }
    }
}

fn request(n: usize, body: Body<Wants>) -> Request {
    let id: Arc<str> = format!("envoy-{n}@door").into();
    let kind = HolderKind::Client;
    let ask = match body {
        Body::Release(releases) => {
            let token = releases[0].token.and_then(Token::new);
            return Request::Release(core::Release { kind, id, token, life: None });
        }
        Body::Ask(mut asks) => asks.remove(0),
    };
    let has = ask.has.map(|lease| core::Has {
        token: lease.token.and_then(Token::new),
        capacity: Amount::clamped(lease.wire.capacity),
        expiry_time: lease.wire.expiry_time,
    });
    let beyond = ask.demand.outstanding > has.map_or(0.0, |has| has.capacity.get());
    Request::Ask(core::Ask {
        kind,
        id,
        claims: [Claim::of_client(Amount::clamped(ask.demand.amount), 0)].into_iter().collect(),
        has,
        had: None,
        outstanding: beyond.then(|| Amount::clamped(ask.demand.outstanding)),
        learning: false,
        drops_late: true,
        is_door: false,
        life: None,
        news: None,
        charged: core::Charged::default(),
    })
}

fn as_given(answer: &Answer) -> Option<Given> {
    let Answer::Granted(lease) = answer else { return None };
    Some(Given {
        id: RESOURCE.into(),
        length: lease.length,
        refresh: lease.refresh,
        token: Some(lease.token.get()),
        wire: Wire {
            expiry_time: lease.expiry_time,
            refresh_interval: (lease.refresh.0 / 1000) as i64,
            capacity: lease.capacity.get(),
        },
        safe: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn envoys_never_believe_in_more_than_there_is_and_share_it_when_all_is_well(
        seed in any::<u64>(),
        envoys in 1usize..6,
        percent in 0u64..30,
        delay in prop_oneof![Just(5u64), Just(400u64), Just(1_000u64)],
        trouble in prop_oneof![Just(500u64), Just(5_000u64)],
    ) {
        let mut world = World::new(envoys, seed, Bad { percent, delay, trouble });
        world.run(Millis(120_000), true);
        world.bad = Bad { percent: 0, delay: 5, trouble: u64::MAX };
        world.run(Millis(120_000), false);
        let offered: f64 = world.envoys.iter().map(|envoy| envoy.offered).sum();
        let believed: f64 = world.envoys.iter().map(|envoy| envoy.believed(world.now)).sum();
        // Each loses less than a whole request.
        let enough = offered.min(CAPACITY) - envoys as f64;
        prop_assert!(believed >= enough, "{} of {} are assigned", believed, offered.min(CAPACITY));
    }
}
