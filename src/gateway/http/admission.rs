//! Rights, failures to open a resource, and waits: the same for permits and for budgets.

use std::time::Duration;

use leaseway_client::OpenError;
use leaseway_core::policy::access::Action;
use leaseway_server::HttpCaller;
use tokio::time::timeout;

use super::{
    HttpGateway, closing,
    fields::Fields,
    problem::{Problem, ProblemKind},
};
use crate::lease_table::NotOpened;

/// The minimum time that the first request for a resource waits for a lease. A cluster with a master answers sooner.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);

/// `Retry-After` if the time is unknown.
pub(super) const WHILE_UNKNOWN: Duration = Duration::from_secs(1);

pub(super) fn check(caller: &HttpCaller, resource: &str) -> Result<(), Problem> {
    Ok(caller.check_resource(Action::Ask, resource)?)
}

pub(super) fn not_opened(why: &NotOpened) -> Problem {
    let told = Problem::new(ProblemKind::NoRoom, why.to_string());
    match why {
        NotOpened::TooMany(_) | NotOpened::OfCaller(_) | NotOpened::OfEnvoy(_) => {
            told.in_word("too_many_resources").retry_after(WHILE_UNKNOWN)
        }
        NotOpened::Refused(error @ OpenError::OtherKind { .. }) => {
            Problem::new(ProblemKind::Conflict, error.to_string()).in_word("other_kind")
        }
        NotOpened::Refused(_) => closing(),
    }
}

pub(super) fn patience_of(fields: &Fields) -> Duration {
    Duration::from_secs_f64(fields.number_if_known("wait").unwrap_or_default())
}

/// `None` after the timeout. Fails if the gateway stops meanwhile.
pub(super) async fn wait_for<T>(
    gateway: &HttpGateway,
    wait: Duration,
    permits: impl Future<Output = T>,
) -> Result<Option<T>, Problem> {
    let mut closing_now = gateway.closing.clone();
    tokio::select! {
        taken = timeout(wait, permits) => Ok(taken.ok()),
        _ = closing_now.wait_for(|closing| *closing) => Err(closing()),
    }
}
