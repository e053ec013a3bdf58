//! Limits for a window: so much in a minute, in a day.
//!
//! The capacity of such a resource is what the window brings per second. What is not used is saved up for as long as
//! the window is, so that all of it can be used at once; and what was wanted is remembered for as long. Otherwise a
//! caller that comes now and then would give up its part between two visits, and with it what it has saved.

use std::time::Duration;

use leaseway_core::Millis;

/// What is limited is what passes within a window, rather than a flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// How long it is.
    pub length: Duration,
    /// The limit, per second. So much is wanted at first, until it is known how much callers want; and where the window
    /// is longer than a second never more.
    pub rate: f64,
}

/// For so long the whole limit is wanted at first.
const FIRST: Millis = Millis(5_000);

/// So much is wanted at least, of what may pass at all: next to nothing, but a lease. A limiter whose lease is nothing
/// has no permit for the next caller; one that has any keeps one permit.
const LEAST: f64 = 1e-3;

/// Wants of a limit for a window.
#[derive(Debug)]
pub(crate) struct WindowDemand {
    window: Window,
    begun: Option<Millis>,
    /// What was wanted, as it was at `at`.
    level: f64,
    at: Millis,
}

impl WindowDemand {
    pub(crate) fn new(window: Window) -> WindowDemand {
        WindowDemand { window, begun: None, level: 0.0, at: Millis(0) }
    }

    /// What to ask for, where callers want so much now.
    pub(crate) fn wants(&mut self, now: Millis, estimated: f64) -> f64 {
        let Window { length, rate } = self.window;
        let begun = *self.begun.get_or_insert(now);
        let is_long = length > Duration::from_secs(1);
        let passed = now.since(self.at).0 as f64 / 1000.0;
        let remembered = self.level * (-passed / length.as_secs_f64().max(1e-3)).exp();
        let first = if now.since(begun) < FIRST { rate } else { 0.0 };
        let estimated = if is_long { estimated.min(rate) } else { estimated };
        (self.level, self.at) = (remembered.max(estimated), self.at.max(now));
        self.level.max(first).max(LEAST.min(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Window = Window { length: Duration::from_secs(60), rate: 10.0 };

    #[test]
    fn at_first_all_of_the_limit_is_wanted_and_then_what_callers_want() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), ..MINUTE });
        assert_eq!(demand.wants(Millis(100), 1.0), 10.0);
        assert_eq!(demand.wants(Millis(5_000), 1.0), 10.0);
        assert_eq!(demand.wants(Millis(5_100), 1.0), 1.0);
        assert_eq!(demand.wants(Millis(5_200), 70.0), 70.0, "of a flow all that is offered");
    }

    #[test]
    fn what_was_wanted_is_remembered_for_as_long_as_the_window_is() {
        let mut demand = WindowDemand::new(MINUTE);
        assert_eq!(demand.wants(Millis(0), 70.0), 10.0, "never more than the limit");
        let later = demand.wants(Millis(60_000), 0.0);
        assert!((later - 10.0 / std::f64::consts::E).abs() < 1e-9, "{later}");
        assert_eq!(demand.wants(Millis(61_000), 8.0), 8.0, "more is wanted at once");
        assert_eq!(demand.wants(Millis(3_600_000), 0.0), LEAST, "so that the next caller finds a permit");
        let mut tiny = WindowDemand::new(Window { rate: 1e-6, ..MINUTE });
        assert_eq!(tiny.wants(Millis(0), 0.0), 1e-6, "never more than the limit");
    }
}
