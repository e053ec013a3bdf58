use tokio::time::advance;

use super::*;
use crate::{limiter::Burst, session::pool::PoolStanding};

fn opened(limiter: Limiter, wants: Option<f64>) -> OpenResource {
    OpenResource::new("r".into(), Mode::Safe, 3, limiter, wants)
}

fn in_a_pool() -> Option<PoolState> {
    let standing = PoolStanding::Free;
    Some(PoolState { standing, assigned: 0.0, min_capacity: 1.0, reason: None, burst: None })
}

#[tokio::test(start_paused = true)]
async fn usage_is_reported_once_and_to_pools_only() {
    let rate = RateLimiter::new(Burst::Permits(10.0));
    let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
    opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
    advance(Duration::from_secs(10)).await;
    rate.try_acquire(4).expect("saved");
    assert_eq!(opened.wants(Millis(10_000)).usage, None, "not known to be a pool");
    opened.set_pool_state(Millis(10_000), in_a_pool(), None);
    rate.try_acquire(5).expect("saved");
    advance(Duration::from_secs(4)).await;
    let reported_usage = opened.wants(Millis(14_000)).usage.expect("a pool");
    // The four permits taken before still recharge when the interval begins.
    assert_eq!((reported_usage.units, reported_usage.recharging, reported_usage.interval), (5, 0.225, Millis(4_000)));
    rate.try_acquire(1).expect("saved");
    opened.set_pool_state(Millis(14_100), in_a_pool(), Some(reported_usage));
    advance(Duration::from_secs(1)).await;
    assert_eq!(opened.wants(Millis(15_000)).usage.map(|usage| usage.units), Some(1), "used during the request");
    assert_eq!(opened.pool(), in_a_pool());
    opened.set_pool_state(Millis(15_000), None, None);
    assert_eq!((opened.wants(Millis(16_000)).usage, opened.pool()), (None, None), "not a pool any more");
}

#[tokio::test(start_paused = true)]
async fn a_pool_sets_the_burst_while_its_lease_is_live() {
    let saved_up = async |burst, buffer: Option<u64>, basis| {
        let rate = RateLimiter::new(burst);
        let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
        opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
        let state = in_a_pool().map(|state| PoolState { burst: buffer.map(Duration::from_secs), ..state });
        opened.set_pool_state(Millis(0), state, None);
        opened.apply(Usable { capacity: Capacity::of(10.0), basis });
        advance(Duration::from_secs(100)).await;
        (1..).take_while(|_| rate.try_acquire(1).is_ok()).count()
    };
    let smooth = saved_up(Burst::Smooth, None, Basis::Lease).await;
    assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Lease).await, 60);
    assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Fallback).await, smooth, "not for a fallback capacity");
    assert_eq!(saved_up(Burst::Smooth, Some(0), Basis::Lease).await, smooth, "timers need this burst");
    assert_eq!(saved_up(Burst::Permits(7.0), Some(6), Basis::Lease).await, 7, "the client chose less");
    assert_eq!(saved_up(Burst::Permits(700.0), Some(6), Basis::Lease).await, 60, "the pool bounds it");
    assert_eq!(saved_up(Burst::Permits(70.0), None, Basis::Lease).await, 70);
}

#[test]
fn usage_without_a_limiter_can_be_reported() {
    let own = opened(Limiter::None, Some(7.0));
    own.set_pool_state(Millis(0), in_a_pool(), None);
    assert!(own.report_use(20, Duration::from_secs(1)) && own.report_use(10, Duration::from_secs(1)));
    let reported_usage = own.wants(Millis(4_000)).usage.expect("it was reported");
    assert_eq!((reported_usage.units, reported_usage.recharging, reported_usage.interval), (30, 0.5, Millis(4_000)));
    own.set_pool_state(Millis(4_000), in_a_pool(), Some(reported_usage));
    let idle = own.wants(Millis(5_000)).usage.expect("no usage is reported as well");
    assert_eq!((idle.units, idle.recharging), (0, 0.0));
    own.report_use(u64::MAX, Duration::MAX);
    let reported_usage = own.wants(Millis(6_000)).usage.expect("it was reported");
    assert_eq!(reported_usage.recharging, 1.0, "clamped");
    let rate = opened(Limiter::Rate(RateLimiter::new(Burst::default())), None);
    assert!(!rate.report_use(1, Duration::ZERO), "limiters count usage themselves");
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_cause_pressure_only_if_wants_are_estimated() {
    for (wants, presses) in [(None, true), (Some(7.0), false)] {
        let rate = RateLimiter::new(Burst::default());
        let opened = opened(Limiter::Rate(rate.clone()), wants);
        assert!(!opened.is_under_pressure(), "nobody waits");
        let waiting = tokio::spawn(async move { rate.wait().await });
        tokio::task::yield_now().await;
        assert_eq!(opened.is_under_pressure(), presses);
        opened.close();
        assert!(waiting.await.expect("no panic").is_err());
    }
}

#[test]
fn without_a_limiter_neither_wants_nor_usage_are_estimated() {
    let opened = opened(Limiter::None, Some(7.0));
    opened.set_pool_state(Millis(0), in_a_pool(), None);
    assert!(!opened.estimate_wants() && !opened.estimates_wants());
    assert_eq!(opened.wants(Millis(0)), Wants { amount: 7.0, priority: 3, ..Wants::default() });
}

#[tokio::test(start_paused = true)]
async fn wants_that_are_estimated_stay_if_they_are_to_be_estimated() {
    let gauge = GaugeLimiter::new();
    let opened = opened(Limiter::Gauge(gauge.clone()), None);
    opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
    let permits = gauge.try_acquire(7).expect("there is room");
    assert_eq!(opened.wants(Millis(0)).amount, 7.0);
    drop(permits);
    assert_eq!(opened.wants(Millis(1_000)).amount, 7.0, "the peak since then");
    assert!(opened.estimate_wants());
    assert_eq!(opened.wants(Millis(2_000)).amount, 7.0, "it is remembered");
    opened.set_fixed_wants(3.0);
    assert!(opened.estimate_wants());
    assert_eq!(opened.wants(Millis(3_000)).amount, 0.0);
}

#[tokio::test(start_paused = true)]
async fn wants_are_not_more_than_servers_accept() {
    let rate = RateLimiter::new(Burst::default());
    rate.set_max_debt(u64::MAX);
    let opened = opened(Limiter::Rate(rate.clone()), None);
    opened.wants(Millis(0));
    let uncharged = rate.charge(u64::MAX).expect_err("no debt is that large").uncharged;
    assert!(uncharged < u64::MAX - 100_000_000_000_000);
    let waiting = tokio::spawn(async move { rate.wait_many(u32::MAX).await });
    tokio::task::yield_now().await;
    assert_eq!(opened.wants(Millis(1_000)).amount, MAX_WANTS);
    waiting.abort();
}

fn granted(opened: &OpenResource, now: u64) {
    let capacity = Capacity::of(opened.wants(Millis(now)).amount);
    opened.apply(Usable { capacity, basis: Basis::Lease });
}

/// A window of 1,000/s whose client gets its wants, after half a minute without callers.
async fn idle() -> (OpenResource, RateLimiter) {
    let window = Window { length: Duration::from_secs(1), rate: 1_000.0, slides: false };
    let limiter = RateLimiter::full(Burst::Window(window.length), Arc::default());
    let opened = OpenResource::new("r".into(), Mode::Safe, 0, Limiter::Rate(limiter.clone()), None);
    let opened = opened.with_window(Some(window));
    granted(&opened, 0);
    limiter.try_acquire(1).expect("the window begins full");
    for now in (5_000..=30_000).step_by(5_000) {
        advance(Duration::from_secs(5)).await;
        granted(&opened, now);
    }
    (opened, limiter)
}

#[tokio::test(start_paused = true)]
async fn an_idle_window_admits_ten_requests() {
    for pace in [0, 1, 50, 100] {
        let (opened, limiter) = idle().await;
        assert!(limiter.capacity().get() < 20.0, "nearly everything is left to others");
        for nth in 1..=10 {
            assert_eq!(limiter.try_acquire(1), Ok(()), "request {nth}, every {pace} ms");
            advance(Duration::from_millis(pace)).await;
        }
        drop(opened);
    }
}

#[tokio::test(start_paused = true)]
async fn a_random_flow_below_the_limit_is_refused_less_than_one_percent() {
    let (opened, limiter) = idle().await;
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
    assert!(refused * 100 < asked, "{refused} of {asked} were refused");
    assert!(most < 80.0, "wants {most} for about 50");
}
