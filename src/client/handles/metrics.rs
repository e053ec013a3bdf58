//! What a client counts, through the `metrics` facade: install any recorder to see it. The names are Doorman's where
//! Doorman has one.

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

/// Resources with series of their own. The names of others may be what strangers chose: a recorder forgets none.
const MAX_SERIES: usize = 1_000;

/// What all beyond are called.
const OTHERS: &str = "(others)";

/// The name of a resource, if there is room for it.
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
    metrics::counter!("leaseway_client_leases_ended_total", "resource" => series(resource)).increment(1);
}

/// So much is owed by the limiter of a rate. Of the others what was told last says nothing: they are left out.
pub(crate) fn owed(resource: &str, permits: u64) {
    let resource = series(resource);
    if resource != OTHERS {
        metrics::gauge!("leaseway_client_debt", "resource" => resource).set(permits as f64);
    }
}

/// So much was used and is not paid for, because more would be owed than may be.
pub(crate) fn uncharged(resource: &str, permits: u64) {
    metrics::counter!("leaseway_client_uncharged_total", "resource" => series(resource)).increment(permits);
}

/// The server has left so many resources out of an answer.
pub(crate) fn left_out(resources: usize) {
    metrics::counter!("leaseway_client_left_out_total").increment(resources as u64);
}

/// A hint came. The first of a stream is empty: it only says that there will be hints.
pub(crate) fn hinted(says_something: bool) {
    metrics::counter!("leaseway_client_hints_total").increment(u64::from(says_something));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one() {
        let names: Vec<String> = (0..MAX_SERIES + 10).map(|n| series(&n.to_string())).collect();
        assert!(names[..MAX_SERIES - 1].iter().enumerate().all(|(n, name)| *name == n.to_string()));
        assert_eq!(names[MAX_SERIES + 9], OTHERS);
        assert_eq!(series("0"), "0", "as before");
    }
}
