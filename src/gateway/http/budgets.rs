//! Spends from budgets.

use std::time::Duration;

use axum::http::StatusCode;
use leaseway_client::{Basis, Budget, SpendError};
use leaseway_core::types::{escaped, readable};
use leaseway_server::HttpCaller;
use serde_json::json;

use super::{
    HttpAnswer, HttpGateway, closing,
    fields::Fields,
    permits,
    problem::{Problem, ProblemKind},
};

/// `Retry-After`, because others may return what they do not need.
const RETRY: Duration = Duration::from_secs(1);

/// Spends an amount of a budget, or nothing.
pub(super) async fn spend(
    gateway: &HttpGateway,
    caller: &HttpCaller,
    resource: &str,
    fields: &Fields,
) -> Result<HttpAnswer, Problem> {
    permits::check(caller, resource)?;
    let opened = gateway.lease_table.open_budget(resource, caller.principal());
    let entry = opened.map_err(|why| permits::not_opened(&why))?;
    let (budget, amount) = (entry.budget(), fields.number("amount"));
    let spent = match budget.try_spend(amount) {
        Err(SpendError::NotCovered { .. } | SpendError::Behind) => {
            permits::wait_for(gateway, permits::patience_of(fields), budget.spend(amount)).await?
        }
        done => Some(done),
    };
    spent.ok_or_else(|| not_covered(budget, amount))?.map_err(|_| closing())?;
    let (start, end) = budget.period().unzip();
    Ok(HttpAnswer::of(
        StatusCode::OK,
        json!({
            "resource": resource, "amount": amount, "left": budget.left(), "period_start": start, "period_end": end,
        }),
    ))
}

fn not_covered(budget: &Budget, amount: f64) -> Problem {
    let name = escaped(budget.resource().id());
    if budget.resource().usable().basis != Basis::Lease {
        let why = format!(
            "no lease of `{name}`: no master has answered this gateway, or the template of `{name}` is not `kind: BUDGET`"
        );
        return Problem::new(ProblemKind::NoLease, why).retry_after(RETRY);
    }
    let (amount, left) = (readable(amount), readable(budget.left()));
    let why = format!(
        "cannot spend {amount} of `{name}`: this gateway may spend {left} now, and the cluster granted no more in time"
    );
    Problem::new(ProblemKind::OverLimit, why).in_word("not_covered").retry_after(RETRY)
}
