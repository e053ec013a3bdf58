//! Rate limits for the log.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Minimum interval between lines of a throttle.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Whether a count has reached a power of two since `before`, so that a million events produce twenty lines.
pub(crate) fn worth_logging(before: u64, now: u64) -> bool {
    now.checked_ilog2() != before.checked_ilog2()
}

/// Limits lines that unauthenticated clients can cause to one per second.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<Throttled>);

#[derive(Debug)]
struct Throttled {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    pub(crate) const fn new() -> Throttle {
        Throttle(Mutex::new(Throttled { last: None, suppressed: 0 }))
    }

    /// `Some` if a line may be logged now, with the number of lines suppressed since the last one.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turn_at(Instant::now())
    }

    fn turn_at(&self, now: Instant) -> Option<u64> {
        let mut throttled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if throttled.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            throttled.suppressed += 1;
            return None;
        }
        throttled.last = Some(now);
        Some(std::mem::take(&mut throttled.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_events_are_logged_rarely() {
        let logged: Vec<u64> = (1..=1000).filter(|now| worth_logging(now - 1, *now)).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(!worth_logging(5, 5));
    }

    #[test]
    fn a_throttle_allows_one_line_per_second_and_counts_the_others() {
        let (throttle, begin) = (Throttle::new(), Instant::now());
        let turns = [0, 1, 999, 1_000, 1_500, 2_000].map(|ms| throttle.turn_at(begin + Duration::from_millis(ms)));
        assert_eq!(turns, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
