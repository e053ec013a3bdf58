//! A real limiter and its estimator in virtual time, with a server that grants wants up to a bound.

use std::sync::Arc;

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::*;

/// The delay of answers.
const ROUND_TRIP: Duration = Duration::from_millis(2);
/// Minimum time between requests, and between estimates due to waiting callers, as in the client.
const GAP: Duration = Duration::from_millis(100);
/// Refreshes come a little before the end of the interval.
const REFRESHES: Duration = Duration::from_millis(4_750);

#[derive(Clone, Copy, Debug)]
enum Load {
    /// Open-loop callers.
    Even(f64),
    /// Closed-loop workers, which return this many seconds after they were served.
    Closed(u32, f64),
}

impl Load {
    fn per_second(self) -> f64 {
        match self {
            Load::Even(rate) => rate,
            Load::Closed(workers, service) => f64::from(workers) / service,
        }
    }

    fn start(self, limiter: &RateLimiter) {
        match self {
            Load::Even(rate) => {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let begun = Instant::now();
                    for n in 0u32.. {
                        sleep_until(begun + Duration::from_secs_f64(f64::from(n) / rate)).await;
                        let limiter = limiter.clone();
                        tokio::spawn(async move { limiter.wait().await });
                    }
                });
            }
            Load::Closed(workers, service) => {
                for _ in 0..workers {
                    let limiter = limiter.clone();
                    tokio::spawn(async move {
                        while limiter.wait().await.is_ok() {
                            sleep(Duration::from_secs_f64(service)).await;
                        }
                    });
                }
            }
        }
    }
}

struct Caller {
    limiter: RateLimiter,
    demand: Demand,
    begun: Instant,
    /// The wants in the last request.
    asked: f64,
    requests: u32,
    most: f64,
}

impl Caller {
    fn estimate(&mut self) -> f64 {
        let now = Millis(self.begun.elapsed().as_millis() as u64);
        let limiter = &self.limiter;
        self.demand.sample(
            now,
            Sample {
                count: limiter.arrived(),
                freely: limiter.arrived_freely(),
                refunded: limiter.refunded(),
                waiting: limiter.waiting().saturating_add(limiter.debt()),
                queued: limiter.queued(),
                capacity: limiter.capacity().get(),
            },
        );
        self.demand.wants(now)
    }

    async fn ask(&mut self, wants: f64) {
        self.asked = wants;
        self.requests += 1;
        sleep(ROUND_TRIP).await;
        self.limiter.set_capacity(Capacity::of(wants.min(self.most)));
    }
}

/// The wants at the first refresh after the first answer that admits a caller, and the number of requests until then.
async fn after_one_refresh(load: Load, most: f64) -> (f64, u32) {
    let pressure = Arc::new(Notify::new());
    let limiter = RateLimiter::with_pressure(Burst::default(), Arc::clone(&pressure));
    let demand = demand(DemandKind::Rate);
    let mut client = Caller { limiter, demand, begun: Instant::now(), asked: 0.0, requests: 0, most };
    client.estimate();
    load.start(&client.limiter);
    client.ask(0.0).await;
    let mut refresh = Instant::now() + REFRESHES;
    loop {
        if client.requests <= 2 {
            refresh = Instant::now() + REFRESHES;
        }
        let again = client.demand.next_sample_at().map_or(refresh, |at| client.begun + Duration::from_millis(at.0));
        let gap = sleep(GAP);
        tokio::select! {
            // Checked first, because callers may cause pressure at any time.
            biased;
            () = sleep_until(refresh) => return (client.estimate(), client.requests),
            () = pressure.notified() => {}
            () = sleep_until(again) => {}
        }
        gap.await;
        let wants = client.estimate();
        if (wants - client.asked).abs() > client.asked * 0.1 {
            client.ask(wants).await;
        }
    }
}

fn loads() -> impl Iterator<Item = Load> {
    let rates = [0.5, 0.7, 1.0, 5.0, 20.0, 50.0, 500.0, 5_000.0];
    let even = rates.map(Load::Even);
    let closed = [(1, 2.0), (1, 1.0), (1, 0.2), (5, 1.0), (64, 1.0), (1, 0.02), (10, 0.02), (100, 0.02)];
    even.into_iter().chain(closed.map(|(workers, service)| Load::Closed(workers, service)))
}

#[tokio::test(start_paused = true)]
async fn after_one_refresh_as_much_is_wanted_as_is_offered() {
    let mut off = Vec::new();
    for load in loads() {
        let (wants, requests) = after_one_refresh(load, 1e6).await;
        let part = wants / load.per_second();
        eprintln!("{load:?}: {wants:.2} wanted, {part:.2} of what is offered, {requests} requests");
        if !(0.8..=1.2).contains(&part) {
            off.push((load, wants));
        }
    }
    assert!(off.is_empty(), "{off:?}");
}

/// Few arrivals say little: the estimate of a single flow has the error of its arrivals, but its mean has not.
#[test]
fn arrivals_at_random_are_wanted_as_often_as_they_come_in_the_mean_after_one_refresh() {
    const FLOWS: u64 = 2_000;
    for rate in [0.5, 1.0, 5.0, 50.0] {
        let wanted = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut demand = demand(DemandKind::Rate);
            demand.sample(Millis(0), seen(0, 0));
            demand.sample(Millis(5), seen(1, 1));
            let (mut next, mut arrived) = (0.005 - (1.0 - random.f64()).ln() / rate, 1);
            for now in (100..=4_750).step_by(50) {
                while next * 1000.0 < f64::from(now as u32) {
                    arrived += 1;
                    next -= (1.0 - random.f64()).ln() / rate;
                }
                demand.sample(Millis(now), Sample { freely: arrived, capacity: 1e6, ..seen(arrived, 0) });
            }
            demand.wants(Millis(4_750)) / rate
        };
        let wants: Vec<f64> = (0..FLOWS).map(wanted).collect();
        let mean = wants.iter().sum::<f64>() / FLOWS as f64;
        let spread = (wants.iter().map(|wants| (wants - mean).powi(2)).sum::<f64>() / FLOWS as f64).sqrt();
        eprintln!("{rate}/s: {mean:.2} of what is offered, ± {spread:.2}");
        assert!((0.9..=1.15).contains(&mean), "{rate}/s: {mean}");
        // The standard deviation of a count: no unbiased estimator does better.
        let least = 1.0 / (rate * 4.75).sqrt();
        assert!(spread < least * 1.2 + 0.05, "{rate}/s: {spread}");
    }
}
