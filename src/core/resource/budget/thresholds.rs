//! The thresholds of a budget. Each is reported once per period.

use crate::{
    policy::period::Span,
    resource::Resource,
    types::{Amount, Millis},
};

/// A threshold of a budget was reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetEvent {
    pub period: Span,
    /// The threshold in percent.
    pub percent: u8,
    pub spent: Amount,
    pub amount: Amount,
}

impl Resource {
    /// Adds an event for each threshold that was reached since the last call. If the amount has changed, thresholds can
    /// be reached again. A new master does not know which were reported, so it reports all that were reached.
    pub(in crate::resource) fn check_thresholds(&mut self, now: Millis) {
        let Some(budget) = &self.budget else { return };
        let (thresholds, amount) = (&self.settings.budget.thresholds, self.settings.capacity);
        let (known, of_amount) = budget.reported;
        let of = |part: f64| if amount > Amount::ZERO { part / amount.get() } else { 0.0 };
        // What is held is an upper bound of what was spent, and known without a visit to all holders.
        if self.has_parent() || amount == of_amount && thresholds.reached(of(self.sums().held.get())).len() <= known {
            return;
        }
        let Some(report) = self.budget_report(now) else { return };
        let (spent, period) = (report.spent, report.period);
        let reached = thresholds.reached(of(spent.get()));
        let known = if amount == of_amount { known } else { known.min(reached.len()) };
        let events: Vec<_> =
            reached.iter().skip(known).map(|&percent| BudgetEvent { period, percent, spent, amount }).collect();
        let reported = (known.max(reached.len()), amount);
        if let Some(budget) = &mut self.budget {
            budget.events.extend(events);
            budget.reported = reported;
        }
    }

    /// Takes the events since the last call.
    pub(crate) fn take_budget_events(&mut self) -> Vec<BudgetEvent> {
        self.budget.as_mut().map_or_else(Vec::new, |budget| std::mem::take(&mut budget.events))
    }
}
