//! Copies of the history on peers that are not master.
//!
//! Samples are not in the Raft log: they would make it grow with time, be written to every disk, and delay promises,
//! and losing some of them costs nothing but a gap in a plot. Nor does the master push them, because it would have to
//! know what each peer lacks. So a follower *asks* the master for what is newer than its copy, every 15 seconds, over
//! the authenticated connections that peers have anyway (`Method::History` of `leaseway_raft`). A peer that starts asks
//! for all of it, in pages. The new master continues with its copy. What the old one sampled after the last copy, about
//! 15 seconds, is missing on plots of 15 minutes; the bucket of that time goes on.
//!
//! Answers have at most [`PAGE_BYTES`]. In 15 seconds a resource has about 300 bytes, so 1,000 of them take about 20 KB
//! a second for each follower.

use std::{
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use leaseway_proto::peer::{HistoryPage, HistoryRequest, ResourceHistory, Slots};
use leaseway_raft::RaftHandle;
use prost::Message as _;
use tokio::time::sleep;

use super::{Bucket, Compact, Entry, History, SAMPLES, SERIES, Span, Values, forget, unix_secs};
use crate::node::NodeHandle;

/// How often a follower asks.
const INTERVAL: Duration = Duration::from_secs(15);
/// Between two pages, so that a copy of everything delays nothing else.
const PAGE_INTERVAL: Duration = Duration::from_millis(50);
/// Approximate maximum size of a page. One resource has about 13 KB.
const PAGE_BYTES: usize = 128 << 10;
/// Maximum difference of the clocks of two masters, in seconds. What is newer is copied again.
const MARGIN_SECS: u64 = 15;
/// The largest number of values for a slot: the minimum, mean and maximum of each series.
const VALUES: usize = 3 * SERIES;

/// Answers the requests of other peers.
pub(super) fn answer(history: &Arc<History>, raft: &RaftHandle) {
    let history = Arc::clone(history);
    raft.answer_history(move |request| {
        let request = HistoryRequest::decode(request).unwrap_or_default();
        history.page(&request, unix_secs(SystemTime::now())).encode_to_vec()
    });
}

/// How far a follower has copied.
#[derive(Debug, Default)]
pub(super) struct Follower {
    asked: Option<Instant>,
    /// Everything that ended before has been copied, in Unix seconds.
    since: u64,
}

impl Follower {
    /// Copies what is new, if it is time.
    pub(super) async fn copy(&mut self, history: &History, raft: &RaftHandle, node: &NodeHandle) {
        if self.asked.is_some_and(|asked| asked.elapsed() < INTERVAL) {
            return;
        }
        let mut request = HistoryRequest { since_unix: self.since, after: String::new() };
        let mut began = None;
        // A peer that has become master has newer samples of its own.
        while node.check().is_err() {
            let Some(page) = ask(raft, &request).await else { return };
            self.asked = Some(Instant::now());
            history.fill(&page, unix_secs(SystemTime::now()));
            let began = *began.get_or_insert(page.now_unix);
            let last = page.resource.last().map(|last| last.resource.clone());
            let Some(last) = last.filter(|last| page.more && *last > request.after) else {
                self.since = began.saturating_sub(MARGIN_SECS);
                return;
            };
            request.after = last;
            sleep(PAGE_INTERVAL).await;
        }
    }
}

/// A page of the master's history. None if it cannot be reached, or if none is known.
async fn ask(raft: &RaftHandle, request: &HistoryRequest) -> Option<HistoryPage> {
    let answer = raft.ask_history(request.encode_to_vec()).await?;
    HistoryPage::decode(&*answer).ok()
}

impl History {
    /// The slots that ended after `since_unix`, for resources after the given one.
    fn page(&self, request: &HistoryRequest, now_unix: u64) -> HistoryPage {
        let entries = self.entries();
        let after: Bound<&str> =
            if request.after.is_empty() { Bound::Unbounded } else { Bound::Excluded(request.after.as_str()) };
        let (mut page, mut bytes) = (HistoryPage { now_unix, ..HistoryPage::default() }, 0);
        for (id, entry) in entries.range::<str, _>((after, Bound::Unbounded)) {
            if bytes > PAGE_BYTES {
                page.more = true;
                break;
            }
            let resource = resource_history(id, entry, request.since_unix);
            bytes += resource.encoded_len();
            page.resource.push(resource);
        }
        page
    }

    /// Adds a page of another peer. Values that this program would not have sent are left out.
    fn fill(&self, page: &HistoryPage, now_unix: u64) {
        let mut entries = self.entries();
        for resource in page.resource.iter().filter(|resource| resource.span.iter().any(|span| !span.slot.is_empty())) {
            if !entries.contains_key(resource.resource.as_str()) {
                entries.insert(Arc::from(resource.resource.as_str()), Entry::default());
            }
            let entry = entries.get_mut(resource.resource.as_str()).expect("it was added");
            entry.last = entry.last.max(resource.last_unix.min(now_unix));
            resource.span.iter().for_each(|span| entry.fill(span));
        }
        forget(&mut entries, self.most, now_unix);
    }
}

fn resource_history(id: &str, entry: &Entry, since: u64) -> ResourceHistory {
    let first = |span: Span| since / span.slot_secs();
    let floats = |of: [Compact; SERIES]| of.map(Compact::get);
    let bucket = |(slot, bucket): (u64, Bucket)| (slot, [bucket.min, bucket.mean, bucket.max].map(floats).concat());
    let sample = |(slot, values): (u64, Values)| (slot, values.0.to_vec());
    let span = |span: Span| match span {
        Span::Minutes15 => slots(span, entry.samples.from(first(span)).map(sample)),
        Span::Hours6 => slots(span, entry.short.ring.from(first(span)).map(bucket)),
        Span::Days7 => slots(span, entry.long.ring.from(first(span)).map(bucket)),
    };
    ResourceHistory { resource: id.to_owned(), last_unix: entry.last, span: Span::ALL.map(span).into() }
}

fn slots(span: Span, all: impl Iterator<Item = (u64, Vec<f32>)>) -> Slots {
    let (slot, values): (Vec<u64>, Vec<Vec<f32>>) = all.unzip();
    Slots { slot_secs: span.slot_secs() as u32, slot, value: values.concat() }
}

impl Entry {
    fn fill(&mut self, slots: &Slots) {
        let Some(span) = Span::ALL.into_iter().find(|span| span.slot_secs() == u64::from(slots.slot_secs)) else {
            return;
        };
        let width = if span == Span::Minutes15 { SERIES } else { VALUES };
        let is_good = |values: &[f32]| values.iter().all(|value| value.is_finite() && *value >= 0.0);
        let all = slots.slot.iter().zip(slots.value.chunks_exact(width));
        let all = all.filter(|(slot, values)| **slot <= u64::from(u32::MAX) && is_good(values));
        // The largest ring has this many slots.
        for (slot, values) in all.take(SAMPLES) {
            let part = |number: usize| std::array::from_fn(|series| values[number * SERIES + series]);
            let compact = |number: usize| part(number).map(Compact::of);
            match span {
                Span::Minutes15 => self.samples.fill(*slot, Values(part(0))),
                Span::Hours6 => self.short.fill(*slot, Bucket { min: compact(0), mean: compact(1), max: compact(2) }),
                Span::Days7 => self.long.fill(*slot, Bucket { min: compact(0), mean: compact(1), max: compact(2) }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::status::survey::{SAMPLE_EVERY, Sample};

    proptest! {
        #[test]
        fn any_page_is_harmless(
            slot_secs in prop::sample::select(vec![0_u32, 5, 300, 7_200]),
            slot in prop::collection::vec(prop_oneof![any::<u64>(), 0..2_000_000_000_u64], 0..300),
            value in prop::collection::vec(any::<f32>(), 0..1_000),
            last_unix: u64,
        ) {
            let follower = History::new(1);
            let span = vec![Slots { slot_secs, slot, value }];
            let resource = vec![ResourceHistory { resource: "r".into(), last_unix, span }];
            follower.fill(&HistoryPage { now_unix: last_unix, resource, more: true }, 1_800_000_000);
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
            let points = Span::ALL.map(|span| follower.of("r", span, now)).concat();
            prop_assert!(points.iter().all(|point| point.mean.0.iter().all(|value| value.is_finite() && *value >= 0.0)));
            let sample = Sample { at: now, capacity: 1.0, wants: 1.0, granted: 1.0, held: 1.0 };
            follower.take(now, &[("r".into(), sample)]);
            prop_assert_eq!(follower.of("r", Span::Minutes15, now).len(), 1);
        }
    }

    fn filled(resources: usize, samples: u32) -> (History, SystemTime) {
        let (history, begin) = (History::new(resources), SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let at = |number: u32| begin + SAMPLE_EVERY * number;
        for number in 0..samples {
            let sample = Sample { at: at(number), capacity: 100.0, wants: f64::from(number), granted: 33.3, held: 1.0 };
            let all: Vec<_> = (0..resources).map(|resource| (Arc::from(format!("r{resource:04}")), sample)).collect();
            history.take(at(number), &all);
        }
        (history, at(samples - 1))
    }

    fn copy(from: &History, to: &History, since_unix: u64, now: SystemTime) -> usize {
        let mut request = HistoryRequest { since_unix, after: String::new() };
        for pages in 1.. {
            let page = from.page(&request, unix_secs(now));
            assert!(page.encoded_len() < PAGE_BYTES + 20_000, "a page is bounded: {}", page.encoded_len());
            let bytes = page.encode_to_vec();
            let page = HistoryPage::decode(&*bytes).expect("it is a page");
            to.fill(&page, unix_secs(now));
            if !page.more {
                return pages;
            }
            request.after = page.resource.last().expect("a resource").resource.clone();
        }
        unreachable!("there are pages until there is no more")
    }

    #[test]
    fn a_copy_of_everything_comes_in_pages_and_is_the_same() {
        let (master, now) = filled(100, 300);
        let follower = History::new(100);
        assert!(copy(&master, &follower, 0, now) > 1);
        for span in Span::ALL {
            for id in ["r0000", "r0099"] {
                assert_eq!(master.of(id, span, now), follower.of(id, span, now), "{span:?}");
            }
        }
    }

    #[test]
    fn later_copies_have_only_what_is_new() {
        let (master, now) = filled(1, 300);
        let follower = History::new(1);
        copy(&master, &follower, 0, now);
        let request = HistoryRequest { since_unix: unix_secs(now) - 15, after: String::new() };
        let page = master.page(&request, unix_secs(now));
        assert_eq!(page.resource[0].span.iter().map(|span| span.slot.len()).collect::<Vec<_>>(), [4, 1, 1]);
        assert!(page.encoded_len() < 300, "{}", page.encoded_len());
    }

    #[test]
    fn pages_with_nonsense_are_harmless() {
        let follower = History::new(2);
        let bad = |slot_secs: u32, slot: Vec<u64>, value: Vec<f32>| ResourceHistory {
            resource: "r".into(),
            last_unix: u64::MAX,
            span: vec![Slots { slot_secs, slot, value }],
        };
        let resource = vec![
            bad(5, vec![1, 2], vec![f32::NAN; 8]),
            bad(5, vec![u64::MAX / 2], vec![1.0; 4]),
            bad(300, vec![1, 2, 3], vec![1.0; 13]),
            bad(7, vec![1], vec![1.0]),
        ];
        follower.fill(&HistoryPage { resource, now_unix: u64::MAX, more: true }, 1_800_000_000);
        assert!(follower.entries().len() <= 2);
        assert_eq!(follower.of("r", Span::Minutes15, SystemTime::now()).len(), 0);
    }

    #[test]
    fn a_follower_keeps_no_more_resources_than_its_own_limit() {
        let (master, now) = filled(10, 3);
        let follower = History::new(4);
        copy(&master, &follower, 0, now);
        assert_eq!(follower.entries().len(), 4);
    }
}
