//! The effects of a step of a resource besides its answers, as one value. So none can be forgotten, and only this file
//! depends on the order in which they are collected.

use super::{Resource, supply::summarized_claims};
use crate::{
    lease::{LeaseBook, promises::Changes, proposer::Proposal},
    pool::PoolEvent,
    resource::watch_list::Hint,
    types::{claim::HolderKind, time::Millis},
};

/// The number of watched holders visited at once: well below a millisecond of work.
const LOOK_BUDGET: usize = 2048;

/// What rounds, ticks and other changes have caused since the last [`Resource::outcome`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// To be proposed after all that was proposed before: it must be applied before all later changes, or nothing of
    /// this incarnation any more.
    pub changes: Option<Changes>,
    /// The leases given by the last round must wait for the changes of this number.
    pub awaits: Option<u64>,
    pub pool_events: Vec<PoolEvent>,
    /// Whether the parent should be told of this resource before the next refresh.
    pub asks_parent: bool,
    /// Watched holders that should ask again now; none unless a look was allowed.
    pub hints: Vec<Hint>,
    /// Whether watched holders were visited.
    pub looked: bool,
    /// When watched holders must be visited next: at once (`now`), later, or not before something changes.
    pub next_look: Option<Millis>,
}

impl Resource {
    /// The changes to propose to the quorum now, see [`LeaseBook::take_changes`](crate::lease::LeaseBook::take_changes).
    pub(crate) fn take_changes(&mut self, now: Millis) -> Proposal {
        let capacity = self.is_bounded().then_some(self.total());
        let (allocation, pool) = (&self.allocation, self.pool.as_deref());
        let wants = |book: &LeaseBook| summarized_claims(allocation, pool, book.ledger.sums().wants);
        self.book.take_changes(now, self.settings.lease, capacity, wants)
    }

    /// Takes all effects since the last call. Call it after every step, before any of its answers is sent. `may_look`:
    /// whether watched holders may be visited, which the caller paces. A new holder is watched from now on if it
    /// `is_watched`.
    pub fn outcome(&mut self, now: Millis, may_look: bool, is_watched: impl Fn(HolderKind, &str) -> bool) -> Outcome {
        let Proposal { changes, awaits } = self.take_changes(now);
        let newcomers: Vec<_> =
            self.newcomers().filter(|(kind, id)| is_watched(*kind, id)).map(|(kind, id)| (kind, id.clone())).collect();
        self.last_round.newcomers.clear();
        for (kind, id) in newcomers {
            self.watch(kind, &id);
        }
        let mut hints = Vec::new();
        let looked = may_look && self.next_hints(now).is_some_and(|next| next <= now);
        if looked {
            self.hints(now, LOOK_BUDGET, &mut hints);
        }
        Outcome {
            changes,
            awaits,
            pool_events: self.take_pool_events(),
            asks_parent: self.asks_early(),
            hints,
            looked,
            next_look: self.next_hints(now),
        }
    }
}
