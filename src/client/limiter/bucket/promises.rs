//! What comes back of a permit that was taken for a caller and not used.
//!
//! Exactly what there would be more without it, which may be less than the permit: without it the bucket might have
//! been full meanwhile, and capacity would have run over. Giving back the whole permit then would let more through
//! afterwards than a span of time allows. So of all that is promised no more comes back than there was room in the
//! bucket at any time since it was promised.
//!
//! Promises from before the room was short share what room there was; later ones do not lose by it. Two such
//! *eras* are kept. What is promised for longer comes back as nothing: the bucket was full twice meanwhile.

/// What may come back, in units of credit.
#[derive(Debug, Default)]
pub(super) struct Promises {
    era: u64,
    /// Of this era: all that was promised.
    fresh: u128,
    aged_era: u64,
    /// Of the era before: as much as there was room for.
    aged: u128,
}

impl Promises {
    pub(super) fn add(&mut self, units: u128) -> u64 {
        self.fresh += units;
        self.era
    }

    /// There is only so much room in the bucket.
    pub(super) fn cut(&mut self, room: u128) {
        if self.fresh + self.aged <= room {
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
}
