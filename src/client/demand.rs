//! How much to ask for: wants, estimated from what callers ask of a limiter.
//!
//! What counts is demand and not what is served: callers count when they come. Otherwise a limited client would see no
//! more demand than it has capacity, and never ask for more. Those who wait count besides, with what it takes to serve
//! them within a second.
//!
//! Callers that only come back when they have been served hide what they would do without a limit: one that waits for half
//! of its time would come twice as often. So if somebody waits for the part f of the time, the demand is what arrives
//! divided by 1 − f. When f has just become large, what arrived before says little: then it is at least what must have
//! been served meanwhile, capacity · f, divided by the same. Neither is believed beyond a factor of two: more is,
//! when that has been granted and somebody still waits.
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

/// Nobody should have to wait for longer, in seconds.
const BACKLOG: f64 = 1.0;

/// What callers would do without a limit is believed up to this many times the capacity.
const GROWTH: f64 = 2.0;

/// How much of the time somebody waits is not judged by less than this.
const LOOK: Millis = Millis(50);

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
    held_up: HeldUp,
}

/// What a limiter says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Of a rate: what has [arrived](crate::limiter::RateLimiter::arrived), ever. Of a gauge: what is in use, or better its
    /// [peak](crate::limiter::GaugeLimiter::take_peak), which includes those who wait and what came and went.
    pub count: u64,
    /// Permits that are waited for now; none besides a peak.
    pub waiting: u64,
    /// For how long somebody has been [waiting](crate::limiter::RateLimiter::queued), ever. Gauges: nothing, for whoever
    /// waits for a permit has said how many it wants.
    pub queued: Duration,
    /// What the limiter lets through.
    pub capacity: f64,
}

/// How much of the time somebody has to wait.
#[derive(Debug, Default)]
struct HeldUp {
    at: Millis,
    queued: Duration,
    part: f64,
}

impl HeldUp {
    fn sample(&mut self, now: Millis, queued: Duration) -> f64 {
        let span = now.since(self.at);
        if span >= LOOK {
            let waited = queued.saturating_sub(self.queued).as_secs_f64() * 1000.0;
            self.part = (waited / span.0 as f64).clamp(0.0, 1.0);
            (self.at, self.queued) = (now, queued);
        }
        self.part
    }
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
        Demand {
            source,
            refresh: refresh.as_secs_f64(),
            level: 0.0,
            demand: 0.0,
            at: zero,
            hold: zero,
            held_up: HeldUp::default(),
        }
    }

    /// What a limiter says at `now`. Arrivals of a rate are counted from the first sample on, which belongs to the moment the
    /// limiter was made.
    pub fn sample(&mut self, now: Millis, sample: Sample) {
        self.level = self.wants(now);
        self.at = Millis(self.at.0.max(now.0));
        let waiting = sample.waiting as f64;
        self.demand = match &mut self.source {
            Source::Rate(steady) => {
                let part = self.held_up.sample(self.at, sample.queued);
                let freely = steady.sample(now, sample.count) * (1.0 / (1.0 - part)).min(GROWTH);
                // While somebody waits, the capacity is used: so much of it has been for that part of the time.
                let at_least = sample.capacity * (part / (1.0 - part)).min(GROWTH);
                let arriving = freely + waiting / BACKLOG;
                if at_least.is_finite() { arriving.max(at_least) } else { arriving }
            }
            Source::Gauge => sample.count as f64 + waiting,
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
