//! The sort key of claims, and sums over them.

use crate::types::{Amount, Sum};

/// The sort key of a claim: band, then wants per subclient, then its owner (which makes it unique).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClaimKey(u128);

impl ClaimKey {
    /// Before every claim.
    pub(crate) const START: ClaimKey = ClaimKey(0);
    /// After every claim.
    pub(crate) const END: ClaimKey = ClaimKey(u128::MAX);

    pub(crate) fn new(band: i16, ratio: f64, slot: u32, ordinal: u16) -> ClaimKey {
        ClaimKey(Self::prefix(band, ratio) | u128::from(slot) << 16 | u128::from(ordinal))
    }

    /// Before every claim of the band.
    pub(crate) fn band_start(band: i16) -> ClaimKey {
        ClaimKey(Self::prefix(band, 0.0))
    }

    /// After every claim of the band.
    pub(crate) fn band_end(band: i16) -> ClaimKey {
        band.checked_add(1).map_or(Self::END, Self::band_start)
    }

    /// After every claim of the band that wants at most `ratio` per subclient.
    pub(crate) fn after(band: i16, ratio: f64) -> ClaimKey {
        ClaimKey(Self::prefix(band, ratio) + (1 << 48))
    }

    /// The smallest key after this one.
    pub(super) fn successor(self) -> ClaimKey {
        ClaimKey(self.0.saturating_add(1))
    }

    /// The same claim in another band.
    pub(crate) fn in_band(self, band: i16) -> ClaimKey {
        ClaimKey(Self::prefix(band, 0.0) | self.0 << 16 >> 16)
    }

    fn prefix(band: i16, ratio: f64) -> u128 {
        debug_assert!(ratio >= 0.0 && ratio.is_finite(), "a ratio of amounts");
        let biased = (band as u16) ^ 0x8000;
        // The bits of non-negative floats sort like the floats.
        u128::from(biased) << 112 | u128::from(ratio.to_bits()) << 48
    }

    pub(crate) fn band(self) -> i16 {
        ((self.0 >> 112) as u16 ^ 0x8000) as i16
    }

    pub(super) fn ratio(self) -> f64 {
        f64::from_bits((self.0 >> 48) as u64)
    }

    /// Splits the key into the ratio, and the rest: band and owner.
    pub(super) fn split(self) -> (u64, u64) {
        ((self.0 >> 48) as u64, (self.0 >> 112 << 48) as u64 | self.0 as u64 & 0xffff_ffff_ffff)
    }

    pub(super) fn together(ratio: u64, owner: u64) -> ClaimKey {
        ClaimKey(u128::from(owner >> 48) << 112 | u128::from(ratio) << 48 | u128::from(owner & 0xffff_ffff_ffff))
    }
}

/// The wants and subclients of a set of claims.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) wants: Sum,
    pub(crate) weight: u64,
}

impl Totals {
    pub(crate) fn of(key: ClaimKey, weight: u32) -> Totals {
        Totals { wants: Amount::clamped(key.ratio() * f64::from(weight)).into(), weight: weight.into() }
    }

    pub(crate) fn add(&mut self, other: Totals) {
        self.wants += other.wants;
        self.weight += other.weight;
    }

    pub(super) fn take(&mut self, other: Totals) {
        self.wants -= other.wants;
        self.weight -= other.weight;
    }

    /// Wants per subclient.
    pub(crate) fn mean(self) -> f64 {
        self.wants.get() / self.weight as f64
    }

    pub(crate) fn plus(mut self, other: Totals) -> Totals {
        self.add(other);
        self
    }

    pub(crate) fn minus(mut self, other: Totals) -> Totals {
        self.take(other);
        self
    }
}
