//! Settlement: how much can be granted now. It is the same for all algorithms and knows nothing about fairness.
//!
//! Holders that are due less than they have shrink to their dues. Free capacity is the capacity minus everything that
//! may still be in use. It is shared among the holders that are due more than they have, never beyond their dues. If
//! several holders lack more than is free, each gets the same fraction of what it lacks, so the order within a round
//! does not matter.

use crate::types::{Amount, Sum};

/// The smallest grant. Doorman's Go limiter allows one call every ⌊1000 / c⌋ ms, as nanoseconds in 64 bits. Below 10⁹ /
/// 2⁶³ ≈ 1.08e-10 that overflows, and the timer never waits. The minimum is ten times as much: one call in 31 years.
const DUST: f64 = 1e-9;
/// The smallest grant relative to the capacity, for a holder that is due more than twice as much. Smaller grants are
/// rounding errors, each at most 1.1e-16 of the capacity.
const DUST_PART: f64 = 1e-12;

/// Returns the grant, or zero if the grant is *dust*: too small to use, and harmful to Doorman's limiter. A grant of
/// the whole due is never dust.
pub(crate) fn without_dust(grant: Amount, due: Amount, capacity: Amount) -> Amount {
    let left_over = grant.get() < due.get() / 2.0 && grant.get() < capacity.get() * DUST_PART;
    if left_over || grant.get() < DUST { Amount::ZERO } else { grant }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Participant {
    pub(crate) due: Amount,
    pub(crate) current: Amount,
    /// The amount that stays held even if it gets nothing, because its older leases may still be in use.
    pub(crate) retained: Amount,
}

/// Computes the grant of each participant. `free` is the capacity minus the held amount, in which participants count
/// with their retained amounts.
///
/// A grant up to the retained amount uses no free capacity. If more is held than the capacity, after a cut, a
/// participant gets only what the others leave, or keeps what it has: the retained amount is not an entitlement.
///
/// If units are `indivisible`, grants are whole, and free units go to the first participants that lack them.
pub(crate) fn settle(free: Sum, participants: &[Participant], indivisible: bool, grants: &mut Vec<Amount>) {
    let lacking: Sum = participants.iter().map(Participant::lacks).collect();
    let part = if indivisible || lacking <= free { 1.0 } else { (free.get() / lacking.get()).clamp(0.0, 1.0) };
    let cut = |grant: Amount| if indivisible { grant.floor() } else { grant };
    let mut left = free.max(Sum::ZERO);
    for participant in participants {
        if participant.due <= participant.current {
            grants.push(cut(participant.due));
            continue;
        }
        if free < Sum::ZERO {
            let mut room = free;
            room += participant.retained;
            grants.push(cut(participant.due.min(participant.current.max(room.floor()))));
            continue;
        }
        let costless = participant.costless();
        let mut most = left;
        most += costless;
        let fair = if part < 1.0 { costless.get() + participant.lacks().get() * part } else { participant.due.get() };
        let grant = cut(Amount::clamped(fair).min(most.floor()).min(participant.due).max(costless));
        if grant > costless {
            left -= Sum::from(grant) - Sum::from(costless);
        }
        grants.push(grant);
    }
}

/// Like [`settle`], but serves one participant after the other: first those that go first, then the others, in order.
/// Withholds from the others what is owed to first participants: `owed` to those outside this round, and what those in
/// this round still lack. A grant below `minimum` would be useless, so it is left for the next participant.
pub(crate) fn settle_in_turn(
    mut free: Sum,
    participants: &[Participant],
    goes_first: impl Fn(usize) -> bool,
    mut owed: Sum,
    minimum: impl Fn(usize) -> Amount,
    grants: &mut Vec<Amount>,
) {
    grants.resize(participants.len(), Amount::ZERO);
    let mut one = Vec::with_capacity(1);
    for turn in [true, false] {
        for (at, participant) in participants.iter().enumerate().filter(|(at, _)| goes_first(*at) == turn) {
            one.clear();
            let withheld = if turn { Sum::ZERO } else { owed };
            settle(free - withheld, std::slice::from_ref(participant), false, &mut one);
            let grant = one[0];
            grants[at] = if grant < participant.due && grant < minimum(at) { Amount::ZERO } else { grant };
            free -= Sum::from(grants[at].max(participant.retained)) - Sum::from(participant.retained);
            if turn {
                owed += participant.due.saturating_sub(grants[at]);
            }
        }
    }
}

impl Participant {
    fn costless(&self) -> Amount {
        self.due.min(self.current.max(self.retained))
    }

    fn lacks(&self) -> Amount {
        self.due.saturating_sub(self.costless())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participant(due: f64, current: f64, retained: f64) -> Participant {
        Participant {
            due: Amount::clamped(due),
            current: Amount::clamped(current),
            retained: Amount::clamped(retained),
        }
    }

    fn settled(free: f64, participants: &[Participant]) -> Vec<f64> {
        let negative = if free < 0.0 { Sum::from(Amount::clamped(-free)) } else { Sum::ZERO };
        let free = Sum::from(Amount::clamped(free)) - negative;
        let mut grants = Vec::new();
        settle(free, participants, false, &mut grants);
        grants.into_iter().map(Amount::get).collect()
    }

    #[test]
    fn free_capacity_is_shared_in_proportion_to_the_lack() {
        assert_eq!(settled(30.0, &[participant(50.0, 10.0, 10.0), participant(20.0, 0.0, 0.0)]), [30.0, 10.0]);
        assert_eq!(settled(100.0, &[participant(50.0, 10.0, 10.0), participant(20.0, 0.0, 0.0)]), [50.0, 20.0]);
    }

    #[test]
    fn a_retained_amount_costs_nothing_but_is_no_entitlement_after_a_cut() {
        assert_eq!(settled(0.0, &[participant(50.0, 10.0, 40.0)]), [40.0]);
        assert_eq!(settled(-35.0, &[participant(50.0, 10.0, 40.0)]), [10.0], "it keeps what it has");
        assert_eq!(settled(-10.0, &[participant(50.0, 10.0, 40.0)]), [30.0], "what the others leave");
    }

    #[test]
    fn a_shrink_is_immediate() {
        assert_eq!(settled(-100.0, &[participant(5.0, 10.0, 40.0)]), [5.0]);
    }
}
