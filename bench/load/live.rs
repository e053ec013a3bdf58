//! How a run is going, for the progress bar. No part of the result: a request costs its generator thread no more than
//! a store to memory that no other thread writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What is shown is of the last span of at least this long, and changes that often.
const SPAN: Duration = Duration::from_millis(500);

/// What one generator thread has done since its start. Only that thread writes it.
#[derive(Default)]
pub(crate) struct Beat {
    answered: AtomicU64,
    failed: AtomicU64,
    /// How many of its clients have a lease by now.
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

/// Cheaper than `fetch_add`, which is for counters that several threads write.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// Looks at the threads now and then, and says what has become of them since the last time.
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

    /// How many requests a second end, and how many have failed.
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

    /// How many clients have a lease by now.
    pub(crate) fn leased(&self) -> u64 {
        self.sum(|beat| &beat.leased)
    }
}
