//! When watched holders are visited: as soon as something changes, but at most once in [`MIN_VISIT_INTERVAL`], no matter how
//! many rounds there are. A resource in which nothing changes costs nothing.

use crate::{
    planted::{self, Fault},
    resource::Outcome,
    types::time::Millis,
};

/// The minimum time between two visits of the watched holders of a resource.
pub const MIN_VISIT_INTERVAL: Millis = Millis(50);

#[derive(Default)]
pub(super) struct Pacing {
    looked: Option<Millis>,
}

impl Pacing {
    /// Whether watched holders may be visited.
    pub(super) fn may_look(&self, now: Millis) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) >= MIN_VISIT_INTERVAL) || planted::is(Fault::HintStorm)
    }

    /// Notes the outcome of a visit. Returns when the next is due.
    pub(super) fn note(&mut self, outcome: &Outcome, now: Millis) -> Option<Millis> {
        if outcome.looked {
            self.looked = Some(now);
        }
        let earliest = self.looked.map_or(now, |looked| looked.plus(MIN_VISIT_INTERVAL));
        outcome.next_look.map(|next| next.max(earliest))
    }
}
