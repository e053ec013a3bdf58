//! The periods of a budget.
//!
//! At a root the period follows from the wall time ([`Periods`]), below a parent from the parent's lease. A new period
//! begins without records. Requests name their period; the allowance of another one confirms nothing. No lease is given
//! in the last second of a period and in the first seconds of the next ([`CLOCK_ALLOWANCE`]), so that a new master
//! whose clock is a little behind cannot reopen the period before.
//!
//! The quorum stores a total, as for all leases, and the period that it belongs to. Whatever a new master inherits of
//! this period stays consumed until holders claim it. What it inherits of an earlier one is over.
//!
//! # Carry-over
//! At a root, what a period leaves over is added to the amount of the next, up to [`BudgetSettings::carry_over`]. It is
//! the amount of the period, less all that was held at its end. The quorum stores it with the first lease of the next
//! period. A master that begins before that computes it from the total of the last period, whose horizon therefore lies
//! a period after its end. A total is at least what was held, so this master carries over the same or a little less.
//!
//! [`BudgetSettings::carry_over`]: crate::policy::settings::BudgetSettings::carry_over
//! [`Periods`]: crate::policy::period::Periods

use crate::{
    lease::{confirm::NEVER, promises::StoredPeriod},
    planted::{self, Fault},
    policy::period::Span,
    resource::Resource,
    types::{Amount, Millis, Now, Sum},
};

/// In seconds: the wall clocks of peers differ by less than this. A new period gives its first lease this much later.
const CLOCK_ALLOWANCE: i64 = 2;

impl Resource {
    /// Begins the period of this moment, if another one was in force.
    pub fn enter_period(&mut self, now: Now) {
        if self.has_parent() {
            return;
        }
        let Some(budget) = &self.budget else { return };
        if !budget.is_current(now.unix) {
            self.begin_period(self.settings.budget.periods.at(now.unix), now);
        } else if budget.period.is_some_and(|span| now.unix < span.end - 1) {
            // An override that ends with the period may end a moment before, and does not count then.
            self.note_amount();
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
        if self.budget.as_ref().is_some_and(|budget| budget.period.is_some_and(|before| before.start != span.start)) {
            self.finish_period_usage(now.at);
        }
        let Some(budget) = &mut self.budget else { return };
        let before = budget.period.replace(span);
        let start = i128::from(now.at.0) - i128::from(now.unix.saturating_sub(span.start)) * 1000;
        let length = i128::from(span.seconds()) * 1000;
        let grace = if self.settings.budget.carry_over > Amount::ZERO { length } else { length / 4 };
        let horizon = (start + length + grace).clamp(0, i128::from(NEVER.0));
        budget.horizon = u64::try_from(horizon).map_or(NEVER, Millis);
        (budget.start, budget.is_outdated, budget.pace) = (start, false, None);
        let (amount, inherited) = (budget.amount, budget.inherited.take());
        match (before, inherited) {
            (Some(before), _) if before.start == span.start => {}
            (Some(before), _) => {
                budget.reported = Default::default();
                let is_over = !before.is_unending() && before.end <= span.start;
                self.carry_over(if is_over { amount } else { Amount::ZERO });
                self.drop_records();
            }
            (None, Some(stored)) if stored.start < span.start => {
                self.carry_over(self.capacity_inputs.template.saturating_add(stored.carried));
                self.drop_records();
            }
            (None, stored) => {
                let same = stored.filter(|stored| stored.start == span.start);
                self.set_carried(same.map_or(Amount::ZERO, |stored| stored.carried));
                self.book.inherit_until(NEVER);
            }
        }
        self.note_amount();
    }

    /// Notes the amount of the current period, from which the next one computes what is left.
    fn note_amount(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.amount = self.settings.capacity;
        }
    }

    /// Adds what the last period has left of `amount` to the amount of this one.
    fn carry_over(&mut self, amount: Amount) {
        let held = if planted::is(Fault::CarriesWhatWasSpent) { Sum::ZERO } else { self.sums().held };
        self.set_carried((Sum::from(amount) - held).max(Sum::ZERO).floor());
    }

    fn set_carried(&mut self, carried: Amount) {
        if !self.has_parent() {
            self.capacity_inputs.carried = carried.min(self.settings.budget.carry_over);
            self.update_capacity();
        }
    }

    /// Takes over the period of the inherited total.
    pub(in crate::resource) fn inherit_period(&mut self, stored: Option<StoredPeriod>) {
        if let Some(budget) = &mut self.budget {
            budget.inherited = stored;
        }
    }

    /// The period for the quorum to store, if this is a budget.
    pub(in crate::resource) fn stored_period(&self) -> Option<StoredPeriod> {
        let budget = self.budget.as_ref()?;
        let start = budget.period.map(|span| span.start).or(budget.inherited.map(|stored| stored.start));
        // No period is later than an unknown one, so no master drops what it inherits of it.
        Some(StoredPeriod { start: start.unwrap_or(i64::MAX), carried: self.capacity_inputs.carried })
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
