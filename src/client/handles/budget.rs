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
};

/// A handle of a budget, a resource of kind BUDGET. All handles of a resource of one client share one book.
///
/// What was spent cannot be returned. The client gets allowances in advance, so spending needs no request most of the
/// time.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = client.budget("team-a/tokens")?;
/// tokens.spend(1200.0).await?;
/// // … the call that uses up to 1,200 tokens …
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    resource: Resource,
    spender: Arc<Spender>,
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
        let amount = Amount::new(amount).map_err(|_| SpendError::Invalid)?;
        self.spender.try_spend(self.resource.now(), amount)
    }

    /// Waits until the allowance covers an amount, and spends it. First come, first served. If the budget is spent, this
    /// waits for the next period; to stop waiting, drop the future: nothing is spent.
    pub async fn spend(&self, amount: f64) -> Result<(), SpendError> {
        let amount = Amount::new(amount).map_err(|_| SpendError::Invalid)?;
        self.spender.spend(amount, || self.resource.now()).await
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
