//! The state of a budget, and a forecast for the end of its period.

use crate::{
    policy::period::Span,
    resource::Resource,
    types::{Amount, Millis, Sum},
};

/// The state of a budget for reports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetReport {
    pub period: Span,
    /// The part of the amount that the period before has left over.
    pub carried: Amount,
    /// Spent as far as it was reported, by live holders and by those that are gone. The latter counts slices that were
    /// lost.
    pub spent: Amount,
    /// The part of `spent` that belongs to no live holder.
    pub gone: Amount,
    /// Slices of live holders that are not spent yet, as far as is known.
    pub reserved: Amount,
    /// Neither spent nor reserved.
    pub left: Amount,
    /// With `pace`: what may be spent per second.
    pub pace: Option<f64>,
    /// Absent if the amount is spent once.
    pub forecast: Option<BudgetForecast>,
}

/// What happens if spending goes on at the mean rate of this period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetForecast {
    /// What would be spent at the end of the period; it may be more than the amount.
    pub spent: f64,
    /// When nothing will be left, in Unix seconds, if that is before the end.
    pub runs_out: Option<i64>,
}

impl Resource {
    /// The state of a budget; `None` if it is none, or before its first request.
    pub fn budget_report(&self, now: Millis) -> Option<BudgetReport> {
        let period = self.budget.as_ref()?.period?;
        let held = self.sums().held;
        let gone = self.book.unclaimed();
        let live: Sum = self
            .book
            .ledger()
            .iter_from(0)
            .filter(|(slot, _)| !self.book.ledger().is_inherited(*slot))
            .map(|(_, holder)| holder.leases.outstanding(now))
            .collect();
        let mut spent = live;
        spent += gone;
        let reserved = (held - spent).max(Sum::ZERO).ceil();
        let left = (Sum::from(self.settings.capacity) - held).floor();
        let pace = self.budget.as_ref()?.pace.filter(|_| self.settings.is_paced()).map(|pace| pace.rate);
        let forecast = self.forecast(spent.get(), now);
        let carried = self.capacity_inputs.carried;
        Some(BudgetReport { period, carried, spent: spent.ceil(), gone, reserved, left, pace, forecast })
    }

    fn forecast(&self, spent: f64, now: Millis) -> Option<BudgetForecast> {
        let budget = self.budget.as_ref()?;
        let period = budget.period.filter(|period| !period.is_unending())?;
        let elapsed = (i128::from(now.0) - budget.start) as f64 / 1000.0;
        let rate = spent / elapsed.max(1.0);
        let until_spent = self.settings.capacity.get() / rate;
        let runs_out = (until_spent < period.seconds() as f64).then(|| period.start.saturating_add(until_spent as i64));
        Some(BudgetForecast { spent: rate * period.seconds() as f64, runs_out })
    }
}
