//! A resource that is open: what all its handles are handles of.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::Millis;
use leaseway_session::{
    Basis, Capacity, Mode, Usable, Wants,
    pool::{Meter, Place, PoolState, Usage},
};
use tokio::sync::watch;

use crate::{
    demand::{Demand, Kind, Sample, Settings},
    limiter::{GaugeLimiter, RateLimiter},
    window::{Window, WindowDemand, WindowLook},
};

pub(crate) struct Opened {
    pub(crate) id: Arc<str>,
    pub(crate) mode: Mode,
    /// As claimed.
    pub(crate) priority: i64,
    /// As the server counts it.
    counted_at: AtomicI64,
    pub(crate) limiter: Limiter,
    /// For so long what a former life of the client was given may still be in use.
    pub(crate) former_life: Millis,
    source: Mutex<WantsSource>,
    /// What is limited is a window.
    window: Option<Mutex<WindowDemand>>,
    place: Mutex<Option<Place>>,
    /// What a caller that limits itself says it has used, ever; nothing, if it never said anything.
    reported: Mutex<Option<(u64, Duration)>>,
    /// What a caller that limits itself says may be in use now.
    in_use: Mutex<f64>,
    usable: watch::Sender<Usable>,
    /// What it owed when that was last told.
    debt_told: AtomicU64,
}

/// How fast wants are forgotten does not depend on the server: a spike is sent at once at any refresh interval.
const REFRESH: Duration = Duration::from_secs(5);

/// What keeps to the capacity.
pub(crate) enum Limiter {
    Rate(RateLimiter),
    Gauge(GaugeLimiter),
    /// The user of the handle does.
    None,
}

impl Limiter {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Limiter::Rate(_) => "rate",
            Limiter::Gauge(_) => "gauge",
            Limiter::None => "resource without a limiter",
        }
    }

    fn estimated(&self) -> Option<WantsSource> {
        let kind = match self {
            Limiter::Rate(_) => Kind::Rate,
            Limiter::Gauge(_) => Kind::Gauge,
            Limiter::None => return None,
        };
        Some(WantsSource::Estimated(Demand::new(Settings { kind, refresh: REFRESH })))
    }
}

/// Where wants come from.
enum WantsSource {
    /// Set by hand.
    Fixed(f64),
    /// From what passes the limiter and what waits there.
    Estimated(Demand),
}

impl Opened {
    /// Without `wants` they are estimated.
    pub(crate) fn new(id: Arc<str>, mode: Mode, priority: i64, limiter: Limiter, wants: Option<f64>) -> Opened {
        let source = wants.map(WantsSource::Fixed).or_else(|| limiter.estimated()).unwrap_or(WantsSource::Fixed(0.0));
        let (usable, _) = watch::channel(Usable { capacity: Capacity::NONE, basis: Basis::Unknown });
        Opened {
            id,
            mode,
            priority,
            counted_at: AtomicI64::new(priority),
            limiter,
            former_life: Millis(0),
            source: Mutex::new(source),
            window: None,
            place: Mutex::default(),
            reported: Mutex::default(),
            in_use: Mutex::default(),
            usable,
            debt_told: AtomicU64::new(0),
        }
    }

    pub(crate) fn of_window(self, window: Option<Window>) -> Opened {
        Opened { window: window.map(|window| Mutex::new(WindowDemand::new(window))), ..self }
    }

    pub(crate) fn after(self, former_life: Duration) -> Opened {
        Opened { former_life: Millis(u64::try_from(former_life.as_millis()).unwrap_or(u64::MAX)), ..self }
    }

    pub(crate) fn fix_wants(&self, wants: f64) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = WantsSource::Fixed(wants);
    }

    /// Returns whether there is a limiter to estimate them from.
    pub(crate) fn estimate_wants(&self) -> bool {
        let Some(source) = self.limiter.estimated() else { return false };
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
        true
    }

    pub(crate) fn estimates_wants(&self) -> bool {
        matches!(*self.source.lock().unwrap_or_else(PoisonError::into_inner), WantsSource::Estimated(_))
    }

    /// What to ask for now.
    pub(crate) fn wants(&self, now: Millis) -> Wants {
        // It can be looked at once: both what is wanted and what is used depend on it.
        let (peak, outstanding) = match &self.limiter {
            Limiter::Gauge(gauge) => (gauge.take_peak(), gauge.outstanding() as f64),
            Limiter::Rate(_) => (0, 0.0),
            Limiter::None => (0, *self.in_use.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let amount = match &mut *source {
            WantsSource::Fixed(amount) => *amount,
            WantsSource::Estimated(demand) => self.estimate(demand, now, peak),
        };
        drop(source);
        Wants { amount, priority: self.priority, outstanding, usage: self.usage(now, peak) }
    }

    /// A caller that limits itself has used so much more, and was at it for so long. Returns whether it limits itself.
    pub(crate) fn report_use(&self, units: u64, busy: Duration) -> bool {
        if !matches!(self.limiter, Limiter::None) {
            return false;
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, before) = reported.unwrap_or_default();
        *reported = Some((taken.saturating_add(units), before.saturating_add(busy)));
        true
    }

    /// A caller that limits itself may be using so much. Returns whether that is new.
    pub(crate) fn hold(&self, in_use: f64) -> bool {
        let in_use = if in_use.is_nan() { 0.0 } else { in_use.max(0.0) };
        std::mem::replace(&mut *self.in_use.lock().unwrap_or_else(PoisonError::into_inner), in_use) != in_use
    }

    fn reported(&self) -> Option<(u64, Duration)> {
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In a pool: what has been used since the server was last told. Without a limiter, and without a
    /// report, nothing can be said; the server then takes it that all is used.
    fn usage(&self, now: Millis, peak: u64) -> Option<Usage> {
        let mut place = self.place();
        let place = place.as_mut()?;
        let meter = self.meter(now);
        match &self.limiter {
            Limiter::Rate(_) => Some(place.use_of_rate(meter)),
            Limiter::Gauge(gauge) => {
                let capacity = gauge.capacity().get();
                Some(place.use_of_gauge(meter, if peak == 0 { 0.0 } else { peak as f64 / capacity }))
            }
            Limiter::None => self.reported().map(|_| place.use_of_rate(meter)),
        }
    }

    fn meter(&self, now: Millis) -> Meter {
        match &self.limiter {
            Limiter::Rate(rate) => Meter { at: now, taken: rate.taken(), recharging: rate.recharging() },
            Limiter::Gauge(gauge) => Meter { at: now, taken: gauge.taken(), ..Meter::default() },
            Limiter::None => {
                let (taken, recharging) = self.reported().unwrap_or_default();
                Meter { at: now, taken, recharging }
            }
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has answered, and says where this client stands in a pool, if it is one. `told`: what its request
    /// said of use.
    pub(crate) fn placed(&self, now: Millis, state: Option<PoolState>, told: Option<Usage>) {
        let mut place = self.place();
        let before = place.take();
        *place = state.map(|state| {
            let meter = told.map_or_else(|| self.meter(now), |usage| usage.meter);
            Place::answered(before, state, meter, told.map(|usage| usage.recharging))
        });
        drop(place);
        if let Limiter::Rate(rate) = &self.limiter {
            rate.set(rate.capacity(), self.buffer(self.usable().basis));
        }
    }

    /// What a pool lets be saved up, while its lease is in force.
    fn buffer(&self, basis: Basis) -> Option<Duration> {
        self.place().as_ref().filter(|_| basis == Basis::Lease)?.state.burst
    }

    /// The server counts this client at `priority`; whether that is new.
    pub(crate) fn count_at(&self, priority: i64) -> bool {
        self.counted_at.swap(priority, Ordering::Relaxed) != priority
    }

    /// At what priority the server counts this client, as far as is known.
    pub(crate) fn counted_at(&self) -> i64 {
        self.counted_at.load(Ordering::Relaxed)
    }

    /// Where this client stands, in a pool.
    pub(crate) fn pool(&self) -> Option<PoolState> {
        self.place().as_ref().map(|place| place.state.clone())
    }

    fn estimate(&self, demand: &mut Demand, now: Millis, peak: u64) -> f64 {
        match &self.limiter {
            Limiter::Rate(rate) => demand.sample(
                now,
                Sample {
                    count: rate.arrived(),
                    freely: rate.arrived_freely(),
                    refunded: rate.refunded(),
                    waiting: rate.waiting().saturating_add(rate.debt()),
                    queued: rate.queued(),
                    capacity: rate.capacity().get(),
                },
            ),
            Limiter::Gauge(_) => demand.sample(now, Sample { count: peak, ..Sample::default() }),
            Limiter::None => {}
        }
        match &self.window {
            Some(window) => {
                let estimated = demand.wants(now);
                let look = match &self.limiter {
                    Limiter::Rate(rate) => {
                        WindowLook { estimated, refused: rate.refused(), capacity: rate.capacity().get() }
                    }
                    Limiter::Gauge(_) | Limiter::None => WindowLook { estimated, ..WindowLook::default() },
                };
                window.lock().unwrap_or_else(PoisonError::into_inner).wants(now, look)
            }
            None => demand.wants(now),
        }
    }

    /// When its wants should be estimated again, if that should not wait for the next refresh.
    pub(crate) fn look_again(&self) -> Option<Millis> {
        match &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            WantsSource::Estimated(demand) => demand.look_again(),
            WantsSource::Fixed(_) => None,
        }
    }

    /// What its limiter owes.
    pub(crate) fn debt(&self) -> u64 {
        match &self.limiter {
            Limiter::Rate(rate) => rate.debt(),
            Limiter::Gauge(_) | Limiter::None => 0,
        }
    }

    /// What it owes, if that is not what this said last.
    pub(crate) fn new_debt(&self) -> Option<u64> {
        let debt = self.debt();
        (self.debt_told.swap(debt, Ordering::Relaxed) != debt).then_some(debt)
    }

    /// Whether callers wait, or something is owed, that has to be estimated as demand.
    pub(crate) fn is_under_pressure(&self) -> bool {
        let waiting = match &self.limiter {
            Limiter::Rate(rate) => rate.waiting().saturating_add(rate.debt()),
            Limiter::Gauge(gauge) => gauge.waiting(),
            Limiter::None => 0,
        };
        waiting > 0 && self.estimates_wants()
    }

    /// Puts a capacity in force, and returns what was before.
    pub(crate) fn apply(&self, usable: Usable) -> Usable {
        match &self.limiter {
            Limiter::Rate(rate) => rate.set(usable.capacity, self.buffer(usable.basis)),
            Limiter::Gauge(gauge) => gauge.set_capacity(usable.capacity),
            Limiter::None => {}
        }
        self.usable.send_replace(usable)
    }

    pub(crate) fn usable(&self) -> Usable {
        *self.usable.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Usable> {
        self.usable.subscribe()
    }

    /// Its lease is kept alive no more.
    pub(crate) fn close(&self) {
        match &self.limiter {
            Limiter::Rate(rate) => rate.close(),
            Limiter::Gauge(gauge) => gauge.close(),
            Limiter::None => {}
        }
        self.apply(Usable { capacity: Capacity::NONE, basis: Basis::Unknown });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Burst;
    use leaseway_session::pool::Standing;

    const UNLIMITED: Usable = Usable { capacity: Capacity::UNLIMITED, basis: Basis::Lease };

    fn opened(limiter: Limiter, wants: Option<f64>) -> Opened {
        Opened::new("r".into(), Mode::Safe, 3, limiter, wants)
    }

    #[tokio::test(start_paused = true)]
    async fn wants_can_be_said_and_estimated_again() {
        let opened = opened(Limiter::Rate(RateLimiter::new(Burst::default())), Some(7.0));
        assert_eq!(opened.wants(Millis(0)), Wants { amount: 7.0, priority: 3, ..Wants::default() });
        assert!(opened.estimate_wants() && opened.estimates_wants());
        opened.fix_wants(8.0);
        assert!(!opened.estimates_wants());
        assert_eq!(opened.wants(Millis(0)).amount, 8.0);
    }

    fn in_a_pool() -> Option<PoolState> {
        let standing = Standing::Free;
        Some(PoolState { standing, assigned: 0.0, min_capacity: 1.0, reason: None, burst: None })
    }

    #[tokio::test(start_paused = true)]
    async fn only_pools_are_told_of_use_and_only_of_what_they_do_not_know() {
        let rate = RateLimiter::new(Burst::Permits(10.0));
        let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
        opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
        tokio::time::advance(Duration::from_secs(10)).await;
        rate.try_acquire(4).expect("saved");
        assert_eq!(opened.wants(Millis(10_000)).usage, None, "it may be no pool");
        opened.placed(Millis(10_000), in_a_pool(), None);
        rate.try_acquire(5).expect("saved");
        tokio::time::advance(Duration::from_secs(4)).await;
        let told = opened.wants(Millis(14_000)).usage.expect("it is a pool");
        // The four of before are still missing when it begins, and take as long to come back as they ever would.
        assert_eq!((told.units, told.recharging, told.interval), (5, 0.225, Millis(4_000)));
        rate.try_acquire(1).expect("saved");
        opened.placed(Millis(14_100), in_a_pool(), Some(told));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(opened.wants(Millis(15_000)).usage.map(|usage| usage.units), Some(1), "used while it was told");
        assert_eq!(opened.pool(), in_a_pool());
        opened.placed(Millis(15_000), None, None);
        assert_eq!((opened.wants(Millis(16_000)).usage, opened.pool()), (None, None), "it is a pool no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gauge_in_a_pool_uses_what_was_out_at_the_same_time_also_if_its_wants_are_fixed() {
        let gauge = GaugeLimiter::new();
        let opened = opened(Limiter::Gauge(gauge.clone()), Some(10.0));
        opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
        opened.placed(Millis(0), in_a_pool(), None);
        drop((gauge.try_acquire(3).expect("free"), gauge.try_acquire(1).expect("free")));
        let told = opened.wants(Millis(1_000)).usage.expect("it is a pool");
        assert_eq!((told.units, told.recharging), (4, 0.4));
        opened.placed(Millis(1_000), in_a_pool(), Some(told));
        opened.wants(Millis(2_000));
        opened.placed(Millis(2_000), in_a_pool(), opened.wants(Millis(2_000)).usage);
        assert_eq!(opened.wants(Millis(3_000)).usage.map(|usage| (usage.units, usage.recharging)), Some((0, 0.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_says_how_much_is_saved_up_while_its_lease_is_in_force_and_no_longer() {
        let saved_up = async |burst, buffer: Option<u64>, basis| {
            let rate = RateLimiter::new(burst);
            let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
            opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
            let state = in_a_pool().map(|state| PoolState { burst: buffer.map(Duration::from_secs), ..state });
            opened.placed(Millis(0), state, None);
            opened.apply(Usable { capacity: Capacity::of(10.0), basis });
            tokio::time::advance(Duration::from_secs(100)).await;
            (1..).take_while(|_| rate.try_acquire(1).is_ok()).count()
        };
        let smooth = saved_up(Burst::Smooth, None, Basis::Lease).await;
        assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Lease).await, 60);
        assert_eq!(saved_up(Burst::Smooth, Some(6), Basis::Fallback).await, smooth, "not on the safe capacity");
        assert_eq!(saved_up(Burst::Smooth, Some(0), Basis::Lease).await, smooth, "timers need that much");
        assert_eq!(saved_up(Burst::Permits(7.0), Some(6), Basis::Lease).await, 7, "as it chose");
        assert_eq!(saved_up(Burst::Permits(700.0), Some(6), Basis::Lease).await, 60, "and no more than it may");
        assert_eq!(saved_up(Burst::Permits(70.0), None, Basis::Lease).await, 70);
    }

    /// What the server hears is when the bucket of the pool was not full.
    #[tokio::test(start_paused = true)]
    async fn use_is_told_by_the_bucket_that_the_pool_lets_one_have() {
        let rate = RateLimiter::new(Burst::default());
        let opened = opened(Limiter::Rate(rate.clone()), Some(10.0));
        opened.apply(Usable { capacity: Capacity::of(10.0), basis: Basis::Lease });
        let state = in_a_pool().map(|state| PoolState { burst: Some(Duration::from_secs(6)), ..state });
        opened.placed(Millis(0), state.clone(), None);
        tokio::time::advance(Duration::from_secs(10)).await;
        opened.placed(Millis(10_000), state, opened.wants(Millis(10_000)).usage);
        rate.try_acquire(40).expect("saved up");
        tokio::time::advance(Duration::from_secs(16)).await;
        let told = opened.wants(Millis(26_000)).usage.expect("it is a pool");
        assert_eq!((told.units, told.recharging), (40, 0.25), "what four seconds bring takes four to come back");
    }

    #[test]
    fn a_caller_that_limits_itself_can_say_what_it_has_used() {
        let own = opened(Limiter::None, Some(7.0));
        own.placed(Millis(0), in_a_pool(), None);
        assert!(own.report_use(20, Duration::from_secs(1)) && own.report_use(10, Duration::from_secs(1)));
        let told = own.wants(Millis(4_000)).usage.expect("it has said so");
        assert_eq!((told.units, told.recharging, told.interval), (30, 0.5, Millis(4_000)));
        own.placed(Millis(4_000), in_a_pool(), Some(told));
        let idle = own.wants(Millis(5_000)).usage.expect("nothing is something too");
        assert_eq!((idle.units, idle.recharging), (0, 0.0));
        own.report_use(u64::MAX, Duration::MAX);
        let told = own.wants(Millis(6_000)).usage.expect("it has said so");
        assert_eq!(told.recharging, 1.0, "no more than all");
        let rate = opened(Limiter::Rate(RateLimiter::new(Burst::default())), None);
        assert!(!rate.report_use(1, Duration::ZERO), "its limiter knows better");
    }

    #[test]
    fn without_a_limiter_nothing_can_be_said_of_use() {
        let opened = opened(Limiter::None, Some(7.0));
        opened.placed(Millis(0), in_a_pool(), None);
        assert_eq!((opened.wants(Millis(1_000)).usage, opened.pool()), (None, in_a_pool()));
    }

    #[test]
    fn without_a_limiter_nothing_can_be_estimated() {
        let opened = opened(Limiter::None, Some(7.0));
        assert!(!opened.estimate_wants() && !opened.estimates_wants());
        assert_eq!(opened.wants(Millis(0)).amount, 7.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gauge_wants_as_many_as_were_out_at_the_same_time() {
        let gauge = GaugeLimiter::new();
        let opened = opened(Limiter::Gauge(gauge.clone()), None);
        opened.apply(UNLIMITED);
        opened.wants(Millis(0));
        drop((gauge.try_acquire(3).expect("free"), gauge.try_acquire(4).expect("free")));
        assert!(opened.wants(Millis(1_000)).amount >= 7.0, "though they are back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_presses_only_where_wants_are_estimated() {
        for (wants, presses) in [(None, true), (Some(7.0), false)] {
            let rate = RateLimiter::new(Burst::default());
            let opened = opened(Limiter::Rate(rate.clone()), wants);
            assert!(!opened.is_under_pressure(), "none waits");
            let waiting = tokio::spawn(async move { rate.wait().await });
            tokio::task::yield_now().await;
            assert_eq!(opened.is_under_pressure(), presses);
            opened.close();
            assert!(waiting.await.expect("no panic").is_err());
        }
    }

    #[test]
    fn a_watcher_is_woken_by_every_change() {
        let opened = opened(Limiter::None, Some(7.0));
        let mut watch = opened.watch();
        assert_eq!(opened.apply(UNLIMITED).basis, Basis::Unknown, "what was before");
        assert!(watch.has_changed().expect("it is open"));
        assert_eq!(*watch.borrow_and_update(), UNLIMITED);
        opened.close();
        assert!(watch.has_changed().expect("it is open") && opened.usable().capacity == Capacity::NONE);
    }
}
