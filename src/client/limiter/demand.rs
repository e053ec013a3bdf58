//! How much to ask for: wants, estimated from what callers ask of a limiter.
//!
//! What counts is demand and not what is served: callers count when they come. Otherwise a limited client would see no
//! more demand than it has capacity, and never ask for more. Those that wait count besides, with what it takes to serve
//! them within a second, for as long as they wait.
//!
//! What is used without asking counts when it is charged, and what the limiter owes waits as callers do. What comes
//! back unused was no demand: of callers that reserve more than they need only what they need counts, from the second
//! on.
//!
//! Callers that only come back when they have been served hide what they would do without a limit: one that waits for
//! half of its time would come twice as often. How often that is shows while none waits: so the demand is what
//! arrives in that time, divided by that time, if that is more than what arrives altogether. Callers that come anyway,
//! served or not, come as often then as they always do; so they are not taken for more than they are.
//!
//! When there are callers waiting nearly all of the time there is no such time to look at. If the line does not get
//! shorter meanwhile the capacity is doubled, until it does or the server gives no more. This is a guess: it is gone
//! with the line. Callers that wait because there is no lease yet say nothing about scarcity: they are a burst to be
//! served, and the look at the flow begins after them.
//!
//! More demand is believed at once, less slowly: asking for too little makes callers wait, asking for too much costs
//! others for a few refreshes. So wants rise with the demand, and fall along an exponential with a time constant of
//! three refresh intervals, where the owner does not remember by itself. In the first refresh interval too little is
//! known for that: wants follow what has been seen. Of k arrivals about √k more or less would have been as likely; that
//! spread remains.
//!
//! The time is an argument. How often samples are taken does not matter, as long as there is one per refresh.

use std::time::Duration;

use leaseway_core::Millis;

use self::flow::{FlowCounts, FlowEstimator};

mod flow;

/// Wants fall to a third in so many refresh intervals.
const MEMORY_REFRESHES: f64 = 3.0;

/// What was in use counts as wanted for so many refresh intervals before wants begin to fall.
const HOLD_REFRESHES: f64 = 1.0;

/// No caller should have to wait for longer, in seconds.
const MAX_WAIT_SECONDS: f64 = 1.0;

/// Callers that are served within so many seconds are no backlog.
const PROMPT_SECONDS: f64 = 0.25;

/// The first of all is to be served within so many seconds: it has waited for a lease already.
const FIRST_WAIT_SECONDS: f64 = 0.1;

/// Fewer arrivals than this in a refresh interval are none.
const IDLE_ARRIVALS: f64 = 0.25;

/// What callers would do without a limit is believed up to this many times the capacity.
const MAX_GROWTH: f64 = 2.0;

/// For how much of the time callers wait is not judged by less than this.
const MIN_OBSERVATION: Millis = Millis(50);

/// Of a flow of which little is known: how soon to look again while callers wait...
const RESAMPLE_DELAY: Millis = Millis(100);

/// ... and after how long what was asked for a burst is no longer needed.
const SETTLED_AGE: Millis = Millis(1_000);

/// Wants that are less than this part above the demand are the demand.
const TOLERANCE: f64 = 1e-3;

/// What is wanted less than this is not wanted, if there is no demand at all.
const NEGLIGIBLE: f64 = 1e-3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandKind {
    /// So much per second.
    Rate,
    /// So many at the same time.
    Gauge,
}

/// What an estimate depends on.
#[derive(Debug, Clone, Copy)]
pub struct DemandSettings {
    pub kind: DemandKind,
    /// How often the client asks for capacity.
    pub refresh: Duration,
    /// Whether wants fall slowly. A [window](crate::limiter::Window) has a memory of its own.
    pub remembers: bool,
}

#[derive(Debug)]
pub struct Demand {
    source: Estimator,
    /// A refresh interval, in seconds.
    refresh: f64,
    remembers: bool,
    /// Wants, as they were at `at`.
    level: f64,
    /// The demand that wants fall to.
    demand: f64,
    /// What is wanted at least as long as callers wait.
    guess: f64,
    /// What it takes to serve those that wait now, besides.
    backlog: f64,
    /// Of a rate: whether callers waited when it was last looked at.
    waits: bool,
    at: Millis,
    /// Until when wants do not fall.
    hold: Millis,
    line: QueueTrend,
}

/// What a limiter says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Of a rate: what has arrived, ever. Of a gauge: what is in use, or better its peak, which includes those that
    /// wait and what came and went.
    pub count: u64,
    /// Of a rate: what has arrived while none waited, ever.
    pub freely: u64,
    /// Of a rate: how much of that came back and so was no demand, ever.
    pub refunded: u64,
    /// Permits that are waited for now, and those that are owed; none besides a peak.
    pub waiting: u64,
    /// For how long there have been callers waiting, ever. Gauges: nothing, for a caller that waits for permits has
    /// said how many it wants.
    pub queued: Duration,
    /// What the limiter lets through.
    pub capacity: f64,
}

impl Sample {
    /// What arrived less what came back: all of it, and what found none waiting. The latter as the same part as of all,
    /// for of what came back it is not known how it had come.
    fn net(&self) -> (u64, u64) {
        if self.refunded == 0 {
            return (self.count, self.freely);
        }
        let net = self.count.saturating_sub(self.refunded);
        let part = net as f64 / self.count.max(1) as f64;
        (net, (self.freely as f64 * part) as u64)
    }
}

/// Whether callers wait because there is too little, or only for their turn.
#[derive(Debug, Default)]
struct QueueTrend {
    at: Millis,
    queued: Duration,
    /// How many have been served.
    served: u64,
    waiting: u64,
}

impl QueueTrend {
    /// What callers may want if some have been served since the last look, while others have taken their places: by how
    /// much of the time callers waited, more than what there is. As long as none is served nothing is known.
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
    /// Nothing is wanted until the first sample.
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
            line: QueueTrend::default(),
        }
    }

    /// What a limiter says at `now`. Arrivals of a rate are counted from the first sample on, which belongs to the
    /// moment the limiter was made.
    pub fn sample(&mut self, now: Millis, sample: Sample) {
        self.level = self.remembered(now);
        self.at = Millis(self.at.0.max(now.0));
        let waiting = sample.waiting as f64;
        let (before, mut forgets) = (self.demand, false);
        match &mut self.source {
            Estimator::Rate(flow) => {
                // Those that a look has begun with already do not begin another, however long they wait.
                let (count, freely) = sample.net();
                let idle = self.demand * self.refresh < IDLE_ARRIVALS && flow.knows_less_than(count);
                if idle && sample.waiting > 0 && sample.waiting >= flow.recent(self.at, count) {
                    // All there is are callers that wait for something to be asked for: a burst, and no flow yet.
                    flow.restart(sample.waiting);
                }
                let rates = flow.sample(self.at, FlowCounts { count, freely, queued: sample.queued });
                forgets = flow.is_young(self.at);
                self.demand = rates.all.max(rates.freely.min(rates.all * MAX_GROWTH));
                let first = forgets && flow.first_are_waiting(sample.count.saturating_sub(sample.waiting));
                self.backlog = backlog(first, waiting, sample.capacity);
                self.waits = sample.waiting > 0;
                match self.line.update(self.at, &sample) {
                    // Nothing is taken from those that wait.
                    Some(guess) if forgets && waiting > 0.0 => self.guess = guess.max(self.guess),
                    Some(guess) => self.guess = guess,
                    None => {}
                }
                if forgets && waiting > 0.0 {
                    self.demand = self.demand.max(before);
                }
            }
            Estimator::Gauge => self.demand = sample.count as f64 + waiting,
        }
        if self.demand >= self.level || forgets || !self.remembers {
            self.level = self.demand;
            self.hold = self.at;
            if matches!(self.source, Estimator::Gauge) {
                self.hold = self.hold.plus(Millis((HOLD_REFRESHES * self.refresh * 1000.0) as u64));
            }
        }
    }

    /// What to ask for at `now`: finite and not negative.
    pub fn wants(&self, now: Millis) -> f64 {
        self.remembered(now).max(self.guess) + self.backlog
    }

    /// When another sample would say more: soon while callers wait at a flow of which little is known, and when they
    /// have been served, so that what was guessed for them is not held for a whole refresh interval.
    pub fn next_sample_at(&self) -> Option<Millis> {
        let Estimator::Rate(flow) = &self.source else { return None };
        let age = flow.age(self.at);
        let looks = [SETTLED_AGE.0, (self.refresh * 1000.0) as u64];
        let next =
            looks.into_iter().find(|update| age.0 < *update).filter(|_| self.level + self.wants(self.at) > 0.0)?;
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

/// What it takes to serve those that wait, besides what arrives.
fn backlog(first: bool, waiting: f64, capacity: f64) -> f64 {
    match () {
        () if first => (waiting / MAX_WAIT_SECONDS).max(1.0 / FIRST_WAIT_SECONDS),
        () if waiting <= capacity * PROMPT_SECONDS => 0.0,
        // Where fewer than one are let through in that time, none has to be faster than the next to come.
        () if capacity > 0.0 => waiting * capacity.min(1.0 / MAX_WAIT_SECONDS),
        () => waiting / MAX_WAIT_SECONDS,
    }
}

#[cfg(test)]
mod tests;
