//! Sessions against a resource of the core, over a network that loses, duplicates, delays and reorders messages. Checks
//! that the sum of what sessions may use never exceeds the capacity, and that every session gets its due once the
//! network is healthy again.

use std::collections::BTreeMap;

use leaseway_core::{
    self as core,
    policy::settings::AlgorithmKind as Algorithm,
    resource::{Answer, Request, Resource, ResourceOptions, RoundScratch},
    types::{Amount, Claim, Epoch, HolderKind, Now, Token},
};
use proptest::prelude::*;

use super::*;

const CAPACITY: f64 = 100.0;
/// One-way delay of a healthy network.
const SHORT: u64 = 5;

#[derive(Debug)]
enum Event {
    Asked(usize, u64, Request),
    Answered(usize, u64, Vec<GrantedLease>),
    /// A user changes the demand, or closes the resource.
    Change(usize),
}

#[derive(Debug, Clone, Copy)]
struct Faults {
    /// Percentage of messages that are lost, and that are duplicated.
    percent: u64,
    delay_max: u64,
}

struct Simulation {
    resource: Resource,
    sessions: Vec<Session<Wants>>,
    wants: Vec<f64>,
    queue: BTreeMap<(Millis, u64), Event>,
    sequence: u64,
    rng: fastrand::Rng,
    faults: Faults,
    now: Millis,
}

impl Simulation {
    fn new(clients: usize, algorithm: Algorithm, seed: u64, faults: Faults) -> Simulation {
        let settings_of_resource = core::policy::settings::Settings {
            lease: Millis(8_000),
            refresh: Millis(2_000),
            learning: Some(Millis(0)),
            ..core::policy::settings::Settings::new(algorithm, Amount::clamped(CAPACITY))
        };
        let options = ResourceOptions {
            source: leaseway_core::resource::supply::Source::Own,
            settings: settings_of_resource.into(),
            epoch: Epoch(1),
            since: Millis(0),
            learning_until: Millis(0),
            inherited: None,
            max_holders: 100,
            seed,
        };
        let pace = Pace { deadline: Millis(1_500), ..Pace::default() };
        let new_session = |n| Session::new(Settings { seed: seed ^ n, pace: pace.clone(), ..settings(&["a:1"]) });
        let mut simulation = Simulation {
            resource: Resource::new(options),
            sessions: (0..clients as u64).map(new_session).collect(),
            wants: vec![0.0; clients],
            queue: BTreeMap::new(),
            sequence: 0,
            rng: fastrand::Rng::with_seed(seed),
            faults,
            now: Millis(0),
        };
        for client in 0..clients {
            let at = simulation.rng.u64(0..3_000);
            simulation.after(at, Event::Change(client));
        }
        simulation
    }

    fn after(&mut self, span: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now.plus(Millis(span)), self.sequence), event);
    }

    fn chance(&mut self) -> bool {
        self.rng.u64(0..100) < self.faults.percent
    }

    /// Sends a message, which is lost, delivered, or duplicated.
    fn send(&mut self, event: impl Fn() -> Event) {
        let copies = if self.chance() { 0 } else { 1 + u64::from(self.chance()) };
        for _ in 0..copies {
            let delay = self.rng.u64(0..=self.faults.delay_max.max(SHORT));
            self.after(delay, event());
        }
    }

    /// Runs for `span` and checks the sum after every step. Returns the number of requests.
    fn run(&mut self, span: Millis, changes: bool) -> usize {
        let (end, mut sent, mut steps) = (self.now.plus(span), 0, 0);
        loop {
            steps += 1;
            assert!(steps < 100_000, "a session spins at {:?}", self.now);
            let wake = self.sessions.iter().filter_map(|session| session.wake(self.now)).min();
            let arrival = self.queue.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = wake.into_iter().chain(arrival).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some((_, event)) = self.queue.pop_first()
            {
                self.handle(event, changes);
            }
            for client in 0..self.sessions.len() {
                sent += usize::from(self.step(client));
            }
            self.check();
        }
        self.now = end;
        sent
    }

    fn handle(&mut self, event: Event, changes: bool) {
        match event {
            Event::Asked(client, number, request) => {
                let now = Now { at: self.now, unix: (self.now.0 / 1000) as i64 };
                let (mut requests, mut answers) = (vec![request], Vec::new());
                self.resource.round(now, &mut requests, &mut answers, &mut RoundScratch::default());
                let given: Vec<_> = answers.iter().filter_map(as_given).collect();
                self.send(|| Event::Answered(client, number, given.clone()));
            }
            Event::Answered(client, number, given) => {
                self.sessions[client].answered(self.now, number, given);
            }
            Event::Change(client) => {
                if !changes && self.wants[client] > 0.0 {
                    return;
                }
                self.wants[client] = self.rng.f64() * 60.0 + 1.0;
                if self.rng.u64(0..5) == 0 {
                    self.sessions[client].release("r");
                } else {
                    let wants = wants(self.wants[client]);
                    self.sessions[client].want(self.now, &id("r"), wants, Mode::Pessimistic);
                }
                let again = self.rng.u64(500..10_000);
                self.after(again, Event::Change(client));
            }
        }
    }

    fn step(&mut self, client: usize) -> bool {
        let outgoing = self.sessions[client].poll(self.now);
        let sent = outgoing.is_some();
        if let Some(Outgoing { number, body, .. }) = outgoing {
            let request = request(client, body);
            self.send(|| Event::Asked(client, number, request.clone()));
        }
        sent
    }

    fn check(&self) {
        let usable =
            |session: &Session<Wants>| session.usable(self.now, "r").map_or(0.0, |usable| usable.capacity.get());
        let believed: f64 = self.sessions.iter().map(usable).sum();
        assert!(believed <= CAPACITY * (1.0 + 1e-9), "{believed} of {CAPACITY} may be used at {:?}", self.now);
    }
}

fn named(lease: Lease) -> core::lease::holder::ShownLease {
    core::lease::holder::ShownLease {
        token: lease.token.and_then(Token::new),
        capacity: Amount::clamped(lease.wire.capacity),
        expiry_time: lease.wire.expiry_time,
    }
}

fn request(client: usize, body: Body<Wants>) -> Request {
    let holder: Arc<str> = format!("client {client}").into();
    match body {
        Body::Ask(asks) => Request::Ask(core::resource::Ask {
            claims: [Claim::of_client(Amount::clamped(asks[0].demand.amount), 0)].into_iter().collect(),
            has: asks[0].has.map(named),
            had: asks[0].had.map(named),
            ..core::resource::Ask::of_nothing(holder)
        }),
        Body::Stream(_) => panic!("no server offers streams"),
        Body::Release(releases) => Request::Release(core::resource::Release {
            kind: HolderKind::Client,
            id: holder,
            token: releases[0].token.and_then(Token::new),
            instance: None,
            spent: None,
        }),
    }
}

fn as_given(answer: &Answer) -> Option<GrantedLease> {
    let Answer::Granted(lease) = answer else { return None };
    Some(GrantedLease {
        id: id("r"),
        length: lease.length,
        refresh: lease.refresh,
        token: Some(lease.token.get()),
        wire: Wire {
            expiry_time: lease.expiry_time,
            refresh_interval: (lease.refresh.0 / 1000) as i64,
            capacity: lease.capacity.get(),
        },
        safe: Some(lease.safe_capacity),
        budget: None,
    })
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::FairShare), Just(Algorithm::ProportionalShare)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sessions_never_exceed_the_capacity_and_recover_with_the_network(
        seed in any::<u64>(),
        clients in 1usize..8,
        algorithm in algorithms(),
        percent in 0u64..30,
        delay_max in prop_oneof![Just(SHORT), Just(400u64), Just(4_000u64)],
    ) {
        let mut simulation = Simulation::new(clients, algorithm, seed, Faults { percent, delay_max });
        simulation.run(Millis(60_000), true);
        simulation.faults = Faults { percent: 0, delay_max: SHORT };
        // Enough for late duplicates, one lease with its tolerance, and a few refreshes.
        simulation.run(Millis(30_000), false);
        let wanted: f64 = (0..clients).filter(|n| simulation.sessions[*n].resources() > 0).map(|n| simulation.wants[n]).sum();
        let leased = |session: &Session<Wants>| session.lease(simulation.now, "r").map_or(0.0, |lease| lease.capacity.get());
        let all: f64 = simulation.sessions.iter().map(leased).sum();
        prop_assert!((all - wanted.min(CAPACITY)).abs() < 0.01 * CAPACITY, "{} of {} are leased", all, wanted);
    }
}

#[test]
fn an_idle_session_sends_one_request_per_interval() {
    let mut simulation = Simulation::new(1, Algorithm::FairShare, 3, Faults { percent: 0, delay_max: SHORT });
    simulation.run(Millis(10_000), false);
    let sent = simulation.run(Millis(100_000), false);
    assert!((50..=56).contains(&sent), "{sent} in 100 s at 2 s");
}
