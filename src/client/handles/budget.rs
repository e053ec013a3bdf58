//! Budgets: amounts that may be spent in each period, and never more.

use std::sync::Arc;

use leaseway_core::types::Amount;

use crate::{
    error::OpenError,
    handles::{
        open_resource::Limiter,
        resource::Resource,
        spender::{SpendError, Spender},
    },
    limiter::{Closed, SpendingPeriod},
};

/// A handle of a budget, a resource of kind BUDGET. All handles of a resource of one client share one book.
///
/// The client gets allowances in advance, so spending needs no request most of the time. What was spent cannot be
/// returned; for work whose cost is known only at its end, reserve an amount and [settle](BudgetReservation::settle)
/// it.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = client.budget("team-a/tokens")?;
/// tokens.spend(1200.0).await?;
/// // … the call that uses 1,200 tokens …
///
/// let reservation = tokens.reserve(2000.0).await?;
/// let used = 700.0; // … the call that uses up to 2,000 tokens …
/// reservation.settle(used)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    resource: Resource,
    spender: Arc<Spender>,
}

/// An amount of a budget for work whose cost is known only at its end. If it is dropped without being settled, all of it
/// is spent.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is spent in full: settle it"]
pub struct BudgetReservation {
    // Keeps the resource open, so that what is settled is reported.
    budget: Budget,
    amount: Amount,
    spent_in: SpendingPeriod,
}

impl BudgetReservation {
    /// The amount reserved.
    pub fn reserved(&self) -> f64 {
        self.amount.get()
    }

    /// The start and the end of the period whose amount it is in Unix seconds. `None` if the budget is spent once.
    pub fn period(&self) -> Option<(i64, i64)> {
        self.spent_in.period.filter(|span| !span.is_unending()).map(|span| (span.start, span.end))
    }

    /// Ends the reservation, because `used` was used. Takes back what is left of it, or [charges](Budget::charge) the
    /// excess. If the period of the reservation has ended, or the client was closed, nothing is taken back.
    ///
    /// # Errors
    ///
    /// `used` is not an amount, or the client was closed and the excess cannot be charged. Then the whole reservation is
    /// spent.
    pub fn settle(self, used: f64) -> Result<(), SpendError> {
        Ok(self.settle_amount(amount_of(used)?)?)
    }

    pub(crate) fn settle_amount(self, used: Amount) -> Result<(), Closed> {
        self.budget.spender.settle(self.budget.resource.now(), self.amount, used, self.spent_in)
    }

    /// Ends the reservation, because nothing was used, for a caller that will reserve the amount again.
    pub(crate) fn give_back_and_want(self) {
        self.budget.spender.give_back_and_want(self.budget.resource.now(), self.amount, self.spent_in);
    }

    /// A reservation of a part of the amount. The parts replace the whole.
    pub(crate) fn part(&self, amount: Amount) -> BudgetReservation {
        BudgetReservation { budget: self.budget.clone(), amount, spent_in: self.spent_in }
    }
}

pub(crate) fn amount_of(amount: f64) -> Result<Amount, SpendError> {
    Amount::new(amount).map_err(|_| SpendError::Invalid)
}

impl Budget {
    pub(crate) fn new(resource: Resource) -> Result<Budget, OpenError> {
        match &resource.opened().limiter {
            Limiter::Budget(spender) => Ok(Budget { spender: Arc::clone(spender), resource }),
            other => Err(OpenError::OtherKind { id: resource.id().to_owned(), is: other.kind(), asked: "budget" }),
        }
    }

    /// Spends an amount if the allowance covers it now. Asks for more in the background if it does not.
    pub fn try_spend(&self, amount: f64) -> Result<(), SpendError> {
        self.spender.try_spend(self.resource.now(), amount_of(amount)?, false).map(drop)
    }

    /// Waits until the allowance covers an amount, and spends it. First come, first served. If the budget is spent, this
    /// waits for the next period; to stop waiting, drop the future: nothing is spent.
    pub async fn spend(&self, amount: f64) -> Result<(), SpendError> {
        self.spender.spend(amount_of(amount)?, || self.resource.now()).await.map(drop)
    }

    /// Waits like [`spend`](Budget::spend), for work whose cost is known only at its end.
    pub async fn reserve(&self, amount: f64) -> Result<BudgetReservation, SpendError> {
        self.reserve_amount(amount_of(amount)?).await
    }

    pub(crate) async fn reserve_amount(&self, amount: Amount) -> Result<BudgetReservation, SpendError> {
        let spent_in = self.spender.spend(amount, || self.resource.now()).await?;
        Ok(BudgetReservation { budget: self.clone(), amount, spent_in })
    }

    /// Reserves an amount if the allowance covers it now.
    pub fn try_reserve(&self, amount: f64) -> Result<BudgetReservation, SpendError> {
        self.try_reserve_amount(amount_of(amount)?, false)
    }

    /// `waits`: the caller waits if it is refused.
    pub(crate) fn try_reserve_amount(&self, amount: Amount, waits: bool) -> Result<BudgetReservation, SpendError> {
        let spent_in = self.spender.try_spend(self.resource.now(), amount, waits)?;
        Ok(BudgetReservation { budget: self.clone(), amount, spent_in })
    }

    /// A reservation of 0, which needs no allowance.
    pub(crate) fn nothing_reserved(&self) -> BudgetReservation {
        BudgetReservation { budget: self.clone(), amount: Amount::ZERO, spent_in: self.spender.spends_in() }
    }

    /// Spends an amount that was used already. What the allowance does not cover is [owed](Budget::owed): the next
    /// allowances pay it before any caller can spend, also those of a later period.
    ///
    /// # Errors
    ///
    /// `amount` is not an amount, or the client was closed. Then nothing is charged.
    pub fn charge(&self, amount: f64) -> Result<(), SpendError> {
        Ok(self.charge_amount(amount_of(amount)?)?)
    }

    pub(crate) fn charge_amount(&self, amount: Amount) -> Result<(), Closed> {
        self.spender.charge(self.resource.now(), amount)
    }

    /// Whether both are handles of the same open budget.
    pub(crate) fn is_same(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.spender, &other.spender)
    }

    /// What was charged and is not covered by an allowance yet. Closing the last handle drops it.
    pub fn owed(&self) -> f64 {
        self.spender.owed().get()
    }

    /// What may be spent now, without asking.
    pub fn left(&self) -> f64 {
        self.spender.left(self.resource.now()).get()
    }

    /// What this client has spent in the current period, since the handle was opened.
    pub fn spent(&self) -> f64 {
        self.spender.spent().get()
    }

    /// The start and the end of the current period in Unix seconds; absent before the first lease, and at the end of a
    /// budget that is spent once.
    pub fn period(&self) -> Option<(i64, i64)> {
        self.spender.period().filter(|span| !span.is_unending()).map(|span| (span.start, span.end))
    }

    /// The resource: its lease.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
