//! Gauges.

use std::ffi::c_char;

use leaseway_client::{Client, Gauge, Permit};

use crate::{
    client::ClientHandle,
    error::Error,
    handle::{Handle, free, with, with_new, write_value},
    rate::basis,
    settings,
    waiting::wait,
};

/// Permits in use at the same time. Any thread may use it; waiting callers are served first come, first served.
pub type GaugeHandle = Handle<Gauge>;

/// Permits in use, until they are released. Any thread may release them.
pub type PermitHandle = Handle<Permit>;

/// The state of a gauge.
#[repr(C)]
pub struct GaugeState {
    /// Maximum number of permits in use; infinite if there is no limit.
    pub capacity: f64,
    /// Where the capacity comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
    pub basis: i32,
    /// Permits in use by this process.
    pub in_use: u64,
}

/// Opens a gauge. `settings` is NULL or a NULL-terminated array of `key=value`: `wants` (estimated by default),
/// `priority`, `mode`. On failure the gauge is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_open(
    client: *const ClientHandle,
    resource: *const c_char,
    settings: *const *const c_char,
    gauge: *mut *mut GaugeHandle,
    error: *mut Error,
) -> i32 {
    let open = |client: &Client| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let (builder, settings) = unsafe { settings::resource(client, resource, settings) }?;
        Ok(settings::gauge(builder, settings)?.gauge()?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(client, "client", gauge, "gauge", error, open) }
}

/// Takes n permits if they are free now; otherwise fails with LEASEWAY_NOT_NOW and sets the permit to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_try_acquire(
    gauge: *const GaugeHandle,
    n: u32,
    permit: *mut *mut PermitHandle,
    error: *mut Error,
) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(gauge, "gauge", permit, "permit", error, |gauge: &Gauge| Ok(gauge.try_acquire(n)?)) }
}

/// Waits for n permits, for at most `timeout` seconds (INFINITY is allowed). On failure the permit is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_acquire(
    gauge: *const GaugeHandle,
    n: u32,
    timeout: f64,
    permit: *mut *mut PermitHandle,
    error: *mut Error,
) -> i32 {
    let acquire = |gauge: &Gauge| wait(gauge.resource().runtime(), timeout, gauge.acquire_many(n));
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(gauge, "gauge", permit, "permit", error, acquire) }
}

/// Returns the permits and frees the handle. NULL and handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_permit_release(permit: *mut PermitHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(permit) }
}

/// Sets the number of permits to ask for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_set_wants(gauge: *const GaugeHandle, wants: f64, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(gauge, "gauge", error, |gauge| Ok(gauge.resource().set_wants(wants)?)) }
}

/// Reads the current state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_look(
    gauge: *const GaugeHandle,
    state: *mut GaugeState,
    error: *mut Error,
) -> i32 {
    let read = |gauge: &Gauge| {
        let usable = gauge.resource().usable();
        let now = GaugeState { capacity: usable.capacity.get(), basis: basis(usable.basis), in_use: gauge.in_use() };
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { write_value(state, "state", now) }
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(gauge, "gauge", error, read) }
}

/// Frees the handle. The lease is released with the last handle and the last permit of the resource. NULL and handles
/// of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_gauge_free(gauge: *mut GaugeHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(gauge) }
}
