//! So many at the same time.

use std::ffi::c_char;

use leaseway_client::{Gauge, Permit};

use crate::{
    client::ClientHandle,
    fault::{Error, call},
    handle::{Handle, free, give, reach, tell, text, texts},
    rate::basis,
    settings::{self, Settings},
    waiting::wait,
};

/// So many at the same time. Any thread may use it; those that wait are served first come, first served.
pub type GaugeHandle = Handle<Gauge>;

/// Permits in use, until they are released. Any thread may do that.
pub type PermitHandle = Handle<Permit>;

/// How things are at a gauge.
#[repr(C)]
pub struct GaugeState {
    /// How many may be in use; infinite without a limit.
    pub capacity: f64,
    /// Why so many: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
    pub basis: i32,
    /// Permits that are out, of this process.
    pub in_use: u64,
}

/// Opens a gauge. Settings, `key=value`, end with NULL; NULL is none: `wants` (estimated if left out), `priority`,
/// `mode`. On failure the gauge is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_open(
    client: *const ClientHandle,
    resource: *const c_char,
    settings: *const *const c_char,
    gauge: *mut *mut GaugeHandle,
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
            Ok(settings::gauge(client.resource(resource), Settings::read(&given)?)?.gauge()?)
        };
        // SAFETY: as callers owe.
        unsafe { give(gauge, "gauge", open) }
    })
}

/// n permits, if they are free now; else LEASEWAY_NOT_NOW, and the permit is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_try_acquire(
    gauge: *const GaugeHandle,
    n: u32,
    permit: *mut *mut PermitHandle,
    error: *mut Error,
) -> i32 {
    // SAFETY: as callers owe.
    let acquire = || Ok(unsafe { reach(gauge, "gauge") }?.try_acquire(n)?);
    // SAFETY: as callers owe.
    call(error, || unsafe { give(permit, "permit", acquire) })
}

/// Waits for n permits at once, or for so many seconds (INFINITY is allowed). On failure the permit is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_acquire(
    gauge: *const GaugeHandle,
    n: u32,
    timeout: f64,
    permit: *mut *mut PermitHandle,
    error: *mut Error,
) -> i32 {
    call(error, || {
        let acquire = || {
            // SAFETY: as callers owe.
            let gauge = unsafe { reach(gauge, "gauge") }?;
            wait(gauge.resource().runtime(), timeout, gauge.acquire_many(n))
        };
        // SAFETY: as callers owe.
        unsafe { give(permit, "permit", acquire) }
    })
}

/// Returns permits; the handle ends. NULL, and one of another process, is nothing: its permits are that process's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_permit_release(permit: *mut PermitHandle) {
    // SAFETY: as callers owe.
    unsafe { free(permit) }
}

/// Asks for so many from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_set_wants(gauge: *const GaugeHandle, wants: f64, error: *mut Error) -> i32 {
    // SAFETY: as callers owe.
    call(error, || Ok(unsafe { reach(gauge, "gauge") }?.resource().set_wants(wants)?))
}

/// How things are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_look(
    gauge: *const GaugeHandle,
    state: *mut GaugeState,
    error: *mut Error,
) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let gauge = unsafe { reach(gauge, "gauge") }?;
        let usable = gauge.resource().usable();
        let now = GaugeState { capacity: usable.capacity.get(), basis: basis(usable.basis), in_use: gauge.in_use() };
        // SAFETY: as callers owe.
        unsafe { tell(state, "state", now) }
    })
}

/// Ends the handle; with the last of a resource, and the last permit, its lease is given back. NULL, and one of another
/// process, is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_free(gauge: *mut GaugeHandle) {
    // SAFETY: as callers owe.
    unsafe { free(gauge) }
}
