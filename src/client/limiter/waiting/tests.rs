//! Limiters with their estimate of wants, in virtual time, and a server that grants the wants.

use std::{sync::Arc, time::Duration};

use leaseway_core::types::Millis;
use tokio::{
    sync::Notify,
    time::{Instant, advance, sleep, sleep_until},
};

use super::*;
use crate::{
    limiter::{
        Burst,
        demand::{Demand, DemandKind, DemandSettings, Sample},
    },
    session::Capacity,
};

const MINUTE: Burst = Burst::Window(Duration::from_secs(60));
/// The delay of answers.
const ROUND_TRIP: Duration = Duration::from_millis(2);
/// Minimum time between requests, and between estimates due to waiting callers, as in the client.
const GAP: Duration = Duration::from_millis(100);
/// Refreshes come a little before the end of the interval of 5 s.
const REFRESH: Duration = Duration::from_millis(4_750);

fn demand() -> Demand {
    Demand::new(DemandSettings { kind: DemandKind::Rate, refresh: Duration::from_secs(5), remembers: true })
}

/// A limiter and its estimate.
struct Client {
    limiter: RateLimiter,
    demand: Demand,
    begun: Instant,
    /// The wants in the last request.
    asked: f64,
    requests: u32,
}

impl Client {
    fn new(limiter: RateLimiter) -> Client {
        let mut client = Client { limiter, demand: demand(), begun: Instant::now(), asked: 0.0, requests: 0 };
        client.estimate();
        client
    }

    fn estimate(&mut self) -> f64 {
        let now = Millis(self.begun.elapsed().as_millis() as u64);
        self.demand.sample(now, self.limiter.sample());
        self.demand.wants(now)
    }

    async fn ask(&mut self, wants: f64) {
        self.asked = wants;
        self.requests += 1;
        sleep(ROUND_TRIP).await;
        self.limiter.set_capacity(Capacity::of(wants));
    }

    /// The wants in each of the last ten of 120 seconds, while all wants are granted at once.
    async fn steady_wants(mut self) -> Vec<f64> {
        let mut wanted = Vec::new();
        for _ in 0..120 {
            for _ in 0..10 {
                sleep(Duration::from_millis(100)).await;
                let wants = self.estimate();
                self.limiter.set_capacity(Capacity::of(wants));
            }
            wanted.push(self.limiter.capacity().get());
        }
        wanted.split_off(110)
    }
}

/// Ten workers that use 100 permits each 100 ms, at a capacity of 100 permits per second and worker.
#[tokio::test(start_paused = true)]
async fn wants_equal_usage_if_permits_are_reserved_or_charged() {
    for reserves in [true, false] {
        let limiter = RateLimiter::new(MINUTE);
        for _ in 0..10 {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                loop {
                    let reserved = if reserves { limiter.reserve(400).await } else { limiter.reserve(1).await };
                    let Ok(reserved) = reserved else { return };
                    sleep(Duration::from_millis(100)).await;
                    reserved.settle(100).expect("below the maximum debt");
                }
            });
        }
        for wants in Client::new(limiter).steady_wants().await {
            assert!((8_000.0..=12_000.0).contains(&wants), "reserves: {reserves}, wants {wants}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wants_include_debt_until_it_is_paid() {
    let mut client = Client::new(RateLimiter::new(MINUTE));
    client.limiter.set_capacity(Capacity::of(10.0));
    advance(Duration::from_secs(60)).await;
    assert_eq!(client.estimate(), 0.0);
    client.limiter.charge(600 + 500).expect("below the maximum debt");
    let wants = client.estimate();
    assert!(wants >= 500.0, "wants {wants} with a debt of 500");
    client.limiter.set_capacity(Capacity::of(wants));
    advance(Duration::from_secs(2)).await;
    let wants = client.estimate();
    assert!(client.limiter.debt() == 0 && wants < 500.0, "wants {wants} without debt");
    for _ in 0..60 {
        advance(Duration::from_secs(5)).await;
        client.estimate();
    }
    assert_eq!(client.estimate(), 0.0);
}

#[derive(Clone, Copy, Debug)]
enum Load {
    /// Open-loop callers per second.
    Open(f64),
    /// Closed-loop workers, which return this many seconds after they were served.
    Closed(u32, f64),
}

impl Load {
    fn per_second(self) -> f64 {
        match self {
            Load::Open(rate) => rate,
            Load::Closed(workers, service) => f64::from(workers) / service,
        }
    }

    fn start(self, limiter: &RateLimiter) {
        match self {
            Load::Open(rate) => {
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

/// The wants at the first refresh after the first answer that admits a caller.
async fn wants_after_one_refresh(load: Load) -> f64 {
    let pressure = Arc::new(Notify::new());
    let mut client = Client::new(RateLimiter::with_pressure(Burst::default(), Arc::clone(&pressure)));
    load.start(&client.limiter);
    client.ask(0.0).await;
    let mut refresh = Instant::now() + REFRESH;
    loop {
        if client.requests <= 2 {
            refresh = Instant::now() + REFRESH;
        }
        let again = client.demand.next_sample_at().map_or(refresh, |at| client.begun + Duration::from_millis(at.0));
        let gap = sleep(GAP);
        tokio::select! {
            // Checked first, because callers may cause pressure at any time.
            biased;
            () = sleep_until(refresh) => return client.estimate(),
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

#[tokio::test(start_paused = true)]
async fn after_one_refresh_wants_equal_the_offered_load() {
    let open = [0.5, 0.7, 1.0, 5.0, 20.0, 50.0, 500.0, 5_000.0].map(Load::Open);
    let closed = [(1, 2.0), (1, 1.0), (1, 0.2), (5, 1.0), (64, 1.0), (1, 0.02), (10, 0.02), (100, 0.02)];
    for load in open.into_iter().chain(closed.map(|(workers, service)| Load::Closed(workers, service))) {
        let wants = wants_after_one_refresh(load).await;
        assert!((0.8..=1.2).contains(&(wants / load.per_second())), "{load:?}: wants {wants}");
    }
}

/// The estimate of a single flow has the statistical error of its few arrivals; the mean over many flows has not.
#[test]
fn after_one_refresh_wants_of_random_arrivals_have_the_right_mean() {
    const FLOWS: u64 = 2_000;
    for rate in [0.5, 1.0, 5.0, 50.0] {
        let wanted = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut demand = demand();
            demand.sample(Millis(0), Sample::default());
            demand.sample(Millis(5), Sample { count: 1, waiting: 1, ..Sample::default() });
            let (mut next, mut arrived) = (0.005 - (1.0 - random.f64()).ln() / rate, 1);
            for now in (100..=4_750).step_by(50) {
                while next * 1000.0 < f64::from(now as u32) {
                    arrived += 1;
                    next -= (1.0 - random.f64()).ln() / rate;
                }
                let sample = Sample { count: arrived, freely: arrived, capacity: 1e6, ..Sample::default() };
                demand.sample(Millis(now), sample);
            }
            demand.wants(Millis(4_750)) / rate
        };
        let wants: Vec<f64> = (0..FLOWS).map(wanted).collect();
        let mean = wants.iter().sum::<f64>() / FLOWS as f64;
        assert!((0.9..=1.15).contains(&mean), "{rate}/s: {mean}");
        // The standard deviation of a count: no unbiased estimator does better.
        let deviation = (wants.iter().map(|wants| (wants - mean).powi(2)).sum::<f64>() / FLOWS as f64).sqrt();
        assert!(deviation < 1.2 / (rate * 4.75).sqrt() + 0.05, "{rate}/s: {deviation}");
    }
}
