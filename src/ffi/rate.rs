//! Rates.

use std::ffi::c_char;

use leaseway_client::{Basis, Client, Rate, Reservation};

use crate::{
    client::ClientHandle,
    error::{Error, call},
    handle::{Handle, free, take, with, with_new, write_value},
    settings,
    waiting::wait,
};

/// No answer yet.
pub const LEASEWAY_UNKNOWN: i32 = 0;
/// A live lease.
pub const LEASEWAY_LEASE: i32 = 1;
/// A fallback capacity, which depends on the mode: the lease has expired, or none could be obtained.
pub const LEASEWAY_FALLBACK: i32 = 2;

pub(crate) fn basis(basis: Basis) -> i32 {
    match basis {
        Basis::Unknown => LEASEWAY_UNKNOWN,
        Basis::Lease => LEASEWAY_LEASE,
        Basis::Fallback => LEASEWAY_FALLBACK,
    }
}

/// Permits per second. Any thread may use it; waiting callers are served first come, first served.
pub type RateHandle = Handle<Rate>;

/// Permits taken in advance, until they are settled.
pub type ReservationHandle = Handle<Reservation>;

/// The state of a rate.
#[repr(C)]
pub struct RateState {
    /// Permits per second; infinite if there is no limit.
    pub capacity: f64,
    /// Where the capacity comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
    pub basis: i32,
    /// Permits available now, even if others wait for them; negative if there is debt.
    pub available: f64,
    /// Maximum number of permits that can be saved up.
    pub burst: f64,
}

/// Opens a rate. `settings` is NULL or a NULL-terminated array of `key=value`: `wants` (estimated by default),
/// `priority`, `mode`, `burst` (permits) or `window` (seconds), `max_debt`. On failure the rate is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_open(
    client: *const ClientHandle,
    resource: *const c_char,
    settings: *const *const c_char,
    rate: *mut *mut RateHandle,
    error: *mut Error,
) -> i32 {
    let open = |client: &Client| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let (builder, settings) = unsafe { settings::resource(client, resource, settings) }?;
        Ok(settings::rate(builder, settings)?.rate()?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(client, "client", rate, "rate", error, open) }
}

/// Takes n permits if they are available now; otherwise fails with LEASEWAY_NOT_NOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_try_acquire(rate: *const RateHandle, n: u32, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, |rate| Ok(rate.try_acquire(n)?)) }
}

/// Waits for n permits. After `timeout` seconds (INFINITY is allowed) it fails with LEASEWAY_TIMEOUT and takes none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_wait(rate: *const RateHandle, n: u32, timeout: f64, error: *mut Error) -> i32 {
    let acquire = |rate: &Rate| wait(rate.resource().runtime(), timeout, rate.wait_many(n));
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, acquire) }
}

/// Charges n permits that were already used. Missing permits become debt, which is paid before any caller is admitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_charge(rate: *const RateHandle, n: u64, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, |rate| Ok(rate.charge(n)?)) }
}

/// Returns the n permits taken last, because they were not used. Then the rate has the credit that it would have if
/// they had never been taken, so a late refund may restore nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_refund(rate: *const RateHandle, n: u64, error: *mut Error) -> i32 {
    let refund = |rate: &Rate| {
        rate.refund(n);
        Ok(())
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, refund) }
}

/// Sets the capacity to ask for, in permits per second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_set_wants(rate: *const RateHandle, wants: f64, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, |rate| Ok(rate.resource().set_wants(wants)?)) }
}

/// Waits for n permits, for work whose cost is known only at its end. On failure the reservation is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_reserve(
    rate: *const RateHandle,
    n: u32,
    timeout: f64,
    reservation: *mut *mut ReservationHandle,
    error: *mut Error,
) -> i32 {
    let reserve = |rate: &Rate| wait(rate.resource().runtime(), timeout, rate.reserve(n));
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(rate, "rate", reservation, "reservation", error, reserve) }
}

/// Ends a reservation: `used` permits were used. Returns the unused ones, up to the credit that the rate would have if
/// they had never been taken. Usage beyond the reservation becomes debt. Frees the handle, also on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservation_settle(
    reservation: *mut ReservationHandle,
    used: u64,
    error: *mut Error,
) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    call(error, || Ok(unsafe { take(reservation, "reservation") }?.settle(used)?))
}

/// Frees a reservation without settling it: all its permits count as used. NULL and handles of another process are
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservation_free(reservation: *mut ReservationHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(reservation) }
}

/// Reads the current state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_look(rate: *const RateHandle, state: *mut RateState, error: *mut Error) -> i32 {
    let read = |rate: &Rate| {
        let (usable, standing) = (rate.resource().usable(), rate.standing());
        let now = RateState {
            capacity: usable.capacity.get(),
            basis: basis(usable.basis),
            available: standing.available,
            burst: standing.burst,
        };
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { write_value(state, "state", now) }
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(rate, "rate", error, read) }
}

/// Frees the handle. The lease is released with the last handle of the resource. NULL and handles of another process
/// are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_free(rate: *mut RateHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(rate) }
}
