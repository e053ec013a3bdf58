//! What comes back of permits that were taken and not used.
//!
//! Exactly what there would be more without them, which may be less than the permits: without them the bucket might
//! have been full meanwhile, and capacity would have run over. Giving back whole permits then would let more through
//! afterwards than a span of time allows. So of all that was taken no more comes back than there was room in the
//! bucket at any time since.
//!
//! *Promised* permits are known one by one: those of a waiter that does not know it yet, and of a reservation. Promises
//! from before the room was short share what room there was; later ones do not lose by it. Two such *eras* are kept.
//! What is promised for longer comes back as nothing: the bucket was full twice meanwhile.
//!
//! The others are only known as a sum. What comes back of them is what was taken last: as much as there would be more
//! without that. Where room is short they make way for what is promised.

/// What may come back, in units of credit.
#[derive(Debug, Default)]
pub(super) struct Returns {
    era: u64,
    /// Promised in this era.
    fresh: u128,
    aged_era: u64,
    /// Promised in the era before: as much as there was room for.
    aged: u128,
    /// Taken and not promised.
    spent: u128,
}

impl Returns {
    /// So much was taken. There was room for it, because it has just made some.
    pub(super) fn take(&mut self, units: u128) {
        self.spent += units;
    }

    /// So much of what was just taken is promised. Returns the era.
    pub(super) fn promise(&mut self, units: u128) -> u64 {
        let part = units.min(self.spent);
        self.spent -= part;
        self.fresh += part;
        self.era
    }

    /// There is only so much room in the bucket.
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

    /// Strikes off a promise of this many units; says how many of them could have come back.
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

    /// What was promised is used, as far as is known.
    pub(super) fn claim(&mut self, units: u128, era: u64) {
        self.spent += self.end(units, era);
    }

    /// So much of what was taken and not promised was not used; says how much of it comes back.
    pub(super) fn refund(&mut self, units: u128) -> u128 {
        let back = units.min(self.spent);
        self.spent -= back;
        back
    }
}
