//! Metrics and warnings of a resource.

use std::sync::Arc;

use leaseway_core::resource::{Counters, Resource};

use super::combiner::RoundScratch;
use crate::observe::{logging::worth_logging, metrics};

/// The counters of the resource at the last report.
#[derive(Default)]
pub(super) struct Metering {
    counters: Counters,
    overloads: u64,
}

impl Metering {
    /// Starts at the present counters of the resource, which were reported before.
    pub(super) fn of(resource: &Resource) -> Metering {
        Metering { counters: resource.counters(), overloads: 0 }
    }

    /// The increase since the last report.
    pub(super) fn unreported(&self, resource: &Resource) -> Counters {
        resource.counters().since(&self.counters)
    }

    /// Adds the increase of the counters since the last report to the metrics. Called with ticks, with status reports
    /// and before the resource is packed.
    pub(super) fn report(&mut self, id: &Arc<str>, resource: &Resource, scratch: &mut RoundScratch) {
        let now = resource.counters();
        let before = std::mem::replace(&mut self.counters, now);
        if before == now {
            return;
        }
        scratch.count(&now.since(&before));
        if let Some(pool) = resource.pool() {
            metrics::pool_overloaded(pool.overloads.saturating_sub(self.overloads));
            self.overloads = pool.overloads;
        }
        if worth_logging(before.learning_excess, now.learning_excess) {
            let times = now.learning_excess;
            tracing::warn!(resource = %id, times, "learning mode: the leases that clients report exceed the capacity; each was restored as far as capacity was left");
        }
        if worth_logging(before.unaccounted, now.unaccounted) {
            let times = now.unaccounted;
            tracing::warn!(resource = %id, times, "a client reports a lease that neither this master nor its stored promises account for; the capacity may be exceeded until such leases end");
        }
        if worth_logging(before.share_full, now.share_full) {
            let (times, holders) = (now.share_full, resource.holders());
            tracing::warn!(resource = %id, times, holders, "an identity or address has used up its share of --max-clients: its new clients are refused; raise --max-clients or --address-share");
        }
        if worth_logging(before.full, now.full) {
            let (times, holders) = (now.full, resource.holders());
            tracing::warn!(resource = %id, times, holders, "too many clients: new ones are refused; raise --max-clients-per-resource or --max-clients");
        }
    }
}
