//! Promises of a resource: what its peers must know before its answers are sent, and what a new master inherits. See
//! [`crate::promises`] for what promises are. A holder with an inherited ceiling counts as holding it, until it proves
//! by a token that it knows a lease of this epoch, or until the inherited horizon has passed. Its wants are unknown
//! before it has asked, and count as its ceiling.

mod horizons;
mod keeper;

use std::sync::Arc;

use super::Resource;
use crate::{Amount, Changes, Claim, Claims, Epoch, Inherited, Millis, Sum, ledger::Holder};

pub(super) use keeper::Keeper;

/// Changes to propose, and what waits for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Pending {
    /// To be proposed after all that was proposed before.
    pub changes: Option<Changes>,
    /// The answers of the rounds since the last call may be sent once the changes of this number are acknowledged; at
    /// once if there is none.
    pub awaits: Option<u64>,
}

/// Promises at a glance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromiseReport {
    /// Σ ceilings, acknowledged or not.
    pub promised: Sum,
    /// Inherited holders that have not asked yet.
    pub unheard: usize,
    /// When the last inherited ceiling ends.
    pub inherited_until: Millis,
    /// The acknowledged horizon.
    pub horizon: Millis,
    /// Changes that have not been acknowledged yet.
    pub under_way: u64,
}

/// The settings that promises depend on.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// What the ceilings together should not exceed. Absent where capacity is not shared.
    capacity: Option<Amount>,
    /// How long leases last.
    lease: Millis,
}

/// The epoch of a life: above all that it inherits.
pub(super) fn begin_epoch(epoch: Epoch, inherited: Option<&Inherited>) -> Epoch {
    let least = match inherited {
        // The first token must not be the one that names inherited leases.
        Some(Inherited { newest: None, .. }) => 1,
        Some(Inherited { newest: Some(newest), .. }) => newest.0.saturating_add(Inherited::EPOCHS_APART),
        None => 0,
    };
    Epoch(epoch.0.max(least))
}

impl Resource {
    /// The changes to propose now, and what the answers of the rounds since the last call wait for. To be called after
    /// every round and every tick; without promises it is always empty. The changes count as proposed: they must be
    /// applied before all later ones, or no change of this life may be any more.
    pub(crate) fn take_changes(&mut self, now: Millis) -> Pending {
        let bounds = Bounds { capacity: self.is_bounded().then_some(self.total()), lease: self.settings.lease };
        self.keeper.as_mut().map_or_else(Pending::default, |keeper| keeper.take(&self.ledger, bounds, now))
    }

    /// Which answers of the last round must wait, and for what, once its changes have been taken: those that raise what
    /// their holders are promised, or all if the horizon is not late enough. None waits for more than
    /// [`Pending::awaits`].
    pub(crate) fn held_back(&self) -> impl Iterator<Item = (usize, u64)> {
        let awaited = |keeper: &Keeper, slot| keeper.awaited(slot);
        let granted = self.granted.iter().zip(std::iter::repeat(self.keeper.as_ref()));
        granted.filter_map(move |((place, slot), keeper)| Some((*place as usize, awaited(keeper?, *slot)?)))
    }

    /// A quorum has stored all changes up to this number, and will not lose them.
    pub fn acknowledge(&mut self, number: u64) {
        if let Some(keeper) = &mut self.keeper {
            keeper.acknowledge(number);
        }
    }

    /// A report on promises, if they are kept here.
    pub fn promises(&self) -> Option<PromiseReport> {
        self.keeper.as_ref().map(|keeper| keeper.report())
    }

    /// Begins with the promises of earlier masters.
    pub(super) fn inherit(&mut self, inherited: Inherited) {
        self.keeper = Some(Box::new(Keeper::new(self.tokens.epoch(), inherited.until)));
        for (ceiling, until) in inherited.ceilings {
            let slot = self.ledger.insert(ceiling.kind, Arc::clone(&ceiling.id));
            if let Some(pool) = &mut self.pool {
                pool.inherit(slot, ceiling.kind, &ceiling.id, ceiling.amount);
            }
            self.ledger.inherit(slot, ceiling.amount, until);
            let claims = Claims::from_slice(&[Claim::of_client(ceiling.amount, 0)]);
            self.division.insert(slot, &claims);
            self.ledger.set_claims(slot, claims);
            if let Some(keeper) = &mut self.keeper {
                keeper.inherit(slot, ceiling.amount);
            }
        }
        if let Some(pool) = &mut self.pool {
            pool.begin_with(self.ledger.sums().held);
        }
    }

    /// Whether leases of earlier masters may still be in use.
    pub(super) fn former_leases_live(&self, now: Millis) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| now < keeper.inherited_until())
    }

    /// Whether a release that names no lease may be a delayed one that was sent to an earlier master.
    pub(super) fn may_be_former(&self, slot: u32, now: Millis) -> bool {
        self.former_leases_live(now) && self.keeper.as_ref().is_some_and(|keeper| keeper.is_inherited(slot))
    }

    /// Whether a holder has not asked since this life began.
    pub(super) fn is_unheard(&self, slot: u32) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.is_unheard(slot))
    }

    /// A new holder has asked.
    pub(super) fn note_newcomer(&mut self, slot: u32) {
        if let Some(keeper) = &mut self.keeper {
            let holder = self.ledger.holder(slot);
            keeper.holder_came(slot, holder.kind, &holder.id);
        }
    }

    /// A holder has been heard, and what it holds may have changed.
    pub(super) fn note_heard(&mut self, slot: u32) {
        let Some(keeper) = &mut self.keeper else { return };
        if keeper.mark_heard(slot) {
            // A watched holder may have waited for this.
            self.newcomers.push(slot);
        }
        let leases = &self.ledger.holder(slot).leases;
        if leases.reports_outstanding() {
            keeper.cover_until(leases.last_end());
        }
    }

    /// A holder has been given a lease.
    pub(super) fn note_granted(&mut self, slot: u32) {
        if let Some(keeper) = &mut self.keeper {
            keeper.mark_touched(slot);
            keeper.cover_until(self.ledger.holder(slot).leases.last_end());
        }
    }

    /// What a holder holds may have become less.
    pub(super) fn note_fell(&mut self, slot: u32) {
        if let Some(keeper) = &mut self.keeper {
            keeper.looked_at(slot, None);
        }
    }

    /// A holder is gone.
    pub(super) fn note_gone(&mut self, slot: u32, holder: Holder) {
        if let Some(keeper) = &mut self.keeper {
            keeper.looked_at(slot, Some(holder));
        }
    }

    /// A holder has a lease that this master has not given and no earlier one has promised: promises were lost. Others
    /// may have such leases too, so the resource learns until all of them have ended. That moment is the same for every
    /// such report, so that false ones can delay decisions once in the life of a master, not repeatedly.
    pub(super) fn listen_once_more(&mut self, now: Millis) {
        let until = self.settings.last_lease_over(self.since);
        if self.keeper.is_some() && now < until {
            self.learning_until = self.learning_until.max(until);
        }
    }
}
