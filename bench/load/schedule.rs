//! The schedule of an open loop: when requests are due, whether or not earlier ones were answered.
//!
//! A slow answer delays no other request, and a request that had to wait counts from when it was due. A closed loop
//! would send fewer requests to a slow server, and leave out just those that would have waited (coordinated omission).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, watch};

use crate::common::error::Error;

/// How soon the thread notices the end of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The schedule of one generator thread: a request every `interval` from `start` on.
pub(crate) struct Schedule {
    start: Instant,
    interval: f64,
    /// One permit for each request that is due and has not begun.
    due: Semaphore,
    /// Written by the generator thread only.
    begun: AtomicU64,
}

impl Schedule {
    /// The share of thread `part` of `parts` in `rate` requests per second. Threads take turns.
    pub(crate) fn part(start: Instant, rate: f64, part: u32, parts: u32) -> Schedule {
        let interval = f64::from(parts) / rate;
        let start = start + Duration::from_secs_f64(f64::from(part) / rate);
        Schedule { start, interval, due: Semaphore::new(0), begun: AtomicU64::new(0) }
    }

    /// Waits until a request is due that no other lane has begun. Returns when it was due.
    pub(crate) async fn next(&self) -> Instant {
        self.due.acquire().await.expect("it is never closed").forget();
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun + 1, Ordering::Relaxed);
        self.moment(begun)
    }

    /// Returns the request that was begun last, because it could not be sent. Has to be called before another one
    /// begins.
    pub(crate) fn give_back(&self) {
        self.begun.store(self.begun() - 1, Ordering::Relaxed);
        self.due.add_permits(1);
    }

    fn moment(&self, nth: u64) -> Instant {
        self.start + Duration::from_secs_f64(nth as f64 * self.interval)
    }

    /// The number of requests that were due by then.
    pub(crate) fn due_by(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.start) {
            Some(since) => (since.as_secs_f64() / self.interval) as u64 + 1,
            None => 0,
        }
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// How long the next request has been due.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moment(self.begun()))
    }

    /// Starts a thread that releases requests when they are due. It sleeps more precisely than tokio's timers, whose
    /// milliseconds would be most of the latency. It ends soon after the sender of `over` is dropped.
    pub(crate) fn keep(self: Arc<Self>, over: watch::Receiver<()>) -> Result<(), Error> {
        let keep = move || {
            let mut released = 0;
            while over.has_changed().is_ok() {
                let due = self.due_by(Instant::now());
                self.due.add_permits(usize::try_from(due - released).unwrap_or(Semaphore::MAX_PERMITS));
                released = due;
                let wait = self.moment(due).saturating_duration_since(Instant::now());
                thread::sleep(wait.min(POLL_INTERVAL));
            }
        };
        thread::Builder::new().name("schedule".into()).spawn(keep).map_err(Error::io("start a thread"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_schedule_and_take_turns() {
        let start = Instant::now();
        let parts: Vec<_> = (0..4).map(|part| Schedule::part(start, 1000.0, part, 4)).collect();
        let mut moments: Vec<_> = parts.iter().flat_map(|part| (0..25).map(|nth| part.moment(nth))).collect();
        moments.sort_unstable();
        for (nth, moment) in moments.into_iter().enumerate() {
            let off = (moment - start).as_secs_f64() - nth as f64 / 1000.0;
            assert!(off.abs() < 1e-6, "request {nth} is off by {off} s");
        }
        let due: u64 = parts.iter().map(|part| part.due_by(start + Duration::from_micros(99_500))).sum();
        assert_eq!(due, 100);
        assert_eq!(parts[1].due_by(start), 0, "its first is not due at once");
    }

    #[tokio::test]
    async fn a_request_begins_late_rather_than_never_and_knows_when_it_was_due() {
        let start = Instant::now();
        let schedule = Schedule::part(start, 10.0, 0, 1);
        schedule.due.add_permits(3);
        for nth in 0..3u32 {
            assert_eq!(schedule.next().await, start + Duration::from_millis(100) * nth);
        }
        assert_eq!(schedule.begun(), 3);
        assert_eq!(schedule.overdue(start + Duration::from_millis(300)), Duration::ZERO);
        assert_eq!(schedule.overdue(start + Duration::from_millis(350)), Duration::from_millis(50));
        schedule.give_back();
        assert_eq!((schedule.begun(), schedule.next().await), (2, start + Duration::from_millis(200)));
        let more = tokio::time::timeout(Duration::from_millis(10), schedule.next());
        assert!(more.await.is_err(), "the fourth is not due");
    }
}
