//! Formatting for pages: numbers, durations, times and ids.

use std::time::SystemTime;

/// With thousands separators, and decimals that fit the size.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let sign = if whole.starts_with('-') { "−" } else { "" };
    let whole = grouped(whole.trim_start_matches('-'));
    // A negative number that rounds to zero has no sign.
    let sign = if whole == "0" && part.is_empty() { "" } else { sign };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// An amount of a resource.
pub(crate) fn units(value: f64) -> String {
    let number = number(value);
    let unit = if number == "1" { "unit" } else { "units" };
    format!("{number} {unit}")
}

/// A part of a whole, as a percentage.
pub(crate) fn percent(part: f64) -> String {
    match 100.0 * part {
        all if all > 0.0 && all < 1.0 => "less than 1 %".to_owned(),
        all if all > 9_999.0 => "more than 9,999 %".to_owned(),
        // Only a full bar is 100 %.
        all if (99.0..100.0).contains(&all) => "99 %".to_owned(),
        all => format!("{} %", count(all.round())),
    }
}

/// With thousands separators.
pub(crate) fn count(value: impl std::fmt::Display) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in at most two units.
pub(crate) fn length(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0..10 => format!("{}.{} s", secs, ms % 1000 / 100),
        10..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// A duration that changes while it is shown, in whole seconds.
pub(crate) fn ago(ms: u64) -> String {
    match ms {
        0..1000 => "less than 1 s".to_owned(),
        1000..120_000 => format!("{} s", ms / 1000),
        _ => length(ms),
    }
}

/// Time of day, UTC.
pub(crate) fn clock(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.get(11..19).unwrap_or_default().to_owned()
}

/// Date and time, UTC.
pub(crate) fn moment(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Percent-encodes everything but letters and digits.
pub(crate) fn encoded(id: &str) -> String {
    id.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        for (value, text) in [
            (0.0, "0"),
            (0.12345, "0.1235"),
            (33.333_333, "33.33"),
            (40.0, "40"),
            (999.96, "1,000"),
            (1234.5, "1,234"),
            (1_000_000.0, "1,000,000"),
            (-1500.0, "−1,500"),
            (-0.5, "−0.5"),
            (-0.0, "0"),
            (-0.000_01, "0"),
            (1e15, "1,000,000,000,000,000"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn parts_are_formatted_and_only_a_full_one_is_100_percent() {
        for (part, text) in [
            (0.0, "0 %"),
            (0.001, "less than 1 %"),
            (0.456, "46 %"),
            (0.999, "99 %"),
            (1.0, "100 %"),
            (1.5, "150 %"),
            (f64::MAX, "more than 9,999 %"),
        ] {
            assert_eq!(percent(part), text, "{part}");
        }
        assert_eq!([units(1.0), units(-0.000_001), units(2.5)], ["1 unit", "0 units", "2.5 units"]);
    }

    #[test]
    fn durations_are_formatted() {
        for (ms, text) in [
            (50, "0.0 s"),
            (1_250, "1.2 s"),
            (59_900, "59 s"),
            (600_000, "10 min"),
            (7_500_000, "2 h 5 min"),
            (400_000_000, "4 d 15 h"),
        ] {
            assert_eq!(length(ms), text);
        }
    }
}
