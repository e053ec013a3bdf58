//! The slowest disk write of the last minute, including one under way.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Half of the window. The slowest writes of the current half and of the one before are kept.
const HALF_WINDOW: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default)]
pub(crate) struct FlushTimes(Arc<Mutex<Halves>>);

#[derive(Debug, Default)]
struct Halves {
    since: Option<Instant>,
    slowest: Duration,
    before: Duration,
    under_way: Option<Instant>,
}

impl Halves {
    fn advance(&mut self, now: Instant) {
        match self.since.map(|since| now.saturating_duration_since(since)) {
            Some(past) if past < HALF_WINDOW => return,
            Some(past) if past < 2 * HALF_WINDOW => self.before = self.slowest,
            _ => self.before = Duration::ZERO,
        }
        (self.since, self.slowest) = (Some(now), Duration::ZERO);
    }
}

impl FlushTimes {
    fn halves(&self) -> MutexGuard<'_, Halves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, now: Instant) {
        self.halves().under_way = Some(now);
    }

    pub(crate) fn end(&self, now: Instant) {
        let mut halves = self.halves();
        halves.advance(now);
        let took = halves.under_way.take().map(|began| now.saturating_duration_since(began));
        halves.slowest = halves.slowest.max(took.unwrap_or_default());
    }

    pub(crate) fn slowest(&self, now: Instant) -> Duration {
        let mut halves = self.halves();
        halves.advance(now);
        let under_way = halves.under_way.map(|began| now.saturating_duration_since(began));
        halves.slowest.max(halves.before).max(under_way.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_minute_is_known_while_it_lasts_and_forgotten_later() {
        let (times, start) = (FlushTimes::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let slowest = |millis| times.slowest(at(millis)).as_millis();
        times.begin(at(0));
        assert_eq!(slowest(200), 200, "it is under way");
        times.end(at(300));
        times.begin(at(400));
        times.end(at(410));
        assert_eq!((slowest(29_000), slowest(31_000), slowest(59_000)), (300, 300, 300));
        assert_eq!(slowest(92_000), 0);
    }
}
