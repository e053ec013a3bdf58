//! Estimates how much capacity to ask for (wants) from the demand at a limiter. Time is an argument.
//!
//! **Open-loop demand.** Callers count when they arrive, not when they are served. Otherwise a limited client would
//! never see more demand than it has capacity. Waiting callers count in addition, with the capacity that serves them
//! within a second. Charged permits are demand when they are charged, and debt counts like waiting callers. Returned
//! permits are no demand.
//!
//! **Closed-loop demand.** Callers that return only after they were served hide their demand: a caller that waits half
//! of the time would come twice as often without a limit. The rate of arrivals while nobody waits shows that. So the
//! demand is the number of arrivals in such periods, divided by their length, if that is more than the overall rate.
//! For open-loop callers the two are equal.
//!
//! **Saturation.** If callers wait nearly all of the time there is no such period. While the queue does not get
//! shorter, the estimate doubles the capacity, until the queue shrinks or the server grants no more. That guess lasts
//! as long as the queue does. Callers that wait because there is no lease yet say nothing about scarcity: they are a
//! burst to be served, and the flow is observed from then on.
//!
//! **Hysteresis.** Higher demand counts at once, lower demand slowly: asking for too little makes callers wait, asking
//! for too much costs others for a few refreshes. Wants fall exponentially, with a time constant of three refresh
//! intervals. In the first refresh interval wants follow the observed demand, which has a statistical error of about √k
//! for k arrivals.
//!
//! The sampling rate does not matter, as long as there is one sample per refresh.

use std::time::Duration;

use leaseway_core::types::Millis;

use self::flow::{FlowCounts, FlowEstimator};

mod flow;

/// Time constant of falling wants, in refresh intervals.
const MEMORY_REFRESHES: f64 = 3.0;

/// Gauges: refresh intervals before wants begin to fall.
const HOLD_REFRESHES: f64 = 1.0;

/// Waiting callers should be served within this many seconds.
const MAX_WAIT_SECONDS: f64 = 1.0;

/// Callers that will be served within this many seconds do not count as backlog.
const PROMPT_SECONDS: f64 = 0.25;

/// The very first caller should be served within this many seconds, because it has already waited for a lease.
const FIRST_WAIT_SECONDS: f64 = 0.1;

/// A flow is idle if fewer callers arrive per refresh interval.
const IDLE_ARRIVALS: f64 = 0.25;

/// Upper bound of the estimated closed-loop demand, as a multiple of the capacity.
const MAX_GROWTH: f64 = 2.0;

/// Minimum period for judging what fraction of the time callers wait.
const MIN_OBSERVATION: Millis = Millis(50);

/// A young flow is sampled again after this time while callers wait.
const RESAMPLE_DELAY: Millis = Millis(100);

/// A young flow is sampled again at this age, when the initial burst has been served.
const SETTLED_AGE: Millis = Millis(1_000);

/// Wants that exceed the demand by less than this fraction equal it.
const TOLERANCE: f64 = 1e-3;

/// Without demand, smaller wants are 0.
const NEGLIGIBLE: f64 = 1e-3;

/// The kind of capacity that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandKind {
    /// Permits per second.
    Rate,
    /// Permits in use at the same time.
    Gauge,
}

/// Settings of a [`Demand`].
#[derive(Debug, Clone, Copy)]
pub struct DemandSettings {
    /// The kind of capacity.
    pub kind: DemandKind,
    /// The refresh interval of the client.
    pub refresh: Duration,
    /// Whether wants fall slowly. A [`Window`](crate::limiter::Window) has a memory of its own.
    pub remembers: bool,
}

/// An estimate of wants; see the [module documentation](self).
#[derive(Debug)]
pub struct Demand {
    source: Estimator,
    /// A refresh interval, in seconds.
    refresh: f64,
    remembers: bool,
    /// Wants at the time `at`.
    level: f64,
    /// The current demand, which wants fall to.
    demand: f64,
    /// Lower bound of wants while callers wait.
    guess: f64,
    /// Additional capacity to serve waiting callers.
    backlog: f64,
    /// Rates: whether callers waited at the last sample.
    waits: bool,
    at: Millis,
    /// Wants do not fall before this time.
    hold: Millis,
    trend: QueueTrend,
}

/// A reading of a limiter.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Rates: permits requested so far. Gauges: permits in use, or better their peak, which includes waiting callers
    /// and permits that came and went.
    pub count: u64,
    /// Rates: permits requested so far while no caller waited.
    pub freely: u64,
    /// Rates: permits returned unused so far.
    pub refunded: u64,
    /// Permits waited for or owed now; 0 if `count` is a peak.
    pub waiting: u64,
    /// Rates: total time in which callers were waiting.
    pub queued: Duration,
    /// The current capacity.
    pub capacity: f64,
}

impl Sample {
    /// `count` and `freely` without returned permits. It is unknown when those had arrived, so both are reduced in
    /// proportion.
    fn net(&self) -> (u64, u64) {
        if self.refunded == 0 {
            return (self.count, self.freely);
        }
        let net = self.count.saturating_sub(self.refunded);
        let part = net as f64 / self.count.max(1) as f64;
        (net, (self.freely as f64 * part) as u64)
    }
}

/// Distinguishes a persistent queue from short waits.
#[derive(Debug, Default)]
struct QueueTrend {
    at: Millis,
    queued: Duration,
    /// Permits granted so far.
    served: u64,
    waiting: u64,
}

impl QueueTrend {
    /// The additional capacity to want while the queue does not shrink, which grows with the fraction of time in which
    /// callers waited; 0 if the queue has shrunk. `None` if nobody was served since the last update, or too little time
    /// has passed.
    fn update(&mut self, now: Millis, sample: &Sample) -> Option<f64> {
        let (span, served) = (now.since(self.at), sample.count.saturating_sub(sample.waiting));
        if span < MIN_OBSERVATION || (sample.waiting > 0 && self.waiting > 0 && served <= self.served) {
            return None;
        }
        let waited = sample.queued.saturating_sub(self.queued).as_secs_f64() * 1000.0;
        let part = (waited / span.0 as f64).clamp(0.0, 1.0);
        let replaced = self.waiting > 0 && sample.waiting >= self.waiting;
        *self = QueueTrend { at: now, queued: sample.queued, served, waiting: sample.waiting };
        let guess = sample.capacity * (part / (1.0 - part)).min(MAX_GROWTH);
        Some(if replaced && guess.is_finite() { guess } else { 0.0 })
    }
}

#[derive(Debug)]
enum Estimator {
    Rate(FlowEstimator),
    Gauge,
}

impl Demand {
    /// An estimate that wants nothing before the first sample.
    pub fn new(settings: DemandSettings) -> Demand {
        let refresh = settings.refresh.max(Duration::from_millis(1));
        let source = match settings.kind {
            DemandKind::Rate => Estimator::Rate(FlowEstimator::new(refresh)),
            DemandKind::Gauge => Estimator::Gauge,
        };
        let zero = Millis(0);
        Demand {
            source,
            refresh: refresh.as_secs_f64(),
            remembers: settings.remembers,
            level: 0.0,
            demand: 0.0,
            guess: 0.0,
            backlog: 0.0,
            waits: false,
            at: zero,
            hold: zero,
            trend: QueueTrend::default(),
        }
    }

    /// Takes a sample. The first one belongs to the time when the limiter was created: arrivals count from there.
    pub fn sample(&mut self, now: Millis, sample: Sample) {
        self.level = self.remembered(now);
        self.at = Millis(self.at.0.max(now.0));
        let waiting = sample.waiting as f64;
        let (before, mut is_young) = (self.demand, false);
        match &mut self.source {
            Estimator::Rate(flow) => {
                // The initial callers of an observation do not start another one, no matter how long they wait.
                let (count, freely) = sample.net();
                let idle = self.demand * self.refresh < IDLE_ARRIVALS && flow.has_fewer_than(count);
                if idle && sample.waiting > 0 && sample.waiting >= flow.recent(self.at, count) {
                    // All arrivals are waiting for the first lease: a burst, and no flow yet.
                    flow.restart(sample.waiting);
                }
                let rates = flow.sample(self.at, FlowCounts { count, freely, queued: sample.queued });
                is_young = flow.is_young(self.at);
                self.demand = rates.all.max(rates.freely.min(rates.all * MAX_GROWTH));
                let first = is_young && flow.initial_callers_wait(sample.count.saturating_sub(sample.waiting));
                self.backlog = backlog(first, waiting, sample.capacity);
                self.waits = sample.waiting > 0;
                match self.trend.update(self.at, &sample) {
                    // The guess does not fall while callers wait.
                    Some(guess) if is_young && waiting > 0.0 => self.guess = guess.max(self.guess),
                    Some(guess) => self.guess = guess,
                    None => {}
                }
                if is_young && waiting > 0.0 {
                    self.demand = self.demand.max(before);
                }
            }
            Estimator::Gauge => self.demand = sample.count as f64 + waiting,
        }
        if self.demand >= self.level || is_young || !self.remembers {
            self.level = self.demand;
            self.hold = self.at;
            if matches!(self.source, Estimator::Gauge) {
                self.hold = self.hold.plus(Millis((HOLD_REFRESHES * self.refresh * 1000.0) as u64));
            }
        }
    }

    /// The wants at `now`: finite and not negative.
    pub fn wants(&self, now: Millis) -> f64 {
        self.remembered(now).max(self.guess) + self.backlog
    }

    /// When to take the next sample before the next refresh, if that is worthwhile: soon while callers wait and the
    /// flow is young, and when they were served, so that the guess for them does not last a whole refresh interval.
    pub fn next_sample_at(&self) -> Option<Millis> {
        let Estimator::Rate(flow) = &self.source else { return None };
        let age = flow.age(self.at);
        let ages = [SETTLED_AGE.0, (self.refresh * 1000.0) as u64];
        let next = ages.into_iter().find(|next| age.0 < *next).filter(|_| self.level + self.wants(self.at) > 0.0)?;
        let soon = if self.waits { RESAMPLE_DELAY.0 } else { next - age.0 };
        Some(self.at.plus(Millis(soon.min(next - age.0))))
    }

    fn remembered(&self, now: Millis) -> f64 {
        let falling_since = self.at.0.max(self.hold.0);
        let seconds = now.since(Millis(falling_since)).0 as f64 / 1000.0;
        let above = (self.level - self.demand) * (-seconds / (MEMORY_REFRESHES * self.refresh)).exp();
        if above <= self.demand * TOLERANCE || self.demand + above < NEGLIGIBLE {
            self.demand
        } else {
            self.demand + above
        }
    }
}

/// The additional capacity to serve waiting callers.
fn backlog(first: bool, waiting: f64, capacity: f64) -> f64 {
    match () {
        () if first => (waiting / MAX_WAIT_SECONDS).max(1.0 / FIRST_WAIT_SECONDS),
        () if waiting <= capacity * PROMPT_SECONDS => 0.0,
        // Below one permit in that time, a waiting caller does not have to be faster than the next arrival.
        () if capacity > 0.0 => waiting * capacity.min(1.0 / MAX_WAIT_SECONDS),
        () => waiting / MAX_WAIT_SECONDS,
    }
}

#[cfg(test)]
mod tests;
