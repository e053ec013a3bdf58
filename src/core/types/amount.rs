//! Amounts of capacity, and sums of them that never drift.
//!
//! An [`Amount`] is finite, not negative and at most [`Amount::MAX`]. A [`Sum`] counts units of 2⁻⁵² in an integer.
//! Every `f64` from 1 upwards is a whole number of these units. Below 1 an amount counts as the next whole number of
//! units, at most 2.3e-16 too much, so that "held" errs upwards. Adding and subtracting are exact: after any number of
//! updates in any order a sum equals the sum of its terms in any other order, and "Σ held ≤ capacity" compares
//! integers.

use std::{
    fmt,
    ops::{AddAssign, Sub, SubAssign},
};

/// A sum counts units of 1 / `UNITS`.
const UNITS: f64 = (1u64 << 52) as f64;

/// An amount of a resource: queries per second, open transactions, cost units.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Amount(#[cfg_attr(feature = "serde", serde(deserialize_with = "stored"))] f64);

/// Stored amounts were validated before. An invalid one counts as the maximum, because promises must err upwards.
#[cfg(feature = "serde")]
fn stored<'de, D: serde::Deserializer<'de>>(stored: D) -> Result<f64, D::Error> {
    <f64 as serde::Deserialize>::deserialize(stored).map(|value| Amount::new(value).unwrap_or(Amount::MAX).0)
}

/// Stored numbers were validated before. One that is not finite must not corrupt sums.
#[cfg(feature = "serde")]
pub(crate) fn stored_number<'de, D: serde::Deserializer<'de>>(stored: D) -> Result<f64, D::Error> {
    <f64 as serde::Deserialize>::deserialize(stored).map(|number| if number.is_finite() { number } else { 0.0 })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    #[error("must be a finite number")]
    NotFinite,
    #[error("must not be negative")]
    Negative,
    #[error("must be at most 1e15")]
    TooLarge,
}

impl Amount {
    pub const ZERO: Amount = Amount(0.0);
    pub const ONE: Amount = Amount(1.0);
    /// The largest amount. Sums of 16 million of these still fit a [`Sum`].
    pub const MAX: Amount = Amount(1e15);

    /// Validates a number from outside.
    pub fn new(value: f64) -> Result<Amount, AmountError> {
        if !value.is_finite() {
            Err(AmountError::NotFinite)
        } else if value < 0.0 {
            Err(AmountError::Negative)
        } else if value > Self::MAX.0 {
            Err(AmountError::TooLarge)
        } else {
            Ok(Amount(value.abs())) // -0 is 0
        }
    }

    /// For results of arithmetic: clamps what rounding has pushed out of range.
    pub fn clamped(value: f64) -> Amount {
        debug_assert!(!value.is_nan(), "arithmetic on amounts cannot yield NaN");
        Amount(value.clamp(0.0, Self::MAX.0).abs()) // -0 is 0 here too: `clamp` lets it pass
    }

    pub fn get(self) -> f64 {
        self.0
    }

    #[must_use]
    pub fn min(self, other: Amount) -> Amount {
        Amount(self.0.min(other.0))
    }

    #[must_use]
    pub fn max(self, other: Amount) -> Amount {
        Amount(self.0.max(other.0))
    }

    /// Rounded down to a whole unit.
    #[must_use]
    pub fn floor(self) -> Amount {
        Amount(self.0.floor())
    }

    /// The difference, never below zero.
    #[must_use]
    pub fn saturating_sub(self, other: Amount) -> Amount {
        Amount((self.0 - other.0).max(0.0))
    }

    /// The sum, at most [`Amount::MAX`].
    #[must_use]
    pub fn saturating_add(self, other: Amount) -> Amount {
        Amount::clamped(self.0 + other.0)
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Parses a number with an optional multiple (k, M, G) and unit of time (s, min, h, day), such as `60000/min`, `1M/day`
/// or `5k`. A rate is converted to units per second.
pub fn parse_quantity(text: &str) -> Option<f64> {
    let (quantity, unit) = text.split_once('/').unwrap_or((text, "s"));
    let quantity = quantity.trim();
    let (digits, multiple) = match quantity.char_indices().last()? {
        (at, 'k' | 'K') => (&quantity[..at], 1e3),
        (at, 'M') => (&quantity[..at], 1e6),
        (at, 'G') => (&quantity[..at], 1e9),
        _ => (quantity, 1.0),
    };
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "min" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        "d" | "day" => 86400.0,
        _ => return None,
    };
    let number: f64 = digits
        .bytes()
        .all(|byte| b"0123456789+-.eE_".contains(&byte))
        .then_some(digits)?
        .replace('_', "")
        .parse()
        .ok()?;
    Some(number * multiple / seconds)
}

/// A number for people, with at most six decimal places.
pub fn readable(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An exact sum of amounts. May be negative, such as the free capacity after a cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Sum(i128);

impl Sum {
    pub const ZERO: Sum = Sum(0);

    /// As a float, to within two roundings. (The standard 128-bit conversion is exact to one rounding, but several
    /// times slower, which is noticeable in walks of the claim index.)
    pub fn get(self) -> f64 {
        const HIGH: f64 = (1u128 << 64) as f64 / UNITS;
        let magnitude = self.0.unsigned_abs();
        let value = (magnitude >> 64) as u64 as f64 * HIGH + magnitude as u64 as f64 / UNITS;
        if self.0 < 0 { -value } else { value }
    }

    /// The largest amount that does not exceed this sum as a [`Sum`]; zero if it is negative.
    pub fn floor(self) -> Amount {
        if self.0 <= 0 {
            return Amount::ZERO;
        }
        let nearest = self.0 as f64;
        let below = if nearest as i128 > self.0 { nearest.next_down() } else { nearest };
        Amount::clamped(below / UNITS)
    }

    /// The smallest amount that is not less than this sum as a [`Sum`]; zero if it is negative.
    pub fn ceil(self) -> Amount {
        if self.0 <= 0 {
            return Amount::ZERO;
        }
        let nearest = self.0 as f64;
        let above = if (nearest as i128) < self.0 { nearest.next_up() } else { nearest };
        Amount::clamped(above / UNITS)
    }
}

impl From<Amount> for Sum {
    fn from(amount: Amount) -> Sum {
        // Decoded by hand for speed, as in `get`. A normal number is mantissa · 2^(exponent − 1075). Subnormal numbers
        // are far below one unit.
        let bits = amount.0.to_bits();
        let exponent = (bits >> 52) as i32;
        let mantissa = (bits & ((1 << 52) - 1)) | 1 << 52;
        match exponent - 1075 + 52 {
            _ if bits == 0 => Sum(0),
            left @ 0.. => Sum(i128::from(mantissa) << left),
            right @ -63.. => Sum(i128::from((mantissa + (1 << -right) - 1) >> -right)),
            _ => Sum(1),
        }
    }
}

impl AddAssign<Amount> for Sum {
    fn add_assign(&mut self, amount: Amount) {
        self.0 += Sum::from(amount).0;
    }
}

impl SubAssign<Amount> for Sum {
    fn sub_assign(&mut self, amount: Amount) {
        self.0 -= Sum::from(amount).0;
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.0 += other.0;
    }
}

impl SubAssign for Sum {
    fn sub_assign(&mut self, other: Sum) {
        self.0 -= other.0;
    }
}

impl Sub for Sum {
    type Output = Sum;
    fn sub(self, other: Sum) -> Sum {
        Sum(self.0 - other.0)
    }
}

impl FromIterator<Amount> for Sum {
    fn from_iter<I: IntoIterator<Item = Amount>>(amounts: I) -> Sum {
        let mut sum = Sum::ZERO;
        for amount in amounts {
            sum += amount;
        }
        sum
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(value: f64) -> Amount {
        Amount::new(value).expect("a valid amount")
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for (value, error) in [
            (f64::NAN, AmountError::NotFinite),
            (f64::INFINITY, AmountError::NotFinite),
            (-1e-300, AmountError::Negative),
            (1.0001e15, AmountError::TooLarge),
        ] {
            assert_eq!(Amount::new(value), Err(error));
        }
        assert_eq!(amount(0.1).get(), 0.1, "ordinary numbers are kept to the bit");
        assert_eq!(amount(-0.0).get(), 0.0);
        assert_eq!(Sum::from(Amount::clamped(-0.0)), Sum::ZERO);
    }

    #[test]
    fn quantities_have_multiples_and_units_of_time() {
        for (text, value) in [
            ("100", 100.0),
            ("7.5", 7.5),
            ("5/s", 5.0),
            ("60000/min", 1000.0),
            ("1M/day", 1e6 / 86400.0),
            ("1.5k / hour", 1500.0 / 3600.0),
            ("10_000", 1e4),
            ("2G", 2e9),
        ] {
            assert_eq!(parse_quantity(text), Some(value), "{text}");
        }
        for text in ["", "k", "/s", "5/", "5/month", "5m", "inf", "nan", "5/s/s", "\u{e9}", "5 per minute"] {
            assert_eq!(parse_quantity(text), None, "{text}");
        }
    }

    /// A day at 1,000 updates a second, with amounts of very different sizes. An `f64` sum would drift.
    #[test]
    fn a_days_worth_of_updates_leaves_no_drift() {
        let mut sum = Sum::ZERO;
        let mut naive = 0.0f64;
        let mut live = [Amount::ZERO; 64];
        let mut state = 1u64;
        for _ in 0..86_400_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (state >> 58) as usize;
            let value = ((state >> 20) & 0xffff) as f64 * [1e-7, 0.1, 1e3, 1e9][(state >> 40) as usize & 3];
            let new = Amount::clamped(value);
            sum -= live[index];
            sum += new;
            naive += new.get() - live[index].get();
            live[index] = new;
        }
        assert_eq!(sum, live.iter().copied().collect::<Sum>());
        assert_ne!(naive, live.iter().map(|a| a.get()).sum::<f64>(), "the test would not notice drift");
    }

    #[test]
    fn amounts_count_as_whole_units_rounded_up() {
        let mut value = f64::MIN_POSITIVE;
        while value < 5e14 {
            for value in [value, value * 1.3, value.next_up()] {
                assert_eq!(Sum::from(amount(value)).0, (value * UNITS).ceil() as i128, "{value}");
            }
            value *= 1.7;
        }
        assert_eq!(Sum::from(amount(0.0)).0, 0);
        assert_eq!(Sum::from(amount(f64::from_bits(1))).0, 1);
    }

    #[test]
    fn floor_counts_for_no_more_than_the_sum() {
        let mut sum = Sum::from(amount(1e15));
        sum += amount(f64::EPSILON);
        assert_eq!(sum.floor(), amount(1e15));
        sum = Sum::from(amount(0.3)) - Sum::from(amount(0.1));
        assert!(Sum::from(sum.floor()) <= sum);
        assert_eq!((Sum::ZERO - Sum::from(amount(3.0))).floor(), Amount::ZERO);
    }
}
