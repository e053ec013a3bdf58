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

mod debt;

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
struct Log(Arc<Mutex<Vec<(&'static str, Duration)>>>);

impl Log {
    async fn waiter(&self, limiter: &RateLimiter, name: &'static str, n: u32) -> JoinHandle<Result<(), Closed>> {
        let (limiter, log, start) = (limiter.clone(), self.clone(), Instant::now());
        let task = tokio::spawn(async move {
            let result = limiter.wait_many(n).await;
            if result.is_ok() {
                log.0.lock().unwrap().push((name, start.elapsed()));
            }
            result
        });
        settle().await;
        task
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(|&(name, _)| name).collect()
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn none_is_let_through_before_there_is_a_capacity() {
    let limiter = RateLimiter::new(Burst::Window(Duration::from_secs(1)));
    assert!(timeout(Duration::from_secs(3600), limiter.wait()).await.is_err());
    assert_eq!(limiter.try_acquire(1), Err(TryError::NotNow { retry_after: None }));
    assert_eq!(limiter.capacity(), Capacity::NONE);
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let log = Log::default();
    for name in ["a", "b", "c", "d"] {
        log.waiter(&limiter, name, 1).await;
    }
    sleep(ms(250)).await;
    assert_eq!(log.names(), ["a", "b"]);
    sleep(ms(1000)).await;
    assert_eq!(log.names(), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn none_overtakes_one_that_waits_for_much() {
    let limiter = limiter(Burst::Permits(5.0), 1.0);
    let log = Log::default();
    log.waiter(&limiter, "much", 4).await;
    sleep(ms(3000)).await;
    assert_eq!(
        limiter.try_acquire(1),
        Err(TryError::NotNow { retry_after: Some(ms(1000) + ms(1000)) }),
        "there are permits, but they are for the one that waits"
    );
    log.waiter(&limiter, "little", 1).await;
    sleep(ms(10_000)).await;
    assert_eq!(log.names(), ["much", "little"]);
}

#[tokio::test(start_paused = true)]
async fn a_try_takes_what_is_there_and_says_when_to_come_again() {
    let limiter = limiter(Burst::Permits(2.0), 4.0);
    advance(ms(10_000)).await;
    assert_eq!(limiter.try_acquire(3), Err(TryError::TooMany { burst: 2.0 }));
    assert_eq!(limiter.try_acquire(2), Ok(()));
    assert_eq!(limiter.try_acquire(1), Err(TryError::NotNow { retry_after: Some(ms(250)) }));
    advance(ms(250)).await;
    assert_eq!(limiter.try_acquire(1), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_always_to_be_had() {
    let limiter = RateLimiter::new(Burst::Smooth);
    assert_eq!(limiter.try_acquire(0), Ok(()));
    assert_eq!(limiter.wait_many(0).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_costs_nothing_and_does_not_hold_up_those_behind() {
    for leaves in ["a", "b", "c"] {
        let limiter = limiter(Burst::Smooth, 1.0);
        let log = Log::default();
        let mut waiters = Vec::new();
        for name in ["a", "b", "c"] {
            waiters.push((name, log.waiter(&limiter, name, 1).await));
        }
        sleep(ms(500)).await;
        waiters.iter().find(|waiter| waiter.0 == leaves).unwrap().1.abort();
        settle().await;
        assert_eq!(limiter.waiting(), 2);
        sleep(ms(1600)).await; // 2.1 s since the start
        let stayed: Vec<_> = ["a", "b", "c"].into_iter().filter(|&name| name != leaves).collect();
        assert_eq!(log.names(), stayed, "after {leaves} left");
    }
}

#[tokio::test(start_paused = true)]
async fn when_one_who_needs_much_gives_up_those_behind_get_what_is_there_at_once() {
    let limiter = limiter(Burst::Permits(2.0), 1.0);
    let log = Log::default();
    let much = log.waiter(&limiter, "much", 100).await;
    for name in ["a", "b", "c"] {
        log.waiter(&limiter, name, 1).await;
    }
    sleep(ms(50_000)).await;
    much.abort();
    settle().await;
    assert_eq!(log.names(), ["a", "b"], "the burst of what was saved, and no more");
    sleep(ms(1100)).await;
    assert_eq!(log.names(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_its_waiter_never_saw_goes_to_the_next() {
    let limiter = limiter(Burst::Permits(1.0), 10.0);
    let log = Log::default();
    let mut first = Box::pin(limiter.wait());
    let mut second = Box::pin(limiter.wait());
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    log.waiter(&limiter, "third", 1).await;
    advance(ms(100)).await;
    // Polling admits the first one. A momentarily unlimited capacity admits the others without polling them.
    assert!(poll_once(first.as_mut()).is_ready());
    advance(ms(95)).await;
    limiter.set_capacity(Capacity::of(1000.0)); // 0.95 of a permit there, 1 ms until the next
    advance(ms(1)).await;
    limiter.set_capacity(Capacity::of(0.001)); // lets the second through, which is not polled
    assert_eq!(limiter.waiting(), 1);
    settle().await;
    assert!(log.names().is_empty());
    drop(second);
    settle().await;
    assert_eq!(log.names(), ["third"], "at a thousandth per second it would have waited for long");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_capacity_takes_effect_for_those_that_wait_already() {
    let limiter = limiter(Burst::Smooth, 0.001);
    let log = Log::default();
    log.waiter(&limiter, "a", 1).await;
    log.waiter(&limiter, "b", 1).await;
    sleep(ms(1000)).await;
    limiter.set_capacity(Capacity::of(1.0));
    sleep(ms(1010)).await;
    assert_eq!(log.names(), ["a"]);
    limiter.set_capacity(Capacity::NONE);
    sleep(ms(3_600_000)).await;
    assert_eq!(log.names(), ["a"], "no capacity, no caller");
    limiter.set_capacity(Capacity::of(2.0));
    sleep(ms(510)).await;
    assert_eq!(log.names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_lower_capacity_takes_effect_for_the_one_whose_timer_is_set() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let log = Log::default();
    log.waiter(&limiter, "a", 1).await;
    sleep(ms(50)).await;
    limiter.set_capacity(Capacity::of(0.1)); // half is paid
    sleep(ms(4900)).await;
    assert!(log.names().is_empty());
    sleep(ms(110)).await;
    assert_eq!(log.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn unlimited_lets_all_through_at_once() {
    let limiter = limiter(Burst::Smooth, 0.01);
    let log = Log::default();
    for name in ["a", "b", "c"] {
        log.waiter(&limiter, name, 1_000_000).await;
    }
    limiter.set_capacity(Capacity::UNLIMITED);
    settle().await;
    assert_eq!(log.names(), ["a", "b", "c"]);
    assert_eq!(limiter.try_acquire(u32::MAX), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn closing_tells_all_waiters_and_can_be_repeated() {
    let limiter = limiter(Burst::Smooth, 1.0);
    let log = Log::default();
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
}

#[tokio::test(start_paused = true)]
async fn one_that_was_let_through_before_the_end_is_let_through() {
    let limiter = limiter(Burst::Smooth, 1.0);
    let mut waiter = Box::pin(limiter.wait());
    assert!(poll_once(waiter.as_mut()).is_pending());
    limiter.set_capacity(Capacity::UNLIMITED);
    limiter.close();
    assert_eq!(waiter.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_head_of_the_line_that_is_not_polled_does_not_hold_up_the_limiter_for_ever() {
    let limiter = limiter(Burst::Smooth, 10.0);
    let mut busy = Box::pin(limiter.wait());
    assert!(poll_once(busy.as_mut()).is_pending());
    let log = Log::default();
    log.waiter(&limiter, "a", 1).await;
    sleep(ms(5000)).await;
    assert!(log.names().is_empty());
    log.waiter(&limiter, "b", 1).await; // sees that the head is late
    sleep(ms(250)).await;
    assert_eq!(log.names(), ["a", "b"]);
    assert_eq!(busy.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_may_move_to_another_task() {
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
async fn arrivals_count_when_they_ask_and_waiting_while_they_wait() {
    let limiter = limiter(Burst::Permits(3.0), 1.0);
    advance(ms(10_000)).await;
    limiter.wait_many(2).await.unwrap();
    let _ = limiter.try_acquire(2); // in vain
    let _ = limiter.try_acquire(4); // can never be
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
async fn pressure_is_told_when_the_line_begins_and_doubles() {
    let notify = Arc::new(Notify::new());
    let limiter = RateLimiter::with_pressure(Burst::Smooth, notify.clone());
    let log = Log::default();
    let mut told = Vec::new();
    for n in 1..=9 {
        log.waiter(&limiter, "one", 1).await;
        let mut notified = pin!(notify.notified());
        if poll_once(notified.as_mut()).is_ready() {
            told.push(n);
        }
    }
    assert_eq!(told, [1, 2, 4, 8]);
    limiter.set_capacity(Capacity::UNLIMITED);
    settle().await;
    limiter.wait().await.unwrap();
    assert!(poll_once(pin!(notify.notified())).is_pending(), "none had to wait");
    limiter.set_capacity(Capacity::NONE);
    log.waiter(&limiter, "one", 1).await;
    assert!(poll_once(pin!(notify.notified())).is_ready(), "the line began anew");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_never_waits_still_lets_others_run() {
    let limiter = RateLimiter::new(Burst::Smooth);
    limiter.set_capacity(Capacity::UNLIMITED);
    let greedy = tokio::spawn(async move { while limiter.wait().await.is_ok() {} });
    yield_now().await; // would not come back
    greedy.abort();
}

/// 64 workers that ask again at once, on a clock that advances in steps of tokio's timer.
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
async fn a_closed_loop_gets_all_of_the_capacity_and_never_more() {
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
