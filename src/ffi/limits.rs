//! Several limits at once: all of their permits, or none.

use std::time::Duration;

use leaseway_client::{Client, Gauge, Limits, Permits, Rate, Refusal, Reservations};

use crate::{
    client::ClientHandle,
    error::{CallError, Error, call},
    gauge::GaugeHandle,
    handle::{Handle, elements, free, optional, take, with, with_new, write_if_wanted},
    rate::RateHandle,
    waiting::wait,
};

/// Several limits that an operation needs permits of. A caller takes the permits of all of them at the same moment, or
/// nothing; while it waits it holds nothing. Any thread may use it.
pub type LimitsHandle = Handle<Limits>;

/// Permits of several limits, until they are released. Any thread may release them.
pub type PermitsHandle = Handle<Permits>;

/// Permits of several limits taken in advance, until they are settled.
pub type ReservationsHandle = Handle<Reservations>;

/// What an operation costs at one limit: n permits of a rate or of a gauge. The other pointer is NULL.
#[repr(C)]
pub struct Cost {
    /// NULL for a gauge.
    pub rate: *const RateHandle,
    /// NULL for a rate.
    pub gauge: *const GaugeHandle,
    /// Number of permits.
    pub n: u32,
}

/// Which limit refuses, and when to try again.
#[repr(C)]
pub struct LimitsRefusal {
    /// The index of the limit. If several refuse, it is the one whose permits will be available last.
    pub index: usize,
    /// Seconds until the permits of all limits will be available, if nothing changes. Infinite if that is unknown, or
    /// never at the current capacity.
    pub retry_after: f64,
}

impl From<Refusal> for LimitsRefusal {
    fn from(refusal: Refusal) -> LimitsRefusal {
        let retry_after = refusal.retry_after().map_or(f64::INFINITY, |after: Duration| after.as_secs_f64());
        LimitsRefusal { index: refusal.index, retry_after }
    }
}

/// Fails unless there is one number for each limit.
fn check(limits: &Limits, numbers: usize) -> Result<(), CallError> {
    let expected = limits.resources().len();
    let wrong = || CallError::invalid(format!("{numbers} numbers for {expected} limits: expected one for each"));
    if numbers == expected { Ok(()) } else { Err(wrong()) }
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
            match (rate, gauge) {
                (Some(rate), None) => Ok(rate.of(cost.n)),
                (None, Some(gauge)) => Ok(gauge.of(cost.n)),
                _ => Err(CallError::invalid(format!("costs[{at}]: expected either a rate or a gauge"))),
            }
        };
        let costs = costs.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(client.limits(costs))
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(client, "client", limits, "limits", error, open) }
}

/// The same limits with other numbers of permits, one for each: cheaper than leaseway_limits_open. On failure `other` is
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_with_permits(
    limits: *const LimitsHandle,
    permits: *const u32,
    count: usize,
    other: *mut *mut LimitsHandle,
    error: *mut Error,
) -> i32 {
    let with_permits = |limits: &Limits| {
        check(limits, count)?;
        // SAFETY: guaranteed by the caller, see the crate documentation.
        Ok(limits.with_permits(unsafe { elements(permits, count, "permits") }?))
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", other, "limits", error, with_permits) }
}

/// Takes the permits of all limits if they are available now. Otherwise it takes nothing, fails with LEASEWAY_NOT_NOW,
/// sets the permits to NULL, and describes the refusal unless `refusal` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_try_acquire(
    limits: *const LimitsHandle,
    permits: *mut *mut PermitsHandle,
    refusal: *mut LimitsRefusal,
    error: *mut Error,
) -> i32 {
    let acquire = |limits: &Limits| {
        limits.try_acquire().map_err(|refused| {
            // SAFETY: guaranteed by the caller, see the crate documentation.
            unsafe { write_if_wanted(refusal, refused.clone().into()) };
            refused.into()
        })
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", permits, "permits", error, acquire) }
}

/// Waits for the permits of all limits, for at most `timeout` seconds (INFINITY is allowed), and takes them together. On
/// failure nothing is taken, and the permits are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_acquire(
    limits: *const LimitsHandle,
    timeout: f64,
    permits: *mut *mut PermitsHandle,
    error: *mut Error,
) -> i32 {
    let acquire = |limits: &Limits| wait(limits.runtime(), timeout, limits.acquire());
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", permits, "permits", error, acquire) }
}

/// Returns the permits of gauges and frees the handle. Those of rates are used up. NULL and handles of another process
/// are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_permits_release(permits: *mut PermitsHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(permits) }
}

/// Waits for the permits of all limits, for work whose cost is known only at its end. On failure nothing is taken, and
/// the reservations are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_reserve(
    limits: *const LimitsHandle,
    timeout: f64,
    reservations: *mut *mut ReservationsHandle,
    error: *mut Error,
) -> i32 {
    let reserve = |limits: &Limits| wait(limits.runtime(), timeout, limits.reserve());
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(limits, "limits", reservations, "reservations", error, reserve) }
}

/// Ends reservations: used[i] permits of limit i were used. Rates get their unused permits back, or are charged for the
/// excess. The permits of gauges are returned; their numbers are ignored. Frees the handle, also on failure. If `count`
/// is wrong, all permits of rates count as used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservations_settle(
    reservations: *mut ReservationsHandle,
    used: *const u64,
    count: usize,
    error: *mut Error,
) -> i32 {
    call(error, || {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let reservations = unsafe { take(reservations, "reservations") }?;
        // SAFETY: the same.
        let used = unsafe { elements(used, count, "used numbers") }?;
        let expected = reservations.reserved().len();
        if count != expected {
            let message = format!("{count} numbers for {expected} limits: expected one for each");
            return Err(CallError::invalid(message));
        }
        Ok(reservations.settle(used)?)
    })
}

/// Frees reservations without settling them: all their permits of rates count as used. NULL and handles of another
/// process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservations_free(reservations: *mut ReservationsHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(reservations) }
}

/// Charges each rate for permits that were already used, one number for each limit. The numbers of gauges are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_charge(
    limits: *const LimitsHandle,
    permits: *const u64,
    count: usize,
    error: *mut Error,
) -> i32 {
    let charge = |limits: &Limits| {
        check(limits, count)?;
        // SAFETY: guaranteed by the caller, see the crate documentation.
        Ok(limits.charge(unsafe { elements(permits, count, "permits") }?)?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(limits, "limits", error, charge) }
}

/// Returns to each rate the permits taken last, because they were not used, one number for each limit. The numbers of
/// gauges are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_limits_refund(
    limits: *const LimitsHandle,
    permits: *const u64,
    count: usize,
    error: *mut Error,
) -> i32 {
    let refund = |limits: &Limits| {
        check(limits, count)?;
        // SAFETY: guaranteed by the caller, see the crate documentation.
        limits.refund(unsafe { elements(permits, count, "permits") }?);
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
