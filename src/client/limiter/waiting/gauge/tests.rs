use std::time::Duration;

use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};

use super::*;

fn gauge(capacity: f64) -> GaugeLimiter {
    let gauge = GaugeLimiter::new();
    gauge.set_capacity(Capacity::of(capacity));
    gauge
}

async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_are_in_use_than_the_whole_permits_of_the_capacity() {
    let gauge = gauge(2.9);
    let a = gauge.acquire().await.unwrap();
    let _b = gauge.acquire().await.unwrap();
    assert_eq!(gauge.try_acquire(1).unwrap_err(), TryError::NotNow { retry_after: None });
    assert_eq!(gauge.try_acquire(3).unwrap_err(), TryError::TooMany { burst: 2.0 });
    assert_eq!(gauge.in_use(), 2);
    drop(a);
    assert_eq!(gauge.in_use(), 1);
    let _c = gauge.try_acquire(1).unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_let_through_before_there_is_a_whole_permit() {
    for capacity in [0.0, 0.99] {
        let gauge = gauge(capacity);
        assert_eq!(gauge.try_acquire(1).unwrap_err(), TryError::NotNow { retry_after: None });
        assert!(timeout(Duration::from_secs(60), gauge.acquire()).await.is_err());
        assert_eq!((gauge.in_use(), gauge.waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_none_is_let_through_until_enough_were_returned() {
    let gauge = gauge(4.0);
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(gauge.acquire().await.unwrap());
    }
    assert_eq!(gauge.outstanding(), 0);
    gauge.set_capacity(Capacity::of(2.0));
    assert_eq!(gauge.outstanding(), 4, "all of them, not only those beyond the capacity");
    let waiter = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire().await }
    });
    for (in_use, outstanding) in [(3, 3), (2, 0)] {
        permits.pop();
        settle().await;
        assert_eq!((gauge.in_use(), gauge.outstanding(), gauge.waiting()), (in_use, outstanding, 1));
    }
    permits.pop();
    let permit = waiter.await.unwrap().unwrap();
    assert_eq!((gauge.in_use(), gauge.waiting()), (2, 0));
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served_also_for_one_that_needs_many() {
    let gauge = gauge(3.0);
    let held = gauge.acquire_many(2).await.unwrap();
    let many = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire_many(3).await }
    });
    settle().await;
    assert!(gauge.try_acquire(1).is_err(), "one is free, and not for those that come later");
    assert_eq!(gauge.waiting(), 3);
    drop(held);
    let many = many.await.unwrap().unwrap();
    assert_eq!(gauge.in_use(), 3);
    drop(many);
    assert_eq!(gauge.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_holds_nothing_and_none_up() {
    let gauge = gauge(2.0);
    let held = gauge.acquire().await.unwrap();
    let many = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire_many(2).await }
    });
    settle().await;
    let one = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire().await }
    });
    settle().await;
    many.abort();
    let one = timeout(Duration::from_secs(1), one).await.expect("it is its turn at once").unwrap().unwrap();
    drop((held, one));
    assert_eq!((gauge.in_use(), gauge.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_its_waiter_never_saw_is_not_lost() {
    let gauge = gauge(1.0);
    let held = gauge.acquire().await.unwrap();
    let mut waiter = Box::pin(gauge.acquire());
    tokio::select! {
        biased;
        _ = &mut waiter => panic!("there is none"),
        () = settle() => {}
    }
    drop(held); // it is the waiter's now
    assert_eq!((gauge.in_use(), gauge.waiting()), (1, 0));
    drop(waiter);
    assert_eq!(gauge.in_use(), 0);
    drop(gauge.try_acquire(1).unwrap());
}

#[tokio::test(start_paused = true)]
async fn unlimited_and_more_capacity_let_through_what_waits() {
    let gauge = gauge(0.0);
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let gauge = gauge.clone();
            tokio::spawn(async move { gauge.acquire().await.map(std::mem::forget) })
        })
        .collect();
    settle().await;
    gauge.set_capacity(Capacity::of(10.0));
    settle().await;
    assert_eq!((gauge.in_use(), gauge.waiting()), (10, 90));
    gauge.set_capacity(Capacity::UNLIMITED);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    assert_eq!((gauge.in_use(), gauge.outstanding()), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn closing_tells_those_that_wait_and_permits_are_still_returned() {
    let gauge = gauge(1.0);
    let held = gauge.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire().await.map(drop) }
    });
    settle().await;
    gauge.close();
    gauge.close();
    assert_eq!(waiter.await.unwrap(), Err(Closed));
    assert_eq!(gauge.acquire().await.unwrap_err(), Closed);
    assert_eq!(gauge.try_acquire(1).unwrap_err(), TryError::Closed);
    drop(held);
    assert_eq!(gauge.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_peak_remembers_what_came_and_went() {
    let gauge = gauge(3.0);
    drop((gauge.acquire().await.unwrap(), gauge.acquire_many(2).await.unwrap()));
    let held = gauge.acquire().await.unwrap();
    assert_eq!(gauge.take_peak(), 3);
    assert_eq!(gauge.take_peak(), 1, "what is in use now is all since the last look");
    assert!(timeout(Duration::from_millis(1), gauge.acquire_many(5)).await.is_err());
    assert_eq!(gauge.take_peak(), 6);
    assert!(gauge.try_acquire(3).is_err());
    drop(held);
    assert_eq!(
        (gauge.take_peak(), gauge.take_peak()),
        (4, 0),
        "a caller that tries in vain would like to have them, too"
    );
}

#[test]
fn permits_and_those_that_wait_for_them_may_change_threads() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let gauge = gauge(1.0);
    drop(sent(gauge.try_acquire(1)));
    drop(sent(gauge.acquire()));
    drop(sent(crate::limiter::RateLimiter::new(crate::limiter::Burst::Smooth).wait()));
}

#[tokio::test]
async fn many_threads_never_exceed_the_capacity_and_lose_nothing() {
    // On several threads, so that permits are taken and returned concurrently.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let gauge = gauge(7.0);
    let workers: Vec<_> = (0..50u32)
        .map(|worker| {
            let gauge = gauge.clone();
            runtime.spawn(async move {
                for round in 0..100 {
                    let n = 1 + (worker + round) % 4;
                    if round % 3 == 0 {
                        // Sometimes cancels, anywhere in the queue.
                        let _ = timeout(Duration::from_micros(50), gauge.acquire_many(n)).await;
                        continue;
                    }
                    let permit = gauge.acquire_many(n).await.unwrap();
                    assert!(gauge.in_use() <= 7);
                    yield_now().await;
                    drop(permit);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!((gauge.in_use(), gauge.waiting()), (0, 0));
    sleep(Duration::ZERO).await;
    runtime.shutdown_background();
}
