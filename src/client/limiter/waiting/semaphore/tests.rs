//! Random histories of a limiter, polled by tokio on a clock that is paused between the steps.

use std::future::Future;

use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    task::{JoinHandle, yield_now},
    time::advance,
};

use super::*;
use crate::limiter::{Bucket, Burst, RateLimiter};

const MILLI: Nanos = 1_000_000;

#[derive(Debug, Clone)]
enum Act {
    Join(u32),
    /// Cancels a waiter, if it still waits.
    Leave(usize),
    Capacity(f64),
    Try(u32),
    Charge(u64),
    Refund(u64),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..4u32).prop_map(Act::Join),
        1 => (4..30u32).prop_map(Act::Join),
        2 => any::<usize>().prop_map(Act::Leave),
        1 => prop_oneof![2 => 0.1..2000.0, 1 => Just(0.0)].prop_map(Act::Capacity),
        1 => Just(Act::Capacity(f64::INFINITY)),
        1 => (1..4u32).prop_map(Act::Try),
        1 => (1..10u64).prop_map(Act::Charge),
        1 => (1..10u64).prop_map(Act::Refund),
        5 => (1..40u64).prop_map(Act::Pass),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    prop_oneof![Just(Burst::Smooth), Just(Burst::Window(Duration::from_secs(1))), (1.0..10.0).prop_map(Burst::Permits)]
}

/// The limiter, with a task for each waiter.
struct Tasks {
    limiter: RateLimiter,
    waiters: Vec<JoinHandle<Result<(), Closed>>>,
}

impl Tasks {
    fn new(burst: Burst) -> Tasks {
        Tasks { limiter: RateLimiter::new(burst), waiters: Vec::new() }
    }

    /// Returns whether permits were taken without waiting.
    async fn apply(&mut self, act: &Act) -> bool {
        match *act {
            Act::Join(n) => {
                let limiter = self.limiter.clone();
                self.waiters.push(tokio::spawn(async move { limiter.wait_many(n).await }));
            }
            Act::Leave(pick) if !self.waiters.is_empty() => self.waiters[pick % self.waiters.len()].abort(),
            Act::Leave(_) => {}
            Act::Capacity(capacity) => self.limiter.set_capacity(Capacity::of(capacity)),
            Act::Try(n) => return self.limiter.try_acquire(n).is_ok(),
            Act::Charge(n) => self.limiter.charge(n).expect("below the maximum debt"),
            Act::Refund(n) => self.limiter.refund(n),
            Act::Pass(millis) => advance(Duration::from_millis(millis)).await,
        }
        false
    }

    /// The admitted and cancelled waiters, by number of arrival.
    fn finished(&self) -> Vec<usize> {
        (0..self.waiters.len()).filter(|&index| self.waiters[index].is_finished()).collect()
    }
}

/// The naive implementation: a list that is scanned each time.
struct NaiveQueue {
    bucket: Bucket,
    arrived: usize,
    waiting: Vec<(usize, u32)>,
    finished: Vec<usize>,
}

impl NaiveQueue {
    fn new(burst: Burst) -> NaiveQueue {
        NaiveQueue { bucket: Bucket::new(burst), arrived: 0, waiting: Vec::new(), finished: Vec::new() }
    }

    fn apply(&mut self, now: Nanos, act: &Act) -> bool {
        match *act {
            Act::Join(n) => {
                self.waiting.push((self.arrived, n));
                self.arrived += 1;
            }
            Act::Leave(pick) if self.arrived > 0 => {
                let left = pick % self.arrived;
                if self.waiting.first().is_some_and(|(index, _)| *index == left) {
                    self.bucket.stop_saving(now);
                }
                if let Some(at) = self.waiting.iter().position(|(index, _)| *index == left) {
                    self.waiting.remove(at);
                    self.finished.push(left);
                }
            }
            Act::Leave(_) | Act::Pass(_) => {}
            Act::Capacity(capacity) => self.bucket.set_capacity(now, Capacity::of(capacity)),
            Act::Try(n) => return self.waiting.is_empty() && self.bucket.take(now, n).is_ok(),
            Act::Charge(n) => _ = self.bucket.charge(now, n),
            Act::Refund(n) => _ = self.bucket.refund(now, n),
        }
        false
    }

    fn admit(&mut self, now: Nanos) {
        while let Some(&(index, n)) = self.waiting.first() {
            if self.bucket.take(now, n).is_err() {
                self.bucket.save_for(now, n);
                return;
            }
            self.waiting.remove(0);
            self.finished.push(index);
        }
        self.bucket.stop_saving(now);
    }
}

async fn settle() {
    for _ in 0..6 {
        yield_now().await;
    }
}

fn paused<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime").block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn the_queue_admits_the_same_waiters_as_a_naive_list(
        burst in burst(),
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        paused(async {
            let (mut tasks, mut naive, mut now) = (Tasks::new(burst), NaiveQueue::new(burst), 0);
            for act in acts {
                // tokio's timers are due at whole milliseconds.
                let steps = if let Act::Pass(millis) = act { vec![Act::Pass(1); millis as usize] } else { vec![act] };
                for step in steps {
                    now += if let Act::Pass(_) = step { MILLI } else { 0 };
                    let taken = naive.apply(now, &step);
                    prop_assert_eq!(tasks.apply(&step).await, taken);
                    settle().await;
                    naive.admit(now);
                }
                naive.finished.sort_unstable();
                prop_assert_eq!(tasks.finished(), &naive.finished[..]);
                prop_assert_eq!(tasks.limiter.debt(), naive.bucket.owed(now));
                prop_assert_eq!(tasks.limiter.waiting(), naive.waiting.iter().map(|&(_, n)| u64::from(n)).sum::<u64>());
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_wake_up_is_lost_between_two_polls(
        burst in burst(),
        acts in proptest::collection::vec((act(), any::<bool>()), 1..80),
    ) {
        paused(async {
            let mut tasks = Tasks::new(burst);
            for (act, settled) in acts {
                tasks.apply(&act).await;
                if settled {
                    settle().await;
                }
            }
            // From here on only timers can admit waiters.
            tasks.limiter.set_capacity(Capacity::of(100.0));
            for waiter in tasks.waiters {
                let done = tokio::time::timeout(Duration::from_secs(60), waiter).await;
                prop_assert!(done.is_ok(), "a waiter was not woken");
            }
            prop_assert_eq!(tasks.limiter.waiting(), 0);
            Ok(())
        })?;
    }
}
