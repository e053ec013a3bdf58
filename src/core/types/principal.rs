//! The share of a table that one principal may take: large while the table is empty, and smaller the fuller it is.
//!
//! The rule is the dynamic threshold of shared-memory switches: a principal may take another slot if it has no more
//! than a fixed multiple of the free slots. So a lone principal fills a fixed fraction of the table and leaves the
//! rest to newcomers, and several principals divide that fraction. Principals need not be known in advance, and
//! released slots are available again. docs/decisions/fair-shares.md has the reasons.

/// The party that a record, a connection or a byte is charged to, such as an address. The caller numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Principal(pub u32);

impl Principal {
    /// Nothing is charged.
    pub const NONE: Principal = Principal(0);
}

/// The principal that a new record is charged to, and whether it may have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChargedTo {
    pub principal: Principal,
    /// Whether the principal has its share of all slots. Then it gets no new record, but keeps its records.
    pub is_full: bool,
}

/// A change of the number of slots that a principal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotDelta {
    pub principal: Principal,
    pub slots: isize,
}

/// The fraction of a table that a lone principal may fill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrincipalShare(f64);

impl PrincipalShare {
    /// The whole table: shares do not limit anything.
    pub const ALL: PrincipalShare = PrincipalShare(1.0);

    /// A fraction, above 0 and at most 1.
    pub fn new(part: f64) -> Option<PrincipalShare> {
        (part > 0.0 && part <= 1.0).then_some(PrincipalShare(part))
    }

    pub fn part(self) -> f64 {
        self.0
    }

    /// Whether a principal with `own` slots may take `more`, if all principals together have `used` of `maximum` slots.
    pub fn allows(self, own: usize, more: usize, used: usize, maximum: usize) -> bool {
        let Some(left) = maximum.checked_sub(used).and_then(|free| free.checked_sub(more)) else { return false };
        // The last of the slots decides, as if they were taken one after the other.
        let before_the_last = (own + more).saturating_sub(1) as f64;
        before_the_last * (1.0 - self.0) <= self.0 * (left + 1) as f64
    }

    /// The share of this number of slots, at least one.
    pub fn of_slots(self, slots: u64) -> u64 {
        ((slots as f64 * self.0) as u64).max(1)
    }

    /// Whether no principal can have reached its share, because few slots are used.
    pub fn cannot_bind(self, used: usize, maximum: usize) -> bool {
        self.allows(used, 1, used, maximum)
    }
}

impl Default for PrincipalShare {
    fn default() -> PrincipalShare {
        PrincipalShare(0.75)
    }
}

/// Accumulated changes of the slots of principals.
#[derive(Debug, Default)]
pub(crate) struct SlotDeltas(Vec<SlotDelta>);

impl SlotDeltas {
    pub(crate) fn note(&mut self, principal: Principal, slots: isize) {
        if principal == Principal::NONE || slots == 0 {
            return;
        }
        match self.0.last_mut().filter(|last| last.principal == principal) {
            Some(last) => last.slots += slots,
            None => self.0.push(SlotDelta { principal, slots }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = SlotDelta> {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    /// Principals take all they can, one after the other. Returns the slots of each.
    fn greedy(share: PrincipalShare, maximum: usize, principals: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        for _ in 0..principals {
            let used = taken.iter().sum::<usize>();
            let mut own = 0;
            while share.allows(own, 1, used + own, maximum) {
                own += 1;
            }
            taken.push(own);
        }
        taken
    }

    #[test]
    fn a_lone_principal_fills_its_part_and_each_after_it_the_same_part_of_the_rest() {
        let share = PrincipalShare::new(0.75).expect("a part");
        assert_eq!(greedy(share, 10_000, 4), [7_501, 1_875, 469, 117]);
        assert_eq!(greedy(PrincipalShare::ALL, 10_000, 2), [10_000, 0]);
        // A small table is available to all.
        assert_eq!(greedy(share, 1, 1), [1]);
        assert_eq!(greedy(share, 4, 1), [4]);
    }

    proptest! {
        #[test]
        fn a_newcomer_is_refused_only_by_a_full_table(
            part in 0.01..=1.0_f64, maximum in 0_usize..5_000, used in 0_usize..6_000,
        ) {
            let share = PrincipalShare::new(part).expect("a part");
            prop_assert_eq!(share.allows(0, 1, used, maximum), used < maximum);
        }

        #[test]
        fn batch_is_allowed_like_single_places(
            part in 0.01..=1.0_f64, maximum in 1_usize..500, used in 0_usize..500, own in 0_usize..500, more in 1_usize..50,
        ) {
            let (share, own) = (PrincipalShare::new(part).expect("a part"), own.min(used));
            let one_by_one = (0..more).all(|n| share.allows(own + n, 1, used + n, maximum));
            prop_assert_eq!(share.allows(own, more, used, maximum), one_by_one);
        }

        #[test]
        fn cannot_bind_is_sound(part in 0.01..=1.0_f64, maximum in 1_usize..500, own in 0_usize..500, other in 0_usize..500) {
            let share = PrincipalShare::new(part).expect("a part");
            let used = own + other;
            prop_assert!(!share.cannot_bind(used, maximum) || share.allows(own, 1, used, maximum));
        }
    }
}
