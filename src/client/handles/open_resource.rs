//! An open resource: the state shared by all its handles.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::types::{Amount, Millis};
use tokio::sync::watch;

use crate::{
    error::MAX_WANTS,
    handles::spender::Spender,
    limiter::{
        Burst, GaugeLimiter, RateLimiter, Window, WindowDemand, WindowSample,
        demand::{Demand, DemandKind, Sample},
        estimating,
    },
    session::{
        Basis, Capacity, Lease, Mode, Usable, Wants,
        pool::{PoolState, Usage, UsageCounters, UsageTracker},
    },
};

pub(crate) struct OpenResource {
    pub(crate) id: Arc<str>,
    pub(crate) mode: Mode,
    /// The priority that this client claims.
    pub(crate) priority: i64,
    /// The priority at which the server counts this client.
    effective_priority: AtomicI64,
    is_unlimited: AtomicBool,
    pub(crate) limiter: Limiter,
    /// The options of the first handle.
    pub(crate) options: OpenOptions,
    source: Mutex<WantsSource>,
    /// For limits per window.
    window: Option<Mutex<WindowDemand>>,
    usage_tracker: Mutex<Option<UsageTracker>>,
    /// Without a limiter: the units used and the busy time that the caller has reported so far.
    reported: Mutex<Option<(u64, Duration)>>,
    /// Without a limiter: the amount that may be in use now.
    in_use: Mutex<f64>,
    usable: watch::Sender<Usable>,
    closed: AtomicBool,
    /// The debt that was last reported.
    reported_debt: AtomicU64,
}

/// The options that all handles of a resource share, as far as they were set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpenOptions {
    pub(crate) wants: Option<f64>,
    pub(crate) priority: Option<i64>,
    pub(crate) mode: Option<Mode>,
    pub(crate) burst: Option<Burst>,
    pub(crate) max_debt: Option<u64>,
}

impl OpenOptions {
    /// The name of an option that is set here, and that the first handle was opened with another value of.
    pub(crate) fn conflict(&self, first: &OpenOptions, default_mode: Mode) -> Option<&'static str> {
        let differs = [
            ("wants", self.wants.is_some() && self.wants != first.wants),
            ("priority", self.priority.is_some_and(|priority| priority != first.priority.unwrap_or_default())),
            ("mode", self.mode.is_some_and(|mode| mode != first.mode.unwrap_or(default_mode))),
            ("burst", self.burst.is_some_and(|burst| burst != first.burst.unwrap_or_default())),
            ("max_debt", self.max_debt.is_some() && self.max_debt != first.max_debt),
        ];
        differs.into_iter().find_map(|(name, differs)| differs.then_some(name))
    }
}

/// What enforces the capacity.
pub(crate) enum Limiter {
    Rate(RateLimiter),
    Gauge(GaugeLimiter),
    Budget(Arc<Spender>),
    /// The caller enforces the capacity.
    None,
}

impl Limiter {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Limiter::Rate(_) => "rate",
            Limiter::Gauge(_) => "gauge",
            Limiter::Budget(_) => "budget",
            Limiter::None => "resource without a limiter",
        }
    }

    fn estimated(&self, window: Option<Window>) -> Option<WantsSource> {
        let kind = match self {
            Limiter::Rate(_) => DemandKind::Rate,
            Limiter::Gauge(_) => DemandKind::Gauge,
            Limiter::Budget(_) | Limiter::None => return None,
        };
        Some(WantsSource::Estimated(Demand::new(estimating(kind, window))))
    }
}

/// Where wants come from.
enum WantsSource {
    /// Set by the user.
    Fixed(f64),
    /// Estimated from the permits that callers take or wait for.
    Estimated(Demand),
}

impl OpenResource {
    /// Estimates wants if `wants` is absent and there is a limiter.
    pub(crate) fn new(id: Arc<str>, mode: Mode, priority: i64, limiter: Limiter, wants: Option<f64>) -> OpenResource {
        let source =
            wants.map(WantsSource::Fixed).or_else(|| limiter.estimated(None)).unwrap_or(WantsSource::Fixed(0.0));
        let (usable, _) = watch::channel(Usable { capacity: Capacity::NONE, basis: Basis::Unknown });
        OpenResource {
            id,
            mode,
            priority,
            effective_priority: AtomicI64::new(priority),
            is_unlimited: AtomicBool::new(false),
            limiter,
            options: OpenOptions::default(),
            source: Mutex::new(source),
            window: None,
            usage_tracker: Mutex::default(),
            reported: Mutex::default(),
            in_use: Mutex::default(),
            usable,
            closed: AtomicBool::new(false),
            reported_debt: AtomicU64::new(0),
        }
    }

    pub(crate) fn with_options(self, options: OpenOptions) -> OpenResource {
        OpenResource { options, ..self }
    }

    pub(crate) fn with_window(self, window: Option<Window>) -> OpenResource {
        let Some(window) = window else { return self };
        let opened = OpenResource { window: Some(Mutex::new(WindowDemand::new(window))), ..self };
        if opened.estimates_wants() {
            opened.estimate_anew();
        }
        opened
    }

    /// Replaces the window, if there is one, and forgets the demand observed with the old one.
    pub(crate) fn set_window(&self, window: Window) {
        let Some(demand) = &self.window else { return };
        let mut demand = demand.lock().unwrap_or_else(PoisonError::into_inner);
        // The limiter stays of the kind that it was opened with.
        *demand = WindowDemand::new(Window { slides: demand.window().slides, ..window });
        drop(demand);
        if self.estimates_wants() {
            self.estimate_anew();
        }
    }

    /// The length of the window, if it slides.
    pub(crate) fn sliding_window(&self) -> Option<Millis> {
        let window = self.window.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).window();
        let length = Millis(u64::try_from(window.length.as_millis()).unwrap_or(u64::MAX));
        window.slides.then_some(length)
    }

    /// Whether permits are in use that were taken in the current window, if it slides.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(&self.limiter, Limiter::Rate(rate) if rate.used() > 0.0)
    }

    /// Whether more is in use than the lease allows.
    pub(crate) fn exceeds_lease(&self) -> bool {
        matches!(&self.limiter, Limiter::Rate(rate) if rate.outstanding() > 0.0)
    }

    pub(crate) fn set_fixed_wants(&self, wants: f64) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = WantsSource::Fixed(wants);
    }

    /// Estimates wants from now on, unless it does so already. Returns whether there is a limiter to estimate them from.
    pub(crate) fn estimate_wants(&self) -> bool {
        self.estimates_wants() || self.estimate_anew()
    }

    fn estimate_anew(&self) -> bool {
        let window = self.window.as_ref().map(|window| window.lock().unwrap_or_else(PoisonError::into_inner).window());
        let Some(source) = self.limiter.estimated(window) else { return false };
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
        true
    }

    pub(crate) fn estimates_wants(&self) -> bool {
        matches!(*self.source.lock().unwrap_or_else(PoisonError::into_inner), WantsSource::Estimated(_))
    }

    /// The demand now.
    pub(crate) fn wants(&self, now: Millis) -> Wants {
        if let Limiter::Budget(spender) = &self.limiter {
            let (amount, spent) = spender.wants(now);
            return Wants { amount, priority: self.priority, spent: Some(spent), ..Wants::default() };
        }
        // Read the peak once, because reading resets it, and both wants and usage depend on it.
        let (peak, outstanding) = match &self.limiter {
            Limiter::Gauge(gauge) => (gauge.take_peak(), gauge.outstanding() as f64),
            Limiter::Rate(rate) => (0, rate.outstanding()),
            Limiter::Budget(_) => (0, 0.0),
            Limiter::None => (0, *self.in_use.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let amount = match &mut *source {
            WantsSource::Fixed(amount) => *amount,
            WantsSource::Estimated(demand) => self.estimate(demand, now, peak).min(MAX_WANTS),
        };
        drop(source);
        let tail = self.sliding_window().unwrap_or_default();
        Wants { amount, priority: self.priority, outstanding, tail, usage: self.usage(now, peak), spent: None }
    }

    /// Adds to the reported usage. Returns false if there is a limiter.
    pub(crate) fn report_use(&self, units: u64, busy: Duration) -> bool {
        if !matches!(self.limiter, Limiter::None) {
            return false;
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, before) = reported.unwrap_or_default();
        *reported = Some((taken.saturating_add(units), before.saturating_add(busy)));
        true
    }

    /// Sets the amount that may be in use; infinity stands for all capacity that the server holds for this client.
    /// Returns whether the amount changed.
    pub(crate) fn hold(&self, in_use: f64) -> bool {
        let in_use = if in_use.is_nan() { 0.0 } else { in_use.clamp(0.0, Amount::MAX.get()) };
        std::mem::replace(&mut *self.in_use.lock().unwrap_or_else(PoisonError::into_inner), in_use) != in_use
    }

    fn reported(&self) -> Option<(u64, Duration)> {
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a pool: the usage since the last report. `None` if there is neither a limiter nor reported usage: then the
    /// server assumes that everything is used.
    fn usage(&self, now: Millis, peak: u64) -> Option<Usage> {
        let mut tracker = self.usage_tracker();
        let tracker = tracker.as_mut()?;
        let counters = self.counters(now);
        match &self.limiter {
            Limiter::Rate(_) => Some(tracker.use_of_rate(counters)),
            Limiter::Gauge(gauge) => {
                let capacity = gauge.capacity().get();
                Some(tracker.use_of_gauge(counters, if peak == 0 { 0.0 } else { peak as f64 / capacity }))
            }
            Limiter::Budget(_) => None,
            Limiter::None => self.reported().map(|_| tracker.use_of_rate(counters)),
        }
    }

    fn counters(&self, now: Millis) -> UsageCounters {
        match &self.limiter {
            Limiter::Rate(rate) => UsageCounters { at: now, taken: rate.taken(), recharging: rate.recharging() },
            Limiter::Gauge(gauge) => UsageCounters { at: now, taken: gauge.taken(), ..UsageCounters::default() },
            Limiter::Budget(_) | Limiter::None => {
                let (taken, recharging) = self.reported().unwrap_or_default();
                UsageCounters { at: now, taken, recharging }
            }
        }
    }

    fn usage_tracker(&self) -> MutexGuard<'_, Option<UsageTracker>> {
        self.usage_tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the state of a pool from an answer; `None` if it is not a pool. `reported_usage` is the usage in the
    /// request of that answer.
    pub(crate) fn set_pool_state(&self, now: Millis, state: Option<PoolState>, reported_usage: Option<Usage>) {
        let mut tracker = self.usage_tracker();
        let before = tracker.take();
        *tracker = state.map(|state| {
            let counters = reported_usage.map_or_else(|| self.counters(now), |usage| usage.counters);
            UsageTracker::answered(before, state, counters, reported_usage.map(|usage| usage.recharging))
        });
        drop(tracker);
        if let Limiter::Rate(rate) = &self.limiter {
            rate.set(rate.capacity(), self.buffer(self.usable().basis));
        }
    }

    /// The burst set by a pool, while its lease is in force.
    fn buffer(&self, basis: Basis) -> Option<Duration> {
        self.usage_tracker().as_ref().filter(|_| basis == Basis::Lease)?.state.burst
    }

    /// Sets the priority at which the server counts this client. Returns whether it changed.
    pub(crate) fn set_effective_priority(&self, priority: i64) -> bool {
        self.effective_priority.swap(priority, Ordering::Relaxed) != priority
    }

    /// The priority at which the server counts this client, as far as is known.
    pub(crate) fn effective_priority(&self) -> i64 {
        self.effective_priority.load(Ordering::Relaxed)
    }

    /// Sets whether the server says that the resource has no limit. Returns whether that changed.
    pub(crate) fn set_unlimited(&self, is_unlimited: bool) -> bool {
        self.is_unlimited.swap(is_unlimited, Ordering::Relaxed) != is_unlimited
    }

    /// Whether the server has said that the resource has no limit.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_unlimited.load(Ordering::Relaxed)
    }

    /// The state of this client in a pool.
    pub(crate) fn pool(&self) -> Option<PoolState> {
        self.usage_tracker().as_ref().map(|tracker| tracker.state.clone())
    }

    fn estimate(&self, demand: &mut Demand, now: Millis, peak: u64) -> f64 {
        match &self.limiter {
            Limiter::Rate(rate) => demand.sample(now, rate.sample()),
            Limiter::Gauge(_) => demand.sample(now, Sample { count: peak, ..Sample::default() }),
            Limiter::Budget(_) | Limiter::None => {}
        }
        match &self.window {
            Some(window) => {
                let estimated = demand.wants(now);
                let sample = match &self.limiter {
                    Limiter::Rate(rate) => {
                        let (refused, capacity) = (rate.refused(), rate.capacity().get());
                        WindowSample { estimated, refused, capacity, used: rate.used() }
                    }
                    _ => WindowSample { estimated, ..WindowSample::default() },
                };
                window.lock().unwrap_or_else(PoisonError::into_inner).wants(now, sample)
            }
            None => demand.wants(now),
        }
    }

    /// When to estimate wants again; `None` if the next refresh is early enough.
    pub(crate) fn next_sample_at(&self) -> Option<Millis> {
        match &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            WantsSource::Estimated(demand) => demand.next_sample_at(),
            WantsSource::Fixed(_) => None,
        }
    }

    /// The debt of its limiter.
    pub(crate) fn debt(&self) -> u64 {
        match &self.limiter {
            Limiter::Rate(rate) => rate.debt(),
            Limiter::Gauge(_) | Limiter::Budget(_) | Limiter::None => 0,
        }
    }

    /// The debt, if it has changed since the last call.
    pub(crate) fn changed_debt(&self) -> Option<u64> {
        let debt = self.debt();
        (self.reported_debt.swap(debt, Ordering::Relaxed) != debt).then_some(debt)
    }

    /// Whether callers wait or there is debt, and wants are estimated.
    pub(crate) fn is_under_pressure(&self) -> bool {
        let waiting = match &self.limiter {
            Limiter::Budget(spender) => return spender.has_waiting(),
            Limiter::Rate(rate) => rate.waiting().saturating_add(rate.debt()),
            Limiter::Gauge(gauge) => gauge.waiting(),
            Limiter::None => 0,
        };
        waiting > 0 && self.estimates_wants()
    }

    /// Applies a capacity. Returns the previous one.
    pub(crate) fn apply(&self, usable: Usable) -> Usable {
        match &self.limiter {
            Limiter::Rate(rate) => rate.set(usable.capacity, self.buffer(usable.basis)),
            Limiter::Gauge(gauge) => gauge.set_capacity(usable.capacity),
            Limiter::Budget(_) | Limiter::None => {}
        }
        self.usable.send_replace(usable)
    }

    /// Budgets: takes the newest lease. Returns whether the client should ask again at once.
    pub(crate) fn take(&self, now: Millis, lease: &Lease) -> bool {
        match &self.limiter {
            Limiter::Budget(spender) => spender.take(now, lease),
            _ => false,
        }
    }

    pub(crate) fn is_budget(&self) -> bool {
        matches!(self.limiter, Limiter::Budget(_))
    }

    pub(crate) fn usable(&self) -> Usable {
        *self.usable.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Usable> {
        self.usable.subscribe()
    }

    /// Whether it was closed. Watchers of the capacity are woken afterwards.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the limiter.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        match &self.limiter {
            Limiter::Rate(rate) => rate.close(),
            Limiter::Gauge(gauge) => gauge.close(),
            Limiter::Budget(spender) => spender.close(),
            Limiter::None => {}
        }
        self.apply(Usable { capacity: Capacity::NONE, basis: Basis::Unknown });
    }
}

#[cfg(test)]
mod tests;
