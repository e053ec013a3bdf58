//! The budgets of an operation that needs several limits.
//!
//! A caller waits for one budget at a time, and holds nothing meanwhile. When it has that amount, it tries the other
//! budgets without waiting. If one of them refuses, it gives everything back and waits for that one. So callers that
//! need the same budgets never wait for each other.

use leaseway_core::types::{Amount, Sum};
use tokio::task::coop::consume_budget;

use crate::{
    handles::{
        budget::{Budget, BudgetReservation},
        spender::SpendError,
    },
    limiter::Closed,
};

/// The amounts that an operation needs of budgets.
#[derive(Debug, Clone, Default)]
pub(super) struct BudgetAmounts {
    costs: Vec<BudgetCost>,
    /// Each budget once, with the sum of its costs, which is not 0.
    sums: Vec<(Budget, Amount)>,
}

#[derive(Debug, Clone)]
struct BudgetCost {
    budget: Budget,
    amount: Amount,
    /// The index of the sum that contains the amount. `None` for 0.
    sum: Option<usize>,
}

/// A budget refuses a request. The index is that of its first cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusedBy {
    pub(super) cost: usize,
    pub(super) is_closed: bool,
}

/// The amounts of all budgets. Dropping the value gives them back, unless they are kept.
#[derive(Debug, Default)]
pub(super) struct TakenAmounts {
    reserved: Vec<(usize, BudgetReservation)>,
}

impl Drop for TakenAmounts {
    fn drop(&mut self) {
        self.reserved.drain(..).for_each(|(_, reservation)| _ = reservation.settle_amount(Amount::ZERO));
    }
}

impl TakenAmounts {
    /// Gives the amounts back because another limit refuses. They stay in the demand, so that the next attempt finds
    /// them.
    pub(super) fn give_back_and_want(mut self) {
        self.reserved.drain(..).for_each(|(_, reservation)| reservation.give_back_and_want());
    }
}

impl BudgetAmounts {
    pub(super) fn new<'a>(costs: impl IntoIterator<Item = (&'a Budget, Amount)>) -> BudgetAmounts {
        let mut made = BudgetAmounts::default();
        for (budget, amount) in costs {
            let sum = (amount > Amount::ZERO).then(|| made.add(budget, amount));
            made.costs.push(BudgetCost { budget: budget.clone(), amount, sum });
        }
        made
    }

    /// Adds an amount to the sum of its budget, which is rounded up.
    fn add(&mut self, budget: &Budget, amount: Amount) -> usize {
        let found = self.sums.iter().position(|(other, _)| other.is_same(budget));
        match found {
            Some(at) => self.sums[at].1 = [self.sums[at].1, amount].into_iter().collect::<Sum>().ceil(),
            None => self.sums.push((budget.clone(), amount)),
        }
        found.unwrap_or(self.sums.len() - 1)
    }

    /// Waits for the amounts of all budgets. Dropping the future takes nothing.
    pub(super) async fn take(&self) -> Result<TakenAmounts, Closed> {
        let mut awaited = 0;
        loop {
            let mut taken = TakenAmounts::default();
            let Some((budget, amount)) = self.sums.get(awaited) else { return Ok(taken) };
            // A valid amount is refused only if the client was closed.
            let reservation = budget.reserve_amount(*amount).await.map_err(|_| Closed)?;
            taken.reserved.push((awaited, reservation));
            match self.take_others(&mut taken, true) {
                Ok(()) => return Ok(taken),
                Err((_, SpendError::Closed(closed))) => return Err(closed),
                Err((refusing, _)) => awaited = refusing,
            }
            taken.give_back_and_want();
            consume_budget().await;
        }
    }

    /// Takes the amounts of all budgets, or nothing.
    pub(super) fn try_take(&self) -> Result<TakenAmounts, RefusedBy> {
        let mut taken = TakenAmounts::default();
        match self.take_others(&mut taken, false) {
            Ok(()) => Ok(taken),
            Err((sum, error)) => {
                taken.give_back_and_want();
                let cost = self.costs.iter().position(|cost| cost.sum == Some(sum)).unwrap_or_default();
                Err(RefusedBy { cost, is_closed: matches!(error, SpendError::Closed(_)) })
            }
        }
    }

    /// Takes the amounts that are not taken yet, without waiting. Returns the first budget that refuses. `waits`: the
    /// caller waits for that one.
    fn take_others(&self, taken: &mut TakenAmounts, waits: bool) -> Result<(), (usize, SpendError)> {
        let first = taken.reserved.first().map(|(first, _)| *first);
        for (at, (budget, amount)) in self.sums.iter().enumerate().filter(|(at, _)| Some(*at) != first) {
            let reservation = budget.try_reserve_amount(*amount, waits).map_err(|error| (at, error))?;
            taken.reserved.push((at, reservation));
        }
        Ok(())
    }

    /// A reservation for each cost, in order.
    pub(super) fn keep(&self, mut taken: TakenAmounts) -> Vec<BudgetReservation> {
        let reserved = std::mem::take(&mut taken.reserved);
        let part = |cost: &BudgetCost| match reserved.iter().find(|(sum, _)| Some(*sum) == cost.sum) {
            Some((_, whole)) => whole.part(cost.amount),
            None => cost.budget.nothing_reserved(),
        };
        self.costs.iter().map(part).collect()
    }
}
