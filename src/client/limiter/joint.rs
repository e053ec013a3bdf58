//! Decides a request for permits of several limits: it takes all of them, or nothing.
//!
//! This is the decision only. It knows neither clocks nor queues: a [`JointLimit`] says whether its permits are
//! available. `try_acquire_all`, the waiting form and the gateways decide with it.

use std::time::Duration;

use crate::limiter::{Meter, Nanos, TryError};

/// A limit, while a request for permits of several limits is decided.
pub trait JointLimit {
    /// Whether `n` permits are available beyond `claimed`, which the same request takes. Takes nothing.
    fn check(&mut self, claimed: u64, n: u64) -> Result<(), TryError>;

    /// Takes `n` permits that were checked.
    fn take(&mut self, n: u32);

    /// Counts `n` refused permits as demand.
    fn refuse(&mut self, _n: u32) {}
}

/// What a request claims of one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// Permits that have to be available.
    pub needs: u64,
    /// Permits to take if the request passes; at most `needs`.
    pub takes: u32,
    /// Whether a shortage refuses the request.
    pub binding: Binding,
    /// Why the permits are not available, once the claim was checked.
    pub outcome: Result<(), TryError>,
}

/// When a shortage of permits refuses the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// Always.
    Always,
    /// If all claims of this kind are short.
    OneOf,
    /// Never: the permits are taken only if they are available.
    Never,
}

impl Claim {
    /// A claim of `n` permits.
    pub fn of(n: u32) -> Claim {
        Claim { needs: n.into(), takes: n, binding: Binding::Always, outcome: Ok(()) }
    }
}

/// Checks all claims, and takes nothing. `limit_of[i]` is the index of the limit of `claims[i]`; a limit may have
/// several claims. Returns whether the request can pass.
pub fn check<L: JointLimit>(limits: &mut [L], limit_of: &[usize], claims: &mut [Claim]) -> bool {
    for at in 0..claims.len() {
        let same = (0..at).filter(|&before| limit_of[before] == limit_of[at] && claims[before].outcome.is_ok());
        let claimed = same.fold(0u64, |sum, before| sum.saturating_add(claims[before].takes.into()));
        claims[at].outcome = limits[limit_of[at]].check(claimed, claims[at].needs);
    }
    passes(claims)
}

/// Whether the outcomes of the claims let the request pass.
fn passes(claims: &[Claim]) -> bool {
    let of = |binding| claims.iter().filter(move |claim| claim.binding == binding);
    let is_met = |claim: &Claim| claim.outcome.is_ok();
    of(Binding::Always).all(is_met) && (of(Binding::OneOf).count() == 0 || of(Binding::OneOf).any(is_met))
}

/// Decides a request: takes the permits of all claims, or of none. A request that is `vetoed` takes nothing. Refused
/// permits count as demand at the limits that refused them. Returns whether the request passes.
pub fn decide<L: JointLimit>(limits: &mut [L], limit_of: &[usize], claims: &mut [Claim], vetoed: bool) -> bool {
    let passes = check(limits, limit_of, claims) && !vetoed;
    for (claim, &limit) in claims.iter().zip(limit_of) {
        match claim.outcome {
            Ok(()) if passes => limits[limit].take(claim.takes),
            Ok(()) | Err(TryError::Closed | TryError::TooMany { .. }) => {}
            Err(TryError::NotNow { .. }) => limits[limit].refuse(claim.takes),
        }
    }
    passes
}

/// The claim that refuses a request: of all that cannot be met, the one that takes longest. A retry before its permits
/// are available is in vain.
pub fn refusal(claims: &[Claim]) -> Option<(usize, TryError)> {
    let refusing = claims.iter().enumerate().filter(|(_, claim)| claim.binding != Binding::Never);
    let refusing = refusing.filter_map(|(at, claim)| Some((at, claim.outcome.err()?)));
    // The first of several that take equally long.
    refusing.rev().max_by_key(|(_, error)| severity(error))
}

fn severity(error: &TryError) -> (u8, Duration) {
    match *error {
        TryError::NotNow { retry_after: Some(wait) } => (0, wait),
        TryError::NotNow { retry_after: None } => (1, Duration::ZERO),
        TryError::TooMany { .. } => (2, Duration::ZERO),
        TryError::Closed => (3, Duration::ZERO),
    }
}

/// A meter without a queue, at a moment.
#[derive(Debug)]
pub struct MeterAt<'a, M> {
    /// The meter.
    pub meter: &'a mut M,
    /// The time of the meter.
    pub now: Nanos,
}

impl<M: Meter> JointLimit for MeterAt<'_, M> {
    fn check(&mut self, claimed: u64, n: u64) -> Result<(), TryError> {
        let all = claimed.saturating_add(n);
        if let Some(burst) = self.meter.max_at_once().filter(|&most| most < all as f64) {
            return Err(TryError::TooMany { burst });
        }
        self.meter.check(self.now, claimed, n).map_err(|_| {
            let ready_in = self.meter.ready_in(self.now, all);
            TryError::NotNow { retry_after: ready_in.map(Duration::from_nanos) }
        })
    }

    fn take(&mut self, n: u32) {
        let taken = self.meter.take(self.now, n);
        debug_assert!(taken.is_ok(), "checked before");
    }
}

#[cfg(test)]
mod tests;
