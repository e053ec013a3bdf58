//! Two clients may ask under one id if never at the same time: until when this one may.

use leaseway_core::{
    Millis,
    planted::{self, Fault},
};

use super::{InFlight, Session};
use crate::session::messages::Demand;

impl<D: Demand> Session<D> {
    /// After `at` nothing is asked for and no answer counts, until this is called again. Leases live on, and what is
    /// released is given back. For a client that passes on its leases to a process that may go to another client of the
    /// same id: it may ask as long as it is certain that no other asks under this id.
    pub fn ask_until(&mut self, at: Millis) {
        self.asks_until = at;
    }

    /// Whether anything may be asked for now.
    pub(super) fn may_ask(&self, now: Millis) -> bool {
        now <= self.asks_until || planted::is(Fault::AsksForEnvoysElsewhere)
    }

    /// What a request asked for is due at once.
    pub(super) fn retry_now(&mut self, in_flight: &InFlight, now: Millis) {
        for id in &in_flight.ids {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.schedule(now);
                self.first_due.insert(entry.due);
            }
        }
    }
}
