//! Live figures for the progress bar. A request costs its thread one store to memory that no other thread writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Figures are averages over at least this span, and are updated as often.
const SPAN: Duration = Duration::from_millis(500);

/// The counters of one thread, which alone writes them.
#[derive(Default)]
pub(crate) struct Beat {
    answered: AtomicU64,
    failed: AtomicU64,
    /// Clients with a lease.
    leased: AtomicU64,
}

impl Beat {
    pub(crate) fn answered(&self, leased: u32) {
        add_one(&self.answered);
        self.leased.store(leased.into(), Relaxed);
    }

    pub(crate) fn failed(&self) {
        add_one(&self.failed);
    }
}

/// Cheaper than `fetch_add`, which is for several writers.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// Sums the counters of all threads.
pub(crate) struct Live {
    beats: Vec<Arc<Beat>>,
    since: Instant,
    before: (u64, u64),
    text: String,
}

impl Live {
    pub(crate) fn new(beats: Vec<Arc<Beat>>) -> Live {
        Live { beats, since: Instant::now(), before: (0, 0), text: "connecting".into() }
    }

    fn sum(&self, of: fn(&Beat) -> &AtomicU64) -> u64 {
        self.beats.iter().map(|beat| of(beat).load(Relaxed)).sum()
    }

    /// Requests per second, and failed requests.
    pub(crate) fn text(&mut self) -> &str {
        let span = self.since.elapsed();
        if span >= SPAN {
            let now = (self.sum(|beat| &beat.answered), self.sum(|beat| &beat.failed));
            let (answered, failed) = (now.0 - self.before.0, now.1 - self.before.1);
            self.text = format!("{:.0} requests/s", (answered + failed) as f64 / span.as_secs_f64());
            if failed > 0 {
                self.text.push_str(&format!(", {failed} failed"));
            }
            (self.since, self.before) = (Instant::now(), now);
        }
        &self.text
    }

    /// Clients with a lease.
    pub(crate) fn leased(&self) -> u64 {
        self.sum(|beat| &beat.leased)
    }
}
