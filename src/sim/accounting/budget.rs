//! The books of all clients of a budget: what was spent in each period, by the time at which it was spent.

use std::collections::BTreeMap;

use leaseway_core::{
    policy::{period::Periods, settings::BudgetSettings},
    resource::invariant::Violation,
    types::{Amount, Sum},
};

pub(crate) struct BudgetAccounting {
    periods: Periods,
    carry_over: Amount,
    /// The largest amount that was in force in each period, and what was spent.
    spent: BTreeMap<i64, (Amount, Sum)>,
}

impl BudgetAccounting {
    pub(crate) fn new(settings: &BudgetSettings) -> BudgetAccounting {
        let (periods, carry_over) = (settings.periods.clone(), settings.carry_over);
        BudgetAccounting { periods, carry_over, spent: BTreeMap::new() }
    }

    /// The mean fraction of the amount that was spent, over all periods.
    #[cfg(test)]
    pub(crate) fn mean_share(&self) -> f64 {
        let shares = self.spent.values().map(|(most, spent)| spent.get() / most.get());
        shares.sum::<f64>() / self.spent.len() as f64
    }

    /// The starts of all periods, in Unix seconds.
    #[cfg(test)]
    pub(crate) fn starts(&self) -> impl Iterator<Item = i64> {
        self.spent.keys().copied()
    }

    /// Records that an amount was spent under a lease of the period that begins at `period`. `capacity`: the amount of
    /// the budget now.
    pub(crate) fn spent(
        &mut self,
        unix: i64,
        period: Option<i64>,
        amount: Amount,
        capacity: Amount,
    ) -> Result<(), Violation> {
        let start = self.periods.at(unix).start;
        let before = self.spent.range(..start).next_back();
        let left = before.map_or(Amount::ZERO, |(_, (most, spent))| (Sum::from(*most) - *spent).floor());
        let (most, spent) = self.spent.entry(start).or_default();
        *most = (*most).max(capacity.saturating_add(left.min(self.carry_over)));
        if amount == Amount::ZERO {
            return Ok(());
        }
        *spent += amount;
        if *spent > Sum::from(*most) {
            let detail = format!("clients have spent {spent:?} of {most:?} in the period from {start}");
            return Err(Violation { invariant: "spent ≤ amount", detail });
        }
        if period != Some(start) {
            let detail = format!("a slice of the period from {period:?} is spent in the one from {start}");
            return Err(Violation { invariant: "a slice ends with its period", detail });
        }
        Ok(())
    }
}
