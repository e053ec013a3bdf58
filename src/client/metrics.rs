//! What a client counts, through the `metrics` facade: install any recorder to see it. The names are Doorman's where
//! Doorman has one.

use std::{sync::Arc, time::Duration};

/// A request has ended, one way or another.
pub(crate) fn requested(method: &'static str, server: &Arc<str>, took: Duration, failed: bool) {
    let labels = || [("method", method.to_owned()), ("server", server.to_string())];
    metrics::counter!("doorman_client_requests", &labels()).increment(1);
    metrics::histogram!("doorman_client_request_durations", &labels()).record(took.as_secs_f64());
    if failed {
        metrics::counter!("doorman_client_request_errors", &labels()).increment(1);
    }
}

/// The server that was asked was not the master.
pub(crate) fn redirected(server: &Arc<str>) {
    metrics::counter!("leaseway_client_redirects_total", "server" => server.to_string()).increment(1);
}

/// A lease has ended unrenewed.
pub(crate) fn lease_ended(resource: &Arc<str>) {
    metrics::counter!("leaseway_client_leases_ended_total", "resource" => resource.to_string()).increment(1);
}

/// So much is owed by the limiter of a rate.
pub(crate) fn owed(resource: &str, permits: u64) {
    metrics::gauge!("leaseway_client_debt", "resource" => resource.to_owned()).set(permits as f64);
}

/// So much was used and is not paid for, because more would be owed than may be.
pub(crate) fn uncharged(resource: &str, permits: u64) {
    metrics::counter!("leaseway_client_uncharged_total", "resource" => resource.to_owned()).increment(permits);
}

/// A hint came. The first of a stream is empty: it only says that there will be hints.
pub(crate) fn hinted(says_something: bool) {
    metrics::counter!("leaseway_client_hints_total").increment(u64::from(says_something));
}
