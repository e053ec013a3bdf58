//! Due times. A session may have a hundred thousand resources, so they are scanned once per request and not with every
//! call.

use std::{cell::Cell, sync::Arc};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

use super::{InFlight, NEVER, Session};
use crate::session::messages::Demand;

/// A cached minimum of many times, recomputed only after the current minimum was removed. The cached value is exact or
/// absent.
#[derive(Debug, Default)]
pub(super) struct CachedMin(Cell<Option<Millis>>);

impl CachedMin {
    /// A value was added.
    pub(super) fn insert(&self, at: Millis) {
        self.0.set(self.0.get().map(|first| first.min(at)));
    }

    /// A value was removed.
    pub(super) fn remove(&self, at: Millis) {
        self.0.set(self.0.get().filter(|first| *first < at));
    }

    /// The minimum, recomputed with `find` if it is not cached; the maximum time if there are no values.
    pub(super) fn get(&self, find: impl Fn() -> Option<Millis>) -> Millis {
        let found = || find().unwrap_or(Millis(u64::MAX));
        let first = self.0.get().unwrap_or_else(found);
        self.0.set(Some(first));
        first
    }

    /// Whether the cached minimum is after `at`. False if no minimum is cached.
    pub(super) fn is_after(&self, at: Millis) -> bool {
        self.0.get().is_some_and(|first| first > at)
    }

    /// Drops the cached value.
    pub(super) fn invalidate(&self) {
        self.0.set(None);
    }
}

impl<D: Demand> Session<D> {
    /// When [`poll`](Self::poll) or [`changes`](Self::changes) has to be called at the latest; `None` if that depends
    /// on other events.
    pub fn wake(&self, now: Millis) -> Option<Millis> {
        let send = match &self.in_flight {
            Some(in_flight) => Some(in_flight.deadline),
            None if !self.leaving.is_empty() => Some(self.pause_until),
            None => Some(self.first_due())
                .filter(|_| !self.entries.is_empty())
                .map(|due| due.max(self.pause_until))
                .filter(|due| *due.max(&now) <= self.asks_until),
        };
        if !self.first_end.is_after(now) {
            self.first_end.invalidate();
        }
        let live = self.entries.values().filter_map(|entry| entry.lease).filter(|lease| lease.is_live(now));
        let end = self.first_end.get(|| live.clone().map(|lease| lease.end).min());
        [send, Some(end).filter(|end| *end < NEVER)].into_iter().flatten().min()
    }

    /// The maximum time between two attempts.
    pub(super) fn longest_retry(&self) -> Millis {
        let leases = self.entries.values().filter_map(|entry| entry.lease);
        let refresh = leases.map(|lease| lease.refresh).min();
        self.pace.longest_retry(refresh, self.route.endpoints().len())
    }

    pub(super) fn first_due(&self) -> Millis {
        let first = self.first_due.get(|| self.entries.values().map(|entry| entry.due).min());
        debug_assert!(
            self.entries.len() > 32 || first == self.entries.values().map(|entry| entry.due).min().unwrap_or(NEVER)
        );
        first
    }

    /// Whether a request would be sent now, so that demands should be updated.
    pub fn is_due(&self, now: Millis) -> bool {
        let asks = self.may_ask(now) && self.first_due() <= now;
        self.in_flight.is_none() && self.pause_until <= now && (!self.leaving.is_empty() || asks)
    }

    /// The resources that a request sent now would ask for.
    pub fn due_resources(&self, now: Millis) -> Vec<Arc<str>> {
        if self.first_due() > now || !self.may_ask(now) {
            return Vec::new();
        }
        if self.uses_stream(now) {
            return self.entries.iter().filter(|(_, entry)| entry.joins(now)).map(|(id, _)| Arc::clone(id)).collect();
        }
        let until = now.plus(self.pace.ahead);
        let due = self.entries.iter().filter(|(_, entry)| entry.due <= until && entry.not_before <= now);
        self.earliest(due.map(|(id, entry)| (entry.due, id)).collect())
    }

    /// As many of these as fit into a request, those first that are due first. Sorted by id, as given.
    pub(super) fn earliest(&self, mut order: Vec<(Millis, &Arc<str>)>) -> Vec<Arc<str>> {
        if order.len() > self.resources_per_request {
            order.select_nth_unstable(self.resources_per_request);
            order.truncate(self.resources_per_request);
            order.sort_by_key(|(_, id)| *id);
        }
        order.into_iter().map(|(_, id)| Arc::clone(id)).collect()
    }

    /// After `at` the session sends no request for capacity and drops all answers, until this is called again. Leases
    /// stay live, and releases are still sent.
    ///
    /// For a client that forwards its leases to a process. If that process may switch to another client with the same
    /// id, this client must stop asking before the switch.
    pub fn ask_until(&mut self, at: Millis) {
        self.asks_until = at;
    }

    /// Whether requests for capacity are allowed now.
    pub(super) fn may_ask(&self, now: Millis) -> bool {
        now <= self.asks_until || planted::is(Fault::AsksForEnvoysElsewhere)
    }

    /// Makes all resources of a request due at once.
    pub(super) fn retry_now(&mut self, in_flight: &InFlight, now: Millis) {
        for id in &in_flight.ids {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.schedule(now);
                self.first_due.insert(entry.due);
            }
        }
    }
}
