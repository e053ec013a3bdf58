//! The horizon of an epoch: after it, no lease of the epoch is believed. It is proposed again once in half a lease
//! length, and an eighth of one before it would be needed: so in a steady state no answer waits.

use std::collections::VecDeque;

use crate::Millis;

/// The clocks that count a horizon may be faster than the one it was decided on by one part in this many.
const CLOCK_RATE_ALLOWANCE: u64 = 1000;

/// Horizons on the clock of this master, which began to count them before its peers did.
#[derive(Debug, Default)]
pub(super) struct Horizons {
    acknowledged: Millis,
    proposed: Millis,
    /// Those that have not been acknowledged, and the numbers of their changes; each later than the one before.
    under_way: VecDeque<(u64, Millis)>,
}

impl Horizons {
    /// The horizon that a quorum has stored.
    pub(super) fn acknowledged(&self) -> Millis {
        self.acknowledged
    }

    /// The horizon to propose now, so that leases until `end` are within it: when it ends.
    pub(super) fn next(&self, end: Millis, lease: Millis, at_least: Millis) -> Option<Millis> {
        let wanted = end.plus(Millis(lease.0 / 8));
        (self.proposed < wanted).then(|| wanted.plus(Millis(lease.0 / 2)).max(at_least))
    }

    /// Records a horizon that is proposed with the changes of this number. Returns its length for peers.
    pub(super) fn propose(&mut self, number: u64, until: Millis, now: Millis) -> Millis {
        self.proposed = until;
        self.under_way.push_back((number, until));
        let span = until.since(now);
        span.plus(Millis(span.0.div_ceil(CLOCK_RATE_ALLOWANCE)))
    }

    /// The number of the changes that must be acknowledged before a lease until `end` is within the horizon.
    pub(super) fn awaited(&self, end: Millis) -> Option<u64> {
        if end <= self.acknowledged {
            return None;
        }
        self.under_way.iter().find(|(_, until)| end <= *until).map(|(number, _)| *number)
    }

    /// All changes up to this number have been stored.
    pub(super) fn acknowledge(&mut self, number: u64) {
        while let Some((_, until)) = self.under_way.front().filter(|(proposed, _)| *proposed <= number) {
            self.acknowledged = *until;
            self.under_way.pop_front();
        }
    }
}
