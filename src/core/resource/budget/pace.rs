//! Pace: a budget that is spread over its period.
//!
//! Usually a budget is served first come, first served. With `pace` it is spread over its period: what may be out grows
//! by what is left, divided by the time that is left, and the allocation divides it between holders by their wants.
//! A holder saves its share as a [`Credit`] until it asks. A call that needs more than its credit is served, and its
//! holder waits until the debt is paid.

use crate::{
    allocation::KnownTerms,
    resource::{
        Resource,
        budget::{UNIT, slice_beyond},
    },
    types::{Amount, Millis, Now, Sum},
};

/// With `pace`: what was not spent at once stays available for this many refresh intervals.
const PACED_INTERVALS: f64 = 2.0;
/// With `pace`: the time constant of averages, in refresh intervals.
const AVERAGED_INTERVALS: f64 = 8.0;

/// How much of a budget that is spread over its period may be out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) at: Millis,
    /// The amount that holders may have together.
    pub(super) total: f64,
    /// Per second: it would spend what is left evenly until the period ends.
    pub(super) rate: f64,
    /// What was allowed and not used, in refresh intervals. An average, so that it does not matter who asks first.
    pub(super) unused: f64,
}

/// The part of the pace that a holder has not used. Negative after a call that needed more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credit {
    pub(super) at: Millis,
    pub(super) amount: f64,
}

impl Resource {
    /// Makes the allocation divide what the pace allows in a refresh interval, and more if less was used before.
    pub(in crate::resource) fn step_pace(&mut self, now: Now) {
        let Some(budget) = self.budget.as_mut().filter(|_| self.settings.is_paced()) else { return };
        let Some(period) = budget.period else { return };
        let interval = self.settings.refresh.0 as f64 / 1000.0;
        let held = self.book.ledger().sums().held.get();
        let left = (self.settings.capacity.get() - held).max(0.0);
        let rate = left / period.end.saturating_sub(now.unix).max(1) as f64;
        let of_interval = rate * interval;
        let most = held + of_interval * PACED_INTERVALS;
        let grown = |pace: Pace| pace.total + rate * now.at.since(pace.at).0 as f64 / 1000.0;
        let total = budget.pace.map_or(most, |pace| grown(pace).min(most));
        let elapsed = budget.pace.map_or(0.0, |pace| now.at.since(pace.at).0 as f64 / 1000.0);
        let weight = 1.0 - (-elapsed / interval / AVERAGED_INTERVALS).exp();
        let recent = ((total - held) / of_interval.max(f64::MIN_POSITIVE)).clamp(0.0, PACED_INTERVALS);
        let before = budget.pace.map_or(0.0, |pace| pace.unused);
        let unused = before + (recent - before) * weight;
        budget.pace = Some(Pace { at: now.at, total, rate, unused });
        self.allocation.set_capacity(Amount::clamped(of_interval * (1.0 + unused)));
    }

    /// With `pace`: adds the fair share of the time since the last request to the credit of a holder. So nobody gains
    /// by asking more often, or before others.
    pub(in crate::resource) fn add_credit(&mut self, slot: u32, now: Millis, known: &mut KnownTerms) {
        if self.budget.is_none() || !self.settings.is_paced() {
            return;
        }
        let share = self.divided(slot, self.book.ledger().holder(slot), known).get();
        let interval = self.settings.refresh.0 as f64;
        let Some(budget) = &mut self.budget else { return };
        let credit = budget.credits.entry(slot).or_insert(Credit { at: now, amount: share });
        let grown = credit.amount + share * now.since(credit.at).0 as f64 / interval;
        *credit = Credit { at: now, amount: grown.min(share * PACED_INTERVALS) };
    }

    /// Takes what a new allowance adds from the credit of its holder.
    pub(in crate::resource) fn use_credit(&mut self, slot: u32, allowance: Amount) {
        let before = self.allowance(slot);
        let credit = self.budget.as_mut().and_then(|budget| budget.credits.get_mut(&slot));
        if let Some(credit) = credit {
            credit.amount -= allowance.get() - before.get();
        }
    }

    /// With `pace`: a holder keeps the part of its slice that it wants, and may use its credit. A call that needs more
    /// than that gets it as soon as there is any credit, and the holder is in debt. `left`: what nobody has spent, and
    /// no other holder has.
    pub(super) fn paced_due(&self, slot: u32, pace: Pace, left: Sum) -> Amount {
        let Some(budget) = &self.budget else { return Amount::ZERO };
        let holder = self.book.ledger().holder(slot);
        let spent = holder.leases.reported();
        let unspent = self.allowance(slot).saturating_sub(spent).get();
        let wants = self.allocation.ruled_wants(&holder.claims).get();
        let need = budget.needs.get(&slot).copied().unwrap_or(UNIT).max(UNIT).get();
        let lacks = (wants - unspent).max(0.0);
        // Credits follow the pace, so only calls that need more can exceed it by much.
        let overdraft = pace.rate * self.settings.refresh.0 as f64 / 1000.0;
        let is_allowed = pace.total + overdraft > self.book.ledger().sums().held.get();
        let credit = budget.credits.get(&slot).map_or(0.0, |credit| credit.amount);
        let more = if is_allowed && credit > 0.0 { credit.max(need - unspent).min(lacks) } else { 0.0 };
        let slice = (unspent.min(wants) + more).min(left.get());
        let slice = if slice.floor() >= need { slice.floor() } else { slice };
        slice_beyond(spent, Amount::clamped(slice), left)
    }
}
