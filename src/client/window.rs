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

/// What brings so many permits within the window is wanted at least: the next callers find them, ...
const SPARE: f64 = 10.0;

/// ... but no more than this part of the limit, for others that share it cannot use it meanwhile.
const SPARE_PART: f64 = 0.02;

/// So much is wanted in any case, of what may pass at all: next to nothing, but a lease. A limiter whose lease is
/// nothing has no permit for the next caller; one that has any keeps one permit.
const LEAST: f64 = 1e-3;

/// Arrivals are looked at over the window, and over no less and no more than this.
const LOOK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// How much more there may be of it: so much times what is leased.
const GROWTH: f64 = 2.0;

/// Of k arrivals about √k more would have been as likely. So much is wanted besides once something was refused although
/// what is leased would do for all that is seen; that falls to a third in so many seconds without a refusal.
const CHANCE: f64 = 20.0;

/// What is leased is taken to do for what is at most this many times as much.
const ENOUGH: f64 = 1.05;

/// What a limiter says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowLook {
    /// How much callers want, as far as arrivals show it.
    pub(crate) estimated: f64,
    /// What was asked for and not let through, ever.
    pub(crate) refused: u64,
    /// What it lets through.
    pub(crate) capacity: f64,
}

impl Window {
    /// Over how long a time arrivals are looked at: what was before the window is no demand any more.
    pub(crate) fn look(self) -> Duration {
        self.length.clamp(LOOK[0], LOOK[1])
    }
}

/// Wants of a limit for a window.
#[derive(Debug)]
pub(crate) struct WindowDemand {
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
    pub(crate) fn new(window: Window) -> WindowDemand {
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

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// What to ask for now.
    pub(crate) fn wants(&mut self, now: Millis, look: WindowLook) -> f64 {
        let Window { length, rate } = self.window;
        let begun = *self.begun.get_or_insert(now);
        let is_long = length > Duration::from_secs(1);
        let passed = now.since(self.at).0 as f64 / 1000.0;
        let remembered = self.level * (-passed / length.as_secs_f64().max(1e-3)).exp();
        let first = if now.since(begun) < FIRST { rate } else { 0.0 };
        let estimated = if is_long { look.estimated.min(rate) } else { look.estimated };
        (self.level, self.at) = (remembered.max(estimated), self.at.max(now));
        let refuses = look.refused > std::mem::replace(&mut self.refused, look.refused);
        let guess = self.guess(now, refuses, look.capacity);
        if refuses && guess == 0.0 && !is_long && look.capacity * ENOUGH >= self.level {
            self.by_chance = Some(now);
        }
        (self.level + self.spread(now)).max(first).max(self.spare()).max(guess)
    }

    fn spread(&self, now: Millis) -> f64 {
        let Some(last) = self.by_chance else { return 0.0 };
        let look = self.window.look().as_secs_f64();
        (self.level / look).sqrt() * (-(now.since(last).0 as f64) / 1000.0 / CHANCE).exp()
    }

    fn spare(&self) -> f64 {
        let Window { length, rate } = self.window;
        (SPARE / length.as_secs_f64().max(1e-3)).min(SPARE_PART * rate).max(LEAST.min(rate))
    }

    /// After a pause arrivals do not show at once how many there will be, for they are looked at together with it: what
    /// is refused meanwhile doubles what is tried.
    fn guess(&mut self, now: Millis, refuses: bool, capacity: f64) -> f64 {
        let is_quiet = self.level <= self.spare();
        if is_quiet && !refuses && self.awake.is_none() {
            return 0.0;
        }
        let awake = now.since(*self.awake.get_or_insert(now));
        if u128::from(awake.0) >= self.window.look().as_millis() {
            self.guess = 0.0;
            self.awake = self.awake.filter(|_| !is_quiet);
        } else if refuses {
            self.guess = self.guess.max(capacity * GROWTH).min(self.window.rate);
        }
        self.guess
    }
}

#[cfg(test)]
mod tests {
    use leaseway_session::{Basis, Capacity, Mode, Usable};
    use tokio::time::advance;

    use super::*;
    use crate::{
        limiter::{Burst, RateLimiter},
        opened::{Limiter, Opened},
    };

    const MINUTE: Window = Window { length: Duration::from_secs(60), rate: 10.0 };

    fn wants(demand: &mut WindowDemand, now: u64, estimated: f64) -> f64 {
        demand.wants(Millis(now), WindowLook { estimated, ..WindowLook::default() })
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
        assert_eq!(idle(60, 1e-2), LEAST, "a lease, and with it one permit");
        assert_eq!(idle(60, 1e-6), 1e-6);
    }

    #[test]
    fn what_is_refused_after_a_pause_doubles_what_is_wanted_and_only_then() {
        let mut demand = WindowDemand::new(Window { length: Duration::from_secs(1), rate: 1_000.0 });
        let mut look =
            |now, refused, estimated, capacity| demand.wants(Millis(now), WindowLook { estimated, refused, capacity });
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

    fn granted(opened: &Opened, now: u64) {
        let capacity = Capacity::of(opened.wants(Millis(now)).amount);
        opened.apply(Usable { capacity, basis: Basis::Lease });
    }

    /// A limiter of 1,000 a second, whose client is given all that it wants, after half a minute of quiet.
    async fn quiet() -> (Opened, RateLimiter) {
        let window = Window { length: Duration::from_secs(1), rate: 1_000.0 };
        let limiter = RateLimiter::full(Burst::Window(window.length), std::sync::Arc::default());
        let opened = Opened::new("r".into(), Mode::Safe, 0, Limiter::Rate(limiter.clone()), None);
        let opened = opened.of_window(Some(window));
        granted(&opened, 0);
        limiter.try_acquire(1).expect("it begins full");
        for now in (5_000..=30_000).step_by(5_000) {
            advance(Duration::from_secs(5)).await;
            granted(&opened, now);
        }
        (opened, limiter)
    }

    #[tokio::test(start_paused = true)]
    async fn a_limiter_that_was_quiet_refuses_none_of_ten_requests() {
        for pace in [0, 1, 50, 100] {
            let (opened, limiter) = quiet().await;
            assert!(limiter.capacity().get() < 20.0, "others can have nearly all of it");
            for nth in 1..=10 {
                assert_eq!(limiter.try_acquire(1), Ok(()), "request {nth}, one in {pace} ms");
                advance(Duration::from_millis(pace)).await;
            }
            drop(opened);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_flow_that_differs_by_chance_next_to_nothing_is_refused_where_there_is_enough() {
        let (opened, limiter) = quiet().await;
        let (mut random, mut refused, mut asked) = (fastrand::Rng::with_seed(7), 0, 0);
        let (mut most, mut presses): (f64, bool) = (0.0, false);
        for ms in 0..120_000_u64 {
            let is_late = ms > 20_000;
            if random.f64() < 0.05 {
                let is_refused = limiter.try_acquire(1).is_err();
                presses |= is_refused;
                refused += u32::from(is_refused && is_late);
                asked += u32::from(is_late);
            }
            advance(Duration::from_millis(1)).await;
            if (presses && ms % 100 == 99) || ms % 4_750 == 0 {
                presses = false;
                granted(&opened, 30_000 + ms + 1);
                most = if is_late { most.max(limiter.capacity().get()) } else { 0.0 };
            }
        }
        assert!(refused * 100 < asked, "of {asked} {refused} were refused");
        assert!(most < 80.0, "{most} were wanted of about 50");
    }

    /// Wants are looked at when something is refused, no more often than ten times a second.
    #[tokio::test(start_paused = true)]
    async fn a_flow_that_begins_after_a_pause_is_refused_little() {
        let (opened, limiter) = quiet().await;
        let mut refused = 0;
        for ms in 0..2_000_u64 {
            if ms % 5 == 0 && limiter.try_acquire(1).is_err() {
                refused += 1;
            }
            advance(Duration::from_millis(1)).await;
            if ms % 100 == 99 {
                granted(&opened, 30_000 + ms + 1);
            }
        }
        assert!(refused < 70, "of 400 in two seconds {refused} were refused: more than doublings take");
    }
}
