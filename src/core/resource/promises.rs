//! Promises of a resource: what its peers must know before its answers are sent, and what a new master inherits. See
//! [`crate::lease::promises`] for what promises are, and [`super::estate`] for what becomes of those of earlier masters.

mod proposer;

use proposer::{RoundDetail, RoundSummary};

use super::Resource;
use crate::{
    lease::promises::{Changes, Inherited},
    types::{amount::Amount, cluster_clock::ClusterClock, time::Millis, token::Epoch},
};

pub(super) use proposer::Proposer;

/// Changes to propose, and what waits for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Proposal {
    /// To be proposed after all that was proposed before.
    pub changes: Option<Changes>,
    /// The leases given since the last call may be sent once the changes of this number are acknowledged; at once if
    /// there is none.
    pub awaits: Option<u64>,
}

/// Promises at a glance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromiseReport {
    /// All that may be believed, acknowledged or not.
    pub total: Amount,
    /// What earlier masters promised and no holder has named yet.
    pub unclaimed: Amount,
    /// When the last lease of earlier masters ends.
    pub inherited_until: Millis,
    /// When what is left of the estate is over, but for the room that masters leave in a total.
    pub unclaimed_until: Millis,
    pub horizon: Millis,
    /// Changes that have not been acknowledged yet.
    pub under_way: u64,
}

/// The epoch of an incarnation: above all that it inherits.
pub(super) fn begin_epoch(epoch: Epoch, inherited: Option<&Inherited>) -> Epoch {
    let least = match inherited {
        // The first token must not be the one that stands for inherited leases.
        Some(Inherited { newest: None, .. }) => 1,
        Some(Inherited { newest: Some(newest), .. }) => newest.0.saturating_add(Inherited::EPOCHS_APART),
        None => 0,
    };
    Epoch(epoch.0.max(least))
}

impl Resource {
    /// The changes to propose now, and what the answers of the rounds since the last call wait for. To be called after
    /// every round and every tick; without promises it is always empty.
    ///
    /// The changes count as proposed: they must be applied before all later ones, or no change of this incarnation may
    /// be any more.
    pub(crate) fn take_changes(&mut self, now: Millis) -> Proposal {
        let Some(mut proposer) = self.proposer.take() else { return Proposal::default() };
        let (held, lapsed, lease) = (self.ledger.sums().held, self.ledger.lapsed(), self.settings.lease);
        let round = RoundSummary { held, lease, lapsed, parts: self.inherited_parts(now), now };
        let clock = proposer.clock();
        let pending = proposer.take(round, || self.detail(clock, now), || self.summarized_claims());
        self.proposer = Some(proposer);
        pending
    }

    fn detail(&self, clock: ClusterClock, now: Millis) -> RoundDetail {
        let (sums, capacity) = (self.ledger.sums(), self.is_bounded().then_some(self.total()));
        RoundDetail {
            held: sums.held,
            unclaimed: self.unclaimed(),
            wants: sums.wants,
            capacity,
            lease: self.settings.lease,
            next: self.tokens.next(),
            lapsed: self.ledger.lapsed(),
            parts: self.inherited_parts(now),
            clock,
            now,
        }
    }

    /// A quorum has stored all changes up to this number, and will not lose them.
    pub fn acknowledge(&mut self, number: u64) {
        if let Some(proposer) = &mut self.proposer {
            proposer.acknowledge(number);
        }
    }

    /// A report on promises, if they are kept here.
    pub fn promises(&self) -> Option<PromiseReport> {
        let room = Amount::clamped(self.settings.capacity.get() / 32.0);
        let until = self.inherited_over_by(self.unclaimed().saturating_sub(room));
        self.proposer.as_ref().map(|proposer| proposer.report(self.unclaimed(), until))
    }

    /// A lease may be believed until then.
    pub(super) fn cover_until(&mut self, end: Millis) {
        if let Some(proposer) = &mut self.proposer {
            proposer.cover_until(end);
        }
    }
}
