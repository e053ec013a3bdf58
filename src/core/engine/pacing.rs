//! When watched holders are looked at: at once with what changes something, but looks are [`LOOKS_APART`] apart however
//! many rounds there are. A resource in which nothing changes costs nothing.

use crate::{
    planted::{self, Fault},
    resource::Outcome,
    types::time::Millis,
};

/// Looks of one resource are so far apart.
pub const LOOKS_APART: Millis = Millis(50);

#[derive(Default)]
pub(super) struct Pacing {
    looked: Option<Millis>,
}

impl Pacing {
    /// Whether watched holders may be looked at.
    pub(super) fn may_look(&self, now: Millis) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) >= LOOKS_APART) || planted::is(Fault::HintStorm)
    }

    /// Takes what came of a look; returns when the next is due.
    pub(super) fn note(&mut self, outcome: &Outcome, now: Millis) -> Option<Millis> {
        if outcome.looked {
            self.looked = Some(now);
        }
        let earliest = self.looked.map_or(now, |looked| looked.plus(LOOKS_APART));
        outcome.next_look.map(|next| next.max(earliest))
    }
}
