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

use super::{combiner::Incarnation, round_scratch::RoundScratch};
use crate::runtime::{clock::Clock, coop::pause, drop_guard::DropGuard};

const BUCKET_MS: u64 = 16;
/// Number of resources between two yields.
const CHUNK: usize = 64;
/// No time.
const NEVER: u64 = u64::MAX;
/// No timer. The time of this bucket comes after two years.
const NO_TIMER: u32 = u32::MAX;

#[derive(Default)]
struct Queues {
    woken: Vec<Arc<Incarnation>>,
    timers: BTreeMap<u32, Vec<Weak<Incarnation>>>,
    /// The bucket that the task waits for.
    awaited: u32,
}

/// The resources of one thread that were woken, and their timers.
pub(crate) struct Scheduler {
    queues: Mutex<Queues>,
    notify: Arc<Notify>,
    /// Ends the task.
    _end: DropGuard,
}

/// The place of one resource in a scheduler.
pub(super) struct Schedule {
    scheduler: Weak<Scheduler>,
    is_woken: AtomicBool,
    /// When the resource has something to do. Written only while the actor is locked.
    due: AtomicU64,
    /// The bucket of its current timer.
    timer: AtomicU32,
}

impl Scheduler {
    /// Starts a scheduler with its task on `arbiter`.
    pub(crate) fn start(arbiter: &ArbiterHandle, clock: Clock) -> Arc<Scheduler> {
        let notify = Arc::<Notify>::default();
        let end = {
            let notify = Arc::clone(&notify);
            DropGuard::new(move || notify.notify_one())
        };
        let queues = Queues { awaited: NO_TIMER, ..Queues::default() };
        let scheduler = Arc::new(Scheduler { queues: Mutex::new(queues), notify: Arc::clone(&notify), _end: end });
        let weak = Arc::downgrade(&scheduler);
        arbiter.spawn_fn(move || drop(actix_rt::spawn(run(weak, notify, clock))));
        scheduler
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resources to run now, and the bucket of the next timer.
    fn due(&self, now: Millis) -> (Vec<Arc<Incarnation>>, u32) {
        let mut queues = self.queues();
        let mut due = std::mem::take(&mut queues.woken);
        let current = bucket_of(now);
        while let Some(entry) = queues.timers.first_entry().filter(|entry| *entry.key() < current) {
            let (bucket, resources) = entry.remove_entry();
            for resource in resources.iter().filter_map(Weak::upgrade) {
                match resource.schedule.fire(bucket, now) {
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

async fn run(scheduler: Weak<Scheduler>, notify: Arc<Notify>, clock: Clock) {
    loop {
        let Some((due, next)) = scheduler.upgrade().map(|scheduler| scheduler.due(clock.at())) else { return };
        if due.is_empty() {
            RoundScratch::flush();
            let until = Millis((u64::from(next) + 1) * BUCKET_MS);
            let wait = Duration::from_millis(until.since(clock.at()).0.clamp(1, 1000));
            let _ = tokio::time::timeout(wait, notify.notified()).await;
            continue;
        }
        for chunk in due.chunks(CHUNK) {
            chunk.iter().for_each(Incarnation::wake);
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

impl Schedule {
    pub(super) fn new(scheduler: Weak<Scheduler>) -> Schedule {
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

    /// Notes that the resource is about to run.
    pub(super) fn begin(&self) {
        self.is_woken.store(false, Ordering::Release);
    }

    /// Wakes the resource now.
    pub(super) fn wake(resource: &Arc<Incarnation>) {
        let schedule = &resource.schedule;
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
    pub(super) fn wake_at(resource: &Arc<Incarnation>, due: Millis) {
        let schedule = &resource.schedule;
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
