//! The median and range of several runs.

use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) median: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) min: f64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) max: f64,
}

/// Infinite and undefined numbers are written as null.
pub(crate) fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Spread {
    /// None of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let even = values.len().is_multiple_of(2);
        let median = if even { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] };
        Some(Spread { median, min, max })
    }

    /// `median (min..max)`, the only value, or a dash if it is not finite.
    pub(crate) fn text(self, number: impl Fn(f64) -> String) -> String {
        let Spread { median, min, max } = self;
        match (median.is_finite(), number(min) == number(max)) {
            (false, _) => "-".into(),
            (true, true) => number(median),
            (true, false) => format!("{} ({}..{})", number(median), number(min), number(max)),
        }
    }

    pub(crate) fn digits(self, digits: usize) -> String {
        self.text(|value| format!("{value:.digits$}"))
    }

    /// Like [`digits`](Self::digits), with a dash for none.
    pub(crate) fn show(spread: Option<Spread>, digits: usize) -> String {
        spread.map_or("-".into(), |spread| spread.digits(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        let of = |values: &[f64], digits| Spread::show(Spread::of(values.iter().copied()), digits);
        assert_eq!(of(&[3.0, 1.0, 2.0], 1), "2.0 (1.0..3.0)");
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0], 1), "2.5 (1.0..4.0)");
        assert_eq!(of(&[7.0], 0), "7");
        assert_eq!(of(&[99.991, 99.993], 2), "99.99", "what reads the same is one figure");
        assert_eq!((of(&[], 2), of(&[f64::NAN], 2)), ("-".into(), "-".into()));
    }
}
