//! Runs the resources of one thread that have something to do besides answering requests: those that were woken, for a
//! message or a commit, and those whose time has come.
//!
//! There is one scheduler with one task for each thread, and no task or timer for each resource. Timers are kept in
//! buckets of 16 ms. A resource has at most one current timer; a timer that has become wrong is corrected when it
//! fires, because most resources only move their time further away.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::ArbiterHandle;
use leaseway_core::types::Millis;
use tokio::sync::Notify;

use crate::{
    node::DropGuard,
    runtime::{clock::Clock, coop::pause},
};

const BUCKET_MS: u64 = 16;
/// Number of resources between two yields.
const CHUNK: usize = 64;
/// No time.
const NEVER: u64 = u64::MAX;
/// No timer. The time of this bucket comes after two years.
const NO_TIMER: u32 = u32::MAX;

/// What a scheduler runs.
pub(crate) trait Scheduled: Sized + Send + Sync + 'static {
    fn schedule(&self) -> &Schedule<Self>;

    /// Called when it was woken, or when its time has come.
    fn run_scheduled(self: &Arc<Self>);

    /// Called on the thread of a scheduler that has nothing to run.
    fn idle();
}

struct Queues<R> {
    woken: Vec<Arc<R>>,
    timers: BTreeMap<u32, Vec<Weak<R>>>,
    /// The bucket that the task waits for.
    awaited: u32,
}

/// The resources of one thread that were woken, and their timers.
pub(crate) struct Scheduler<R> {
    queues: Mutex<Queues<R>>,
    notify: Arc<Notify>,
    /// Ends the task.
    _end: DropGuard,
}

/// The entry of one resource in a scheduler.
pub(crate) struct Schedule<R> {
    scheduler: Weak<Scheduler<R>>,
    is_woken: AtomicBool,
    /// When the resource has something to do. Written only while the actor is locked.
    due: AtomicU64,
    /// The bucket of its current timer.
    timer: AtomicU32,
}

impl<R: Scheduled> Scheduler<R> {
    /// Starts a scheduler with its task on `arbiter`.
    pub(crate) fn start(arbiter: &ArbiterHandle, clock: Clock) -> Arc<Scheduler<R>> {
        let notify = Arc::<Notify>::default();
        let end = {
            let notify = Arc::clone(&notify);
            DropGuard::new(move || notify.notify_one())
        };
        let queues = Queues { woken: Vec::new(), timers: BTreeMap::new(), awaited: NO_TIMER };
        let scheduler = Arc::new(Scheduler { queues: Mutex::new(queues), notify: Arc::clone(&notify), _end: end });
        let weak = Arc::downgrade(&scheduler);
        arbiter.spawn_fn(move || drop(actix_rt::spawn(run(weak, notify, clock))));
        scheduler
    }

    fn queues(&self) -> MutexGuard<'_, Queues<R>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resources to run now, and the bucket of the next timer.
    fn due(&self, now: Millis) -> (Vec<Arc<R>>, u32) {
        let mut queues = self.queues();
        let mut due = std::mem::take(&mut queues.woken);
        let current = bucket_of(now);
        while let Some(entry) = queues.timers.first_entry().filter(|entry| *entry.key() < current) {
            let (bucket, resources) = entry.remove_entry();
            for resource in resources.iter().filter_map(Weak::upgrade) {
                match resource.schedule().fire(bucket, now) {
                    Some(Fired::Due) => due.push(resource),
                    Some(Fired::Later(bucket)) => {
                        queues.timers.entry(bucket).or_default().push(Arc::downgrade(&resource));
                    }
                    None => {}
                }
            }
        }
        queues.awaited = queues.timers.first_key_value().map_or(NO_TIMER, |(bucket, _)| *bucket);
        (due, queues.awaited)
    }
}

async fn run<R: Scheduled>(scheduler: Weak<Scheduler<R>>, notify: Arc<Notify>, clock: Clock) {
    loop {
        let Some((due, next)) = scheduler.upgrade().map(|scheduler| scheduler.due(clock.at())) else { return };
        if due.is_empty() {
            R::idle();
            let until = Millis((u64::from(next) + 1) * BUCKET_MS);
            let wait = Duration::from_millis(until.since(clock.at()).0.clamp(1, 1000));
            let _ = tokio::time::timeout(wait, notify.notified()).await;
            continue;
        }
        for chunk in due.chunks(CHUNK) {
            for resource in chunk {
                // Cleared first, so that a wake-up from now on is not lost.
                resource.schedule().is_woken.store(false, Ordering::Release);
                resource.run_scheduled();
            }
            pause().await;
        }
    }
}

/// The bucket of a time. Times after two years share the last one, whose timer is corrected when it fires.
fn bucket_of(at: Millis) -> u32 {
    u32::try_from(at.0 / BUCKET_MS).unwrap_or(NO_TIMER - 1).min(NO_TIMER - 1)
}

enum Fired {
    Due,
    Later(u32),
}

impl<R: Scheduled> Schedule<R> {
    pub(super) fn new(scheduler: Weak<Scheduler<R>>) -> Schedule<R> {
        Schedule {
            scheduler,
            is_woken: AtomicBool::new(false),
            due: AtomicU64::new(NEVER),
            timer: AtomicU32::new(NO_TIMER),
        }
    }

    /// Handles the timer of `bucket`. `None` if it is not the current one.
    fn fire(&self, bucket: u32, now: Millis) -> Option<Fired> {
        self.timer.compare_exchange(bucket, NO_TIMER, Ordering::AcqRel, Ordering::Acquire).ok()?;
        match self.due.load(Ordering::Acquire) {
            NEVER => None,
            due if due <= now.0 => (!self.is_woken.swap(true, Ordering::AcqRel)).then_some(Fired::Due),
            due => {
                let later = bucket_of(Millis(due));
                self.timer.store(later, Ordering::Release);
                Some(Fired::Later(later))
            }
        }
    }

    /// When the resource has something to do by itself.
    pub(super) fn due(&self) -> Millis {
        Millis(self.due.load(Ordering::Acquire))
    }

    /// Wakes the resource now.
    pub(super) fn wake(resource: &Arc<R>) {
        let schedule = resource.schedule();
        if schedule.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(scheduler) = schedule.scheduler.upgrade() {
            scheduler.queues().woken.push(Arc::clone(resource));
            scheduler.notify.notify_one();
        }
    }

    /// Wakes the resource at this time, and not at the time that was set before. Call it only while the actor is
    /// locked.
    pub(super) fn wake_at(resource: &Arc<R>, due: Millis) {
        let schedule = resource.schedule();
        schedule.due.store(due.0, Ordering::Release);
        let bucket = bucket_of(due);
        if bucket >= schedule.timer.load(Ordering::Acquire) {
            return;
        }
        let Some(scheduler) = schedule.scheduler.upgrade() else { return };
        let mut queues = scheduler.queues();
        schedule.timer.store(bucket, Ordering::Release);
        queues.timers.entry(bucket).or_default().push(Arc::downgrade(resource));
        if bucket < queues.awaited {
            queues.awaited = bucket;
            scheduler.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use actix::{Arbiter, System};

    use super::*;

    struct Counting {
        schedule: Schedule<Counting>,
        runs: AtomicUsize,
    }

    impl Scheduled for Counting {
        fn schedule(&self) -> &Schedule<Counting> {
            &self.schedule
        }

        fn run_scheduled(self: &Arc<Self>) {
            self.runs.fetch_add(1, Ordering::Relaxed);
            self.schedule.due.store(NEVER, Ordering::Release);
        }

        fn idle() {}
    }

    /// Without a task: the test asks what is due.
    fn scheduler() -> Arc<Scheduler<Counting>> {
        let queues = Queues { woken: Vec::new(), timers: BTreeMap::new(), awaited: NO_TIMER };
        Arc::new(Scheduler { queues: Mutex::new(queues), notify: Arc::default(), _end: DropGuard::new(|| {}) })
    }

    fn counting(scheduler: &Arc<Scheduler<Counting>>) -> Arc<Counting> {
        Arc::new(Counting { schedule: Schedule::new(Arc::downgrade(scheduler)), runs: AtomicUsize::new(0) })
    }

    #[test]
    fn a_timer_fires_at_the_newest_time_only() {
        let scheduler = scheduler();
        let resource = counting(&scheduler);
        for due in [5_000, 1_000, 9_000] {
            Schedule::wake_at(&resource, Millis(due));
        }
        let due_at = |now| scheduler.due(Millis(now)).0.len();
        assert_eq!([900, 1_100, 5_100, 8_900].map(due_at), [0; 4], "these times were replaced");
        assert_eq!([9_100, 9_200].map(due_at), [1, 0]);
        assert_eq!(scheduler.queues().timers.len(), 0);
    }

    #[test]
    fn a_resource_that_is_woken_twice_runs_once() {
        let scheduler = scheduler();
        let resource = counting(&scheduler);
        Schedule::wake_at(&resource, Millis(100));
        Schedule::wake(&resource);
        Schedule::wake(&resource);
        assert_eq!(scheduler.due(Millis(500)).0.len(), 1);
        drop(resource);
        assert_eq!(scheduler.due(Millis(500)).0.len(), 0, "a timer keeps no resource alive");
    }

    #[test]
    fn the_task_runs_what_is_woken_or_due_until_the_scheduler_is_dropped() {
        System::new().block_on(async {
            let (arbiter, clock) = (Arbiter::new(), Clock::start());
            let scheduler = Scheduler::<Counting>::start(&arbiter.handle(), clock);
            let [woken, due] = [(); 2].map(|()| counting(&scheduler));
            Schedule::wake(&woken);
            Schedule::wake_at(&due, clock.at().plus(Millis(30)));
            while [&woken, &due].iter().any(|one| one.runs.load(Ordering::Relaxed) == 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(scheduler);
            Schedule::wake(&woken);
            arbiter.stop();
            arbiter.join().expect("the arbiter's thread ends");
            assert_eq!((woken.runs.load(Ordering::Relaxed), due.runs.load(Ordering::Relaxed)), (1, 1));
        });
    }
}
