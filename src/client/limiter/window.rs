//! Limits for a window: so much in a minute, in a day.
//!
//! The capacity of such a resource is what the window brings per second. What is not used is saved up for as long as
//! the window is, so that all of it can be used at once; and what was wanted is remembered for as long. Otherwise a
//! caller that comes now and then would give up its part between two visits, and with it what it has saved.

use std::time::Duration;

use leaseway_core::Millis;

use crate::limiter::demand::{DemandKind, DemandSettings};

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
const INITIAL_PERIOD: Millis = Millis(5_000);

/// What brings so many permits within the window is wanted at least: the next callers find them, ...
const SPARE_PERMITS: f64 = 10.0;

/// ... but no more than this part of the limit, for others that share it cannot use it meanwhile.
const MAX_SPARE_FRACTION: f64 = 0.02;

/// So much is wanted in any case, of what may pass at all: next to nothing, but a lease. A limiter whose lease is
/// nothing has no permit for the next caller; one that has any keeps one permit.
const MIN_WANTS: f64 = 1e-3;

/// Arrivals are looked at over the window, and over no less and no more than this.
const OBSERVATION_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// How much more there may be of it: so much times what is leased.
const MAX_GROWTH: f64 = 2.0;

/// Of k arrivals about √k more would have been as likely. So much is wanted besides once something was refused although
/// what is leased would do for all that is seen; that falls to a third in so many seconds without a refusal.
const NOISE_DECAY_SECONDS: f64 = 20.0;

/// What is leased is taken to do for what is at most this many times as much.
const SUFFICIENT_FACTOR: f64 = 1.05;

/// How fast wants are forgotten does not depend on the server: a spike is sent at once at any refresh interval.
const NOMINAL_REFRESH: Duration = Duration::from_secs(5);

/// How what callers want of a limiter is estimated, with a window or without.
pub fn estimating(kind: DemandKind, window: Option<Window>) -> DemandSettings {
    let refresh = window.map_or(NOMINAL_REFRESH, |window| window.observation_span().min(NOMINAL_REFRESH));
    DemandSettings { kind, refresh, remembers: window.is_none() }
}

/// What a limiter says.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowSample {
    /// How much callers want, as far as arrivals show it.
    pub estimated: f64,
    /// What was asked for and not let through, ever.
    pub refused: u64,
    /// What it lets through.
    pub capacity: f64,
}

impl Window {
    /// Over how long a time arrivals are looked at: what was before the window is no demand any more.
    fn observation_span(self) -> Duration {
        self.length.clamp(OBSERVATION_RANGE[0], OBSERVATION_RANGE[1])
    }
}

/// Wants of a limit for a window.
#[derive(Debug)]
pub struct WindowDemand {
    window: Window,
    begun: Option<Millis>,
    /// What was wanted, as it was at `at`.
    level: f64,
    at: Millis,
    /// Since when callers have wanted more than what is spare, or were refused.
    awake: Option<Millis>,
    refused: u64,
    /// What is tried meanwhile.
    guess: f64,
    /// When it was last by chance that something was refused.
    by_chance: Option<Millis>,
}

impl WindowDemand {
    /// Nothing has been seen yet.
    pub fn new(window: Window) -> WindowDemand {
        WindowDemand {
            window,
            begun: None,
            level: 0.0,
            at: Millis(0),
            awake: None,
            refused: 0,
            guess: 0.0,
            by_chance: None,
        }
    }

    pub fn window(&self) -> Window {
        self.window
    }

    /// What to ask for now.
    pub fn wants(&mut self, now: Millis, sample: WindowSample) -> f64 {
        let Window { length, rate } = self.window;
        let begun = *self.begun.get_or_insert(now);
        let is_long = length > Duration::from_secs(1);
        let passed = now.since(self.at).0 as f64 / 1000.0;
        let remembered = self.level * (-passed / length.as_secs_f64().max(1e-3)).exp();
        let first = if now.since(begun) < INITIAL_PERIOD { rate } else { 0.0 };
        let estimated = if is_long { sample.estimated.min(rate) } else { sample.estimated };
        (self.level, self.at) = (remembered.max(estimated), self.at.max(now));
        let refuses = sample.refused > std::mem::replace(&mut self.refused, sample.refused);
        let guess = self.guess(now, refuses, sample.capacity);
        if refuses && guess == 0.0 && !is_long && sample.capacity * SUFFICIENT_FACTOR >= self.level {
            self.by_chance = Some(now);
        }
        (self.level + self.spread(now)).max(first).max(self.spare()).max(guess)
    }

    fn spread(&self, now: Millis) -> f64 {
        let Some(last) = self.by_chance else { return 0.0 };
        let span = self.window.observation_span().as_secs_f64();
        (self.level / span).sqrt() * (-(now.since(last).0 as f64) / 1000.0 / NOISE_DECAY_SECONDS).exp()
    }

    fn spare(&self) -> f64 {
        let Window { length, rate } = self.window;
        (SPARE_PERMITS / length.as_secs_f64().max(1e-3)).min(MAX_SPARE_FRACTION * rate).max(MIN_WANTS.min(rate))
    }

    /// After a pause arrivals do not show at once how many there will be, for they are looked at together with it: what
    /// is refused meanwhile doubles what is tried.
    fn guess(&mut self, now: Millis, refuses: bool, capacity: f64) -> f64 {
        let is_quiet = self.level <= self.spare();
        if is_quiet && !refuses && self.awake.is_none() {
            return 0.0;
        }
        let awake = now.since(*self.awake.get_or_insert(now));
        if u128::from(awake.0) >= self.window.observation_span().as_millis() {
            self.guess = 0.0;
            self.awake = self.awake.filter(|_| !is_quiet);
        } else if refuses {
            self.guess = self.guess.max(capacity * MAX_GROWTH).min(self.window.rate);
        }
        self.guess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Window = Window { length: Duration::from_secs(60), rate: 10.0 };

    fn wants(demand: &mut WindowDemand, now: u64, estimated: f64) -> f64 {
        demand.wants(Millis(now), WindowSample { estimated, ..WindowSample::default() })
    }

    #[test]
    fn at_first_all_of_the_limit_is_wanted_and_then_what_callers_want() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), ..MINUTE });
        assert_eq!(wants(&mut demand, 100, 1.0), 10.0);
        assert_eq!(wants(&mut demand, 5_000, 1.0), 10.0);
        assert_eq!(wants(&mut demand, 5_100, 1.0), 1.0);
        assert_eq!(wants(&mut demand, 5_200, 70.0), 70.0, "of a flow all that is offered");
    }

    #[test]
    fn what_was_wanted_is_remembered_for_as_long_as_the_window_is() {
        let mut demand = WindowDemand::new(MINUTE);
        assert_eq!(wants(&mut demand, 0, 70.0), 10.0, "never more than the limit");
        let later = wants(&mut demand, 60_000, 0.0);
        assert!((later - 10.0 / std::f64::consts::E).abs() < 1e-9, "{later}");
        assert_eq!(wants(&mut demand, 61_000, 8.0), 8.0, "more is wanted at once");
        assert_eq!(wants(&mut demand, 3_600_000, 0.0), 10.0 / 60.0, "ten permits");
    }

    #[test]
    fn of_what_none_asks_for_little_is_wanted_and_never_more_than_the_limit() {
        let idle = |length, rate| {
            let mut demand = WindowDemand::new(Window { length: Duration::from_secs(length), rate });
            wants(&mut demand, 0, 0.0);
            wants(&mut demand, 3_600_000, 0.0)
        };
        assert_eq!(idle(1, 1_000.0), 10.0);
        assert_eq!(idle(1, 100.0), 2.0, "of a small limit a small part");
        assert_eq!(idle(60, 1e-2), MIN_WANTS, "a lease, and with it one permit");
        assert_eq!(idle(60, 1e-6), 1e-6);
    }

    #[test]
    fn what_is_refused_after_a_pause_doubles_what_is_wanted_and_only_then() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), rate: 1_000.0 });
        let mut look = |now, refused, estimated, capacity| {
            demand.wants(Millis(now), WindowSample { estimated, refused, capacity })
        };
        look(0, 0, 0.0, 0.0);
        assert_eq!(look(60_000, 0, 0.0, 1_000.0), 10.0);
        assert_eq!(look(60_100, 1, 12.0, 10.0), 20.0);
        assert_eq!(look(60_200, 2, 14.0, 20.0), 40.0);
        assert_eq!(look(60_300, 2, 16.0, 40.0), 40.0, "none is refused any more");
        assert_eq!(look(60_400, 3, 18.0, 900.0), 1_000.0, "never more than the limit");
        assert_eq!(look(65_100, 9, 500.0, 300.0), 500.0, "by now the flow is known");
        assert_eq!(look(180_000, 9, 0.0, 500.0), 10.0, "another pause");
        assert_eq!(look(181_000, 10, 12.0, 10.0), 20.0);
    }
}
