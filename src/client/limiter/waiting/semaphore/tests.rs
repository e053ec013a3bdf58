//! Random histories of a semaphore, polled by tokio on a clock that is paused between the steps.

use std::{future::Future, sync::Arc};

use crate::limiter::{Bucket, Burst};
use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    task::{JoinHandle, yield_now},
    time::advance,
};

use super::*;

const MILLI: Nanos = 1_000_000;

#[derive(Debug, Clone)]
enum Act {
    Join(u32),
    Leave(usize),
    Capacity(f64),
    Try(u32),
    Charge(u32),
    Refund(u32),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1..4u32).prop_map(Act::Join),
        1 => (4..30u32).prop_map(Act::Join),
        2 => any::<usize>().prop_map(Act::Leave),
        1 => prop_oneof![2 => 0.1..2000.0, 1 => Just(0.0)].prop_map(Act::Capacity),
        1 => Just(Act::Capacity(f64::INFINITY)),
        1 => (1..4u32).prop_map(Act::Try),
        1 => (1..10u32).prop_map(Act::Charge),
        1 => (1..10u32).prop_map(Act::Refund),
        5 => (1..40u64).prop_map(Act::Pass),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    prop_oneof![Just(Burst::Smooth), Just(Burst::Window(Duration::from_secs(1))), (1.0..10.0).prop_map(Burst::Permits)]
}

/// The semaphore, with a task for each waiter.
struct World {
    semaphore: Arc<Semaphore<Bucket>>,
    waiters: Vec<JoinHandle<Result<(), Closed>>>,
}

impl World {
    fn new(burst: Burst) -> World {
        World { semaphore: Arc::new(Semaphore::new(Bucket::new(burst), None)), waiters: Vec::new() }
    }

    fn poll_first(&mut self, n: u32) {
        let semaphore = self.semaphore.clone();
        self.waiters.push(tokio::spawn(async move { semaphore.acquire(n).await }));
    }

    /// The admitted callers, by number of arrival.
    fn admitted(&self) -> Vec<usize> {
        (0..self.waiters.len()).filter(|&index| self.waiters[index].is_finished()).collect()
    }
}

/// The naive implementation: a list that is scanned each time.
struct NaiveGate {
    bucket: Bucket,
    state: Vec<(usize, u32)>,
    /// Admitted, or cancelled.
    finished: Vec<usize>,
}

impl NaiveGate {
    fn admit(&mut self, now: Nanos) {
        while let Some(&(index, n)) = self.state.first() {
            if self.bucket.take(now, n).is_err() {
                self.bucket.save_for(now, n);
                return;
            }
            self.state.remove(0);
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
    fn the_line_lets_through_what_a_plain_list_would(
        burst in burst(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        paused(async {
            let mut world = World::new(burst);
            let mut naive = NaiveGate { bucket: Bucket::new(burst), state: Vec::new(), finished: Vec::new() };
            let mut now = 0;
            for step in steps {
                match step {
                    Act::Join(n) => {
                        naive.state.push((world.waiters.len(), n));
                        world.poll_first(n);
                    }
                    Act::Leave(pick) if !world.waiters.is_empty() => {
                        let index = pick % world.waiters.len();
                        world.waiters[index].abort();
                        if naive.state.first().is_some_and(|first| first.0 == index) {
                            naive.bucket.stop_saving(now);
                        }
                        if naive.state.iter().any(|waiter| waiter.0 == index) {
                            naive.state.retain(|waiter| waiter.0 != index);
                            naive.finished.push(index);
                        }
                    }
                    Act::Leave(_) => {}
                    Act::Capacity(capacity) => {
                        world.semaphore.set_capacity(Capacity::of(capacity));
                        naive.bucket.set_capacity(now, Capacity::of(capacity));
                    }
                    Act::Try(n) => {
                        let taken = naive.state.is_empty() && naive.bucket.take(now, n).is_ok();
                        prop_assert_eq!(world.semaphore.try_acquire(n).is_ok(), taken);
                    }
                    Act::Charge(n) => {
                        naive.bucket.charge(now, u64::from(n));
                        prop_assert_eq!(world.semaphore.charge(u64::from(n)), Ok(()));
                    }
                    Act::Refund(n) => {
                        naive.bucket.refund(now, u64::from(n));
                        world.semaphore.refund(u64::from(n));
                    }
                    Act::Pass(millis) => {
                        for _ in 0..millis {
                            // tokio's timers are due at whole milliseconds.
                            advance(Duration::from_millis(1)).await;
                            now += MILLI;
                            settle().await;
                            naive.admit(now);
                        }
                    }
                }
                settle().await;
                naive.admit(now);
                naive.finished.sort_unstable();
                prop_assert_eq!(world.admitted(), &naive.finished[..]);
                prop_assert_eq!(world.semaphore.owed(), naive.bucket.owed(now));
                prop_assert_eq!(world.semaphore.waiting(), naive.state.iter().map(|&(_, n)| u64::from(n)).sum::<u64>());
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_waiter_is_forgotten_between_two_polls(
        burst in burst(),
        steps in proptest::collection::vec((step(), any::<bool>()), 1..80),
    ) {
        paused(async {
            let mut world = World::new(burst);
            for (step, settled) in steps {
                match step {
                    Act::Join(n) => world.poll_first(n),
                    Act::Leave(pick) if !world.waiters.is_empty() => {
                        world.waiters[pick % world.waiters.len()].abort();
                    }
                    Act::Leave(_) => {}
                    Act::Capacity(capacity) => world.semaphore.set_capacity(Capacity::of(capacity)),
                    Act::Try(n) => drop(world.semaphore.try_acquire(n)),
                    Act::Charge(n) => drop(world.semaphore.charge(u64::from(n))),
                    Act::Refund(n) => world.semaphore.refund(u64::from(n)),
                    Act::Pass(millis) => advance(Duration::from_millis(millis)).await,
                }
                if settled {
                    settle().await;
                }
            }
            // From here on only timers can admit callers.
            world.semaphore.set_capacity(Capacity::of(100.0));
            for waiter in world.waiters {
                let done = tokio::time::timeout(Duration::from_secs(60), waiter).await;
                prop_assert!(done.is_ok(), "one still waits");
            }
            prop_assert_eq!(world.semaphore.waiting(), 0);
            prop_assert!(world.semaphore.lock().queue.is_empty(), "one that is gone is still known");
            Ok(())
        })?;
    }
}
