//! How a run is going, for whoever watches it. No part of the result: latencies are rounded, so that a request costs
//! its generator thread no more than one store to memory that no other thread writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Latencies in microseconds fall into four buckets for each doubling; the last one begins beyond a minute.
const BUCKETS: usize = 4 * 27;

/// What is shown is of the last span of at least this long, and changes that often.
const SPAN: Duration = Duration::from_millis(500);

/// What one generator thread has done since its start. Only that thread writes it.
pub(crate) struct Beat {
    answered: [AtomicU64; BUCKETS],
    failed: AtomicU64,
    /// How many of its clients have a lease by now.
    leased: AtomicU64,
}

impl Default for Beat {
    fn default() -> Beat {
        Beat { answered: std::array::from_fn(|_| AtomicU64::new(0)), failed: AtomicU64::new(0), leased: 0.into() }
    }
}

impl Beat {
    pub(crate) fn answered(&self, latency: Duration, leased: u32) {
        add_one(&self.answered[bucket(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX))]);
        self.leased.store(leased.into(), Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        add_one(&self.failed);
    }

    pub(crate) fn leased(&self) -> u64 {
        self.leased.load(Ordering::Relaxed)
    }
}

/// Cheaper than `fetch_add`, which is for counters that several threads write.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let doublings = us.ilog2();
    let quarter = if doublings >= 2 { us >> (doublings - 2) } else { us << (2 - doublings) } & 3;
    (doublings as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The middle of a bucket, in milliseconds.
fn middle_ms(bucket: usize) -> f64 {
    let (doublings, quarter) = (bucket / 4, bucket % 4);
    (4.5 + quarter as f64) / 4.0 * 2f64.powi(i32::try_from(doublings).expect("there are 27")) / 1e3
}

/// What all threads have done until some moment.
#[derive(Clone)]
struct Count {
    at: Instant,
    answered: [u64; BUCKETS],
    failed: u64,
}

impl Count {
    fn of(beats: &[Arc<Beat>]) -> Count {
        let mut count = Count { at: Instant::now(), answered: [0; BUCKETS], failed: 0 };
        for beat in beats {
            for (sum, bucket) in count.answered.iter_mut().zip(&beat.answered) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            count.failed += beat.failed.load(Ordering::Relaxed);
        }
        count
    }

    fn text(&self, before: &Count) -> String {
        let answered: Vec<u64> = self.answered.iter().zip(&before.answered).map(|(now, then)| now - then).collect();
        let (sum, failed) = (answered.iter().sum::<u64>(), self.failed - before.failed);
        let rate = (sum + failed) as f64 / (self.at - before.at).as_secs_f64().max(0.001);
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        if sum == 0 {
            return format!("{rate:.0} requests/s{failed}");
        }
        let at = |part: f64| {
            let rank = (sum as f64 * part).ceil() as u64;
            let mut seen = 0;
            let place = answered.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            middle_ms(place.unwrap_or(BUCKETS - 1))
        };
        format!("{rate:.0} requests/s, p50 {:.2} ms, p99 {:.2} ms{failed}", at(0.5), at(0.99))
    }
}

/// Looks at the threads now and then, and says what has become of them since the last time.
pub(crate) struct Live {
    beats: Vec<Arc<Beat>>,
    before: Count,
    text: String,
}

impl Live {
    pub(crate) fn new(beats: Vec<Arc<Beat>>) -> Live {
        Live { before: Count::of(&beats), beats, text: "connecting".into() }
    }

    /// Rate and latency.
    pub(crate) fn text(&mut self) -> &str {
        if self.before.at.elapsed() >= SPAN {
            let now = Count::of(&self.beats);
            self.text = now.text(&self.before);
            self.before = now;
        }
        &self.text
    }

    /// How many clients have a lease by now.
    pub(crate) fn leased(&self) -> u64 {
        self.beats.iter().map(|beat| beat.leased()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_within_an_eighth_of_what_is_in_them() {
        for us in (4..1000).chain([65_535, 65_536, 59_999_999]) {
            let shown = middle_ms(bucket(us)) * 1e3;
            assert!((shown / us as f64 - 1.0).abs() <= 0.126, "{us} is shown as {shown}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert!((1..100_000).all(|us| bucket(us) <= bucket(us + 1)));
    }

    #[test]
    fn what_is_shown_is_of_the_last_span() {
        let beat = Arc::new(Beat::default());
        for _ in 0..1000 {
            beat.answered(Duration::from_secs(1), 1);
        }
        let beats = [Arc::clone(&beat)];
        let before = Count::of(&beats);
        for _ in 0..98 {
            beat.answered(Duration::from_millis(1), 2);
        }
        beat.answered(Duration::from_millis(100), 3);
        beat.answered(Duration::from_millis(100), 3);
        beat.failed();
        let now = Count { at: before.at + Duration::from_millis(500), ..Count::of(&beats) };
        assert_eq!(now.text(&before), "202 requests/s, p50 0.96 ms, p99 106.50 ms, 1 failed");
        assert_eq!(beat.leased(), 3);
    }
}
