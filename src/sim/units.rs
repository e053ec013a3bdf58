//! Durations, fractions and algorithms, as scenario files and flags write them.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, UNIX_EPOCH},
};

use leaseway_core::{
    policy::{parameters::nearest, settings::AlgorithmKind},
    types::Millis,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in virtual time: `300s`, `5ms`, `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Millis);

/// A moment in Unix seconds: `2028-02-29T00:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallTime(pub i64);

impl Default for WallTime {
    fn default() -> WallTime {
        WallTime(1_700_000_000)
    }
}

impl FromStr for WallTime {
    type Err = String;

    fn from_str(text: &str) -> Result<WallTime, String> {
        let wrong = || format!("`{text}` is not a moment; expected one like 2028-02-29T00:00:00Z");
        let time = humantime::parse_rfc3339(text).map_err(|_| wrong())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| wrong())?;
        i64::try_from(since.as_secs()).map(WallTime).map_err(|_| wrong())
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = u64::try_from(self.0).unwrap_or_default();
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).fmt(f)
    }
}

/// A range of durations: `10..100ms`, `0s..60s`, or just `5ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Between {
    pub least: Millis,
    pub most: Millis,
}

/// A fraction: `1%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Part(pub f64);

/// An algorithm, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm(pub AlgorithmKind);

impl Span {
    pub const fn millis(ms: u64) -> Span {
        Span(Millis(ms))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("`{text}` is not a duration; expected whole milliseconds, like 300s, 5ms or 1h");
        let span = humantime::parse_duration(text).map_err(|_| wrong())?;
        let ms = u64::try_from(span.as_millis()).map_err(|_| wrong())?;
        if span.subsec_nanos() % 1_000_000 == 0 { Ok(Span(Millis(ms))) } else { Err(wrong()) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 {
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl FromStr for Between {
    type Err = String;

    fn from_str(text: &str) -> Result<Between, String> {
        let Some((from, to)) = text.split_once("..") else {
            let Span(only) = text.parse()?;
            return Ok(Between { least: only, most: only });
        };
        let Span(most) = to.parse()?;
        // In `10..100ms` the unit is written once.
        let unit = to.trim_start_matches(|c: char| c.is_ascii_digit());
        // In `1..2h 30m` the unit of the first is ambiguous.
        let shared = |_| match unit.chars().all(|c| c.is_ascii_alphabetic()) {
            true => format!("{from}{unit}").parse(),
            false => Err(format!("`{text}`: expected a unit for `{from}` as well, like 1h..2h 30m")),
        };
        let Span(least) = from.parse().or_else(shared)?;
        if least > most {
            return Err(format!("`{text}`: expected the shorter duration first, like 10..100ms"));
        }
        Ok(Between { least, most })
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.most {
            true => write!(f, "{}", Span(self.least)),
            false => write!(f, "{}..{}", Span(self.least), Span(self.most)),
        }
    }
}

impl Between {
    /// A random duration in the range, ends included.
    pub(crate) fn pick(self, rng: &mut fastrand::Rng) -> Millis {
        if self.least == self.most { self.least } else { Millis(rng.u64(self.least.0..=self.most.0)) }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=100.0).contains(number));
        let number = number.ok_or_else(|| format!("`{text}` is not a percentage; expected 0% to 100%, like 1%"))?;
        Ok(Part(number / 100.0))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 0.07 · 100 is a little more than 7 in floating point, so round to ten digits.
        let percent = format!("{:.10}", self.0 * 100.0);
        write!(f, "{}%", percent.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Algorithm, String> {
        let known = AlgorithmKind::ALL.map(AlgorithmKind::name);
        let found = AlgorithmKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.map(Algorithm).ok_or_else(|| {
            let meant = nearest(text, known).map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
            format!("`{text}` is not an algorithm{meant}; expected one of {}", known.join(", "))
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Serializes and deserializes a type as its text.
macro_rules! as_text {
    ($($unit:ty),*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )*};
}

as_text!(Span, Between, Part, Algorithm, WallTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_parsed_and_printed() {
        for text in ["300s", "5ms", "0s", "3600s"] {
            assert_eq!(text.parse::<Span>().expect("a time").to_string(), text);
        }
        assert_eq!("1h".parse(), Ok(Span::millis(3_600_000)));
        assert_eq!("10..100ms".parse(), Ok(Between { least: Millis(10), most: Millis(100) }));
        assert_eq!("100ms..2s".parse(), Ok(Between { least: Millis(100), most: Millis(2_000) }));
        assert_eq!("5ms".parse(), Ok(Between { least: Millis(5), most: Millis(5) }));
        assert_eq!("1h..2h 30m".parse(), Ok(Between { least: Millis(3_600_000), most: Millis(9_000_000) }));
        assert_eq!("2.5%".parse(), Ok(Part(0.025)));
        for text in ["0%", "7%", "2.5%", "0.001%", "29%", "100%"] {
            assert_eq!(text.parse::<Part>().expect("a part").to_string(), text);
        }
        assert_eq!("FAIR_SHARE".parse(), Ok(Algorithm(AlgorithmKind::FairShare)));
    }

    #[test]
    fn invalid_units_are_refused_with_an_example() {
        for (error, expected) in [
            ("5".parse::<Span>().expect_err("no unit"), "300s"),
            ("1us".parse::<Span>().expect_err("too fine"), "milliseconds"),
            ("100..10ms".parse::<Between>().expect_err("backwards"), "10..100ms"),
            ("1..2h 30m".parse::<Between>().expect_err("an ambiguous unit"), "a unit for `1`"),
            ("101%".parse::<Part>().expect_err("too much"), "100%"),
            ("1".parse::<Part>().expect_err("no percent sign"), "1%"),
            ("FAIRSHARE".parse::<Algorithm>().expect_err("a typo"), "did you mean FAIR_SHARE"),
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }
}
