//! Budgets.

use std::ffi::c_char;

use leaseway_client::{Budget, BudgetReservation, Client};

use crate::{
    client::ClientHandle,
    error::{Error, call},
    handle::{Handle, free, take, text, with, with_new, write_value},
    rate::basis,
    waiting::wait,
};

/// An amount per period, which all clients together never overspend. Any thread may use it; waiting callers are served
/// first come, first served.
pub type BudgetHandle = Handle<Budget>;

/// An amount of a budget taken in advance, until it is settled.
pub type BudgetReservationHandle = Handle<BudgetReservation>;

/// The state of a budget.
#[repr(C)]
pub struct BudgetState {
    /// The allowance: the most that this client may spend in the current period, including what it has spent.
    pub capacity: f64,
    /// Where the allowance comes from: LEASEWAY_UNKNOWN, LEASEWAY_LEASE, LEASEWAY_FALLBACK.
    pub basis: i32,
    /// What may be spent now, without asking the server.
    pub left: f64,
    /// What this client has spent in the current period, since the budget was opened.
    pub spent: f64,
    /// What was charged and is not covered by an allowance yet.
    pub owed: f64,
    /// The start of the current period in Unix seconds. 0 before the first lease, and for a budget that is spent once.
    pub period_start: i64,
    /// The end of the current period in Unix seconds; 0 if `period_start` is.
    pub period_end: i64,
}

/// Opens a budget, a resource of kind BUDGET. On failure the budget is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_open(
    client: *const ClientHandle,
    resource: *const c_char,
    budget: *mut *mut BudgetHandle,
    error: *mut Error,
) -> i32 {
    let open = |client: &Client| {
        // SAFETY: guaranteed by the caller, see the crate documentation.
        let resource = unsafe { text(resource, "the resource") }?;
        Ok(client.budget(resource)?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(client, "client", budget, "budget", error, open) }
}

/// Spends an amount if the allowance of this client covers it now; otherwise spends nothing, fails with
/// LEASEWAY_NOT_NOW, and asks for a larger allowance in the background. Amounts are numbers from 0 to 1e15.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_try_spend(budget: *const BudgetHandle, amount: f64, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(budget, "budget", error, |budget| Ok(budget.try_spend(amount)?)) }
}

/// Waits until the allowance covers an amount, and spends it. If the budget is spent, this waits for the next period.
/// After `timeout` seconds (INFINITY is allowed) it fails with LEASEWAY_TIMEOUT and spends nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_spend(
    budget: *const BudgetHandle,
    amount: f64,
    timeout: f64,
    error: *mut Error,
) -> i32 {
    let spend = |budget: &Budget| wait(budget.resource().runtime(), timeout, budget.spend(amount));
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(budget, "budget", error, spend) }
}

/// Waits like leaseway_budget_spend, for work whose cost is known only at its end. On failure the reservation is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_reserve(
    budget: *const BudgetHandle,
    amount: f64,
    timeout: f64,
    reservation: *mut *mut BudgetReservationHandle,
    error: *mut Error,
) -> i32 {
    let reserve = |budget: &Budget| wait(budget.resource().runtime(), timeout, budget.reserve(amount));
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(budget, "budget", reservation, "reservation", error, reserve) }
}

/// Reserves an amount if the allowance covers it now; otherwise fails with LEASEWAY_NOT_NOW and sets the reservation to
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_try_reserve(
    budget: *const BudgetHandle,
    amount: f64,
    reservation: *mut *mut BudgetReservationHandle,
    error: *mut Error,
) -> i32 {
    let reserve = |budget: &Budget| Ok(budget.try_reserve(amount)?);
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with_new(budget, "budget", reservation, "reservation", error, reserve) }
}

/// Spends an amount that was used already. What the allowance does not cover is owed: the next allowances pay it before
/// any caller can spend, also those of a later period. Fails with LEASEWAY_CLOSED, and charges nothing, if the client was
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_charge(budget: *const BudgetHandle, amount: f64, error: *mut Error) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(budget, "budget", error, |budget| Ok(budget.charge(amount)?)) }
}

/// Reads the current state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_look(
    budget: *const BudgetHandle,
    state: *mut BudgetState,
    error: *mut Error,
) -> i32 {
    let read = |budget: &Budget| {
        let usable = budget.resource().usable();
        let (period_start, period_end) = budget.period().unwrap_or_default();
        let now = BudgetState {
            capacity: usable.capacity.get(),
            basis: basis(usable.basis),
            left: budget.left(),
            spent: budget.spent(),
            owed: budget.owed(),
            period_start,
            period_end,
        };
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { write_value(state, "state", now) }
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(budget, "budget", error, read) }
}

/// Frees the handle. The lease is released with the last handle and the last reservation of the budget; what is owed
/// then is dropped. NULL and handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_free(budget: *mut BudgetHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(budget) }
}

/// Ends a reservation, because `used` was used. Takes back what is left of it, unless its period has ended or the client
/// was closed, or charges the excess. If `used` is not an amount, or the client was closed before the excess could be
/// charged, all of the reservation is spent. Frees the handle, also on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_reservation_settle(
    reservation: *mut BudgetReservationHandle,
    used: f64,
    error: *mut Error,
) -> i32 {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    call(error, || Ok(unsafe { take(reservation, "reservation") }?.settle(used)?))
}

/// Frees a reservation without settling it: all of it is spent. NULL and handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_budget_reservation_free(reservation: *mut BudgetReservationHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(reservation) }
}
