//! The last quarter of an hour of resources, for plots: a ring of samples for each of a bounded number of resources.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use leaseway_core::ResourceReport;

use crate::actors::NodeHandle;

/// How often samples are taken.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Samples of a resource: a quarter of an hour.
pub(crate) const SAMPLES: usize = 180;

/// A resource at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: SystemTime,
    pub(crate) capacity: f64,
    pub(crate) wants: f64,
    pub(crate) granted: f64,
    pub(crate) held: f64,
}

impl Sample {
    pub(crate) fn of(report: &ResourceReport, at: SystemTime) -> Sample {
        let sums = &report.sums;
        Sample {
            at,
            capacity: report.settings.capacity.get(),
            wants: sums.wants.get(),
            granted: sums.granted.get(),
            held: sums.held.get(),
        }
    }
}

/// Samples of resources, 48 bytes each.
#[derive(Debug)]
pub(crate) struct History {
    /// Resources that have some.
    most: usize,
    rings: Mutex<HashMap<Arc<str>, VecDeque<Sample>>>,
}

impl History {
    pub(crate) fn new(most: usize) -> History {
        History { most, rings: Mutex::default() }
    }

    fn rings(&self) -> MutexGuard<'_, HashMap<Arc<str>, VecDeque<Sample>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes samples of these resources. What has had none for the whole length is forgotten; a new resource takes the
    /// place of one that has none now.
    fn take(&self, now: SystemTime, samples: Vec<(Arc<str>, Sample)>) {
        let mut rings = self.rings();
        let length = SAMPLE_EVERY * SAMPLES as u32;
        rings.retain(|_, ring| {
            ring.back().is_some_and(|last| now.duration_since(last.at).is_ok_and(|ago| ago <= length))
        });
        for (id, sample) in samples {
            if !rings.contains_key(&id) && rings.len() >= self.most {
                let gone =
                    rings.iter().find(|(_, ring)| ring.back().is_some_and(|last| last.at + SAMPLE_EVERY * 2 < now));
                let Some(gone) = gone.map(|(id, _)| Arc::clone(id)) else { continue };
                rings.remove(&gone);
            }
            let ring = rings.entry(id).or_default();
            if ring.len() == SAMPLES {
                ring.pop_front();
            }
            ring.push_back(sample);
        }
    }

    /// How many resources have samples at most.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The samples of a resource, the oldest first; none if it is not sampled.
    pub(crate) fn of(&self, id: &str) -> Vec<Sample> {
        self.rings().get(id).map(|ring| ring.iter().copied().collect()).unwrap_or_default()
    }

    /// Takes samples of the first resources by name, for as long as the server runs, while it is master.
    pub(crate) async fn keep(self: Arc<Self>, node: NodeHandle) {
        if self.most == 0 {
            return;
        }
        let mut interval = tokio::time::interval(SAMPLE_EVERY);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if node.check().is_err() {
                continue;
            }
            let (statuses, _) = node.statuses("", self.most).await;
            let now = SystemTime::now();
            let samples = statuses.into_iter().map(|status| (status.id, Sample::of(&status.report, now)));
            self.take(now, samples.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: SystemTime) -> Sample {
        Sample { at, capacity: 100.0, wants: 1.0, granted: 1.0, held: 1.0 }
    }

    fn take(history: &History, at: SystemTime, ids: &[&str]) {
        history.take(at, ids.iter().map(|id| (Arc::from(*id), sample(at))).collect());
    }

    #[test]
    fn a_ring_has_a_quarter_of_an_hour_and_no_more() {
        let (history, begin) = (History::new(2), SystemTime::UNIX_EPOCH);
        for number in 0..3 * SAMPLES as u32 {
            take(&history, begin + SAMPLE_EVERY * number, &["a"]);
        }
        let kept = history.of("a");
        assert_eq!(kept.len(), SAMPLES);
        assert_eq!(kept[0].at + SAMPLE_EVERY * (SAMPLES as u32 - 1), kept[SAMPLES - 1].at);
    }

    #[test]
    fn beyond_the_most_a_resource_takes_the_place_of_one_that_is_gone() {
        let (history, begin) = (History::new(2), SystemTime::UNIX_EPOCH);
        take(&history, begin, &["a", "b", "c"]);
        assert!(history.of("c").is_empty() && !history.of("b").is_empty());
        for number in 1..5 {
            take(&history, begin + SAMPLE_EVERY * number, &["a", "c"]);
        }
        assert!(!history.of("c").is_empty() && history.of("b").is_empty());
        assert_eq!(history.rings().len(), 2);
        take(&history, begin + Duration::from_secs(3600), &[]);
        assert_eq!(history.rings().len(), 0, "what is gone is forgotten");
    }
}
