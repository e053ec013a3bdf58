//! So many per second.

use std::ffi::c_char;

use leaseway_client::{Basis, Rate, Reservation};

use crate::{
    client::ClientHandle,
    fault::{Error, call},
    handle::{Handle, free, give, reach, take, tell, text, texts},
    settings::{self, Settings},
    waiting::wait,
};

/// No answer yet.
pub const LEASEWAY_UNKNOWN: i32 = 0;
/// There is a lease.
pub const LEASEWAY_LEASE: i32 = 1;
/// It has ended, or none could be had: the mode decides.
pub const LEASEWAY_FALLBACK: i32 = 2;

pub(crate) fn basis(basis: Basis) -> i32 {
    match basis {
        Basis::Unknown => LEASEWAY_UNKNOWN,
        Basis::Lease => LEASEWAY_LEASE,
        Basis::Fallback => LEASEWAY_FALLBACK,
    }
}

/// So many per second. Any thread may use it; those that wait are served first come, first served.
pub type RateHandle = Handle<Rate>;

/// Permits that were taken, until it is settled what was used.
pub type ReservationHandle = Handle<Reservation>;

/// How things are at a rate.
#[repr(C)]
pub struct RateState {
    /// How many may pass per second; infinite without a limit.
    pub capacity: f64,
    /// Why so many: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
    pub basis: i32,
    /// Permits that are there now, also if others wait for them; below zero so much is owed.
    pub available: f64,
    /// The most that there can be at once.
    pub burst: f64,
}

/// Opens a rate. Settings, `key=value`, end with NULL; NULL is none: `wants` (estimated if left out), `priority`,
/// `mode`, `burst` (permits) or `window` (seconds), `max_debt`. On failure the rate is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_open(
    client: *const ClientHandle,
    resource: *const c_char,
    settings: *const *const c_char,
    rate: *mut *mut RateHandle,
    error: *mut Error,
) -> i32 {
    call(error, || {
        let open = || {
            // SAFETY: as callers owe.
            let client = unsafe { reach(client, "client") }?;
            // SAFETY: as callers owe.
            let resource = unsafe { text(resource, "the resource") }?;
            // SAFETY: as callers owe.
            let given = unsafe { texts(settings, "a setting") }?;
            Ok(settings::rate(client.resource(resource), Settings::read(&given)?)?.rate()?)
        };
        // SAFETY: as callers owe.
        unsafe { give(rate, "rate", open) }
    })
}

/// Lets n pass if that is possible now; else LEASEWAY_NOT_NOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_try_acquire(rate: *const RateHandle, n: u32, error: *mut Error) -> i32 {
    // SAFETY: as callers owe.
    call(error, || Ok(unsafe { reach(rate, "rate") }?.try_acquire(n)?))
}

/// Waits until n may pass together, or for so many seconds (INFINITY is allowed): with LEASEWAY_TIMEOUT none has
/// passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_wait(rate: *const RateHandle, n: u32, timeout: f64, error: *mut Error) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let rate = unsafe { reach(rate, "rate") }?;
        wait(rate.resource().runtime(), timeout, rate.wait_many(n))
    })
}

/// So many have been used already. What is not there is owed, and paid before anything else passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_charge(rate: *const RateHandle, n: u64, error: *mut Error) -> i32 {
    // SAFETY: as callers owe.
    call(error, || Ok(unsafe { reach(rate, "rate") }?.charge(n)?))
}

/// So many have passed and were not used: those that passed last. As many come back as there would be now if they had
/// never passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_refund(rate: *const RateHandle, n: u64, error: *mut Error) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        unsafe { reach(rate, "rate") }?.refund(n);
        Ok(())
    })
}

/// Asks for so much per second from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_set_wants(rate: *const RateHandle, wants: f64, error: *mut Error) -> i32 {
    // SAFETY: as callers owe.
    call(error, || Ok(unsafe { reach(rate, "rate") }?.resource().set_wants(wants)?))
}

/// Waits until n may pass, for something of which only its end will show what it takes. On failure the reservation is
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_reserve(
    rate: *const RateHandle,
    n: u32,
    timeout: f64,
    reservation: *mut *mut ReservationHandle,
    error: *mut Error,
) -> i32 {
    call(error, || {
        let reserve = || {
            // SAFETY: as callers owe.
            let rate = unsafe { reach(rate, "rate") }?;
            wait(rate.resource().runtime(), timeout, rate.reserve(n))
        };
        // SAFETY: as callers owe.
        unsafe { give(reservation, "reservation", reserve) }
    })
}

/// So much was used. The rest comes back, as much of it as there would be now if it had never been taken; what was used
/// beyond it is owed. The handle ends with this, also if it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservation_settle(
    reservation: *mut ReservationHandle,
    used: u64,
    error: *mut Error,
) -> i32 {
    // SAFETY: as callers owe.
    call(error, || Ok(unsafe { take(reservation, "reservation") }?.settle(used)?))
}

/// Ends a reservation that was not settled: all of it counts as used. NULL, and one of another process, is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_reservation_free(reservation: *mut ReservationHandle) {
    // SAFETY: as callers owe.
    unsafe { free(reservation) }
}

/// How things are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_look(rate: *const RateHandle, state: *mut RateState, error: *mut Error) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let rate = unsafe { reach(rate, "rate") }?;
        let (usable, standing) = (rate.resource().usable(), rate.standing());
        let now = RateState {
            capacity: usable.capacity.get(),
            basis: basis(usable.basis),
            available: standing.available,
            burst: standing.burst,
        };
        // SAFETY: as callers owe.
        unsafe { tell(state, "state", now) }
    })
}

/// Ends the handle; with the last of a resource its lease is given back. NULL, and one of another process, is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_rate_free(rate: *mut RateHandle) {
    // SAFETY: as callers owe.
    unsafe { free(rate) }
}
