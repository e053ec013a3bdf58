use std::{
    future::Future,
    pin::pin,
    sync::Mutex,
    task::{Context, Waker},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, advance, sleep, timeout},
};

use super::*;

const MINUTE: Burst = Burst::Window(Duration::from_secs(60));

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn limiter(burst: Burst, capacity: f64) -> RateLimiter {
    let limiter = RateLimiter::new(burst);
    limiter.set_capacity(Capacity::of(capacity));
    limiter
}

/// Runs all tasks that are ready.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Waiters that record their names when they are admitted, in the order of the queue.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    async fn waiter(&self, limiter: &RateLimiter, name: &'static str, n: u32) -> JoinHandle<Result<(), Closed>> {
        let (limiter, log) = (limiter.clone(), self.clone());
        let task = tokio::spawn(async move {
            let result = limiter.wait_many(n).await;
            if result.is_ok() {
                log.0.lock().unwrap().push(name);
            }
            result
        });
        settle().await;
        task
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_refused_try_says_when_to_retry() {
    let limiter = limiter(Burst::Permits(2.0), 4.0);
    advance(ms(10_000)).await;
    assert_eq!(limiter.try_acquire(3), Err(TryError::TooMany { burst: 2.0 }));
    assert_eq!(limiter.try_acquire(2), Ok(()));
    assert_eq!(limiter.try_acquire(1), Err(TryError::NotNow { retry_after: Some(ms(250)) }));
    advance(ms(250)).await;
    assert_eq!(limiter.try_acquire(1), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_waiter_is_dropped_unseen_goes_to_the_next() {
    let limiter = limiter(Burst::Permits(1.0), 10.0);
    let log = Log::default();
    let mut first = Box::pin(limiter.wait());
    let mut second = Box::pin(limiter.wait());
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    log.waiter(&limiter, "third", 1).await;
    advance(ms(100)).await;
    // Polling admits the first. A momentarily higher capacity admits the second without polling it.
    assert!(poll_once(first.as_mut()).is_ready());
    advance(ms(95)).await;
    limiter.set_capacity(Capacity::of(1000.0)); // 0.95 permits saved, 1 ms until the next
    advance(ms(1)).await;
    limiter.set_capacity(Capacity::of(0.001)); // admits the second, which is not polled
    assert_eq!(limiter.waiting(), 1);
    settle().await;
    assert!(log.names().is_empty());
    drop(second);
    settle().await;
    assert_eq!(log.names(), ["third"], "the next permit would be due in 1,000 s");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_all_waits_and_is_idempotent() {
    let limiter = limiter(Burst::Smooth, 1.0);
    let log = Log::default();
    let reserved = limiter.reserve(1).await.expect("open");
    let waiters = [log.waiter(&limiter, "a", 1).await, log.waiter(&limiter, "b", 1).await];
    limiter.close();
    limiter.close();
    assert_eq!(limiter.waiting(), 0);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), Err(Closed));
    }
    assert_eq!(limiter.wait().await, Err(Closed));
    assert_eq!(limiter.try_acquire(1), Err(TryError::Closed));
    limiter.set_capacity(Capacity::UNLIMITED);
    assert_eq!(limiter.wait().await, Err(Closed));
    assert_eq!(reserved.settle(500), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_admitted_before_closing_succeeds() {
    let limiter = limiter(Burst::Smooth, 1.0);
    let mut waiter = Box::pin(limiter.wait());
    assert!(poll_once(waiter.as_mut()).is_pending());
    limiter.set_capacity(Capacity::UNLIMITED);
    limiter.close();
    assert_eq!(waiter.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_head_of_the_queue_is_overdue_for_the_next_caller() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let mut busy = Box::pin(limiter.wait());
    assert!(poll_once(busy.as_mut()).is_pending());
    let log = Log::default();
    log.waiter(&limiter, "a", 1).await;
    sleep(ms(5000)).await;
    assert!(log.names().is_empty());
    log.waiter(&limiter, "b", 1).await; // notices that the head is overdue
    sleep(ms(250)).await;
    assert_eq!(log.names(), ["a", "b"]);
    assert_eq!(busy.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_future_can_move_to_another_task() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let log = Log::default();
    for (first, second) in [(true, false), (false, true)] {
        // At the head of the queue, and behind it.
        let ahead = if second { Some(log.waiter(&limiter, "ahead", 1).await) } else { None };
        let own = limiter.clone();
        let mut waiter = Box::pin(async move { own.wait().await });
        assert!(poll_once(waiter.as_mut()).is_pending(), "{first}");
        let moved = tokio::spawn(waiter);
        assert_eq!(timeout(ms(1000), moved).await.expect("the new task is woken").unwrap(), Ok(()));
        drop(ahead);
    }
}

#[tokio::test(start_paused = true)]
async fn arrived_and_waiting_count_permits() {
    let limiter = limiter(Burst::Permits(3.0), 1.0);
    advance(ms(10_000)).await;
    limiter.wait_many(2).await.unwrap();
    let _ = limiter.try_acquire(2); // refused
    let _ = limiter.try_acquire(4); // more than the burst
    assert_eq!((limiter.arrived(), limiter.waiting()), (4, 0));
    let log = Log::default();
    let a = log.waiter(&limiter, "a", 3).await;
    log.waiter(&limiter, "b", 2).await;
    assert_eq!((limiter.arrived(), limiter.waiting()), (9, 5));
    a.abort();
    settle().await;
    assert_eq!((limiter.arrived(), limiter.waiting()), (9, 2));
    sleep(ms(5000)).await;
    assert_eq!((limiter.arrived(), limiter.waiting()), (9, 0));
}

#[tokio::test(start_paused = true)]
async fn pressure_is_notified_when_the_queue_begins_and_doubles() {
    let notify = Arc::new(Notify::new());
    let limiter = RateLimiter::with_pressure(Burst::Smooth, notify.clone());
    let log = Log::default();
    let mut notified_at = Vec::new();
    for n in 1..=9 {
        log.waiter(&limiter, "one", 1).await;
        let mut notified = pin!(notify.notified());
        if poll_once(notified.as_mut()).is_ready() {
            notified_at.push(n);
        }
    }
    assert_eq!(notified_at, [1, 2, 4, 8]);
    limiter.set_capacity(Capacity::UNLIMITED);
    settle().await;
    limiter.wait().await.unwrap();
    assert!(poll_once(pin!(notify.notified())).is_pending(), "nobody had to wait");
    limiter.set_capacity(Capacity::NONE);
    log.waiter(&limiter, "one", 1).await;
    assert!(poll_once(pin!(notify.notified())).is_ready(), "a new queue began");
}

#[tokio::test(start_paused = true)]
async fn waiting_participates_in_cooperative_scheduling() {
    let limiter = RateLimiter::new(Burst::Smooth);
    limiter.set_capacity(Capacity::UNLIMITED);
    let greedy = tokio::spawn(async move { while limiter.wait().await.is_ok() {} });
    yield_now().await; // returns only if the greedy task yields
    greedy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_due_waiter_does_not_pay_for_a_later_charge() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let mut waiter = Box::pin(limiter.wait());
    assert!(poll_once(waiter.as_mut()).is_pending());
    advance(ms(100)).await; // its timer has fired, and it is not polled
    assert_eq!(limiter.charge(100), Ok(()));
    assert!(poll_once(waiter.as_mut()).is_ready());
    assert_eq!(limiter.debt(), 100);
}

#[tokio::test(start_paused = true)]
async fn refunded_permits_admit_waiters() {
    for refund in [true, false] {
        let limiter = limiter(MINUTE, 1.0);
        advance(ms(60_000)).await;
        let reserved = limiter.try_reserve(50).expect("the burst is full");
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
        assert_eq!((limiter.taken(), limiter.sample().refunded, limiter.available()), (55, 35, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn usage_beyond_a_reservation_is_charged_up_to_the_maximum_debt() {
    let limiter = limiter(MINUTE, 1.0);
    advance(ms(60_000)).await;
    let reserved = limiter.reserve(40).await.expect("open");
    assert_eq!((reserved.reserved(), limiter.available()), (40, 20));
    drop(reserved);
    assert_eq!(limiter.available(), 20);
    let reserved = limiter.reserve(20).await.expect("open");
    assert_eq!(reserved.settle(50), Ok(()));
    assert_eq!((limiter.debt(), limiter.taken(), limiter.sample().refunded), (30, 90, 0));
    limiter.set_max_debt(35);
    assert_eq!(limiter.charge(10), Err(DebtExceeded { uncharged: 5, max_debt: 35 }));
    assert_eq!((limiter.debt(), limiter.taken()), (35, 95));
    let error = DebtExceeded { uncharged: 5, max_debt: 35 }.to_string();
    assert_eq!(error, "maximum debt of 35 exceeded: 5 permits were not charged");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reservation_takes_nothing() {
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
async fn charges_count_as_arrivals_and_debt_causes_pressure() {
    let notify = Arc::new(Notify::new());
    let limiter = RateLimiter::with_pressure(MINUTE, notify.clone());
    let pressed = || poll_once(pin!(notify.notified()).as_mut()).is_ready();
    limiter.set_capacity(Capacity::of(10.0));
    advance(ms(10_000)).await;
    assert_eq!((limiter.charge(60), pressed()), (Ok(()), false), "the burst covers it");
    assert_eq!((limiter.charge(60), pressed()), (Ok(()), true), "a debt of 20");
    assert_eq!((limiter.charge(10), pressed()), (Ok(()), false));
    assert_eq!((limiter.charge(10), pressed()), (Ok(()), true), "the debt has doubled");
    assert_eq!((limiter.arrived(), limiter.sample().freely), (140, 140));
    let log = Log::default();
    log.waiter(&limiter, "a", 39).await;
    assert!(!pressed());
    log.waiter(&limiter, "b", 1).await;
    assert!(pressed(), "waiting permits and debt count together");
    assert_eq!(limiter.charge(1), Ok(()));
    assert_eq!((limiter.arrived(), limiter.sample().freely), (181, 179));
    advance(ms(8_300)).await;
    settle().await;
    assert_eq!((limiter.debt(), limiter.waiting()), (0, 0));
    assert_eq!((limiter.charge(5), pressed()), (Ok(()), true), "a new debt");
}

/// Runs 64 workers that ask again at once. Returns the times of admissions.
async fn closed_loop(limiter: &RateLimiter, seconds: u64) -> Vec<Duration> {
    let start = Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..64 {
        let (limiter, times) = (limiter.clone(), times.clone());
        tokio::spawn(async move {
            while limiter.wait().await.is_ok() {
                times.lock().unwrap().push(start.elapsed());
            }
        });
    }
    sleep(Duration::from_secs(seconds)).await;
    limiter.close();
    settle().await;
    let times = times.lock().unwrap();
    times.clone()
}

#[tokio::test(start_paused = true)]
async fn closed_loop_callers_get_all_of_the_capacity_and_no_more() {
    for (capacity, seconds) in [(0.1, 1000), (0.5, 201), (3.0, 100), (11.0, 30), (99.0, 10), (333.0, 10), (20_000.0, 2)]
    {
        for burst in [Burst::Smooth, Burst::Window(Duration::from_secs(1))] {
            let limiter = limiter(burst, capacity);
            let times = closed_loop(&limiter, seconds).await;
            let possible = capacity * seconds as f64;
            let admitted = times.len() as f64;
            assert!(admitted <= possible + 1e-6, "{capacity}/s, {burst:?}: {admitted} of {possible}");
            assert!(admitted >= 0.99 * possible - 1.0, "{capacity}/s, {burst:?}: {admitted} of {possible}");
            let mut least = f64::INFINITY;
            for (n, time) in times.iter().enumerate() {
                let ahead = n as f64 - capacity * time.as_secs_f64();
                least = least.min(ahead);
                assert!(ahead - least + 1.0 <= burst.permits(Capacity::of(capacity)) + 1e-6, "{capacity}/s, {burst:?}");
            }
        }
    }
}
