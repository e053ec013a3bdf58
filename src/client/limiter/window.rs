//! Limits per window: per minute, per day.
//!
//! The capacity of such a resource is the limit divided by the window. All of it can be used at once, and wants are
//! remembered for as long as the window. Otherwise an occasional caller would give up its share between two visits.
//!
//! A window either *slides*: in any window at most the limit passes ([`SlidingWindow`](crate::limiter::SlidingWindow)).
//! Or unused capacity is saved up for its length, so that twice the limit can pass in a window.

use std::time::Duration;

use leaseway_core::types::Millis;

use crate::limiter::demand::{DemandKind, DemandSettings};

/// A limit per window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The length of the window.
    pub length: Duration,
    /// The limit in permits per second. Wants begin there, until demand is known. If the window is longer than a
    /// second, they never exceed it.
    pub rate: f64,
    /// At most the limit passes in any window, by all clients together. Otherwise unused permits are saved up for the
    /// length of the window, which starts full.
    pub slides: bool,
}

/// At first the wants are the whole limit, for this long.
const INITIAL_PERIOD: Millis = Millis(5_000);

/// Minimum wants, in permits per window, so that the next callers find permits.
const SPARE_PERMITS: f64 = 10.0;

/// Upper bound of the minimum wants, as a fraction of the limit: other clients cannot use this capacity.
const MAX_SPARE_FRACTION: f64 = 0.02;

/// Lower bound of the minimum wants. A limiter without any lease has no permit for the next caller. With savings it
/// keeps one however small its lease is; where the window slides, it wants one permit per window.
const MIN_WANTS: f64 = 1e-3;

/// Arrivals are observed over the length of the window, clamped to this range.
const OBSERVATION_RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Guessed demand after a pause, as a multiple of the leased capacity.
const MAX_GROWTH: f64 = 2.0;

/// A refusal is due to chance if the lease suffices for the observed demand. Then the wants rise by √k for a demand of
/// k. This is the time constant, in seconds, with which that addition decays.
const NOISE_DECAY_SECONDS: f64 = 20.0;

/// A lease suffices for a demand of at most this multiple.
const SUFFICIENT_FACTOR: f64 = 1.05;

/// The refresh interval assumed by estimates. It does not depend on the server, because rising wants are sent at once
/// anyway.
const NOMINAL_REFRESH: Duration = Duration::from_secs(5);

/// The settings of a demand estimate, with or without a window.
pub fn estimating(kind: DemandKind, window: Option<Window>) -> DemandSettings {
    let refresh = window.map_or(NOMINAL_REFRESH, |window| window.observation_span().min(NOMINAL_REFRESH));
    DemandSettings { kind, refresh, remembers: window.is_none() }
}

/// A reading of a limiter.
#[derive(Debug, Clone, Copy, Default)]
pub struct WindowSample {
    /// The demand estimated from arrivals.
    pub estimated: f64,
    /// Permits refused so far.
    pub refused: u64,
    /// The current capacity.
    pub capacity: f64,
    /// The permits in use, per second of a window that slides.
    pub used: f64,
}

impl Window {
    /// The period over which arrivals are observed.
    fn observation_span(self) -> Duration {
        self.length.clamp(OBSERVATION_RANGE[0], OBSERVATION_RANGE[1])
    }
}

/// The wants of a limit per window.
#[derive(Debug)]
pub struct WindowDemand {
    window: Window,
    begun: Option<Millis>,
    /// Remembered wants at the time `at`.
    level: f64,
    at: Millis,
    /// When callers first wanted more than the spare permits, or were refused, after a pause.
    awake: Option<Millis>,
    refused: u64,
    /// The guess while `awake` is set.
    guess: f64,
    /// When a refusal was last due to chance.
    by_chance: Option<Millis>,
}

impl WindowDemand {
    /// The wants before the first reading.
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

    /// The limit.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Takes a reading, and returns the wants.
    pub fn wants(&mut self, now: Millis, sample: WindowSample) -> f64 {
        let Window { length, rate, .. } = self.window;
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
        // What is in use serves no new caller.
        let next = (sample.used + self.spare()).min(rate);
        (self.level + self.spread(now)).max(first).max(next).max(guess)
    }

    fn spread(&self, now: Millis) -> f64 {
        let Some(last) = self.by_chance else { return 0.0 };
        let span = self.window.observation_span().as_secs_f64();
        (self.level / span).sqrt() * (-(now.since(last).0 as f64) / 1000.0 / NOISE_DECAY_SECONDS).exp()
    }

    fn spare(&self) -> f64 {
        let Window { length, rate, slides } = self.window;
        let per_permit = 1.0 / length.as_secs_f64().max(1e-3);
        let least = if slides { per_permit } else { MIN_WANTS };
        (SPARE_PERMITS * per_permit).min(MAX_SPARE_FRACTION * rate).max(least.min(rate))
    }

    /// After a pause the observed rate is too low for a while, because it includes the pause. Meanwhile refusals double
    /// the guess.
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

/// Counts of a constant flow differ by chance. A difference of more than this many standard deviations occurs less than
/// once in three hundred seconds.
const NOISE_DEVIATIONS: f64 = 3.0;

/// Detects that a flow of requests has fallen, from the number of arrivals so far at the last three sweeps, newest
/// first. A flow that rises shows in refusals.
#[derive(Debug, Default)]
pub struct Arrivals([u64; 3]);

impl Arrivals {
    /// Takes the number of arrivals so far. Returns whether fewer arrived in the last second than in either of the two
    /// before; the latter of those may contain a part of the fall.
    pub fn have_fallen(&mut self, arrived: u64) -> bool {
        let [last, before, oldest] = self.0;
        self.0 = [arrived, last, before];
        let latest = arrived.saturating_sub(last);
        let most = last.saturating_sub(before).max(before.saturating_sub(oldest));
        most.saturating_sub(latest) as f64 > 1.0 + NOISE_DEVIATIONS * ((most + latest) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Window = Window { length: Duration::from_secs(60), rate: 10.0, slides: false };

    fn wants(demand: &mut WindowDemand, now: u64, estimated: f64) -> f64 {
        demand.wants(Millis(now), WindowSample { estimated, ..WindowSample::default() })
    }

    #[test]
    fn wants_begin_at_the_limit_and_then_follow_demand() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), ..MINUTE });
        assert_eq!(wants(&mut demand, 100, 1.0), 10.0);
        assert_eq!(wants(&mut demand, 5_000, 1.0), 10.0);
        assert_eq!(wants(&mut demand, 5_100, 1.0), 1.0);
        assert_eq!(wants(&mut demand, 5_200, 70.0), 70.0, "all of the offered flow");
    }

    #[test]
    fn wants_are_remembered_for_the_window() {
        let mut demand = WindowDemand::new(MINUTE);
        assert_eq!(wants(&mut demand, 0, 70.0), 10.0, "never more than the limit");
        let later = wants(&mut demand, 60_000, 0.0);
        assert!((later - 10.0 / std::f64::consts::E).abs() < 1e-9, "{later}");
        assert_eq!(wants(&mut demand, 61_000, 8.0), 8.0, "a rise counts at once");
        assert_eq!(wants(&mut demand, 3_600_000, 0.0), 10.0 / 60.0, "ten permits");
    }

    #[test]
    fn an_idle_limit_wants_a_small_part() {
        let idle = |length, rate| {
            let mut demand = WindowDemand::new(Window { length: Duration::from_secs(length), rate, slides: false });
            wants(&mut demand, 0, 0.0);
            wants(&mut demand, 3_600_000, 0.0)
        };
        assert_eq!(idle(1, 1_000.0), 10.0);
        assert_eq!(idle(1, 100.0), 2.0, "a small part of a small limit");
        assert_eq!(idle(60, 1e-2), MIN_WANTS, "enough for a lease with one permit");
        assert_eq!(idle(60, 1e-6), 1e-6);
    }

    #[test]
    fn a_sliding_window_wants_what_is_in_use_and_at_least_one_permit_more() {
        let mut demand = WindowDemand::new(Window { rate: 0.1, slides: true, ..MINUTE });
        demand.wants(Millis(0), WindowSample::default());
        let mut wants = |used| demand.wants(Millis(3_600_000), WindowSample { used, ..WindowSample::default() });
        assert_eq!(wants(0.0), 1.0 / 60.0);
        assert_eq!(wants(3.0 / 60.0), 4.0 / 60.0);
        assert_eq!(wants(6.0 / 60.0), 0.1, "never more than the limit");
    }

    #[test]
    fn refusals_after_a_pause_double_the_wants() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), rate: 1_000.0, slides: false });
        let mut wants = |now, refused, estimated, capacity| {
            demand.wants(Millis(now), WindowSample { estimated, refused, capacity, used: 0.0 })
        };
        wants(0, 0, 0.0, 0.0);
        assert_eq!(wants(60_000, 0, 0.0, 1_000.0), 10.0);
        assert_eq!(wants(60_100, 1, 12.0, 10.0), 20.0);
        assert_eq!(wants(60_200, 2, 14.0, 20.0), 40.0);
        assert_eq!(wants(60_300, 2, 16.0, 40.0), 40.0, "no new refusal");
        assert_eq!(wants(60_400, 3, 18.0, 900.0), 1_000.0, "never more than the limit");
        assert_eq!(wants(65_100, 9, 500.0, 300.0), 500.0, "the flow is known");
        assert_eq!(wants(180_000, 9, 0.0, 500.0), 10.0, "another pause");
        assert_eq!(wants(181_000, 10, 12.0, 10.0), 20.0);
    }

    fn falls(per_second: &[u64]) -> Vec<bool> {
        let (mut arrivals, mut arrived) = (Arrivals::default(), 0);
        let falls = per_second.iter().map(|count| {
            arrived += count;
            arrivals.have_fallen(arrived)
        });
        falls.collect()
    }

    #[test]
    fn a_flow_that_ends_has_fallen_until_a_second_without_arrivals() {
        assert_eq!(falls(&[400, 400, 400, 150, 0, 0, 0]), [false, false, false, true, true, true, false]);
    }

    #[test]
    fn random_differences_and_rises_are_no_fall() {
        assert_eq!(falls(&[0, 3, 1, 5, 0, 4]), [false; 6]);
        assert_eq!(falls(&[100, 100, 100, 110, 92, 104, 81, 400]), [false; 8]);
    }
}
