//! The newest values of a series, one for each slot of time.

/// A value that a ring can hold. One bit pattern means that there is none, because an `Option` would be larger.
pub(super) trait Slotted: Copy {
    const NONE: Self;
    fn is_none(&self) -> bool;
}

/// The values of the newest `N` slots. Slots are numbered: Unix time divided by the length of a slot.
#[derive(Debug)]
pub(super) struct Ring<T, const N: usize> {
    /// The newest slot that was set.
    newest: u64,
    values: Box<[T; N]>,
}

impl<T: Slotted, const N: usize> Default for Ring<T, N> {
    fn default() -> Ring<T, N> {
        Ring { newest: 0, values: Box::new([T::NONE; N]) }
    }
}

impl<T: Slotted, const N: usize> Ring<T, N> {
    /// Sets a slot. If the clock was set back by more than the length of the ring, its contents are from the future:
    /// the ring starts again.
    pub(super) fn put(&mut self, slot: u64, value: T) {
        if self.is_too_old(slot) {
            *self = Ring::default();
        }
        self.fill(slot, value);
    }

    /// Sets a slot, unless it is older than the ring.
    pub(super) fn fill(&mut self, slot: u64, value: T) {
        if self.is_too_old(slot) {
            return;
        }
        let passed = slot.saturating_sub(self.newest).min(N as u64);
        (0..passed).for_each(|back| self.values[Self::index(slot - back)] = T::NONE);
        self.newest = self.newest.max(slot);
        self.values[Self::index(slot)] = value;
    }

    pub(super) fn get(&self, slot: u64) -> Option<T> {
        let is_kept = slot <= self.newest && !self.is_too_old(slot);
        Some(self.values[Self::index(slot)]).filter(|value| is_kept && !value.is_none())
    }

    /// The values from a slot on, the oldest first. Slots without a value are left out.
    pub(super) fn from(&self, slot: u64) -> impl Iterator<Item = (u64, T)> {
        let first = slot.max((self.newest + 1).saturating_sub(N as u64));
        (first..=self.newest).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    fn is_too_old(&self, slot: u64) -> bool {
        slot + N as u64 <= self.newest
    }

    fn index(slot: u64) -> usize {
        (slot % N as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slotted for u8 {
        const NONE: u8 = 0;
        fn is_none(&self) -> bool {
            *self == 0
        }
    }

    fn contents(ring: &Ring<u8, 4>) -> Vec<(u64, u8)> {
        ring.from(0).collect()
    }

    #[test]
    fn a_ring_keeps_the_newest_slots_and_leaves_out_empty_ones() {
        let mut ring = Ring::<u8, 4>::default();
        for slot in [100, 101, 103, 104] {
            ring.put(slot, slot as u8);
        }
        assert_eq!(contents(&ring), [(101, 101), (103, 103), (104, 104)]);
        assert_eq!((ring.get(102), ring.get(100), ring.get(105)), (None, None, None));
        assert_eq!(ring.from(104).collect::<Vec<_>>(), [(104, 104)]);
        ring.put(1000, 7);
        assert_eq!(contents(&ring), [(1000, 7)]);
    }

    #[test]
    fn a_clock_set_back_replaces_slots_and_a_clock_set_far_back_starts_again() {
        let mut ring = Ring::<u8, 4>::default();
        [100, 101, 102].into_iter().for_each(|slot| ring.put(slot, 1));
        ring.put(101, 2);
        assert_eq!(contents(&ring), [(100, 1), (101, 2), (102, 1)]);
        ring.fill(50, 3);
        assert_eq!(contents(&ring).len(), 3, "a copy of something older is ignored");
        ring.put(50, 3);
        assert_eq!(contents(&ring), [(50, 3)]);
    }
}
