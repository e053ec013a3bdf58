//! A client with a rate limiter that admits or refuses callers immediately, like that of a gateway (RLS, HTTP). The
//! session, the bucket and the estimate of demand are real. Callers arrive at random, and each wants one permit.
//!
//! Demand is estimated at the same times as in the client library and in gateways. A caller is refused while there is
//! no lease: nobody waits for the first one, and an expired lease admits nobody.

mod budget;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use leaseway_client::limiter::{
    Arrivals, Bucket, Burst, Meter as _, Nanos, Window, WindowDemand, WindowSample,
    demand::{Demand, DemandKind, Sample},
    estimating,
};
use leaseway_client::session::{self, Basis, Mode, Outgoing, Session, Usable, Wants as Asked};
use leaseway_core::{resource::invariant::Violation, types::Millis};

use self::budget::AdmissionBudget;

/// The interval at which a gateway estimates demand at limiters that have refused callers.
const POLL_INTERVAL: Millis = Millis(100);
/// The interval at which a gateway checks limiters whose demand may have fallen.
const SWEEP_INTERVAL: Millis = Millis(1_000);
/// The gateway skips a limiter that has had no callers for this time.
const IDLE_TIMEOUT: Millis = Millis(4_000);
/// The time that the first request waits for the first caller.
const FIRST_CALLER_DELAY: Millis = Millis(5);
/// Minimum time between estimates.
const MIN_ESTIMATE_INTERVAL: Millis = Millis(100);
const NANOS_PER_MILLI: Nanos = 1_000_000;

/// A client, its limiter, and its callers.
pub(crate) struct LimiterClient {
    resource: Arc<str>,
    window: Window,
    session: Session<Asked>,
    priority: i64,
    callers: Callers,
    /// Absent while the resource is closed.
    open: Option<OpenLimiter>,
    broken: Option<Violation>,
}

/// An open-loop Poisson process of callers.
struct Callers {
    per_second: f64,
    next: Option<Nanos>,
    rng: fastrand::Rng,
}

/// Callers that arrived and that were admitted since the resource was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallerCounts {
    pub(crate) arrived: u64,
    pub(crate) passed: u64,
}

struct OpenLimiter {
    bucket: Bucket,
    demand: Demand,
    window: WindowDemand,
    arrivals: Arrivals,
    budget: AdmissionBudget,
    served: CallerCounts,
    wanted: f64,
    /// The time of the next estimate of demand, if callers were refused.
    estimate_at: Option<Millis>,
    /// The time for which the estimate has requested another sample.
    recheck_at: Option<Millis>,
    sweep_at: Option<Millis>,
    last: Nanos,
}

impl Callers {
    fn set_rate(&mut self, from: Nanos, per_second: f64) {
        self.per_second = per_second;
        self.next = self.after(from);
    }

    /// The next arrival, after an exponentially distributed time.
    fn after(&mut self, at: Nanos) -> Option<Nanos> {
        let seconds = -(1.0 - self.rng.f64()).ln() / self.per_second;
        (self.per_second > 0.0).then(|| at.saturating_add((seconds * 1e9) as Nanos))
    }

    fn next_before(&mut self, now: Nanos) -> Option<Nanos> {
        let at = self.next.filter(|at| *at < now)?;
        self.next = self.after(at);
        Some(at)
    }
}

impl OpenLimiter {
    fn new(now: Millis, window: Window) -> OpenLimiter {
        OpenLimiter {
            bucket: Bucket::full(Burst::Window(window.length)),
            demand: Demand::new(estimating(DemandKind::Rate, Some(window))),
            window: WindowDemand::new(window),
            arrivals: Arrivals::default(),
            budget: AdmissionBudget::new(nanos(now), window.length),
            served: CallerCounts::default(),
            wanted: 0.0,
            estimate_at: None,
            recheck_at: None,
            sweep_at: None,
            last: nanos(now),
        }
    }

    /// A caller asks for a permit. It does not wait for one.
    fn serve(&mut self, at: Nanos) -> Result<(), Violation> {
        self.served.arrived += 1;
        self.last = at;
        self.sweep_at.get_or_insert(tick_after(at, SWEEP_INTERVAL));
        if self.bucket.take(at, 1).is_ok() {
            self.served.passed += 1;
            return self.budget.passed(at);
        }
        self.estimate_at.get_or_insert(tick_after(at, POLL_INTERVAL));
        self.budget.refused(at)
    }

    fn wants(&mut self, now: Millis) -> f64 {
        let (arrived, capacity) = (self.served.arrived, self.bucket.capacity().get());
        self.demand.sample(now, Sample { count: arrived, freely: arrived, capacity, ..Sample::default() });
        let refused = arrived - self.bucket.taken();
        let look = WindowSample { estimated: self.demand.wants(now), refused, capacity, used: 0.0 };
        self.wanted = self.window.wants(now, look);
        if let Some(at) = self.demand.next_sample_at() {
            let at = at.max(now.plus(MIN_ESTIMATE_INTERVAL));
            self.recheck_at = Some(self.recheck_at.map_or(at, |before| before.min(at)));
        }
        self.wanted
    }

    /// Whether to estimate demand now, apart from refreshes.
    fn should_estimate(&mut self, now: Millis) -> bool {
        let falls = self.sweep_at.take_if(|at| *at <= now).is_some_and(|_| self.sweep(now));
        let presses = self.estimate_at.take_if(|at| *at <= now).is_some();
        let should_estimate = self.recheck_at.take_if(|at| *at <= now).is_some();
        falls || presses || should_estimate
    }

    fn sweep(&mut self, now: Millis) -> bool {
        if nanos(now).saturating_sub(self.last) > nanos(IDLE_TIMEOUT) {
            return false;
        }
        self.sweep_at = Some(now.plus(SWEEP_INTERVAL));
        self.arrivals.have_fallen(self.served.arrived)
    }
}

impl LimiterClient {
    pub(crate) fn new(resource: Arc<str>, window: Window, session: session::Settings, seed: u64) -> LimiterClient {
        let callers = Callers { per_second: 0.0, next: None, rng: fastrand::Rng::with_seed(seed) };
        let session = Session::new(session);
        LimiterClient { resource, window, session, priority: 0, callers, open: None, broken: None }
    }

    pub(crate) fn offer(&mut self, now: Millis, asked: Asked) {
        self.serve(now);
        self.priority = asked.priority;
        self.callers.set_rate(nanos(now), asked.amount);
        if self.open.is_none() {
            self.open = Some(OpenLimiter::new(now, self.window));
            self.estimate_wants(now);
            self.session.postpone(&self.resource, now.plus(FIRST_CALLER_DELAY));
            self.session.report_again(&self.resource);
            self.note_lease(now);
        }
    }

    /// Closes the limiter and releases the lease.
    pub(crate) fn close(&mut self, now: Millis) {
        self.serve(now);
        self.callers.set_rate(nanos(now), 0.0);
        self.open = None;
        self.session.release(&self.resource);
    }

    /// Calls the session, which may change its lease. Earlier callers are first served under the old lease.
    pub(crate) fn tell<R>(&mut self, now: Millis, what: impl FnOnce(&mut Session<Asked>) -> R) -> R {
        self.serve(now);
        let result = what(&mut self.session);
        self.note_lease(now);
        result
    }

    pub(crate) fn poll(&mut self, now: Millis) -> Option<Outgoing<Asked>> {
        self.serve(now);
        let should_estimate = self.open.as_mut().is_some_and(|open| open.should_estimate(now));
        if should_estimate || (self.session.is_due(now) && !self.session.due_resources(now).is_empty()) {
            self.estimate_wants(now);
        }
        self.session.poll(now)
    }

    /// Applies a change of the usable capacity to the limiter, and returns the new one. `None` if it has not changed.
    pub(crate) fn changed(&mut self, now: Millis) -> Option<Usable> {
        let mut changed = None;
        self.session.changes(now, |_, usable| changed = Some(usable));
        if let Some((open, usable)) = self.open.as_mut().zip(changed) {
            open.bucket.set(nanos(now), usable.capacity, None);
        }
        changed
    }

    pub(crate) fn wake(&self, now: Millis) -> Option<Millis> {
        let session = self.session.wake(now);
        let Some(open) = &self.open else { return session };
        let refuses = self.callers.next.map(|at| tick_after(at, POLL_INTERVAL));
        let should_estimate = [open.estimate_at.or(refuses), open.recheck_at, open.sweep_at];
        should_estimate.into_iter().chain([session]).flatten().min()
    }

    pub(crate) fn wanted(&self) -> f64 {
        self.open.as_ref().map_or(0.0, |open| open.wanted)
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }

    pub(crate) fn served(&self) -> CallerCounts {
        self.open.as_ref().map_or(CallerCounts::default(), |open| open.served)
    }

    pub(crate) fn burst(&self) -> f64 {
        self.open.as_ref().map_or(0.0, |open| open.budget.burst())
    }

    pub(crate) fn take_broken(&mut self) -> Option<Violation> {
        self.broken.take()
    }

    /// Serves all callers that have arrived before now.
    fn serve(&mut self, now: Millis) {
        while let Some(at) = self.callers.next_before(nanos(now)) {
            let Some(Err(violation)) = self.open.as_mut().map(|open| open.serve(at)) else { continue };
            self.broken.get_or_insert(violation);
        }
    }

    fn estimate_wants(&mut self, now: Millis) {
        let Some(open) = &mut self.open else { return };
        let asked = Asked { amount: open.wants(now), priority: self.priority, ..Asked::default() };
        self.session.want(now, &self.resource, asked, Mode::Pessimistic);
    }

    fn note_lease(&mut self, now: Millis) {
        let lease = self.session.lease(now, &self.resource);
        if let Some(open) = &mut self.open {
            open.budget.leased(nanos(now), lease.map(|lease| (lease.capacity.get(), nanos(lease.end))));
        }
    }
}

/// The leased capacity, without fallback.
pub(crate) fn leased(usable: Usable) -> f64 {
    if usable.basis == Basis::Lease { usable.capacity.get() } else { 0.0 }
}

fn nanos(at: Millis) -> Nanos {
    at.0.saturating_mul(NANOS_PER_MILLI)
}

fn tick_after(at: Nanos, every: Millis) -> Millis {
    Millis((at / nanos(every) + 1) * every.0)
}
