//! The state of one resource.

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

use crate::session::{
    lease::{Capacity, Lease, Mode},
    messages::{Basis, Demand, Usable},
};

/// The place of a resource on a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamPlace {
    pub(super) stream: u64,
    pub(super) index: u32,
    /// Whether the last answer for it was taken.
    pub(super) is_known: bool,
}

#[derive(Debug)]
pub(super) struct ResourceState<D> {
    pub(super) demand: D,
    pub(super) mode: Mode,
    /// The demand in the last request.
    pub(super) asked: Option<D>,
    pub(super) lease: Option<Lease>,
    /// The length of the lease, counted from when its request was sent.
    pub(super) length: Millis,
    pub(super) place: Option<StreamPlace>,
    /// The request in flight that renews the lease by its index on a stream; 0 if there is none.
    pub(super) renewed_by: u64,
    /// The expiry of the lease that the last request named, if it named one.
    pub(super) named_until: Option<Millis>,
    pub(super) safe: Option<f64>,
    /// Whether a request has failed since the last lease was received.
    pub(super) failed: bool,
    pub(super) due: Millis,
    /// The resource is not asked for earlier, not even together with others.
    pub(super) not_before: Millis,
    /// A release was sent: the lease must not be used any more, even if the release is lost.
    pub(super) given_back: bool,
    /// The last value given to [`Session::changes`](super::Session::changes).
    pub(super) reported: Option<Usable>,
}

impl<D: Demand> ResourceState<D> {
    pub(super) fn new(demand: D, mode: Mode, now: Millis) -> ResourceState<D> {
        ResourceState {
            demand,
            mode,
            asked: None,
            lease: None,
            length: Millis(0),
            place: None,
            renewed_by: 0,
            named_until: None,
            safe: None,
            failed: false,
            due: now,
            not_before: Millis(0),
            given_back: false,
            reported: None,
        }
    }

    pub(super) fn schedule(&mut self, at: Millis) {
        self.due = self.due.min(at.max(self.not_before));
    }

    pub(super) fn usable(&self, now: Millis) -> Usable {
        match self.lease {
            Some(lease) if lease.is_live(now) || planted::is(Fault::UsesEndedLease) => {
                Usable { capacity: lease.capacity, basis: Basis::Lease }
            }
            None if !self.failed => Usable { capacity: Capacity::NONE, basis: Basis::Unknown },
            _ => Usable { capacity: self.fallback(), basis: Basis::Fallback },
        }
    }

    pub(super) fn fallback(&self) -> Capacity {
        match self.mode {
            Mode::Safe => self.safe.map_or(Capacity::NONE, Capacity::safe),
            Mode::Pessimistic => Capacity::NONE,
            Mode::Optimistic => Capacity::of(self.demand.amount()),
        }
    }
}
