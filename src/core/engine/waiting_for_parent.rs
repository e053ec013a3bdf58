//! Requests that wait for a supply at a node with a parent.
//!
//! Before the first supply, the core records the wants of a request, so that the report to the parent contains them,
//! and the answer waits for the supply, which usually takes one round trip. After a second the request is answered "not
//! yet", and its holder keeps its lease.
//!
//! Later, a request waits if its holder is new or a child node, and the parent may lend more once it knows of it
//! ([`Resource::short`](crate::resource::Resource::short)). It waits up to a second for the first supply that answers a
//! later report. Then it is decided from the current supply. After one such wait in vain, no request waits until the
//! parent has answered again.

use std::collections::VecDeque;

use crate::{policy::settings::Settings, resource::Request, types::Millis};

/// The maximum time that a request waits for a supply. Clients ask again in a second anyway.
pub(super) const MAX_WAIT: Millis = Millis::from_secs(1);

/// The predecessor of an incarnation that does not know all leases. It determines the end of learning mode, which is
/// unknown before the first supply, because the parent sends the lease length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// A new master that began at this time. It learns for the configured time.
    NewMaster(Millis),
    /// An incarnation that was rebuilt at this time. It learns until all leases granted before have ended.
    Rebuilt(Millis),
}

impl Predecessor {
    /// The end of learning mode under these settings.
    pub fn learning_until(self, settings: &Settings) -> Millis {
        match self {
            Predecessor::NewMaster(since) => settings.learning_until(since),
            Predecessor::Rebuilt(since) => settings.last_lease_over(since),
        }
    }
}

pub(super) struct WaitingForSupply<T> {
    /// Present if not all earlier promises are known.
    predecessor: Option<Predecessor>,
    since: Millis,
    /// Whether the uplink was asked for a report of this resource and has not sent one since.
    pub(super) has_asked: bool,
    pub(super) reports: u64,
    /// Whether a request has waited in vain since the last supply.
    pub(super) gave_up: bool,
    /// In the order of arrival.
    pub(super) requests: VecDeque<WaitingRequest<T>>,
}

pub(super) struct WaitingRequest<T> {
    pub(super) until: Millis,
    /// The request waits for a supply that answers a later report than this.
    pub(super) after: u64,
    pub(super) request: Request,
    pub(super) ticket: T,
}

impl<T> WaitingForSupply<T> {
    pub(super) fn new(predecessor: Option<Predecessor>, since: Millis) -> WaitingForSupply<T> {
        WaitingForSupply { predecessor, since, has_asked: false, reports: 0, gave_up: false, requests: VecDeque::new() }
    }

    /// Takes out the requests that a supply answers: those in the report that it answers; all, if it is the first
    /// supply.
    pub(super) fn answered_by_supply(&mut self, is_first: bool) -> VecDeque<WaitingRequest<T>> {
        let reports = self.reports;
        let (answered, rest) = self.requests.drain(..).partition(|waiting| is_first || waiting.after < reports);
        self.requests = rest;
        answered
    }

    /// Takes out the requests that have waited for too long.
    pub(super) fn overdue(&mut self, now: Millis) -> Vec<WaitingRequest<T>> {
        let overdue = self.requests.partition_point(|waiting| waiting.until <= now);
        self.requests.drain(..overdue).collect()
    }

    /// The end of learning mode, now that the length of leases is known.
    pub(super) fn learning_until(&self, settings: &Settings, has_met_strangers: bool) -> Millis {
        let predecessor = self.predecessor.map_or(Millis(0), |predecessor| predecessor.learning_until(settings));
        let strangers = if has_met_strangers { settings.last_lease_over(self.since) } else { Millis(0) };
        predecessor.max(strangers)
    }
}
