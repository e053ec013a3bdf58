//! The periods of budgets: which stretch of wall-clock time a moment belongs to.
//!
//! A period is a pure function of the wall time. Hours, and periods of any length, are counted from the Unix epoch.
//! Days, weeks and months begin at local midnight in a time zone, so a day of a change to or from summer time has 23 or
//! 25 hours.

use std::{fmt, sync::Arc};

/// When the periods of a budget begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodLength {
    /// The full hours of UTC.
    Hour,
    Day,
    /// From Monday to Sunday.
    Week,
    Month,
    /// This many seconds, counted from the Unix epoch.
    Seconds(u32),
    /// The amount is spent once.
    Unending,
}

/// The seconds of one period, in Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span {
    pub start: i64,
    /// The start of the next period.
    pub end: i64,
}

/// The periods of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Periods {
    pub length: PeriodLength,
    /// The IANA name of the time zone of days, weeks and months.
    pub timezone: Arc<str>,
}

impl Default for Periods {
    fn default() -> Periods {
        Periods { length: PeriodLength::Month, timezone: UTC.into() }
    }
}

const UTC: &str = "UTC";

impl Span {
    pub const UNENDING: Span = Span { start: 0, end: i64::MAX };

    pub fn contains(self, unix: i64) -> bool {
        (self.start..self.end).contains(&unix)
    }

    /// The length in seconds.
    pub fn seconds(self) -> i64 {
        self.end.saturating_sub(self.start)
    }

    pub fn is_unending(self) -> bool {
        self.end == i64::MAX
    }
}

impl PeriodLength {
    /// A period must last much longer than the second in which no lease is given at its start.
    pub const MIN_SECONDS: u32 = 20;
    pub const EXPECTED: &str = "`hour`, `day`, `week`, `month`, `none` (spent once) or a duration of at least 20 s like `90s`, `15m`, `6h` or `14d`";

    pub fn read(text: &str) -> Option<PeriodLength> {
        Some(match text {
            "hour" => PeriodLength::Hour,
            "day" => PeriodLength::Day,
            "week" => PeriodLength::Week,
            "month" => PeriodLength::Month,
            "none" => PeriodLength::Unending,
            _ => {
                let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
                let seconds = match unit {
                    "s" => 1,
                    "m" => 60,
                    "h" => 3600,
                    "d" => 86400,
                    _ => return None,
                };
                let count: u32 = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?.parse().ok()?;
                let length = count.checked_mul(seconds).filter(|length| *length >= Self::MIN_SECONDS)?;
                PeriodLength::Seconds(length)
            }
        })
    }

    /// The length of its shortest period in seconds, if it ends.
    pub fn least_seconds(self) -> Option<u64> {
        match self {
            PeriodLength::Hour => Some(3600),
            PeriodLength::Day => Some(23 * 3600),
            PeriodLength::Week => Some(7 * 86400 - 3600),
            PeriodLength::Month => Some(28 * 86400 - 3600),
            PeriodLength::Seconds(length) => Some(length.into()),
            PeriodLength::Unending => None,
        }
    }
}

impl fmt::Display for PeriodLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PeriodLength::Hour => f.write_str("hour"),
            PeriodLength::Day => f.write_str("day"),
            PeriodLength::Week => f.write_str("week"),
            PeriodLength::Month => f.write_str("month"),
            PeriodLength::Unending => f.write_str("none"),
            PeriodLength::Seconds(length) => {
                let units = [(86400, "d"), (3600, "h"), (60, "m"), (1, "s")];
                let (unit, name) = units.into_iter().find(|(unit, _)| length % unit == 0).unwrap_or((1, "s"));
                write!(f, "{}{name}", length / unit)
            }
        }
    }
}

impl Periods {
    /// The period that contains a moment, in Unix seconds.
    pub fn at(&self, unix: i64) -> Span {
        match self.length {
            PeriodLength::Unending => Span::UNENDING,
            PeriodLength::Hour => multiple(unix, 3600),
            PeriodLength::Seconds(length) => multiple(unix, length.into()),
            // Beyond the calendar's range of years no clock is right.
            length => calendar::at(length, &self.timezone, unix).unwrap_or(Span::UNENDING),
        }
    }

    /// Whether a time zone is known by this name.
    pub fn knows_zone(name: &str) -> bool {
        name == UTC || calendar::knows(name)
    }
}

fn multiple(unix: i64, length: i64) -> Span {
    let start = unix.div_euclid(length) * length;
    Span { start, end: start.saturating_add(length) }
}

#[cfg(feature = "calendar")]
mod calendar {
    use jiff::{Error, Timestamp, ToSpan, civil::Date, tz::TimeZone};

    use super::{PeriodLength, Span};

    pub(super) fn knows(name: &str) -> bool {
        TimeZone::get(name).is_ok()
    }

    pub(super) fn at(length: PeriodLength, zone: &str, unix: i64) -> Option<Span> {
        spanned(length, zone, unix).ok()
    }

    fn spanned(length: PeriodLength, zone: &str, unix: i64) -> Result<Span, Error> {
        let zone = TimeZone::get(zone)?;
        let today = Timestamp::from_second(unix)?.to_zoned_datetime(zone.clone()).date();
        let (first, next) = match length {
            PeriodLength::Month => (today.first_of_month(), today.last_of_month().tomorrow()?),
            PeriodLength::Week => {
                let monday = today.checked_sub(i32::from(today.weekday().to_monday_zero_offset()).days())?;
                (monday, monday.checked_add(7.days())?)
            }
            _ => (today, today.tomorrow()?),
        };
        // A midnight that does not exist, because clocks go forward then, is the first moment after it.
        let begins = |date: Date| Ok::<_, Error>(date.to_zoned_datetime(zone.clone())?.timestamp().as_second());
        Ok(Span { start: begins(first)?, end: begins(next)? })
    }
}

#[cfg(not(feature = "calendar"))]
mod calendar {
    use super::{PeriodLength, Span};

    pub(super) fn knows(_: &str) -> bool {
        false
    }

    pub(super) fn at(_: PeriodLength, _: &str, _: i64) -> Option<Span> {
        None
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use jiff::{Timestamp, civil::date, tz::TimeZone};

    use super::*;

    fn unix(text: &str) -> i64 {
        text.parse::<Timestamp>().expect("a timestamp").as_second()
    }

    fn periods(length: PeriodLength, timezone: &str) -> Periods {
        Periods { length, timezone: timezone.into() }
    }

    fn assert_span(periods: &Periods, at: &str, start: &str, end: &str) {
        assert_eq!(periods.at(unix(at)), Span { start: unix(start), end: unix(end) }, "{at}");
    }

    #[test]
    fn months_follow_the_calendar_of_their_zone() {
        let berlin = periods(PeriodLength::Month, "Europe/Berlin");
        assert_span(&berlin, "2026-11-27T08:00:00Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z");
        // Both changes of summer time, and a leap day.
        assert_span(&berlin, "2026-03-31T21:59:59Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z");
        assert_span(&berlin, "2026-10-01T00:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z");
        assert_span(&berlin, "2028-02-29T12:00:00Z", "2028-01-31T23:00:00Z", "2028-02-29T23:00:00Z");
    }

    #[test]
    fn days_of_a_change_of_summer_time_have_23_and_25_hours() {
        let berlin = periods(PeriodLength::Day, "Europe/Berlin");
        assert_span(&berlin, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        assert_span(&berlin, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
        let santiago = periods(PeriodLength::Day, "America/Santiago");
        // Clocks go from 0:00 to 1:00, so this day has no midnight.
        assert_span(&santiago, "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z");
    }

    #[test]
    fn weeks_begin_on_monday_and_hours_are_those_of_utc() {
        let week = periods(PeriodLength::Week, "Asia/Kolkata");
        assert_span(&week, "2026-11-27T08:00:00Z", "2026-11-22T18:30:00Z", "2026-11-29T18:30:00Z");
        let hour = periods(PeriodLength::Hour, "Asia/Kolkata");
        assert_span(&hour, "2026-11-27T08:59:59Z", "2026-11-27T08:00:00Z", "2026-11-27T09:00:00Z");
        let quarter = periods(PeriodLength::Seconds(900), "UTC");
        assert_span(&quarter, "2026-11-27T08:59:59Z", "2026-11-27T08:45:00Z", "2026-11-27T09:00:00Z");
        assert!(periods(PeriodLength::Unending, "UTC").at(0).is_unending());
    }

    /// Every moment belongs to exactly one period, over leap days and all changes of summer time of several years.
    #[test]
    fn periods_follow_each_other_without_gaps() {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"] {
            for length in [PeriodLength::Day, PeriodLength::Week, PeriodLength::Month] {
                let periods = periods(length, zone);
                let mut span = periods.at(unix("2023-12-31T23:30:00Z"));
                while span.end < unix("2029-03-05T00:00:00Z") {
                    assert!(span.seconds() as u64 >= length.least_seconds().expect("it ends"), "{zone} {span:?}");
                    for at in [span.start, span.start + span.seconds() / 2, span.end - 1] {
                        assert_eq!(periods.at(at), span, "{zone} {length}");
                    }
                    let next = periods.at(span.end);
                    assert_eq!(next.start, span.end, "{zone} {length}");
                    span = next;
                }
            }
        }
    }

    #[test]
    fn a_day_is_a_date_of_its_zone() {
        let zone = TimeZone::get("Pacific/Auckland").expect("known");
        let noon = date(2028, 2, 29).at(12, 0, 0, 0).to_zoned_datetime(zone).expect("a moment");
        let span = periods(PeriodLength::Day, "Pacific/Auckland").at(noon.timestamp().as_second());
        assert_eq!(span.seconds(), 86400);
        assert_eq!(span.start, unix("2028-02-28T11:00:00Z"));
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["hour", "day", "week", "month", "none", "20s", "15m", "6h", "14d", "90s"] {
            assert_eq!(PeriodLength::read(text).expect(text).to_string(), text);
        }
        assert_eq!(PeriodLength::read("48h").expect("valid").to_string(), "2d");
        for text in ["", "s", "19s", "1w", "-5m", "1.5h", "99999999d", "months", "ü"] {
            assert_eq!(PeriodLength::read(text), None, "{text}");
        }
        assert!(Periods::knows_zone("Europe/Berlin") && Periods::knows_zone("UTC") && !Periods::knows_zone("Mars"));
    }
}
