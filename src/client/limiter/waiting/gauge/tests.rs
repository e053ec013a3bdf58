use std::time::Duration;

use tokio::{task::yield_now, time::timeout};

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
async fn the_capacity_allows_whole_permits_only() {
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
async fn less_than_a_whole_permit_admits_nobody() {
    for capacity in [0.0, 0.99] {
        let gauge = gauge(capacity);
        assert_eq!(gauge.try_acquire(1).unwrap_err(), TryError::NotNow { retry_after: None });
        assert!(timeout(Duration::from_secs(60), gauge.acquire()).await.is_err());
        assert_eq!((gauge.in_use(), gauge.waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_nobody_is_admitted_until_enough_permits_are_returned() {
    let gauge = gauge(4.0);
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(gauge.acquire().await.unwrap());
    }
    assert_eq!(gauge.outstanding(), 0);
    gauge.set_capacity(Capacity::of(2.0));
    assert_eq!(gauge.outstanding(), 4, "all permits in use, not only those beyond the capacity");
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
async fn closing_ends_waits_and_permits_are_still_returned() {
    let gauge = gauge(1.0);
    let held = gauge.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let gauge = gauge.clone();
        async move { gauge.acquire().await.map(drop) }
    });
    settle().await;
    gauge.close();
    assert_eq!(waiter.await.unwrap(), Err(Closed));
    assert_eq!(gauge.acquire().await.unwrap_err(), Closed);
    assert_eq!(gauge.try_acquire(1).unwrap_err(), TryError::Closed);
    drop(held);
    assert_eq!(gauge.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_peak_includes_returned_and_refused_permits() {
    let gauge = gauge(3.0);
    drop((gauge.acquire().await.unwrap(), gauge.acquire_many(2).await.unwrap()));
    let held = gauge.acquire().await.unwrap();
    assert_eq!(gauge.take_peak(), 3);
    assert_eq!(gauge.take_peak(), 1, "only the permit in use since the last call");
    assert!(timeout(Duration::from_millis(1), gauge.acquire_many(5)).await.is_err());
    assert_eq!(gauge.take_peak(), 6);
    assert!(gauge.try_acquire(3).is_err());
    drop(held);
    assert_eq!((gauge.take_peak(), gauge.take_peak()), (4, 0), "a refused caller is demand, too");
}

#[tokio::test]
async fn concurrent_use_neither_exceeds_the_capacity_nor_loses_permits() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let gauge = gauge(7.0);
    let workers: Vec<_> = (0..50u32)
        .map(|worker| {
            let gauge = gauge.clone();
            runtime.spawn(async move {
                for round in 0..100 {
                    let n = 1 + (worker + round) % 4;
                    if round % 3 == 0 {
                        // Usually cancels, anywhere in the queue.
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
    runtime.shutdown_background();
}
