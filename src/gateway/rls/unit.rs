//! The windows of limits.

use std::time::Duration;

use leaseway_proto::envoy::ratelimit::rate_limit_response::rate_limit::Unit as WireUnit;

/// The window that a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// One second.
    Second,
    /// Sixty of them.
    Minute,
    Hour,
    /// 24 hours, from any moment on.
    Day,
    Week,
    /// Thirty days, as Envoy counts it.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them, the shortest first.
    pub const ALL: [Unit; 7] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }

    /// The unit of this name, in upper case or lower.
    pub fn named(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// How long it is.
    pub fn length(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
        })
    }

    /// As Envoy's protocol has it.
    pub fn on_the_wire(self) -> WireUnit {
        match self {
            Unit::Second => WireUnit::Second,
            Unit::Minute => WireUnit::Minute,
            Unit::Hour => WireUnit::Hour,
            Unit::Day => WireUnit::Day,
            Unit::Week => WireUnit::Week,
            Unit::Month => WireUnit::Month,
            Unit::Year => WireUnit::Year,
        }
    }
}
