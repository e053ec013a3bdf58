//! Limits per window, for clients that get their wants.

use tokio::time::advance;

use super::*;

fn granted(opened: &OpenResource, now: u64) {
    let capacity = Capacity::of(opened.wants(Millis(now)).amount);
    opened.apply(Usable { capacity, basis: Basis::Lease });
}

/// A limiter of 1,000/s whose client gets its wants, after half a minute without callers.
async fn quiet() -> (OpenResource, RateLimiter) {
    let window = Window { length: Duration::from_secs(1), rate: 1_000.0 };
    let limiter = RateLimiter::full(Burst::Window(window.length), std::sync::Arc::default());
    let opened = OpenResource::new("r".into(), Mode::Safe, 0, Limiter::Rate(limiter.clone()), None);
    let opened = opened.with_window(Some(window));
    granted(&opened, 0);
    limiter.try_acquire(1).expect("it begins full");
    for now in (5_000..=30_000).step_by(5_000) {
        advance(Duration::from_secs(5)).await;
        granted(&opened, now);
    }
    (opened, limiter)
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_was_quiet_refuses_none_of_ten_requests() {
    for pace in [0, 1, 50, 100] {
        let (opened, limiter) = quiet().await;
        assert!(limiter.capacity().get() < 20.0, "others can have nearly all of it");
        for nth in 1..=10 {
            assert_eq!(limiter.try_acquire(1), Ok(()), "request {nth}, one in {pace} ms");
            advance(Duration::from_millis(pace)).await;
        }
        drop(opened);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_flow_that_differs_by_chance_next_to_nothing_is_refused_where_there_is_enough() {
    let (opened, limiter) = quiet().await;
    let (mut random, mut refused, mut asked) = (fastrand::Rng::with_seed(7), 0, 0);
    let (mut most, mut presses): (f64, bool) = (0.0, false);
    for ms in 0..120_000_u64 {
        let is_late = ms > 20_000;
        if random.f64() < 0.05 {
            let is_refused = limiter.try_acquire(1).is_err();
            presses |= is_refused;
            refused += u32::from(is_refused && is_late);
            asked += u32::from(is_late);
        }
        advance(Duration::from_millis(1)).await;
        if (presses && ms % 100 == 99) || ms % 4_750 == 0 {
            presses = false;
            granted(&opened, 30_000 + ms + 1);
            most = if is_late { most.max(limiter.capacity().get()) } else { 0.0 };
        }
    }
    assert!(refused * 100 < asked, "of {asked} {refused} were refused");
    assert!(most < 80.0, "{most} were wanted of about 50");
}

/// Wants are estimated after refusals, at most ten times a second.
#[tokio::test(start_paused = true)]
async fn a_flow_that_begins_after_a_pause_is_refused_little() {
    let (opened, limiter) = quiet().await;
    let mut refused = 0;
    for ms in 0..2_000_u64 {
        if ms % 5 == 0 && limiter.try_acquire(1).is_err() {
            refused += 1;
        }
        advance(Duration::from_millis(1)).await;
        if ms % 100 == 99 {
            granted(&opened, 30_000 + ms + 1);
        }
    }
    assert!(refused < 70, "of 400 in two seconds {refused} were refused: more than doublings take");
}
