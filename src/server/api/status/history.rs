//! The history of resources for plots: 15 minutes of samples, 6 hours and 7 days of buckets, for each of a bounded
//! number of resources. Only the master takes samples; the other peers copy them ([`copy`]), so that plots survive a
//! change of master. Nothing is stored on disk.
//!
//! # Memory
//!
//! | span | slots | bytes a slot | bytes a resource |
//! |---|---|---|---|
//! | 15 minutes | 180 of 5 s | 16: 4 series of an `f32` | 2,880 |
//! | 6 hours | 72 of 5 min | 24: minimum, mean and maximum of 4 series in 2 bytes each | 1,728 |
//! | 7 days | 84 of 2 h | 24 | 2,016 |
//!
//! That is 6.6 KB for a resource, and with its entry and id less than 7 KB: 7 MB for 1,000 resources.

mod bucket;
mod copy;
mod ring;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_raft::RaftHandle;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, sleep_until};

pub(crate) use self::bucket::SERIES;
use self::{
    bucket::{Bucket, Buckets, Compact, Values},
    copy::Follower,
    ring::Ring,
};
use crate::{
    api::status::survey::{SAMPLE_EVERY, Sample, Surveyor},
    node::NodeHandle,
};

/// Slots of 5 s, 5 min and 2 h.
const SAMPLES: usize = 180;
const SHORT_BUCKETS: usize = 72;
const LONG_BUCKETS: usize = 84;

/// The length of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
pub(crate) enum Span {
    #[default]
    #[serde(rename = "15m")]
    Minutes15,
    #[serde(rename = "6h")]
    Hours6,
    #[serde(rename = "7d")]
    Days7,
}

impl Span {
    pub(crate) const ALL: [Span; 3] = [Span::Minutes15, Span::Hours6, Span::Days7];

    /// The value of the query parameter.
    pub(crate) fn name(self) -> &'static str {
        ["15m", "6h", "7d"][self as usize]
    }

    pub(crate) fn in_words(self) -> &'static str {
        ["15 minutes", "6 hours", "7 days"][self as usize]
    }

    pub(crate) fn slot_in_words(self) -> &'static str {
        ["5 seconds", "5 minutes", "2 hours"][self as usize]
    }

    /// The length of a slot.
    pub(crate) fn slot(self) -> Duration {
        Duration::from_secs(self.slot_secs())
    }

    fn slot_secs(self) -> u64 {
        [SAMPLE_EVERY.as_secs(), 300, 7_200][self as usize]
    }

    fn slots(self) -> usize {
        [SAMPLES, SHORT_BUCKETS, LONG_BUCKETS][self as usize]
    }

    pub(crate) fn length(self) -> Duration {
        self.slot() * self.slots() as u32
    }
}

/// Capacity, wants, granted and held.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Series(pub(crate) [f64; SERIES]);

/// The values of a slot. In 15 minutes the three are the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// The beginning of the slot.
    pub(crate) at: SystemTime,
    pub(crate) min: Series,
    pub(crate) mean: Series,
    pub(crate) max: Series,
}

/// The history of a resource.
#[derive(Debug, Default)]
struct Entry {
    /// The last sample or copy of one, in Unix seconds.
    last: u64,
    samples: Ring<Values, SAMPLES>,
    short: Buckets<SHORT_BUCKETS>,
    long: Buckets<LONG_BUCKETS>,
}

impl Entry {
    fn add(&mut self, unix: u64, values: Values) {
        self.last = unix;
        // How many samples a slot has had by now, if none is missing.
        let earlier = |span: Span| (unix % span.slot_secs() / Span::Minutes15.slot_secs()) as u32;
        let slot = |span: Span| unix / span.slot_secs();
        self.samples.put(slot(Span::Minutes15), values);
        self.short.add(slot(Span::Hours6), values, earlier(Span::Hours6));
        self.long.add(slot(Span::Days7), values, earlier(Span::Days7));
    }

    fn points(&self, span: Span, from: u64) -> Vec<Point> {
        let point = |(slot, bucket): (u64, Bucket)| {
            let [min, mean, max] =
                [bucket.min, bucket.mean, bucket.max].map(|of| Series(of.map(|value: Compact| f64::from(value.get()))));
            Point { at: begin(span, slot), min, mean, max }
        };
        let sample = |(slot, values): (u64, Values)| {
            let series = values.series();
            Point { at: begin(span, slot), min: series, mean: series, max: series }
        };
        match span {
            Span::Minutes15 => self.samples.from(from).map(sample).collect(),
            Span::Hours6 => self.short.ring.from(from).map(point).collect(),
            Span::Days7 => self.long.ring.from(from).map(point).collect(),
        }
    }
}

fn begin(span: Span, slot: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(slot.saturating_mul(span.slot_secs()).min(u64::from(u32::MAX)))
}

fn unix_secs(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[derive(Debug)]
pub(crate) struct History {
    /// Maximum number of resources.
    most: usize,
    entries: Mutex<BTreeMap<Arc<str>, Entry>>,
}

impl History {
    pub(crate) fn new(most: usize) -> History {
        History { most, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, now: SystemTime, samples: &[(Arc<str>, Sample)]) {
        let (mut entries, unix) = (self.entries(), unix_secs(now));
        for (id, sample) in samples {
            entries.entry(Arc::clone(id)).or_default().add(unix, Values::of(sample));
        }
        forget(&mut entries, self.most, unix);
    }

    /// Maximum number of resources.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The points of a resource, the oldest first; empty if it has none.
    pub(crate) fn of(&self, id: &str, span: Span, now: SystemTime) -> Vec<Point> {
        let newest = unix_secs(now) / span.slot_secs();
        let oldest = (newest + 1).saturating_sub(span.slots() as u64);
        let mut points = self.entries().get(id).map(|entry| entry.points(span, oldest)).unwrap_or_default();
        // A clock that was wrong has left points in the future.
        points.retain(|point| point.at <= now);
        points
    }

    /// Takes samples of the resources under the most pressure while this server is the master, and otherwise copies
    /// those of the master. Never returns.
    pub(crate) async fn keep(self: Arc<Self>, node: NodeHandle, surveyor: Arc<Surveyor>, raft: Option<RaftHandle>) {
        if let Some(raft) = &raft {
            copy::answer(&self, raft);
        }
        if self.most == 0 {
            return;
        }
        let mut follower = Follower::default();
        loop {
            if node.check().is_ok() {
                let survey = surveyor.survey(&node).await;
                self.take(SystemTime::now(), &survey.history.samples);
                sleep_until(survey.next().into()).await;
                continue;
            }
            if let Some(raft) = &raft {
                follower.copy(&self, raft, &node).await;
            }
            sleep(SAMPLE_EVERY).await;
        }
    }
}

/// Drops resources without a sample in the longest span. Beyond the maximum number, drops those with the oldest sample.
fn forget(entries: &mut BTreeMap<Arc<str>, Entry>, most: usize, unix: u64) {
    let longest = Span::Days7.length().as_secs();
    entries.retain(|_, entry| entry.last + longest >= unix);
    let excess = entries.len().saturating_sub(most);
    if excess > 0 {
        let mut by_age: Vec<_> = entries.iter().map(|(id, entry)| (entry.last, Arc::clone(id))).collect();
        by_age.sort_unstable();
        by_age.iter().take(excess).for_each(|(_, id)| drop(entries.remove(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: SystemTime) -> Sample {
        Sample { at, capacity: 100.0, wants: 1.0, granted: 1.0, held: 1.0 }
    }

    fn take(history: &History, at: SystemTime, ids: &[&str]) {
        let samples: Vec<_> = ids.iter().map(|id| (Arc::from(*id), sample(at))).collect();
        history.take(at, &samples);
    }

    fn begin() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn each_span_is_covered_by_its_slots() {
        assert_eq!(Span::ALL.map(|span| span.length().as_secs()), [15 * 60, 6 * 3600, 7 * 86_400]);
        let history = History::new(2);
        for number in 0..3 * SAMPLES as u32 {
            take(&history, begin() + SAMPLE_EVERY * number, &["a"]);
        }
        let now = begin() + SAMPLE_EVERY * (3 * SAMPLES as u32 - 1);
        let kept = Span::ALL.map(|span| history.of("a", span, now).len());
        assert_eq!(kept, [SAMPLES, 9, 1], "45 minutes");
        let samples = history.of("a", Span::Minutes15, now);
        assert_eq!(samples[0].at + SAMPLE_EVERY * (SAMPLES as u32 - 1), samples[SAMPLES - 1].at);
        assert_eq!(history.of("a", Span::Hours6, now)[0].mean, Series([100.0, 1.0, 1.0, 1.0]));
    }

    #[test]
    fn a_plot_has_no_points_from_before_its_span_or_from_the_future() {
        let history = History::new(2);
        take(&history, begin(), &["a"]);
        assert_eq!(history.of("a", Span::Minutes15, begin() + Duration::from_secs(899)).len(), 1);
        assert_eq!(history.of("a", Span::Minutes15, begin() + Duration::from_secs(900)).len(), 0);
        assert_eq!(history.of("a", Span::Hours6, begin() + Duration::from_secs(900)).len(), 1);
        assert_eq!(history.of("a", Span::Hours6, begin() - Duration::from_secs(900)).len(), 0);
    }

    #[test]
    fn beyond_the_limit_the_resource_with_the_oldest_sample_is_replaced() {
        let history = History::new(3);
        for (number, ids) in [&["a", "b", "c"][..], &["b", "c"], &["c", "d", "e"]].into_iter().enumerate() {
            take(&history, begin() + SAMPLE_EVERY * number as u32, ids);
        }
        let now = begin() + SAMPLE_EVERY * 3;
        assert_eq!(["a", "b", "c", "d", "e"].map(|id| history.of(id, Span::Minutes15, now).len()), [0, 0, 3, 1, 1]);
        take(&history, begin() + Duration::from_secs(8 * 86_400), &[]);
        assert_eq!(history.entries().len(), 0, "old resources are forgotten");
    }

    /// The arithmetic of the module's documentation.
    #[test]
    fn a_resource_takes_less_than_7_kilobytes() {
        let (sample, bucket) = (size_of::<Values>(), size_of::<Bucket>());
        assert_eq!((sample, bucket), (16, 24));
        let slots = SAMPLES * sample + (SHORT_BUCKETS + LONG_BUCKETS) * bucket;
        assert_eq!(slots, 6_624);
        assert!(slots + size_of::<Entry>() + size_of::<Arc<str>>() < 7_000, "{}", size_of::<Entry>());
    }
}
