//! The periods of a budget.
//!
//! At a root the period follows from the wall time ([`Periods`]), below a parent from the parent's lease. A new period
//! begins without records. Requests name their period; the allowance of another one confirms nothing. No lease is given
//! in the last second of a period and in the first seconds of the next ([`CLOCK_ALLOWANCE`]), so that a new master whose
//! clock is a little behind cannot reopen the period before.
//!
//! The quorum stores a total, as for all leases. Its horizon lies a quarter of a period after the period's end. So a new
//! master can tell a total of this period from one of the period before: the latter's horizon has passed when half of
//! this period has. Whatever it inherits of this period stays consumed until holders claim it.
//!
//! [`Periods`]: crate::policy::period::Periods

use crate::{
    planted::{self, Fault},
    policy::period::Span,
    resource::{Resource, budget::NEVER},
    types::{Millis, Now},
};

/// In seconds: the wall clocks of peers differ by less than this. A new period gives its first lease this much later.
const CLOCK_ALLOWANCE: i64 = 2;

impl Resource {
    /// Begins the period of this moment, if another one was in force.
    pub fn enter_period(&mut self, now: Now) {
        let Some(budget) = self.budget.as_deref().filter(|_| !self.has_parent()) else { return };
        if !budget.is_current(now.unix) {
            self.begin_period(self.settings.budget.periods.at(now.unix), now);
        }
    }

    /// Begins the period of a supply, before the supply is applied.
    pub fn enter_supplied_period(&mut self, period: Option<Span>, now: Now) {
        let Some(budget) = &self.budget else { return };
        if let Some(span) = period.filter(|span| budget.period != Some(*span)) {
            self.begin_period(span, now);
        }
    }

    /// Begins a period without records, or goes on with the current one.
    pub(in crate::resource) fn begin_period(&mut self, span: Span, now: Now) {
        let Some(budget) = &mut self.budget else { return };
        let before = budget.period.replace(span);
        let start = i128::from(now.at.0) - i128::from(now.unix.saturating_sub(span.start)) * 1000;
        let length = i128::from(span.seconds()) * 1000;
        let horizon = (start + length + length / 4).clamp(0, i128::from(NEVER.0));
        budget.horizon = u64::try_from(horizon).map_or(NEVER, Millis);
        (budget.start, budget.is_outdated, budget.pace) = (start, false, None);
        match before {
            Some(before) if before.start == span.start => {}
            Some(_) => {
                budget.reported = Default::default();
                self.drop_records();
            }
            None => {
                let until = self.book.inherited_until();
                let is_earlier = until.is_some_and(|until| i128::from(until.0) < start + length / 2);
                if is_earlier && !span.is_unending() && self.book.keeps_promises() {
                    self.drop_records();
                } else {
                    self.book.inherit_until(NEVER);
                }
            }
        }
    }

    /// Returns claims from before the first supply of a parent to the inherited leases, and drops their records. They
    /// were made under the ids of clients, before this node knew that the resource is a budget.
    pub(super) fn forget_claims(&mut self) {
        let ledger = self.book.ledger();
        let records = ledger.iter_from(0).filter(|(slot, _)| !ledger.is_inherited(*slot));
        let claims = records.map(|(slot, holder)| (slot, holder.leases.claimed())).collect::<Vec<_>>();
        for (slot, claimed) in claims {
            self.drop_record(slot);
            self.give_back(claimed);
        }
        self.last_round.newcomers.clear();
    }

    /// Drops all records and the inherited leases: what they stand for is over.
    pub(super) fn drop_records(&mut self) {
        let ledger = self.book.ledger();
        let slots = ledger.iter_from(0).map(|(slot, _)| slot).filter(|slot| !ledger.is_inherited(*slot));
        for slot in slots.collect::<Vec<_>>() {
            self.drop_record(slot);
        }
        if let Some((slot, wants)) = self.book.drop_inherited() {
            self.allocation.remove(slot, &wants);
        }
        self.last_round.newcomers.clear();
        self.settings_version += 1;
    }

    /// Whether no lease may be given now, because another period begins.
    pub(in crate::resource) fn is_between_periods(&self, now: Now) -> bool {
        let Some(span) = self.budget.as_ref().and_then(|budget| budget.period) else { return false };
        let is_new = now.unix < span.start.saturating_add(CLOCK_ALLOWANCE);
        !span.is_unending() && !self.has_parent() && (is_new || now.unix >= span.end - 1)
    }

    /// The remaining time of the period, rounded down.
    pub(in crate::resource) fn left_of_period(&self, now: Now) -> Option<Millis> {
        let span = self.budget.as_ref()?.period?;
        // Seconds of the wall time are rounded down, so less than a second of this one may be left.
        let seconds = u64::try_from(span.end.saturating_sub(now.unix).saturating_sub(1)).unwrap_or_default();
        (!planted::is(Fault::SlicesOutlastPeriods)).then(|| Millis(seconds.saturating_mul(1000)))
    }

    /// The horizon of leases, which lie in the current period.
    pub(in crate::resource) fn budget_horizon(&self) -> Option<Millis> {
        self.budget.as_ref().map(|budget| budget.horizon)
    }
}
