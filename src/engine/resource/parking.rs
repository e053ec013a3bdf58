//! A resource of a node with a parent: requests that wait for the first supply, and when the parent should be told.
//!
//! A request that comes before the parent has lent anything is *parked*: the core hears what is wanted, so that the
//! parent can be told, and the answer waits for the supply, which most often takes one round trip. After a second it
//! goes without: "not yet", and the holder keeps what it has.

use std::collections::VecDeque;

use leaseway_core::{Millis, Request, Settings};

/// For so long a request waits for the first supply. The protocol's clients ask again in a second anyway.
pub(super) const PATIENCE: Millis = Millis::from_secs(1);

/// Until when an incarnation learns that does not know all that holders may have. The parent says how long leases are,
/// so that moment is not known before the first supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// As long as the settings say, from when this master began.
    NewMaster(Millis),
    /// Until no lease given before this moment can be believed.
    Rebuilt(Millis),
}

impl Lineage {
    /// When that is, if leases are as `settings` say.
    pub fn learning_until(self, settings: &Settings) -> Millis {
        match self {
            Lineage::NewMaster(since) => settings.learning_until(since),
            Lineage::Rebuilt(since) => settings.last_lease_over(since),
        }
    }
}

/// What a resource of a node with a parent has besides.
pub(super) struct Parking<T> {
    /// If not all that was promised before is known.
    lineage: Option<Lineage>,
    /// When this master began.
    since: Millis,
    /// The uplink has been told that the parent should hear of this resource, and has not condensed it since.
    pub(super) has_asked: bool,
    /// In the order in which they came.
    pub(super) parked: VecDeque<Parked<T>>,
}

/// A request that waits for the first supply.
pub(super) struct Parked<T> {
    pub(super) until: Millis,
    pub(super) request: Request,
    pub(super) ticket: T,
}

impl<T> Parking<T> {
    pub(super) fn new(lineage: Option<Lineage>, since: Millis) -> Parking<T> {
        Parking { lineage, since, has_asked: false, parked: VecDeque::new() }
    }

    /// Until when this incarnation learns, now that it is known how long leases are.
    pub(super) fn learning_until(&self, settings: &Settings, has_met_strangers: bool) -> Millis {
        let lineage = self.lineage.map_or(Millis(0), |lineage| lineage.learning_until(settings));
        let strangers = if has_met_strangers { settings.last_lease_over(self.since) } else { Millis(0) };
        lineage.max(strangers)
    }
}
