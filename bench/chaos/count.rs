//! What clients count through the `metrics` facade, added up by name: how many requests failed, how many leases ended.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Counters by name, with any labels.
#[derive(Clone, Default)]
pub(super) struct Counters(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(super) requests: u64,
    /// Asked anew after that, and so not lost.
    pub(super) errors: u64,
    pub(super) redirects: u64,
    /// Leases that ended because no request was answered in time.
    pub(super) leases_ended: u64,
}

impl Counters {
    /// From here on everything in this process is counted.
    pub(super) fn install() -> Result<Counters, Error> {
        let count = Counters::default();
        metrics::set_global_recorder(count.clone())
            .map_err(|error| Error::Usage(format!("cannot count what clients do: {error}")))?;
        Ok(count)
    }

    pub(super) fn now(&self) -> Counted {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |name: &str| counters.get(name).map_or(0, |counter| counter.load(Ordering::Relaxed));
        Counted {
            requests: read("doorman_client_requests"),
            errors: read("doorman_client_request_errors"),
            redirects: read("leaseway_client_redirects_total"),
            leases_ended: read("leaseway_client_leases_ended_total"),
        }
    }
}

impl Counted {
    pub(super) fn since(self, before: Counted) -> Counted {
        Counted {
            requests: self.requests - before.requests,
            errors: self.errors - before.errors,
            redirects: self.redirects - before.redirects,
            leases_ended: self.leases_ended - before.leases_ended,
        }
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = counters.get(key.name()) {
            return Counter::from_arc(Arc::clone(counter));
        }
        let counter = Arc::<AtomicU64>::default();
        counters.insert(key.name().to_owned(), Arc::clone(&counter));
        Counter::from_arc(counter)
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up_over_their_labels() {
        let count = Counters::default();
        metrics::with_local_recorder(&count, || {
            metrics::counter!("doorman_client_requests", "server" => "a").increment(2);
            metrics::counter!("leaseway_client_leases_ended_total", "resource" => "r").increment(1);
            let before = count.now();
            metrics::counter!("doorman_client_requests", "server" => "b").increment(3);
            assert_eq!(count.now(), Counted { requests: 5, leases_ended: 1, ..Counted::default() });
            assert_eq!(count.now().since(before), Counted { requests: 3, ..Counted::default() });
        });
    }
}
