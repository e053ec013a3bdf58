//! Settlement: what can be given now. The same code for all algorithms; it knows nothing about fairness.
//!
//! Holders that are due less than they have shrink to their due. What is free, which is the capacity minus everything
//! that may still be in use, is shared among those that are due more, never beyond their due. If several ask at once
//! for more than is free, each gets the same part of what it lacks, so the order within a round does not matter.

use crate::types::{Amount, Sum};

/// The smallest grant. Doorman's Go limiter lets a call through every ⌊1000 / c⌋ ms, kept as nanoseconds in 64 bits.
/// Below 10⁹ / 2⁶³ ≈ 1.08e-10 that overflows, and the timer never waits. This is ten times as much: one call in 31
/// years.
const DUST: f64 = 1e-9;
/// The smallest grant as a part of the capacity, to a holder that is due more than twice as much. Less is a rounding
/// error: each is at most 1.1e-16 of the capacity.
const DUST_PART: f64 = 1e-12;

/// The grant, or nothing if it is *dust*, which is of no use and may do harm. A grant of the whole due is not dust,
/// however small.
pub(crate) fn without_dust(grant: Amount, due: Amount, capacity: Amount) -> Amount {
    let left_over = grant.get() < due.get() / 2.0 && grant.get() < capacity.get() * DUST_PART;
    if left_over || grant.get() < DUST { Amount::ZERO } else { grant }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Participant {
    /// Its due.
    pub(crate) due: Amount,
    pub(crate) current: Amount,
    /// The amount that stays held even if it gets nothing, because its older leases may still be in use.
    pub(crate) retained: Amount,
}

/// Computes what each participant is granted. `free` is the capacity minus everything that is held, where participants
/// count with what they retain.
///
/// A grant up to what is retained costs nothing, because that is held anyway. If more is held than the capacity, after
/// a cut, a participant may only have what the others leave, or keep what it has: what is retained is not an
/// entitlement.
///
/// If units are `indivisible`, no part of one is granted, and what is free goes to the first participants that lack it.
/// Shared in proportion it might be of no use to any of them.
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

/// The same, one participant after the other: first those that go first, then the others, in order. From the others as
/// much is withheld as is `owed` to participants that go first and do not take part now, or did not get all in this
/// round. A grant of less than `least` would be of no use, and is left for the next.
pub(crate) fn settle_in_turn(
    mut free: Sum,
    participants: &[Participant],
    goes_first: impl Fn(usize) -> bool,
    mut owed: Sum,
    least: impl Fn(usize) -> Amount,
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
            grants[at] = if grant < participant.due && grant < least(at) { Amount::ZERO } else { grant };
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
    fn the_free_part_is_shared_in_proportion_to_what_is_lacking() {
        assert_eq!(settled(30.0, &[participant(50.0, 10.0, 10.0), participant(20.0, 0.0, 0.0)]), [30.0, 10.0]);
        assert_eq!(settled(100.0, &[participant(50.0, 10.0, 10.0), participant(20.0, 0.0, 0.0)]), [50.0, 20.0]);
    }

    #[test]
    fn what_is_retained_costs_nothing_but_is_no_entitlement_when_too_much_is_held() {
        assert_eq!(settled(0.0, &[participant(50.0, 10.0, 40.0)]), [40.0]);
        assert_eq!(settled(-35.0, &[participant(50.0, 10.0, 40.0)]), [10.0], "it keeps what it has");
        assert_eq!(settled(-10.0, &[participant(50.0, 10.0, 40.0)]), [30.0], "what the others leave");
    }

    #[test]
    fn a_shrink_is_at_once() {
        assert_eq!(settled(-100.0, &[participant(5.0, 10.0, 40.0)]), [5.0]);
    }
}
