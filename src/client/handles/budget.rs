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
    limiter::SpentIn,
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
    spent_in: SpentIn,
}

impl BudgetReservation {
    /// The amount reserved.
    pub fn reserved(&self) -> f64 {
        self.amount.get()
    }

    /// Ends the reservation, because `used` was used. Takes back what is left of it, or [charges](Budget::charge) the
    /// excess. If the period of the reservation has ended, nothing is taken back.
    ///
    /// # Errors
    ///
    /// `used` is not an amount. Then the whole reservation is spent.
    pub fn settle(self, used: f64) -> Result<(), SpendError> {
        let (now, used) = (self.budget.resource.now(), amount_of(used)?);
        self.budget.spender.settle(now, self.amount, used, self.spent_in);
        Ok(())
    }
}

fn amount_of(amount: f64) -> Result<Amount, SpendError> {
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
        self.spender.try_spend(self.resource.now(), amount_of(amount)?).map(drop)
    }

    /// Waits until the allowance covers an amount, and spends it. First come, first served. If the budget is spent, this
    /// waits for the next period; to stop waiting, drop the future: nothing is spent.
    pub async fn spend(&self, amount: f64) -> Result<(), SpendError> {
        self.spender.spend(amount_of(amount)?, || self.resource.now()).await.map(drop)
    }

    /// Waits like [`spend`](Budget::spend), for work whose cost is known only at its end.
    pub async fn reserve(&self, amount: f64) -> Result<BudgetReservation, SpendError> {
        let amount = amount_of(amount)?;
        let spent_in = self.spender.spend(amount, || self.resource.now()).await?;
        Ok(BudgetReservation { budget: self.clone(), amount, spent_in })
    }

    /// Reserves an amount if the allowance covers it now.
    pub fn try_reserve(&self, amount: f64) -> Result<BudgetReservation, SpendError> {
        let amount = amount_of(amount)?;
        let spent_in = self.spender.try_spend(self.resource.now(), amount)?;
        Ok(BudgetReservation { budget: self.clone(), amount, spent_in })
    }

    /// Spends an amount that was used already. What the allowance does not cover is [owed](Budget::owed): the next
    /// allowances pay it before any caller can spend, also those of a later period.
    pub fn charge(&self, amount: f64) -> Result<(), SpendError> {
        self.spender.charge(self.resource.now(), amount_of(amount)?);
        Ok(())
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
