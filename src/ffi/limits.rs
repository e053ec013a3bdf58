//! Several limits at once: all of their permits and amounts, or none.

use std::{sync::Arc, time::Duration};

use leaseway_client::{Budget, Client, Gauge, Limits, Permits, Rate, Refusal, Reservations};

use crate::{
    budget::BudgetHandle,
    client::ClientHandle,
    error::{CallError, Error, call},
    gauge::GaugeHandle,
    handle::{Handle, elements, free, optional, take, with, with_new, write_if_wanted},
    rate::RateHandle,
    waiting::wait,
};

/// Several limits that an operation needs permits or amounts of. A caller takes all of them, or nothing. It first waits
/// for the amounts of budgets, then for the permits, which it takes at the same moment; while it waits for permits it
/// holds only the amounts. Any thread may use it.
pub type LimitsHandle = Handle<Joined<Limits>>;

/// Permits of several limits, until they are released. Any thread may release them.
pub type PermitsHandle = Handle<Permits>;

/// Permits and amounts of several limits taken in advance, until they are settled.
pub type ReservationsHandle = Handle<Joined<Reservations>>;

/// What an operation costs at one limit. Two of the pointers are NULL.
#[repr(C)]
pub struct Cost {
    /// A rate, or NULL.
    pub rate: *const RateHandle,
    /// A gauge, or NULL.
    pub gauge: *const GaugeHandle,
    /// A budget, or NULL.
    pub budget: *const BudgetHandle,
    /// The number of permits, or the amount of the budget.
    pub number: f64,
}

/// Which limit refuses, and when to try again.
#[repr(C)]
pub struct LimitsRefusal {
    /// The index of the limit: the first budget that refuses; otherwise the limit whose permits will be available last.
    pub index: usize,
    /// Seconds until the permits of all limits will be available, if nothing changes. Infinite if that is unknown, as
    /// for a budget, or never at the current capacity.
    pub retry_after: f64,
}

/// Limits or their reservations, and the kinds of the limits, to check numbers before the client library does: it
/// panics.
pub struct Joined<T> {
    value: T,
    kinds: Arc<[Kind]>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rate,
    Gauge,
    Budget,
}

impl Kind {
    /// Checks a number of permits to take, or an amount.
    fn check(self, what: &str, at: usize, number: f64) -> Result<(), CallError> {
        let max = if self == Kind::Budget { 1e15 } else { f64::from(u32::MAX) };
        let is_whole = self == Kind::Budget || number.fract() == 0.0;
        if (0.0..=max).contains(&number) && is_whole {
            return Ok(());
        }
        let expected = if self == Kind::Budget { "a number" } else { "a whole number" };
        Err(CallError::invalid(format!("{what}[{at}]={number}: expected {expected} from 0 to {max}")))
    }

    /// Checks what was used of a limit. The numbers of gauges are ignored.
    fn check_used(self, at: usize, number: f64) -> Result<(), CallError> {
        match self {
            Kind::Gauge => Ok(()),
            Kind::Rate if number >= 0.0 && number.fract() == 0.0 => Ok(()),
            Kind::Rate => {
                Err(CallError::invalid(format!("numbers[{at}]={number}: expected a whole number, 0 or more")))
            }
            Kind::Budget => self.check("numbers", at, number),
        }
    }
}

impl<T> Joined<T> {
    /// Borrows an array with one number for each limit.
    unsafe fn numbers<'a>(&self, numbers: *const f64, count: usize) -> Result<&'a [f64], CallError> {
        let expected = self.kinds.len();
        if count != expected {
            let message = format!("{count} numbers for {expected} limits: expected one for each");
            return Err(CallError::invalid(message));
        }
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { elements(numbers, count, "numbers") }
    }

    /// As [`Self::numbers`], of what was used.
    unsafe fn used<'a>(&self, numbers: *const f64, count: usize) -> Result<&'a [f64], CallError> {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let numbers = unsafe { self.numbers(numbers, count) }?;
        for (at, (kind, number)) in self.kinds.iter().zip(numbers).enumerate() {
            kind.check_used(at, *number)?;
        }
        Ok(numbers)
    }

    fn with<U>(&self, value: U) -> Joined<U> {
        Joined { value, kinds: Arc::clone(&self.kinds) }
    }
}

impl From<Refusal> for LimitsRefusal {
    fn from(refusal: Refusal) -> LimitsRefusal {
        let retry_after = refusal.retry_after().map_or(f64::INFINITY, |after: Duration| after.as_secs_f64());
        LimitsRefusal { index: refusal.index, retry_after }
    }
}

/// Combines limits of a client. `costs` is an array of `count` elements. The handles in it may be freed afterwards. On
/// failure the limits are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_open(
    client: *const ClientHandle,
    costs: *const Cost,
    count: usize,
    limits: *mut *mut LimitsHandle,
    error: *mut Error,
) -> i32 {
    let open = |client: &Client| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let costs = unsafe { elements(costs, count, "costs") }?;
        let one = |(at, cost): (usize, &Cost)| {
            // SAFETY: guaranteed by the caller, see the crate documentation.
            let rate: Option<&Rate> = unsafe { optional(cost.rate, "rate") }?;
            // SAFETY: the same.
            let gauge: Option<&Gauge> = unsafe { optional(cost.gauge, "gauge") }?;
            // SAFETY: the same.
            let budget: Option<&Budget> = unsafe { optional(cost.budget, "budget") }?;
            let checked = |kind: Kind| kind.check("costs", at, cost.number).map(|()| kind);
            match (rate, gauge, budget) {
                (Some(rate), None, None) => Ok((checked(Kind::Rate)?, rate.of(cost.number as u32))),
                (None, Some(gauge), None) => Ok((checked(Kind::Gauge)?, gauge.of(cost.number as u32))),
                (None, None, Some(budget)) => Ok((checked(Kind::Budget)?, budget.of(cost.number))),
                _ => Err(CallError::invalid(format!("costs[{at}]: expected one of a rate, a gauge and a budget"))),
            }
        };
        let costs = costs.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
        let (kinds, costs): (Vec<_>, Vec<_>) = costs.into_iter().unzip();
        Ok(Joined { value: client.limits(costs), kinds: kinds.into() })
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(client, "client", limits, "limits", error, open) }
}

/// The same limits with other numbers of permits and amounts, one for each: cheaper than leaseway_limits_open. On
/// failure `other` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_with_permits(
    limits: *const LimitsHandle,
    numbers: *const f64,
    count: usize,
    other: *mut *mut LimitsHandle,
    error: *mut Error,
) -> i32 {
    let with_permits = |limits: &Joined<Limits>| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let numbers = unsafe { limits.numbers(numbers, count) }?;
        for (at, (kind, number)) in limits.kinds.iter().zip(numbers).enumerate() {
            kind.check("numbers", at, *number)?;
        }
        Ok(limits.with(limits.value.with_permits(numbers)))
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", other, "limits", error, with_permits) }
}

/// Takes the permits and amounts of all limits if they are available now. Otherwise it takes nothing, fails with
/// LEASEWAY_NOT_NOW, sets the permits to NULL, and describes the refusal unless `refusal` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_try_acquire(
    limits: *const LimitsHandle,
    permits: *mut *mut PermitsHandle,
    refusal: *mut LimitsRefusal,
    error: *mut Error,
) -> i32 {
    let acquire = |limits: &Joined<Limits>| {
        limits.value.try_acquire().map_err(|refused| {
            // SAFETY: guaranteed by the caller, see the crate documentation.
            unsafe { write_if_wanted(refusal, refused.clone().into()) };
            refused.into()
        })
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", permits, "permits", error, acquire) }
}

/// Waits for the permits and amounts of all limits, for at most `timeout` seconds (INFINITY is allowed). On failure
/// nothing is taken, and the permits are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_acquire(
    limits: *const LimitsHandle,
    timeout: f64,
    permits: *mut *mut PermitsHandle,
    error: *mut Error,
) -> i32 {
    let acquire = |limits: &Joined<Limits>| wait(limits.value.runtime(), timeout, limits.value.acquire());
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", permits, "permits", error, acquire) }
}

/// Returns the permits of gauges and frees the handle. Those of rates are used up, and amounts of budgets are spent.
/// NULL and handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_permits_release(permits: *mut PermitsHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(permits) }
}

/// Waits for the permits and amounts of all limits, for work whose cost is known only at its end. On failure nothing is
/// taken, and the reservations are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_reserve(
    limits: *const LimitsHandle,
    timeout: f64,
    reservations: *mut *mut ReservationsHandle,
    error: *mut Error,
) -> i32 {
    let reserve = |limits: &Joined<Limits>| {
        wait(limits.value.runtime(), timeout, limits.value.reserve()).map(|reserved| limits.with(reserved))
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", reservations, "reservations", error, reserve) }
}

/// Ends reservations: used[i] was used of limit i. Rates and budgets get back what was not used, or are charged for the
/// excess. The permits of gauges are returned; their numbers are ignored. Frees the handle, also on failure. If `count`
/// or a number is invalid, everything counts as used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservations_settle(
    reservations: *mut ReservationsHandle,
    used: *const f64,
    count: usize,
    error: *mut Error,
) -> i32 {
    call(error, || {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let reservations = unsafe { take(reservations, "reservations") }?;
        // SAFETY: the same.
        let used = unsafe { reservations.used(used, count) }?;
        Ok(reservations.value.settle(used)?)
    })
}

/// Frees reservations without settling them: all their permits of rates and amounts of budgets count as used. NULL and
/// handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservations_free(reservations: *mut ReservationsHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(reservations) }
}

/// Charges each rate for permits, and each budget for an amount, that were already used: one number for each limit. The
/// numbers of gauges are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_charge(
    limits: *const LimitsHandle,
    numbers: *const f64,
    count: usize,
    error: *mut Error,
) -> i32 {
    let charge = |limits: &Joined<Limits>| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        Ok(limits.value.charge(unsafe { limits.used(numbers, count) }?)?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(limits, "limits", error, charge) }
}

/// Returns to each rate the permits taken last, because they were not used, one number for each limit. The numbers of
/// gauges and budgets are ignored: settle reservations of amounts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_refund(
    limits: *const LimitsHandle,
    numbers: *const f64,
    count: usize,
    error: *mut Error,
) -> i32 {
    let refund = |limits: &Joined<Limits>| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        limits.value.refund(unsafe { limits.used(numbers, count) }?);
        Ok(())
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(limits, "limits", error, refund) }
}

/// Frees the handle. The resources stay open until their last handles, permits and reservations are freed. NULL and
/// handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_free(limits: *mut LimitsHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(limits) }
}
