//! The laws of the total, as pure functions: it falls immediately in an overload, and otherwise rises slowly.
//!
//! The slow rise makes overloads rare. With each overload the total falls by the capacity of the victims, and regains
//! it in a time proportional to `raise_tc`, so the mean time between overloads is about that long, regardless of
//! demand.

use crate::policy::settings::{DropMode, PoolSettings, RaiseMode};

/// The input of the laws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gauge {
    /// The load that can be served.
    pub(crate) base: f64,
    /// The minimum of the total.
    pub(crate) floor: f64,
    /// The maximum of the total.
    pub(crate) ceiling: f64,
    /// Usage of connected clients.
    pub(crate) used: f64,
    /// Possible additional usage by clients with expired reports. It keeps the total from rising, but does not lower
    /// it.
    pub(crate) possible_use: f64,
    /// Capacity held by connected clients.
    pub(crate) connected: f64,
    /// The wants of clients that wait because the total is too small.
    pub(crate) waiting: f64,
    pub(crate) minimum: f64,
}

/// With [`DropMode::Rate`]: an overload of twice the base makes the total fall by a factor of e in this time.
const FALL_SECONDS: f64 = 10.0;

/// The total after `seconds` without other events.
pub(crate) fn after(total: f64, seconds: f64, gauge: &Gauge, settings: &PoolSettings) -> f64 {
    let moved = if gauge.used > gauge.base {
        match settings.drop_mode {
            DropMode::Rate => total * ((1.0 - gauge.used / gauge.base) * seconds / FALL_SECONDS).exp(),
            DropMode::Slots | DropMode::Exp => total,
        }
    } else if gauge.used + gauge.possible_use > gauge.base {
        total
    } else {
        raised(total, seconds, gauge, settings)
    };
    // With a base of zero the quotient is infinite.
    if moved.is_finite() { moved.min(gauge.ceiling).max(gauge.floor) } else { gauge.floor }
}

fn raised(total: f64, seconds: f64, gauge: &Gauge, settings: &PoolSettings) -> f64 {
    let time_constant = settings.raise_tc.0 as f64 / 1000.0;
    match settings.raise_mode {
        RaiseMode::Idle => {
            // The wants of waiting clients count as connected. Otherwise the total would approach, ever more slowly,
            // the size at which connected capacity equals the threshold, and a client that needs more would wait
            // forever.
            let asked = ((gauge.connected + gauge.waiting) / total).min(1.0);
            let (threshold, usable) = (settings.raise_threshold, gauge.base * (gauge.connected / total).min(1.0));
            let used = gauge.used + gauge.possible_use;
            // Zero usage counts as low, even with a base of zero.
            let unused = if used > 0.0 { 1.0 - used / usable } else { 1.0 };
            let rises = asked > threshold && unused > 0.0;
            if !rises {
                return total;
            }
            let speed = unused * (asked - threshold) / (1.0 - threshold);
            total * (speed * seconds / time_constant).exp()
        }
        RaiseMode::Demand => {
            let enough = gauge.connected + gauge.waiting.max(2.0 * gauge.minimum).max(gauge.connected * 0.125);
            if total < enough { (total * (seconds / time_constant).exp()).min(enough) } else { total }
        }
    }
}

/// The total after an overload whose victims hold `cut`.
pub(crate) fn dropped(total: f64, cut: f64, gauge: &Gauge, settings: &PoolSettings) -> f64 {
    let fallen = match settings.drop_mode {
        // Unconnected headroom closes first: it did not cause this overload, but would allow the next one.
        DropMode::Slots => total.min(gauge.connected) - cut,
        DropMode::Exp => total * (-settings.drop_factor * (cut / gauge.connected.max(cut)).min(1.0)).exp(),
        DropMode::Rate => total,
    };
    fallen.max(gauge.floor)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::types::Millis;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../../tests/data/les.json")).expect("valid JSON")
    }

    fn number(value: &Value) -> f64 {
        value.as_f64().expect("a number")
    }

    fn cases(law: &str) -> Vec<Value> {
        let cases = vectors()[law]["cases"].as_array().expect("cases").clone();
        assert_eq!(cases.len(), 5);
        cases
    }

    fn gauge(base: f64, used: f64, connected: f64) -> Gauge {
        Gauge {
            base,
            floor: base,
            ceiling: f64::INFINITY,
            used,
            possible_use: 0.0,
            connected,
            waiting: 0.0,
            minimum: 0.0,
        }
    }

    fn near(id: &Value, found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected * 1e-6, "{id}: {found}, expected {expected}");
    }

    #[test]
    fn law_a_of_early_2019() {
        let settings = PoolSettings { drop_mode: DropMode::Rate, ..PoolSettings::default() };
        for case in cases("law_A_2019_02") {
            let (base, dt) = (number(&case["base"]), number(&case["dt"]));
            let mut total = base * number(&case["L0"]).exp();
            let steps = case["steps"].as_array().expect("steps").iter();
            for (step, expected) in steps.zip(case["total_after"].as_array().expect("totals")) {
                total = after(total, dt, &gauge(base, number(&step[0]), number(&step[1])), &settings);
                near(&case["id"], total, number(expected));
            }
        }
    }

    #[test]
    fn law_b_of_2019_to_2023() {
        let settings = PoolSettings {
            drop_mode: DropMode::Exp,
            raise_mode: RaiseMode::Demand,
            raise_tc: Millis::from_secs(3 * 3600),
            ..PoolSettings::default()
        };
        for case in cases("law_B_2019_05_to_2023") {
            let (mut total, mut connected) = (number(&case["T0"]), 0.0);
            let minimum = number(&case["min"]);
            assert_eq!(number(&case["raise_threshold"]), 2.0 * minimum);
            let events = case["events"].as_array().expect("events").iter();
            for (event, expected) in events.zip(case["total_after"].as_array().expect("totals")) {
                let amount = number(&event[1]);
                let ceiling = number(&case["max"]);
                let gauge = |connected| Gauge { floor: minimum, ceiling, minimum, ..gauge(minimum, 0.0, connected) };
                match event[0].as_str().expect("a name") {
                    "connected" => connected = amount,
                    "freeze" => total = dropped(total, amount, &gauge(connected), &settings),
                    _ => total = after(total, amount, &gauge(connected), &settings),
                }
                near(&case["id"], total, number(expected));
            }
        }
    }

    #[test]
    fn waiting_wants_count_as_connected_for_the_threshold_and_not_as_used() {
        let settings = PoolSettings { raise_threshold: 0.75, ..PoolSettings::default() };
        let after = |waiting, used| after(12.0, 60.0, &Gauge { waiting, ..gauge(10.0, used, 9.0) }, &settings);
        assert_eq!(after(0.0, 0.0), 12.0, "exactly at the threshold");
        assert!((after(3.0, 0.0) - 12.0 * (60.0f64 / 3600.0).exp()).abs() < 1e-9);
        assert!((after(3.0, 3.75) - 12.0 * (30.0f64 / 3600.0).exp()).abs() < 1e-9, "half of 10 · 9 / 12 is used");
        assert_eq!(after(3.0, 7.5), 12.0);
    }

    #[test]
    fn possible_use_stops_a_rise_and_is_no_overload() {
        for (drop_mode, raise_mode) in [(DropMode::Rate, RaiseMode::Idle), (DropMode::Exp, RaiseMode::Demand)] {
            let settings = PoolSettings { drop_mode, raise_mode, ..PoolSettings::default() };
            let after = |possible_use| after(12.0, 60.0, &Gauge { possible_use, ..gauge(10.0, 5.0, 12.0) }, &settings);
            assert!(after(0.0) > 12.0 && after(2.0) > 12.0 && after(2.0) <= after(0.0), "{drop_mode:?}");
            assert_eq!(after(6.0), 12.0, "{drop_mode:?}");
        }
    }

    #[test]
    fn the_place_of_a_victim_closes_with_it() {
        let settings = PoolSettings::default();
        assert_eq!(dropped(15.0, 2.0, &gauge(10.0, 12.0, 15.0), &settings), 13.0);
        assert_eq!(dropped(15.0, 9.0, &gauge(10.0, 19.0, 15.0), &settings), 10.0, "never below the base");
        assert_eq!(dropped(18.0, 1.0, &gauge(10.0, 11.0, 12.0), &settings), 11.0, "empty places close, too");
    }

    #[test]
    fn with_a_base_of_zero_the_total_stays_in_range() {
        let settings = PoolSettings { drop_mode: DropMode::Rate, ..PoolSettings::default() };
        assert_eq!(after(0.0, 1.0, &gauge(0.0, 0.0, 0.0), &settings), 0.0);
        assert_eq!(after(5.0, 1.0, &gauge(0.0, 5.0, 5.0), &settings), 0.0);
    }
}
