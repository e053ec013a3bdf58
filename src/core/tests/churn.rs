//! Doorman's Go clients that arrive and leave. They receive no hints, so only shortened refresh intervals make them ask
//! sooner. Measures how much of the capacity is in use.

use super::harness::{ask, has, now_at, one, options};
use crate::{
    lease::holder::Has,
    policy::settings::{AlgorithmKind, Reuse, Settings},
    resource::{Answer, Release, Request, Resource},
    types::{Amount, HolderKind, Millis},
};

const CAPACITY: f64 = 1000.0;
/// The minimum time between an answer and the next request in the Go library.
const FLOOR: u64 = 5_000;
const CLIENTS: usize = 20;
const LENGTH: u64 = 3_600_000;

struct GoClient {
    id: String,
    wants: f64,
    lease: Option<Has>,
    /// The last lease, and its end.
    told: (f64, u64),
    refresh: u64,
    asks: u64,
    leaves: u64,
}

/// The result of an hour.
#[derive(Debug)]
struct Hour {
    /// Usage relative to the maximum possible usage.
    used: f64,
    /// The peak of believed capacity.
    most: f64,
    /// Requests per client and minute.
    requests: f64,
}

struct Churn {
    resource: Resource,
    rng: u64,
    clients: Vec<GoClient>,
    born: usize,
}

impl Churn {
    /// A random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.chance()
    }

    fn comes(&mut self, now: u64) {
        let (wants, pause, stays) =
            (self.between(10.0, 150.0), self.between(0.0, 10_000.0), self.between(10_000.0, 60_000.0));
        let asks = now + pause as u64;
        self.born += 1;
        let id = format!("client {}", self.born);
        let client = GoClient { id, wants, lease: None, told: (0.0, 0), refresh: 0, asks, leaves: asks + stays as u64 };
        self.clients.push(client);
    }

    /// The client asks or leaves. On leaving, the Go library releases everything, without naming a lease.
    fn acts(&mut self, at: usize, now: u64) {
        let client = &mut self.clients[at];
        if client.leaves <= now {
            let release =
                Release { kind: HolderKind::Client, id: client.id.as_str().into(), token: None, instance: None };
            self.clients.swap_remove(at);
            one(&mut self.resource, now_at(Millis(now)), Request::Release(release));
            self.comes(now);
            return;
        }
        let request = Request::Ask(ask(&client.id, client.wants, client.lease));
        match one(&mut self.resource, now_at(Millis(now)), request) {
            Answer::Granted(lease) => {
                client.lease = Some(has(&lease));
                client.told = (lease.capacity.get(), now + lease.length.0);
                client.refresh = lease.refresh.0 / 1000 * 1000;
            }
            // Omitted from the answer: the lease stays.
            Answer::TooSoon => {}
            other => panic!("{other:?}"),
        }
        client.asks = now + client.refresh.max(FLOOR);
    }
}

fn hour(reuse: Reuse, refresh: u64, seed: u64) -> Hour {
    let refresh = Millis::from_secs(refresh);
    let settings = Settings { reuse, refresh, ..Settings::new(AlgorithmKind::FairShare, Amount::clamped(CAPACITY)) };
    let mut churn = Churn { resource: Resource::new(options(settings)), rng: seed, clients: Vec::new(), born: 0 };
    for _ in 0..CLIENTS {
        churn.comes(0);
    }
    let (mut now, mut used, mut could, mut most, mut requests) = (0, 0.0, 0.0, 0.0f64, 0);
    while now < LENGTH {
        let next = |client: &GoClient| client.asks.min(client.leaves);
        let (at, then) = churn.clients.iter().map(next).enumerate().min_by_key(|(_, then)| *then).expect("clients");
        // Clients that have not arrived yet want nothing.
        let here = churn.clients.iter().filter(|client| client.lease.is_some());
        let wants: f64 = here.clone().map(|client| client.wants).sum();
        let told = here.filter(|client| now < client.told.1);
        let span = (then - now) as f64;
        most = most.max(told.clone().map(|client| client.told.0).sum());
        used += told.map(|client| client.told.0.min(client.wants)).sum::<f64>() * span;
        could += wants.min(CAPACITY) * span;
        now = then;
        requests += 1;
        churn.acts(at, now);
    }
    Hour { used: used / could, most, requests: f64::from(requests) / 60.0 / CLIENTS as f64 }
}

/// Prints its measurements with `--nocapture`.
#[test]
#[allow(clippy::print_stdout, reason = "the figures of docs/decisions/hints.md")]
fn clients_that_come_and_go_use_most_of_the_capacity_and_never_more() {
    for (reuse, refresh) in [(Reuse::Confirmed, 16), (Reuse::Prompt, 16), (Reuse::Confirmed, 5), (Reuse::Prompt, 5)] {
        let hours: Vec<Hour> = (1..=5).map(|seed| hour(reuse, refresh, seed)).collect();
        let used = hours.iter().map(|hour| hour.used).sum::<f64>() / hours.len() as f64;
        let requests = hours.iter().map(|hour| hour.requests).sum::<f64>() / hours.len() as f64;
        let most = hours.iter().map(|hour| hour.most).fold(0.0, f64::max);
        println!(
            "{reuse:?}, refresh {refresh} s: {:.1} % used, at most {most:.1}, {requests:.1} requests/min",
            used * 100.0
        );
        // Without shortened intervals, usage was 88.6, 90.7, 91.5 and 94.2 %.
        let least = if refresh == 5 { 0.91 } else { 0.925 };
        assert!(used > least, "{used}");
        if reuse == Reuse::Confirmed {
            assert!(most <= CAPACITY + 1e-9, "{most}");
        }
    }
}
