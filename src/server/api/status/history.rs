//! The history of resources for plots: a ring of samples for each of a bounded number of resources.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::time::{sleep, sleep_until};

use crate::{
    api::status::survey::{SAMPLE_EVERY, Sample, Surveyor},
    node::NodeHandle,
};

/// Samples per resource: 15 minutes.
pub(crate) const SAMPLES: usize = 180;

/// Rings of samples, by resource. A sample takes 48 bytes.
#[derive(Debug)]
pub(crate) struct History {
    /// Maximum number of resources with samples.
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

    /// Adds samples. Removes resources whose last sample is older than a ring covers, and beyond the maximum number
    /// those whose last sample is the oldest.
    fn take(&self, now: SystemTime, samples: &[(Arc<str>, Sample)]) {
        let mut rings = self.rings();
        let length = SAMPLE_EVERY * SAMPLES as u32;
        let last = |ring: &VecDeque<Sample>| ring.back().map_or(SystemTime::UNIX_EPOCH, |last| last.at);
        rings.retain(|_, ring| now.duration_since(last(ring)).is_ok_and(|ago| ago <= length));
        for (id, sample) in samples {
            let ring = rings.entry(Arc::clone(id)).or_default();
            if ring.len() == SAMPLES {
                ring.pop_front();
            }
            ring.push_back(*sample);
        }
        let excess = rings.len().saturating_sub(self.most);
        if excess > 0 {
            let mut by_age: Vec<_> = rings.iter().map(|(id, ring)| (last(ring), Arc::clone(id))).collect();
            by_age.sort_unstable();
            by_age.iter().take(excess).for_each(|(_, id)| drop(rings.remove(id)));
        }
    }

    /// Maximum number of resources with samples.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The samples of a resource, the oldest first; empty if it has none.
    pub(crate) fn of(&self, id: &str) -> Vec<Sample> {
        self.rings().get(id).map(|ring| ring.iter().copied().collect()).unwrap_or_default()
    }

    /// Samples the resources under the most pressure while this server is the master. Never returns.
    pub(crate) async fn keep(self: Arc<Self>, node: NodeHandle, surveyor: Arc<Surveyor>) {
        if self.most == 0 {
            return;
        }
        loop {
            if node.check().is_err() {
                sleep(SAMPLE_EVERY).await;
                continue;
            }
            let survey = surveyor.survey(&node).await;
            self.take(SystemTime::now(), &survey.history.samples);
            sleep_until(survey.next().into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(at: SystemTime) -> Sample {
        Sample { at, capacity: 100.0, wants: 1.0, granted: 1.0, held: 1.0 }
    }

    fn take(history: &History, at: SystemTime, ids: &[&str]) {
        let samples: Vec<_> = ids.iter().map(|id| (Arc::from(*id), sample(at))).collect();
        history.take(at, &samples);
    }

    #[test]
    fn a_ring_covers_15_minutes() {
        let (history, begin) = (History::new(2), SystemTime::UNIX_EPOCH);
        for number in 0..3 * SAMPLES as u32 {
            take(&history, begin + SAMPLE_EVERY * number, &["a"]);
        }
        let kept = history.of("a");
        assert_eq!(kept.len(), SAMPLES);
        assert_eq!(kept[0].at + SAMPLE_EVERY * (SAMPLES as u32 - 1), kept[SAMPLES - 1].at);
    }

    #[test]
    fn beyond_the_limit_the_resource_with_the_oldest_sample_is_replaced() {
        let (history, begin) = (History::new(3), SystemTime::UNIX_EPOCH);
        for (number, ids) in [&["a", "b", "c"][..], &["b", "c"], &["c", "d", "e"]].into_iter().enumerate() {
            take(&history, begin + SAMPLE_EVERY * number as u32, ids);
        }
        assert_eq!(["a", "b", "c", "d", "e"].map(|id| history.of(id).len()), [0, 0, 3, 1, 1]);
        take(&history, begin + Duration::from_secs(3600), &[]);
        assert_eq!(history.rings().len(), 0, "old resources are forgotten");
    }
}
