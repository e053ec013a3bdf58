//! Metrics of the client, through the `metrics` facade: install any recorder to collect them. Metrics that Doorman also
//! has keep its names.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

/// Maximum number of resources with a series of their own. Recorders never forget a series, and the names may come from
/// untrusted requests.
const MAX_SERIES: usize = 1_000;

/// The label of all other resources.
const OTHERS: &str = "(others)";

/// The label of a resource.
fn series(resource: &str) -> String {
    static NAMED: LazyLock<Mutex<HashSet<Box<str>>>> = LazyLock::new(Mutex::default);
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.contains(resource) {
        return resource.to_owned();
    }
    if named.len() >= MAX_SERIES {
        return OTHERS.to_owned();
    }
    named.insert(resource.into());
    resource.to_owned()
}

/// Counts a request that has ended.
pub(crate) fn requested(method: &'static str, server: &Arc<str>, took: Duration, failed: bool) {
    let labels = || [("method", method.to_owned()), ("server", server.to_string())];
    metrics::counter!("doorman_client_requests", &labels()).increment(1);
    metrics::histogram!("doorman_client_request_durations", &labels()).record(took.as_secs_f64());
    if failed {
        metrics::counter!("doorman_client_request_errors", &labels()).increment(1);
    }
}

/// Counts a redirect: the server was not the master.
pub(crate) fn redirected(server: &Arc<str>) {
    metrics::counter!("leaseway_client_redirects_total", "server" => server.to_string()).increment(1);
}

/// Counts a lease that has expired without a refresh.
pub(crate) fn lease_ended(resource: &Arc<str>) {
    metrics::counter!("leaseway_client_leases_ended_total", "resource" => series(resource)).increment(1);
}

/// Sets the debt of a rate. Resources without a series are skipped, because a gauge cannot combine several debts.
pub(crate) fn owed(resource: &str, permits: u64) {
    let resource = series(resource);
    if resource != OTHERS {
        metrics::gauge!("leaseway_client_debt", "resource" => resource).set(permits as f64);
    }
}

/// Counts permits that were not charged because the maximum debt was reached.
pub(crate) fn uncharged(resource: &str, permits: u64) {
    metrics::counter!("leaseway_client_uncharged_total", "resource" => series(resource)).increment(permits);
}

/// Counts resources that the server left out of an answer.
pub(crate) fn left_out(resources: usize) {
    metrics::counter!("leaseway_client_refused_resources_total").increment(resources as u64);
}

/// Counts a hint. The first one of a stream is empty.
pub(crate) fn hinted(is_non_empty: bool) {
    metrics::counter!("leaseway_client_hints_total").increment(u64::from(is_non_empty));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_beyond_the_maximum_share_a_series() {
        let names: Vec<String> = (0..MAX_SERIES + 10).map(|n| series(&n.to_string())).collect();
        assert!(names[..MAX_SERIES - 1].iter().enumerate().all(|(n, name)| *name == n.to_string()));
        assert_eq!(names[MAX_SERIES + 9], OTHERS);
        assert_eq!(series("0"), "0", "it keeps its series");
    }
}
