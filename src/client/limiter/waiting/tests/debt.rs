//! Charges, debt and refunds in the estimate of wants.

use tokio::time::{Instant, advance, sleep};

use super::*;

const MINUTE: Burst = Burst::Window(Duration::from_secs(60));

fn poll_queued(limiter: &RateLimiter, demand: &mut Demand, now: Millis) -> f64 {
    demand.sample(
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
    demand.wants(now)
}

/// The wants in each of the last ten of `seconds`, of a client that gets its wants.
async fn wanted(limiter: &RateLimiter, seconds: u64) -> Vec<f64> {
    let (mut demand, begun) = (demand(DemandKind::Rate), Instant::now());
    let mut wanted = Vec::new();
    for tenth in 0..seconds * 10 {
        sleep(Duration::from_millis(100)).await;
        let wants = poll_queued(limiter, &mut demand, Millis(begun.elapsed().as_millis() as u64));
        limiter.set_capacity(Capacity::of(wants));
        if tenth % 10 == 0 {
            wanted.push(wants);
        }
    }
    wanted.split_off(wanted.len() - 10)
}

#[tokio::test(start_paused = true)]
async fn of_what_is_reserved_as_much_is_wanted_as_is_used() {
    let limiter = RateLimiter::new(MINUTE);
    for _ in 0..10 {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            while let Ok(reserved) = limiter.reserve(400).await {
                sleep(Duration::from_millis(100)).await;
                let _ = reserved.settle(100);
            }
        });
    }
    // Ten workers at 10/s each, at a capacity of 100/s.
    for wants in wanted(&limiter, 120).await {
        assert!((8_000.0..=12_000.0).contains(&wants), "{wants}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_charged_afterwards_is_wanted_as_what_is_asked_for() {
    let limiter = RateLimiter::new(MINUTE);
    for _ in 0..10 {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            while limiter.wait().await.is_ok() {
                sleep(Duration::from_millis(100)).await;
                let _ = limiter.charge(99);
            }
        });
    }
    for wants in wanted(&limiter, 120).await {
        assert!((8_000.0..=12_000.0).contains(&wants), "{wants}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_wanted_besides_until_it_is_paid() {
    let limiter = RateLimiter::new(MINUTE);
    let (mut demand, begun) = (demand(DemandKind::Rate), Instant::now());
    let mut poll_queued = |limiter: &RateLimiter| {
        let now = Millis(begun.elapsed().as_millis() as u64);
        poll_queued(limiter, &mut demand, now)
    };
    limiter.set_capacity(Capacity::of(10.0));
    poll_queued(&limiter);
    advance(Duration::from_secs(60)).await;
    assert_eq!(poll_queued(&limiter), 0.0);
    limiter.charge(600 + 500).expect("it may be owed");
    let wants = poll_queued(&limiter);
    assert!(wants >= 500.0, "{wants}: 500 are owed");
    limiter.set_capacity(Capacity::of(wants));
    advance(Duration::from_secs(2)).await;
    let wants = poll_queued(&limiter);
    assert!(limiter.debt() == 0 && wants < 500.0, "{wants}: it is paid");
    for _ in 0..60 {
        advance(Duration::from_secs(5)).await;
        poll_queued(&limiter);
    }
    assert_eq!(poll_queued(&limiter), 0.0);
}
