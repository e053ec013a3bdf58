//! How much credit returned permits restore.
//!
//! Returning permits must leave the bucket as if they had never been taken. That may restore less than their price:
//! without them the bucket might have been full meanwhile and overflowed. Restoring the full price would then let more
//! through than capacity and burst allow. So the restored credit is bounded by the smallest room that the bucket has
//! had since the permits were taken.
//!
//! *Promised* permits are tracked individually: those granted to a waiter whose future has not been polled since, and
//! reserved ones. When the room falls below their sum, a new *era* begins: older promises share the remaining room, and
//! later promises are not affected. Two eras are kept. A promise of an earlier era restores nothing, because the bucket
//! was full twice since.
//!
//! Other permits are tracked as a sum, and returns apply to those taken last. If room is short, promises have priority.

/// Credit that may be restored, in units.
#[derive(Debug, Default)]
pub(super) struct Returns {
    era: u64,
    /// Promised in the current era.
    fresh: u128,
    aged_era: u64,
    /// Promised in the era before, as far as there was room for it.
    aged: u128,
    /// Taken without a promise.
    spent: u128,
}

impl Returns {
    /// Records credit that was taken.
    pub(super) fn take(&mut self, units: u128) {
        self.spent += units;
    }

    /// Reserves credit that was just spent for a waiter. Returns the era of the reservation.
    pub(super) fn promise(&mut self, units: u128) -> u64 {
        let part = units.min(self.spent);
        self.spent -= part;
        self.fresh += part;
        self.era
    }

    /// Bounds the credit that can be restored by the room of the bucket.
    pub(super) fn cut(&mut self, room: u128) {
        let promised = self.fresh + self.aged;
        self.spent = self.spent.min(room.saturating_sub(promised));
        if promised <= room {
            return;
        }
        if self.fresh > 0 {
            self.aged = self.fresh;
            self.aged_era = self.era;
            self.fresh = 0;
            self.era += 1;
        }
        self.aged = self.aged.min(room);
    }

    /// Ends a promise. Returns how much of it can be restored.
    pub(super) fn end(&mut self, units: u128, era: u64) -> u128 {
        let share = if era == self.era {
            &mut self.fresh
        } else if era == self.aged_era {
            &mut self.aged
        } else {
            return 0;
        };
        let back = units.min(*share);
        *share -= back;
        back
    }

    /// Ends a promise whose permits are used; they may still be returned like others.
    pub(super) fn claim(&mut self, units: u128, era: u64) {
        self.spent += self.end(units, era);
    }

    /// Returns credit that was taken without a promise. Returns how much of it can be restored.
    pub(super) fn refund(&mut self, units: u128) -> u128 {
        let back = units.min(self.spent);
        self.spent -= back;
        back
    }
}
