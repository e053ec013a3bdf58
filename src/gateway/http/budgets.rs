//! Amounts of budgets whose allowance this gateway holds.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, StatusCode};
use leaseway_client::{Basis, Budget, BudgetReservation, Reservations, SpendError, limiter::TryError};
use leaseway_core::types::{escaped, readable};
use leaseway_server::HttpCaller;
use serde_json::{Value, json};

use super::{
    HttpAnswer, HttpGateway, admission, closing,
    fields::Fields,
    problem::{Problem, ProblemKind},
};
use crate::lease_table::BudgetEntry;

/// `Retry-After`, because others may return what they do not need.
const RETRY: Duration = Duration::from_secs(1);

/// Spends an amount of a budget, or nothing.
pub(super) async fn spend(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    let entry = find(gateway, caller, resource)?;
    let (budget, amount) = (entry.budget(), fields.number("amount"));
    let wait = admission::patience_of(fields);
    covered(gateway, budget, amount, wait, budget.try_spend(amount), budget.spend(amount)).await?;
    Ok(HttpAnswer::of(StatusCode::OK, taken(budget, amount)))
}

/// Reserves an amount of a budget.
pub(super) async fn reserve(
    gateway: &HttpGateway,
    entry: &BudgetEntry,
    amount: f64,
    fields: &Fields,
) -> Result<BudgetReservation, Problem> {
    let (budget, wait) = (entry.budget(), admission::patience_of(fields));
    covered(gateway, budget, amount, wait, budget.try_reserve(amount), budget.reserve(amount)).await
}

/// Charges an amount of a budget that was used already.
pub(super) async fn charge(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    amount: f64,
) -> Result<HttpAnswer, Problem> {
    let entry = open(gateway, caller, resource, Duration::ZERO).await?;
    let budget = entry.budget();
    budget.charge(amount).map_err(|_| closing())?;
    Ok(HttpAnswer::of(StatusCode::OK, json!({ "resource": resource, "amount": amount, "owed": budget.owed() })))
}

/// Finds or opens a budget.
pub(super) fn find(gateway: &HttpGateway, caller: &HttpCaller, resource: &str) -> Result<Arc<BudgetEntry>, Problem> {
    let opened = gateway.lease_table.open_budget(resource, caller.principal());
    opened.map_err(|why| admission::not_opened(&why))
}

/// Finds or opens a budget. The first request waits for a lease as long as it would for the amount, and at least
/// [`admission::FIRST_WAIT`].
pub(super) async fn open(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    wait: Duration,
) -> Result<Arc<BudgetEntry>, Problem> {
    let entry = find(gateway, caller, resource)?;
    first_lease(gateway, entry.budget(), admission::FIRST_WAIT.max(wait)).await?;
    Ok(entry)
}

async fn first_lease(gateway: &HttpGateway, budget: &Budget, wait: Duration) -> Result<(), Problem> {
    if budget.resource().usable().basis == Basis::Unknown {
        // The outcome is checked below.
        let _ = admission::wait_for(gateway, wait, budget.resource().answered()).await?;
    }
    if budget.resource().usable().basis == Basis::Lease { Ok(()) } else { Err(no_lease(budget)) }
}

/// The result of an attempt, or of waiting for the allowance.
async fn covered<T>(
    gateway: &HttpGateway,
    budget: &Budget,
    amount: f64,
    wait: Duration,
    tried: Result<T, SpendError>,
    waited: impl Future<Output = Result<T, SpendError>>,
) -> Result<T, Problem> {
    let taken = match tried {
        Err(SpendError::NotCovered { .. } | SpendError::Behind) => admission::wait_for(gateway, wait, waited).await?,
        done => Some(done),
    };
    taken.ok_or_else(|| not_covered(budget, amount))?.map_err(|_| closing())
}

/// An amount that was taken, as in the answer.
pub(super) fn taken(budget: &Budget, amount: f64) -> Value {
    let (start, end) = budget.period().unzip();
    json!({
        "resource": budget.resource().id(),
        "amount": amount,
        "left": budget.left(),
        "period_start": start,
        "period_end": end,
    })
}

/// A settled reservation, as in the answer.
pub(super) fn settled(budget: &Budget, reserved: f64, used: f64) -> Value {
    json!({ "resource": budget.resource().id(), "reserved": reserved, "used": used, "owed": budget.owed() })
}

/// An amount of a budget in a request for several limits.
pub(super) struct WantedAmount {
    pub(super) entry: Arc<BudgetEntry>,
    pub(super) amount: f64,
}

impl WantedAmount {
    /// Waits for the first lease.
    pub(super) async fn first_lease(&self, gateway: &HttpGateway, wait: Duration) -> Result<(), Problem> {
        first_lease(gateway, self.entry.budget(), wait).await
    }
}

/// The amounts of a request for several limits. Dropping the value gives them back, unless they are kept.
pub(super) struct TakenAmounts(Option<ReservedAmounts>);

/// The amounts of a request for several limits, which may be settled. Otherwise they are spent.
pub(super) struct ReservedAmounts {
    wanted: Vec<WantedAmount>,
    reserved: Reservations,
}

/// Waits for the amounts of all budgets, and takes them, or nothing.
pub(super) async fn take_all(
    gateway: &HttpGateway,
    wanted: Vec<WantedAmount>,
    wait: Duration,
) -> Result<TakenAmounts, Problem> {
    let costs = wanted.iter().map(|WantedAmount { entry, amount }| entry.budget().of(*amount));
    let limits = gateway.lease_table.client().limits(costs);
    let mut tried = limits.try_reserve();
    if tried.is_err() && !wait.is_zero() {
        tried = match admission::wait_for(gateway, wait, limits.reserve()).await? {
            Some(reserved) => Ok(reserved.map_err(|_| closing())?),
            // Says which budget refuses.
            None => limits.try_reserve(),
        };
    }
    let reserved = tried.map_err(|refusal| match refusal.error {
        TryError::Closed => closing(),
        _ => not_covered(wanted[refusal.index].entry.budget(), wanted[refusal.index].amount),
    })?;
    Ok(TakenAmounts(Some(ReservedAmounts { wanted, reserved })))
}

impl TakenAmounts {
    pub(super) fn keep(mut self) -> Option<ReservedAmounts> {
        self.0.take()
    }
}

impl Drop for TakenAmounts {
    fn drop(&mut self) {
        if let Some(ReservedAmounts { wanted, reserved }) = self.0.take() {
            // Budgets have no maximum debt.
            let _ = reserved.settle(&vec![0; wanted.len()]);
        }
    }
}

impl ReservedAmounts {
    /// The resources, in order.
    pub(super) fn resources(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().map(|wanted| wanted.entry.budget().resource().id())
    }

    /// The amounts as in the answer.
    pub(super) fn to_json(&self) -> impl Iterator<Item = Value> {
        self.wanted.iter().map(|WantedAmount { entry, amount }| taken(entry.budget(), *amount))
    }

    /// Settles each amount, and describes it. `used` has one number for each.
    pub(super) fn settle(self, used: &[f64]) -> Vec<Value> {
        // Budgets have no maximum debt.
        let _ = self.reserved.settle(used);
        let one = |(wanted, used): (&WantedAmount, &f64)| settled(wanted.entry.budget(), wanted.amount, *used);
        self.wanted.iter().zip(used).map(one).collect()
    }
}

fn no_lease(budget: &Budget) -> Problem {
    let name = escaped(budget.resource().id());
    let why = format!(
        "no lease of `{name}`: no master has answered this gateway, or the template of `{name}` is not `kind: BUDGET`"
    );
    Problem::new(ProblemKind::NoLease, why).retry_after(RETRY)
}

fn not_covered(budget: &Budget, amount: f64) -> Problem {
    if budget.resource().usable().basis != Basis::Lease {
        return no_lease(budget);
    }
    let (id, amount, left) = (budget.resource().id(), readable(amount), readable(budget.left()));
    let name = escaped(id);
    let why = format!(
        "cannot spend {amount} of `{name}`: this gateway may spend {left} now, and the cluster granted no more in time"
    );
    let problem = Problem::new(ProblemKind::OverLimit, why).in_word("not_covered");
    problem.beyond(&[id], HeaderMap::new()).retry_after(RETRY)
}
