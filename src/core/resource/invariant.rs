//! The promises, one predicate each. Property tests and transcripts check these, and they alone define "safe" and
//! "fair".
//!
//! | | binds |
//! |---|---|
//! | [`held_within_capacity`] (I1) | FAIR_SHARE, PROPORTIONAL_SHARE and PRIORITY_POOL; every algorithm on a node with a parent; any `reuse`, learning or not |
//! | [`believed_within_capacity`] (I2) | the same under `reuse: confirmed`, seen from outside |
//! | [`lease_within_bounds`] (I3) | every algorithm; the part about due not while learning |
//! | [`divided_completely`] (I4) | FAIR_SHARE and PROPORTIONAL_SHARE |
//! | [`settled`] (I5) | dividing algorithms, after two refreshes of all holders (`prompt`) or three (`confirmed`) |
//! | [`replayed`] (I8) | everything |
//!
//! Two more bind the peers of a node, which this crate does not have: at most one master decides at any moment (I6),
//! and what a quorum has acknowledged survives the loss of a minority (I7). src/core/lease/protocol.md lists all of
//! them.

use crate::{
    resource::{Answer, Lease, Resource, report::holder_reports},
    types::{Amount, Millis, Sum},
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{invariant} violated: {detail}")]
pub struct Violation {
    pub invariant: &'static str,
    pub detail: String,
}

fn check(invariant: &'static str, kept: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if kept { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

/// I1: Σ held ≤ capacity (of a pool: its total), or Σ held is not rising. `before` is Σ held before the step.
pub fn held_within_capacity(resource: &Resource, before: Sum) -> Result<(), Violation> {
    let (held, capacity) = (resource.sums().held, Sum::from(resource.total()));
    check("I1", !resource.is_bounded() || held <= capacity || held <= before, || {
        format!("held {held:?} of {capacity:?}, {before:?} before")
    })
}

/// I2: the sum over the unexpired leases that holders may believe in is at most `maximum`: the capacity, or (when that
/// has just been cut) what the server counts as held.
pub fn believed_within_capacity(believed: impl IntoIterator<Item = Amount>, maximum: Sum) -> Result<(), Violation> {
    let believed: Sum = believed.into_iter().collect();
    check("I2", believed <= maximum, || format!("believed {believed:?} of {maximum:?}"))
}

/// I3: no grant beyond due (`None` while learning), no dust, no lease beyond the node's own, no number out of range.
pub fn lease_within_bounds(
    lease: &Lease,
    due: Option<Amount>,
    now: Millis,
    own_end: Option<Millis>,
) -> Result<(), Violation> {
    check("I3", due.is_none_or(|due| lease.capacity <= due), || format!("granted {lease:?}, due {due:?}"))?;
    check("I3", own_end.is_none_or(|end| lease.capacity == Amount::ZERO || now.plus(lease.length) <= end), || {
        format!("{lease:?} at {now:?} outlives the node's own lease, which ends at {own_end:?}")
    })?;
    check("I3", !(f64::MIN_POSITIVE..1e-9).contains(&lease.capacity.get()), || format!("dust: {lease:?}"))?;
    check("I3", lease.safe_capacity.is_finite() && lease.refresh.0 > 0, || format!("out of range: {lease:?}"))
}

/// I4: Σ due = min(capacity, Σ wants), to within rounding (a part in 10¹², or 10⁻¹² for each claim).
pub fn divided_completely(
    capacity: Amount,
    wants: Sum,
    dues: impl ExactSizeIterator<Item = Amount>,
) -> Result<(), Violation> {
    let claims = dues.len() as f64;
    let due: Sum = dues.collect();
    let expected = capacity.get().min(wants.get());
    check("I4", (due.get() - expected).abs() <= (expected + claims) * 1e-12, || {
        format!("due {due:?} in all, expected {expected}")
    })
}

/// I5: all holders have what they are due, to within rounding.
pub fn settled(resource: &Resource, now: Millis) -> Result<(), Violation> {
    for holder in holder_reports(resource, now, 0, usize::MAX).0 {
        let apart = (holder.granted.get() - holder.due.get()).abs();
        check("I5", apart <= holder.due.get() * 1e-9 + 1e-12, || format!("{holder:?}"))?;
    }
    Ok(())
}

/// I8: replaying the same inputs gave the same outputs, bit for bit.
pub fn replayed(first: &[Answer], again: &[Answer]) -> Result<(), Violation> {
    // Debug prints floats so that they read back to the same bits, and tells 0 from -0.
    let same = first.len() == again.len() && first.iter().zip(again).all(|(a, b)| format!("{a:?}") == format!("{b:?}"));
    check("I8", same, || format!("{first:?} became {again:?}"))
}
