//! Charges, refunds and reservations with waiting callers.

use super::*;

const MINUTE: Burst = Burst::Window(Duration::from_secs(60));

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_paid_before_those_that_wait_and_they_keep_their_order() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let log = Log::default();
    for name in ["a", "b"] {
        log.waiter(&limiter, name, 1).await;
    }
    sleep(ms(50)).await;
    assert_eq!(limiter.charge(10), Ok(()));
    assert_eq!(limiter.debt(), 10, "what was being saved for the first is gone as well");
    log.waiter(&limiter, "c", 1).await;
    sleep(ms(900)).await;
    assert_eq!((log.names(), limiter.debt()), (vec![], 1));
    assert_eq!(limiter.try_acquire(1), Err(TryError::NotNow { retry_after: Some(ms(50) + ms(400)) }));
    sleep(ms(160)).await;
    assert_eq!((log.names(), limiter.debt()), (vec!["a"], 0));
    sleep(ms(200)).await;
    assert_eq!(log.names(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn one_whose_turn_has_come_does_not_pay_for_a_later_charge() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let mut waiter = Box::pin(limiter.wait());
    assert!(poll_once(waiter.as_mut()).is_pending());
    advance(ms(100)).await; // its timer is over, and it is not polled
    assert_eq!(limiter.charge(100), Ok(()));
    assert!(poll_once(waiter.as_mut()).is_ready());
    assert_eq!(limiter.debt(), 100);
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_lets_those_through_that_wait_for_it() {
    for refund in [true, false] {
        let limiter = limiter(MINUTE, 1.0);
        advance(ms(60_000)).await;
        let reserved = limiter.try_reserve(50).expect("a minute's worth is there");
        let log = Log::default();
        log.waiter(&limiter, "a", 20).await;
        log.waiter(&limiter, "b", 20).await;
        if refund {
            drop(reserved);
            limiter.refund(35);
        } else {
            assert_eq!(reserved.settle(15), Ok(()));
        }
        settle().await;
        assert_eq!(log.names(), ["a", "b"], "{refund}");
        assert_eq!((limiter.taken(), limiter.refunded(), limiter.available()), (55, 35, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_was_reserved_is_charged_and_one_that_is_dropped_keeps_what_it_took() {
    let limiter = limiter(MINUTE, 1.0);
    advance(ms(60_000)).await;
    let reserved = limiter.reserve(40).await.expect("open");
    assert_eq!((reserved.reserved(), limiter.available()), (40, 20));
    drop(reserved);
    assert_eq!(limiter.available(), 20);
    let reserved = limiter.reserve(20).await.expect("open");
    assert_eq!(reserved.settle(50), Ok(()));
    assert_eq!((limiter.debt(), limiter.taken(), limiter.refunded()), (30, 90, 0));
    limiter.set_max_debt(35);
    assert_eq!(limiter.charge(10), Err(DebtExceeded { uncharged: 5, max_debt: 35 }));
    assert_eq!((limiter.debt(), limiter.taken()), (35, 95));
    let error = DebtExceeded { uncharged: 5, max_debt: 35 }.to_string();
    assert_eq!(error, "maximum debt of 35 exceeded: 5 permits were not charged");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_not_waited_for_takes_nothing() {
    let limiter = limiter(MINUTE, 10.0);
    for polled in [true, false] {
        let mut waiting = Box::pin(limiter.reserve(100));
        assert!(poll_once(waiting.as_mut()).is_pending());
        if polled {
            advance(ms(5_000)).await;
            assert!(poll_once(waiting.as_mut()).is_pending());
        } else {
            // It is admitted without being polled, and dropped.
            advance(ms(5_000)).await;
            limiter.set_capacity(Capacity::of(10.0));
        }
        drop(waiting);
        assert_eq!((limiter.waiting(), limiter.taken()), (0, 0));
    }
    assert_eq!(limiter.available(), 100);
    let log = Log::default();
    assert!(timeout(ms(100), log.waiter(&limiter, "a", 100)).await.is_ok());
    assert_eq!(log.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn of_what_is_reserved_only_what_was_used_counts_in_the_end() {
    let limiter = limiter(MINUTE, 100.0);
    advance(ms(60_000)).await;
    let start = Instant::now();
    let mut used = 0;
    // Each reserves four times its need.
    while start.elapsed() < Duration::from_secs(600) {
        let reserved = limiter.reserve(400).await.expect("open");
        advance(ms(100)).await;
        assert_eq!(reserved.settle(100), Ok(()));
        used += 100;
    }
    let possible = 6_000.0 + 100.0 * start.elapsed().as_secs_f64();
    assert!(f64::from(used) <= possible && f64::from(used) > possible * 0.99, "{used} of {possible}");
}

#[tokio::test(start_paused = true)]
async fn what_is_charged_has_arrived_and_what_is_owed_presses() {
    let notify = Arc::new(Notify::new());
    let limiter = RateLimiter::with_pressure(MINUTE, notify.clone());
    let pressed = || poll_once(pin!(notify.notified()).as_mut()).is_ready();
    limiter.set_capacity(Capacity::of(10.0));
    advance(ms(10_000)).await;
    assert_eq!((limiter.charge(60), pressed()), (Ok(()), false), "it was there");
    assert_eq!((limiter.charge(60), pressed()), (Ok(()), true), "twenty are owed");
    assert_eq!((limiter.charge(10), pressed()), (Ok(()), false));
    assert_eq!((limiter.charge(10), pressed()), (Ok(()), true), "twice as many");
    assert_eq!((limiter.arrived(), limiter.arrived_freely()), (140, 140));
    let log = Log::default();
    log.waiter(&limiter, "a", 39).await;
    assert!(!pressed());
    log.waiter(&limiter, "b", 1).await;
    assert!(pressed(), "what is waited for and what is owed count together");
    assert_eq!(limiter.charge(1), Ok(()));
    assert_eq!((limiter.arrived(), limiter.arrived_freely()), (181, 179));
    advance(ms(8_300)).await;
    settle().await;
    assert_eq!((limiter.debt(), limiter.waiting()), (0, 0));
    assert_eq!((limiter.charge(5), pressed()), (Ok(()), true), "it began anew");
}

#[tokio::test(start_paused = true)]
async fn a_closed_limiter_can_be_settled_with() {
    let limiter = limiter(MINUTE, 10.0);
    advance(ms(10_000)).await;
    let (less, more) = (limiter.try_reserve(10).expect("there"), limiter.try_reserve(10).expect("there"));
    limiter.close();
    assert_eq!((less.settle(5), more.settle(500)), (Ok(()), Ok(())));
    assert_eq!(limiter.reserve(1).await.err(), Some(Closed));
    assert_eq!(limiter.try_reserve(1).err(), Some(TryError::Closed));
}
