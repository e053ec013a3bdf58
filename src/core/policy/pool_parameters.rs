//! The named parameters of PRIORITY_POOL.

use crate::{
    policy::settings::{CostWeights, DropMode, FreeKey, PoolSettings, RaiseMode},
    types::{amount::Amount, time::Millis},
};

/// A parameter: its name, what is expected, how it takes effect, and how it is written.
pub(crate) struct PoolParameter {
    pub(crate) name: &'static str,
    pub(crate) expected: &'static str,
    /// `None` when the value cannot be used.
    pub(crate) apply: fn(&mut PoolSettings, &str) -> Option<()>,
    write: fn(&PoolSettings) -> String,
}

impl PoolSettings {
    /// All parameters as they are written; empty where they follow something else.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> + use<'_> {
        PARAMETERS.iter().map(|parameter| (parameter.name, (parameter.write)(self)))
    }
}

/// All that are not what they are by default.
pub(crate) fn written(settings: &PoolSettings) -> impl Iterator<Item = (&'static str, String)> {
    let usual: Vec<_> = PoolSettings::default().parameters().collect();
    settings.parameters().zip(usual).filter(|(is, usual)| is != usual).map(|(is, _)| is)
}

const AMOUNT: &str = "an amount of more than 0, at most 1e15";
const SECONDS: &str = "seconds, more than 0 and at most 31536000";
const FACTOR: &str = "a number from 0 to 1000000";

fn number(value: &str, range: impl std::ops::RangeBounds<f64>) -> Option<f64> {
    value.parse().ok().filter(|number| range.contains(number))
}

fn positive(value: &str) -> Option<Amount> {
    Amount::new(value.parse().ok()?).ok().filter(|amount| *amount > Amount::ZERO)
}

fn seconds(value: &str) -> Option<Millis> {
    let seconds = number(value, 0.0..=31_536_000.0)?;
    Some(Millis((seconds * 1000.0).round() as u64)).filter(|span| span.0 > 0)
}

fn short(value: &str) -> Option<Millis> {
    number(value, 0.0..=3600.0).map(|seconds| Millis((seconds * 1000.0).round() as u64))
}

fn in_seconds(span: Millis) -> String {
    (span.0 as f64 / 1000.0).to_string()
}

fn or_none(span: Option<Millis>) -> String {
    span.map_or_else(String::new, in_seconds)
}

/// A parameter that stands for a field.
macro_rules! parameter {
    ($name:literal, $expected:expr, $field:ident, $read:expr, $write:expr) => {
        PoolParameter {
            name: $name,
            expected: $expected,
            apply: |settings, value| {
                settings.$field = $read(value)?;
                Some(())
            },
            write: |settings| $write(settings.$field),
        }
    };
}

/// A parameter that stands for one of several words.
macro_rules! words {
    ($name:literal, $expected:expr, $field:ident, $($word:literal => $value:expr),+) => {
        parameter!(
            $name,
            $expected,
            $field,
            |value: &str| match value {
                $($word => Some($value),)+
                _ => None,
            },
            |value| match value {
                $(value if value == $value => $word.to_owned(),)+
                _ => String::new(),
            }
        )
    };
}

pub(crate) const PARAMETERS: [PoolParameter; 20] = [
    parameter!("min_capacity", AMOUNT, min_capacity, positive, |value: Amount| value.to_string()),
    parameter!("max_capacity", AMOUNT, max_capacity, |value| positive(value).map(Some), |value: Option<Amount>| value
        .map_or_else(String::new, |value| value.to_string())),
    parameter!("raise_tc_s", SECONDS, raise_tc, seconds, in_seconds),
    parameter!(
        "raise_threshold",
        "a part of the total between 0 and 1",
        raise_threshold,
        |value| number(value, 0.0..1.0).filter(|part| *part > 0.0),
        |value: f64| value.to_string()
    ),
    words!("raise_mode", "`idle` (while little is used) or `demand` (while most is connected)", raise_mode,
        "idle" => RaiseMode::Idle, "demand" => RaiseMode::Demand),
    words!("drop_mode", "`slots` (the places of the victims close), `exp` (by a part) or `rate` (steadily)", drop_mode,
        "slots" => DropMode::Slots, "exp" => DropMode::Exp, "rate" => DropMode::Rate),
    parameter!(
        "drop_factor",
        "a number from 0.001 to 10",
        drop_factor,
        |value| number(value, 0.001..=10.0),
        |value: f64| value.to_string()
    ),
    parameter!("reduction_window_s", SECONDS, reduction_window, |value| seconds(value).map(Some), or_none),
    parameter!("negative_tc_s", SECONDS, negative_tc, seconds, in_seconds),
    parameter!(
        "connected_bias_s",
        "seconds from 0 to 31536000",
        connected_bias,
        |value| number(value, 0.0..=31_536_000.0),
        |value: f64| value.to_string()
    ),
    parameter!("time_factor", FACTOR, time_factor, |value| number(value, 0.0..=1e6), |value: f64| value.to_string()),
    parameter!("request_factor", FACTOR, request_factor, |value| number(value, 0.0..=1e6), |value: f64| value
        .to_string()),
    words!("cost_weights", "`static` (by the factors alone) or `auto` (what matters more now counts ten times)", cost_weights,
        "static" => CostWeights::Static, "auto" => CostWeights::Auto),
    parameter!("calm_s", SECONDS, calm, seconds, in_seconds),
    parameter!(
        "calm_ratio",
        "a part of the capacity from 0 to 1",
        calm_ratio,
        |value| number(value, 0.0..=1.0),
        |value: f64| value.to_string()
    ),
    words!("free_key", "`peer_ip`, `host` (the client's id up to the first `:`) or `client_id`", free_key,
        "peer_ip" => FreeKey::PeerIp, "host" => FreeKey::Host, "client_id" => FreeKey::ClientId),
    parameter!(
        "max_remembered",
        "a whole number up to 10000000",
        max_remembered,
        |value: &str| value.parse().ok().filter(|most| *most <= 10_000_000),
        |value: usize| value.to_string()
    ),
    parameter!("burst_seconds", "seconds from 0 to 3600", burst, short, in_seconds),
    parameter!(
        "usage_update_units",
        "a cost from 0 (off) to 1e15",
        usage_update_units,
        |value| number(value, 0.0..=1e15),
        |value: f64| value.to_string()
    ),
    parameter!("eval_interval_s", SECONDS, eval_interval, |value| seconds(value).map(Some), or_none),
];
