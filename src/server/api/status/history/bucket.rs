//! Samples, and buckets that summarize many of them.

use super::{
    Series,
    ring::{Ring, Slotted},
};
use crate::api::status::survey::Sample;

/// Number of series: capacity, wants, granted and held.
pub(crate) const SERIES: usize = 4;

/// A sample: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Values(pub(super) [f32; SERIES]);

impl Values {
    pub(super) fn of(sample: &Sample) -> Values {
        // Capacities may be as large as the largest 64-bit float.
        let narrow = |value: f64| value.clamp(0.0, f64::from(f32::MAX)) as f32;
        Values([sample.capacity, sample.wants, sample.granted, sample.held].map(narrow))
    }

    pub(super) fn series(self) -> Series {
        Series(self.0.map(f64::from))
    }
}

impl Slotted for Values {
    const NONE: Values = Values([f32::NAN; SERIES]);

    fn is_none(&self) -> bool {
        self.0[0].is_nan()
    }
}

/// A number from 0 to 3.4e38 in 16 bits: the exponent of an `f32` and 8 bits of its fraction. It is off by 0.2 % at
/// most, half a pixel of a plot. A larger number never becomes smaller than a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Compact(u16);

/// Dropped bits of an `f32`.
const DROPPED: u32 = 15;

impl Compact {
    const NONE: Compact = Compact(u16::MAX);

    pub(super) fn of(value: f32) -> Compact {
        let rounded = value.clamp(0.0, f32::MAX / 2.0).to_bits() + (1 << (DROPPED - 1));
        Compact((rounded >> DROPPED) as u16)
    }

    pub(super) fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << DROPPED)
    }
}

/// The minimum, mean and maximum of the samples of a slot, by series: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bucket {
    pub(super) min: [Compact; SERIES],
    pub(super) mean: [Compact; SERIES],
    pub(super) max: [Compact; SERIES],
}

impl Slotted for Bucket {
    const NONE: Bucket =
        Bucket { min: [Compact::NONE; SERIES], mean: [Compact::NONE; SERIES], max: [Compact::NONE; SERIES] };

    fn is_none(&self) -> bool {
        self.mean[0] == Compact::NONE
    }
}

/// A ring of buckets, and the sums of the newest, which is still growing.
#[derive(Debug)]
pub(super) struct Buckets<const N: usize> {
    pub(super) ring: Ring<Bucket, N>,
    sums: Option<Sums>,
}

#[derive(Debug)]
struct Sums {
    slot: u64,
    samples: u32,
    sums: [f64; SERIES],
}

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Buckets<N> {
        Buckets { ring: Ring::default(), sums: None }
    }
}

impl<const N: usize> Buckets<N> {
    /// Adds a sample. `earlier`: how many samples the slot may have had before this one.
    pub(super) fn add(&mut self, slot: u64, values: Values, earlier: u32) {
        let known = self.ring.get(slot);
        // A bucket that another peer began has a mean, but no sum.
        let begin = || match &known {
            Some(known) => {
                let samples = earlier.max(1);
                Sums { slot, samples, sums: known.mean.map(|mean| f64::from(mean.get()) * f64::from(samples)) }
            }
            None => Sums { slot, samples: 0, sums: [0.0; SERIES] },
        };
        let mut sums = self.sums.take().filter(|sums| sums.slot == slot).unwrap_or_else(begin);
        sums.samples += 1;
        sums.sums.iter_mut().zip(values.0).for_each(|(sum, value)| *sum += f64::from(value));
        let mean = sums.sums.map(|sum| Compact::of((sum / f64::from(sums.samples)) as f32));
        self.sums = Some(sums);
        let now = values.0.map(Compact::of);
        let (min, max) = known
            .map_or((now, now), |known| (by_series(known.min, now, Ord::min), by_series(known.max, now, Ord::max)));
        self.ring.put(slot, Bucket { min, mean, max });
    }

    /// Takes over a bucket of another peer.
    pub(super) fn fill(&mut self, slot: u64, bucket: Bucket) {
        if self.sums.as_ref().is_some_and(|sums| sums.slot == slot) {
            self.sums = None;
        }
        self.ring.fill(slot, bucket);
    }
}

fn by_series(
    one: [Compact; SERIES],
    other: [Compact; SERIES],
    of: fn(Compact, Compact) -> Compact,
) -> [Compact; SERIES] {
    std::array::from_fn(|series| of(one[series], other[series]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(wants: f32) -> Values {
        Values([100.0, wants, 1.0, 1.0])
    }

    #[test]
    fn a_bucket_has_the_minimum_the_mean_and_the_maximum_of_its_samples() {
        let mut buckets = Buckets::<4>::default();
        for (number, wants) in [10.0, 30.0, 20.0].into_iter().enumerate() {
            buckets.add(7, values(wants), number as u32);
        }
        buckets.add(8, values(50.0), 0);
        let bucket = buckets.ring.get(7).expect("a bucket");
        assert_eq!([bucket.min, bucket.mean, bucket.max].map(|of| of[1].get()), [10.0, 20.0, 30.0]);
        assert_eq!(buckets.ring.get(8).expect("a bucket").mean[1].get(), 50.0);
    }

    #[test]
    fn a_bucket_that_another_peer_began_is_continued() {
        let (mut first, mut second) = (Buckets::<4>::default(), Buckets::<4>::default());
        (0..30).for_each(|number| first.add(7, values(10.0), number));
        second.fill(7, first.ring.get(7).expect("a bucket"));
        (30..60).for_each(|number| second.add(7, values(20.0), number));
        let bucket = second.ring.get(7).expect("a bucket");
        assert_eq!([bucket.min, bucket.mean, bucket.max].map(|of| of[1].get()), [10.0, 15.0, 20.0]);
    }

    proptest! {
        #[test]
        fn compact_numbers_keep_order_and_are_off_by_a_fifth_of_a_percent(one in 0.0_f32..1e30, other in 0.0_f32..1e30) {
            prop_assert_eq!(Compact::of(one) <= Compact::of(other), one <= other || Compact::of(one) == Compact::of(other));
            prop_assert!((Compact::of(one).get() - one).abs() <= one * 0.002 + f32::MIN_POSITIVE);
            prop_assert_eq!(Compact::of(Compact::of(one).get()), Compact::of(one), "a copy is exact");
        }
    }

    #[test]
    fn zero_and_the_largest_numbers_are_numbers() {
        assert_eq!(Compact::of(0.0).get(), 0.0);
        for huge in [f32::MAX, f32::INFINITY] {
            assert!(Compact::of(huge).get().is_finite());
        }
        let sample =
            Sample { at: std::time::SystemTime::UNIX_EPOCH, capacity: f64::MAX, wants: -0.0, granted: 1.0, held: 1.0 };
        assert!(Values::of(&sample).0.iter().all(|value| value.is_finite()));
    }
}
