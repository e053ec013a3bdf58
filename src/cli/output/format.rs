//! Numbers and moments as people read them.

use std::time::{Duration, UNIX_EPOCH};

pub(crate) use leaseway_core::readable as number;

/// A moment in seconds since the epoch. What no calendar has (a clock that was set wrong) becomes the nearest that one
/// has.
pub(crate) fn utc(unix: i64) -> String {
    const LAST: u64 = 253_402_300_799;
    let seconds = u64::try_from(unix).unwrap_or(0).min(LAST);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// How much longer a resource learns, if it does.
pub(crate) fn learning(left_ms: u64) -> String {
    if left_ms == 0 { "no".to_owned() } else { format!("{} s", left_ms.div_ceil(1000)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(number(40.0), "40");
        assert_eq!(number(100.0 / 3.0), "33.333333");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(-1.0), "-1");
    }

    #[test]
    fn every_moment_can_be_shown() {
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(utc(-5), "1970-01-01T00:00:00Z");
        assert_eq!(utc(i64::MAX), "9999-12-31T23:59:59Z");
    }
}
