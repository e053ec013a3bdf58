//! How much to ask for: wants, estimated from what callers ask of a limiter.
//!
//! What counts is demand and not what is served: callers count when they come. Otherwise a limited client would see no
//! more demand than it has capacity, and never ask for more. Those who wait count besides, with what it takes to serve
//! them within a refresh interval.
//!
//! More demand is believed at once, less slowly: asking for too little makes callers wait, asking for too much costs others
//! for a few refreshes. So wants rise with the demand, and fall along an exponential with a time constant of three refresh
//! intervals.
//!
//! The time is an argument. How often samples are taken does not matter, as long as there is one per refresh.

use std::time::Duration;

use leaseway_core::Millis;

use self::steady::Steady;

mod steady;

/// Wants fall to a third in so many refresh intervals.
const MEMORY: f64 = 3.0;

/// What was in use counts as wanted for so many refresh intervals before wants begin to fall.
const HOLD: f64 = 1.0;

/// Wants that are less than this part above the demand are the demand.
const CLOSE: f64 = 1e-3;

/// What is wanted less than this is not wanted, if there is no demand at all.
const NEGLIGIBLE: f64 = 1e-3;

/// What is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// So much per second.
    Rate,
    /// So many at the same time.
    Gauge,
}

/// What an estimate depends on.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What is shared.
    pub kind: Kind,
    /// How often the client asks for capacity.
    pub refresh: Duration,
}

/// Estimates wants.
#[derive(Debug)]
pub struct Demand {
    source: Source,
    /// A refresh interval, in seconds.
    refresh: f64,
    /// Wants, as they were at `at`.
    level: f64,
    /// The demand that wants fall to.
    demand: f64,
    at: Millis,
    /// Until when wants do not fall.
    hold: Millis,
}

#[derive(Debug)]
enum Source {
    Rate(Steady),
    Gauge,
}

impl Demand {
    /// Nothing is wanted until the first sample.
    pub fn new(settings: Settings) -> Demand {
        let refresh = settings.refresh.max(Duration::from_millis(1));
        let source = match settings.kind {
            Kind::Rate => Source::Rate(Steady::new(refresh)),
            Kind::Gauge => Source::Gauge,
        };
        let zero = Millis(0);
        Demand { source, refresh: refresh.as_secs_f64(), level: 0.0, demand: 0.0, at: zero, hold: zero }
    }

    /// What a limiter says at `now`. Of a rate: [`arrived`] and [`waiting`]. Of a gauge: [`take_peak`], which includes those
    /// who wait, and none besides; or what is in use and who waits, which misses what came and went between two samples.
    /// Arrivals of a rate are counted from the first sample on, which belongs to the moment the limiter was made.
    ///
    /// [`arrived`]: crate::limiter::RateLimiter::arrived
    /// [`waiting`]: crate::limiter::RateLimiter::waiting
    /// [`take_peak`]: crate::limiter::GaugeLimiter::take_peak
    pub fn sample(&mut self, now: Millis, count: u64, waiting: u64) {
        self.level = self.wants(now);
        self.at = Millis(self.at.0.max(now.0));
        self.demand = match &mut self.source {
            Source::Rate(steady) => steady.sample(now, count) + waiting as f64 / self.refresh,
            Source::Gauge => count as f64 + waiting as f64,
        };
        if self.demand >= self.level {
            self.level = self.demand;
            self.hold = self.at;
            if matches!(self.source, Source::Gauge) {
                self.hold = self.hold.plus(Millis((HOLD * self.refresh * 1000.0) as u64));
            }
        }
    }

    /// What to ask for at `now`: finite and not negative.
    pub fn wants(&self, now: Millis) -> f64 {
        let falling_since = self.at.0.max(self.hold.0);
        let seconds = now.since(Millis(falling_since)).0 as f64 / 1000.0;
        let above = (self.level - self.demand) * (-seconds / (MEMORY * self.refresh)).exp();
        if above <= self.demand * CLOSE || self.demand + above < NEGLIGIBLE { self.demand } else { self.demand + above }
    }
}

#[cfg(test)]
mod tests;
