//! A resource of a node with a parent: requests that wait for a supply, and when the parent should be told.
//!
//! A request that comes before the parent has lent anything is *parked*: the core hears what is wanted, so that the
//! parent can be told, and the answer waits for the supply, which most often takes one round trip. After a second it
//! goes without: "not yet", and the holder keeps what it has.
//!
//! Later a request is parked if its holder has nothing yet, or is a child node, and the parent may lend more once it
//! knows of it ([`Resource::short`](crate::resource::Resource::short)). It waits for the first supply that follows a
//! report made since, at most a second; then it is decided with what there is. After one such wait in vain no request
//! waits until the parent has answered again.

use std::collections::VecDeque;

use crate::{policy::settings::Settings, resource::Request, types::time::Millis};

/// How long a request waits for a supply. The protocol's clients ask again in a second anyway.
pub(super) const PATIENCE: Millis = Millis::from_secs(1);

/// Until when an incarnation learns that does not know all that holders may have. The parent says how long leases are,
/// so that moment is not known before the first supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// As long as the settings say, from when this master began.
    NewMaster(Millis),
    /// Until no lease given before this moment can be believed.
    Rebuilt(Millis),
}

impl Predecessor {
    /// When that is, if leases are as `settings` say.
    pub fn learning_until(self, settings: &Settings) -> Millis {
        match self {
            Predecessor::NewMaster(since) => settings.learning_until(since),
            Predecessor::Rebuilt(since) => settings.last_lease_over(since),
        }
    }
}

/// What a resource of a node with a parent has besides.
pub(super) struct WaitingForSupply<T> {
    /// If not all that was promised before is known.
    predecessor: Option<Predecessor>,
    /// When this master began.
    since: Millis,
    /// The uplink has been told that the parent should hear of this resource, and has not condensed it since.
    pub(super) has_asked: bool,
    /// How often it has been condensed.
    pub(super) reports: u64,
    /// A parked request has waited in vain, and the parent has lent nothing since.
    pub(super) gave_up: bool,
    /// In the order in which they came.
    pub(super) requests: VecDeque<WaitingRequest<T>>,
}

/// A request that waits for a supply.
pub(super) struct WaitingRequest<T> {
    pub(super) until: Millis,
    /// The supply that it waits for follows a later report than this.
    pub(super) after: u64,
    pub(super) request: Request,
    pub(super) ticket: T,
}

impl<T> WaitingForSupply<T> {
    pub(super) fn new(predecessor: Option<Predecessor>, since: Millis) -> WaitingForSupply<T> {
        WaitingForSupply { predecessor, since, has_asked: false, reports: 0, gave_up: false, requests: VecDeque::new() }
    }

    /// Takes out the requests that a supply answers: those that the parent has been told of. The first answers all.
    pub(super) fn answered_by_supply(&mut self, is_first: bool) -> VecDeque<WaitingRequest<T>> {
        let reports = self.reports;
        let (answered, rest) = self.requests.drain(..).partition(|waiting| is_first || waiting.after < reports);
        self.requests = rest;
        answered
    }

    /// Takes out the requests that have waited for long enough.
    pub(super) fn overdue(&mut self, now: Millis) -> Vec<WaitingRequest<T>> {
        let overdue = self.requests.partition_point(|waiting| waiting.until <= now);
        self.requests.drain(..overdue).collect()
    }

    /// Until when this incarnation learns, now that it is known how long leases are.
    pub(super) fn learning_until(&self, settings: &Settings, has_met_strangers: bool) -> Millis {
        let predecessor = self.predecessor.map_or(Millis(0), |predecessor| predecessor.learning_until(settings));
        let strangers = if has_met_strangers { settings.last_lease_over(self.since) } else { Millis(0) };
        predecessor.max(strangers)
    }
}
