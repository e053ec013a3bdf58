//! Whole units of a resource: when they are dealt, and how refresh intervals follow. See [`crate::allocation::units`] for the
//! rotation.

use super::Resource;
use crate::{
    allocation::units::{UnitPart, left_over, part_of},
    types::{claim::Claims, time::Millis},
};

/// A holder that gets a unit asks so much later than the one that gives it up.
const HAND_OVER: Millis = Millis(1000);

impl Resource {
    /// Whether units are whole may have changed.
    pub(super) fn count_in_units(&mut self) {
        match (self.settings.whole_units, &self.rotation) {
            (true, None) => self.rotation = Some(Box::default()),
            (false, Some(_)) => self.rotation = None,
            _ => {}
        }
    }

    /// Rounds wants down to whole units.
    pub(super) fn whole_claims(&self, claims: &mut Claims) {
        if self.settings.whole_units {
            claims.iter_mut().for_each(|claim| claim.wants = claim.wants.floor());
        }
    }

    /// Deals the units that are left over, if it is time. Visits every holder: once in a period, and when demand has
    /// changed.
    pub(super) fn deal_units(&mut self, now: Millis) {
        let version = self.ledger.claims_changes().wrapping_add(self.reforms);
        if !self.rotation.as_ref().is_some_and(|rotation| rotation.is_due(now, version)) {
            return;
        }
        let Some(mut rotation) = self.rotation.take() else { return };
        let parts = self.parts();
        let winners = rotation.deal(now, self.settings.rotation(), version, &parts, left_over(&parts));
        self.turn(winners);
        self.rotation = Some(rotation);
    }

    fn parts(&self) -> Vec<UnitPart> {
        let mut terms = Vec::new();
        let parts = self.ledger.iter_from(0).map(|(slot, holder)| {
            let part = part_of(self.divided(holder, &mut terms));
            UnitPart { slot, id: holder.id.clone(), part }
        });
        parts.filter(|part| part.part > 0).collect()
    }

    /// Gives the left-over units to these holders.
    fn turn(&mut self, mut winners: Vec<u32>) {
        winners.sort_unstable();
        let had: Vec<u32> = self.ledger.iter_from(0).filter(|(_, holder)| holder.extra).map(|(slot, _)| slot).collect();
        had.iter().for_each(|slot| self.ledger.holder_mut(*slot).extra = false);
        winners.iter().for_each(|slot| self.ledger.holder_mut(*slot).extra = true);
        // Watched holders are visited when the units have passed on.
        self.turns += u64::from(had != winners);
    }

    /// Refreshes come at the end of a rotation rather than a while later: then the holder that has to give a unit up
    /// does so, and a moment later the next one asks for it.
    pub(super) fn steered(&self, refresh: Millis, slot: u32, now: Millis) -> Millis {
        let Some(rotation) = &self.rotation else { return refresh };
        let left = rotation.ends().since(now);
        if left == Millis(0) || !self.is_bounded() {
            return refresh;
        }
        let pause = if self.ledger.holder(slot).extra { Millis(0) } else { HAND_OVER };
        left.plus(pause).max(HAND_OVER).min(refresh)
    }
}
