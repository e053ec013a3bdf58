//! Numbers, lengths of time and ids as people read them.

use std::time::SystemTime;

/// With groups of thousands, and as many digits behind the point as are of use at its size.
pub(super) fn number(value: f64) -> String {
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
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// With groups of thousands.
pub(super) fn count(value: impl std::fmt::Display) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time in two units at most.
pub(super) fn length(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0..10 => format!("{}.{} s", secs, ms % 1000 / 100),
        10..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// A length of time that is shown and changes every second: whole seconds.
pub(super) fn ago(ms: u64) -> String {
    match ms {
        0..1000 => "less than 1 s".to_owned(),
        1000..120_000 => format!("{} s", ms / 1000),
        _ => length(ms),
    }
}

/// The time of the day, UTC.
pub(super) fn clock(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.get(11..19).unwrap_or_default().to_owned()
}

/// Date and time of the day, UTC.
pub(super) fn moment(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Everything but letters and digits as %XX: ids may contain anything.
pub(super) fn encoded(id: &str) -> String {
    id.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_as_long_as_is_of_use() {
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
            (1e15, "1,000,000,000,000,000"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn lengths_have_two_units_at_most() {
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
