use super::*;
use crate::{limiter::Burst, session::pool::PoolStanding};

mod window;

const UNLIMITED: Usable = Usable { capacity: Capacity::UNLIMITED, basis: Basis::Lease };

fn opened(limiter: Limiter, wants: Option<f64>) -> OpenResource {
    OpenResource::new("r".into(), Mode::Safe, 3, limiter, wants)
}

#[tokio::test(start_paused = true)]
async fn wants_can_be_said_and_estimated_again() {
    let opened = opened(Limiter::Rate(RateLimiter::new(Burst::default())), Some(7.0));
    assert_eq!(opened.wants(Millis(0)), Wants { amount: 7.0, priority: 3, ..Wants::default() });
    assert!(opened.estimate_wants() && opened.estimates_wants());
    opened.set_fixed_wants(8.0);
    assert!(!opened.estimates_wants());
    assert_eq!(opened.wants(Millis(0)).amount, 8.0);
}

fn in_a_pool() -> Option<PoolState> {
    let standing = PoolStanding::Free;
    Some(PoolState { standing, assigned: 0.0, min_capacity: 1.0, reason: None, burst: None })
}

#[tokio::test(start_paused = true)]
async fn only_pools_are_told_of_use_and_only_of_what_they_do_not_know() {
    let rate = RateLimiter::new(Burst::Permits(10.0));
    let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
    opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
    tokio::time::advance(Duration::from_secs(10)).await;
    rate.try_acquire(4).expect("saved");
    assert_eq!(opened.wants(Millis(10_000)).usage, None, "it may be no pool");
    opened.set_pool_state(Millis(10_000), in_a_pool(), None);
    rate.try_acquire(5).expect("saved");
    tokio::time::advance(Duration::from_secs(4)).await;
    let reported_usage = opened.wants(Millis(14_000)).usage.expect("it is a pool");
    // The four permits taken before are still missing when it begins, and recharge as they would have.
    assert_eq!((reported_usage.units, reported_usage.recharging, reported_usage.interval), (5, 0.225, Millis(4_000)));
    rate.try_acquire(1).expect("saved");
    opened.set_pool_state(Millis(14_100), in_a_pool(), Some(reported_usage));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(
        opened.wants(Millis(15_000)).usage.map(|usage| usage.units),
        Some(1),
        "used while it was reported_usage"
    );
    assert_eq!(opened.pool(), in_a_pool());
    opened.set_pool_state(Millis(15_000), None, None);
    assert_eq!((opened.wants(Millis(16_000)).usage, opened.pool()), (None, None), "it is a pool no more");
}

#[tokio::test(start_paused = true)]
async fn a_gauge_in_a_pool_uses_what_was_out_at_the_same_time_also_if_its_wants_are_fixed() {
    let gauge = GaugeLimiter::new();
    let opened = opened(Limiter::Gauge(gauge.clone()), Some(10.0));
    opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
    opened.set_pool_state(Millis(0), in_a_pool(), None);
    drop((gauge.try_acquire(3).expect("free"), gauge.try_acquire(1).expect("free")));
    let reported_usage = opened.wants(Millis(1_000)).usage.expect("it is a pool");
    assert_eq!((reported_usage.units, reported_usage.recharging), (4, 0.4));
    opened.set_pool_state(Millis(1_000), in_a_pool(), Some(reported_usage));
    opened.wants(Millis(2_000));
    opened.set_pool_state(Millis(2_000), in_a_pool(), opened.wants(Millis(2_000)).usage);
    assert_eq!(opened.wants(Millis(3_000)).usage.map(|usage| (usage.units, usage.recharging)), Some((0, 0.0)));
}

#[tokio::test(start_paused = true)]
async fn a_pool_says_how_much_is_saved_up_while_its_lease_is_in_force_and_no_longer() {
    let saved_up = async |burst, buffer: Option<u64>, basis| {
        let rate = RateLimiter::new(burst);
        let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
        opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
        let state = in_a_pool().map(|state| PoolState { burst: buffer.map(Duration::from_secs), ..state });
        opened.set_pool_state(Millis(0), state, None);
        opened.apply(Usable { capacity: Capacity::of(10.0), basis });
        tokio::time::advance(Duration::from_secs(100)).await;
        (1..).take_while(|_| rate.try_acquire(1).is_ok()).count()
    };
    let smooth = saved_up(Burst::Smooth, None, Basis::Lease).await;
    assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Lease).await, 60);
    assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Fallback).await, smooth, "not on the safe capacity");
    assert_eq!(saved_up(Burst::Smooth, Some(0), Basis::Lease).await, smooth, "timers need that much");
    assert_eq!(saved_up(Burst::Permits(7.0), Some(6), Basis::Lease).await, 7, "as it chose");
    assert_eq!(saved_up(Burst::Permits(700.0), Some(6), Basis::Lease).await, 60, "and no more than it may");
    assert_eq!(saved_up(Burst::Permits(70.0), None, Basis::Lease).await, 70);
}

/// The reported usage is the time in which the pool's bucket was not full.
#[tokio::test(start_paused = true)]
async fn use_is_told_by_the_bucket_that_the_pool_lets_one_have() {
    let rate = RateLimiter::new(Burst::default());
    let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
    opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
    let state = in_a_pool().map(|state| PoolState { burst: Some(Duration::from_secs(6)), ..state });
    opened.set_pool_state(Millis(0), state.clone(), None);
    tokio::time::advance(Duration::from_secs(10)).await;
    opened.set_pool_state(Millis(10_000), state, opened.wants(Millis(10_000)).usage);
    rate.try_acquire(40).expect("saved up");
    tokio::time::advance(Duration::from_secs(16)).await;
    let reported_usage = opened.wants(Millis(26_000)).usage.expect("it is a pool");
    assert_eq!(
        (reported_usage.units, reported_usage.recharging),
        (40, 0.25),
        "what four seconds bring takes four to come back"
    );
}

#[test]
fn a_caller_that_limits_itself_can_say_what_it_has_used() {
    let own = opened(Limiter::None, Some(7.0));
    own.set_pool_state(Millis(0), in_a_pool(), None);
    assert!(own.report_use(20, Duration::from_secs(1)) && own.report_use(10, Duration::from_secs(1)));
    let reported_usage = own.wants(Millis(4_000)).usage.expect("it has said so");
    assert_eq!((reported_usage.units, reported_usage.recharging, reported_usage.interval), (30, 0.5, Millis(4_000)));
    own.set_pool_state(Millis(4_000), in_a_pool(), Some(reported_usage));
    let idle = own.wants(Millis(5_000)).usage.expect("nothing is something too");
    assert_eq!((idle.units, idle.recharging), (0, 0.0));
    own.report_use(u64::MAX, Duration::MAX);
    let reported_usage = own.wants(Millis(6_000)).usage.expect("it has said so");
    assert_eq!(reported_usage.recharging, 1.0, "no more than all");
    let rate = opened(Limiter::Rate(RateLimiter::new(Burst::default())), None);
    assert!(!rate.report_use(1, Duration::ZERO), "its limiter knows better");
}

#[test]
fn without_a_limiter_nothing_can_be_said_of_use() {
    let opened = opened(Limiter::None, Some(7.0));
    opened.set_pool_state(Millis(0), in_a_pool(), None);
    assert_eq!((opened.wants(Millis(1_000)).usage, opened.pool()), (None, in_a_pool()));
}

#[test]
fn without_a_limiter_nothing_can_be_estimated() {
    let opened = opened(Limiter::None, Some(7.0));
    assert!(!opened.estimate_wants() && !opened.estimates_wants());
    assert_eq!(opened.wants(Millis(0)).amount, 7.0);
}

#[tokio::test(start_paused = true)]
async fn a_gauge_wants_as_many_as_were_out_at_the_same_time() {
    let gauge = GaugeLimiter::new();
    let opened = opened(Limiter::Gauge(gauge.clone()), None);
    opened.apply(UNLIMITED);
    opened.wants(Millis(0));
    drop((gauge.try_acquire(3).expect("free"), gauge.try_acquire(4).expect("free")));
    assert!(opened.wants(Millis(1_000)).amount >= 7.0, "though they are back");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_presses_only_where_wants_are_estimated() {
    for (wants, presses) in [(None, true), (Some(7.0), false)] {
        let rate = RateLimiter::new(Burst::default());
        let opened = opened(Limiter::Rate(rate.clone()), wants);
        assert!(!opened.is_under_pressure(), "none waits");
        let waiting = tokio::spawn(async move { rate.wait().await });
        tokio::task::yield_now().await;
        assert_eq!(opened.is_under_pressure(), presses);
        opened.close();
        assert!(waiting.await.expect("no panic").is_err());
    }
}

#[test]
fn a_watcher_is_woken_by_every_change() {
    let opened = opened(Limiter::None, Some(7.0));
    let mut watch = opened.watch();
    assert_eq!(opened.apply(UNLIMITED).basis, Basis::Unknown, "what was before");
    assert!(watch.has_changed().expect("it is open"));
    assert_eq!(*watch.borrow_and_update(), UNLIMITED);
    opened.close();
    assert!(watch.has_changed().expect("it is open") && opened.usable().capacity == Capacity::NONE);
}
