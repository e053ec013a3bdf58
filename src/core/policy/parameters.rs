//! Named parameters of an algorithm. Leaseway's extensions travel as Doorman's name/value pairs, so child nodes receive
//! them.

use std::sync::Arc;

use crate::{
    policy::{
        client_rules::ClientRule,
        groups::{GroupPattern, GroupRule, GroupSettings},
        period::PeriodLength,
        settings::{
            AlgorithmKind, BudgetSettings, CostWeights, DropMode, FreeKey, PoolSettings, Priority, RaiseMode, Reuse,
            Settings,
        },
    },
    types::{Amount, Millis},
};

/// A parameter as written in the configuration or received from a parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedParameter {
    pub name: String,
    /// Every known parameter needs a value.
    pub value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("unknown parameter `{name}`{}; known: {}", suggest(name), known(*.kind))]
    Unknown { name: String, kind: AlgorithmKind },
    #[error("parameter `{name}` is for PRIORITY_POOL only; the algorithm here is {}", kind.name())]
    OfPools { name: &'static str, kind: AlgorithmKind },
    #[error("parameter `{name}` is for BUDGET only; the algorithm here is {}", kind.name())]
    OfBudgets { name: &'static str, kind: AlgorithmKind },
    #[error("parameter `{name}` is `{value}`, expected {expected}")]
    BadValue { name: &'static str, value: String, expected: &'static str },
}

/// The lease length, as named in Doorman's design document. Only the configuration reader uses it; child nodes get the
/// length in their leases.
pub const LEASE_PARAMETER: &str = "lease_duration_secs";
/// The refresh interval, from the same document.
pub const REFRESH_PARAMETER: &str = "refresh_interval";

/// A client rule; one parameter for each. Only child nodes receive rules this way.
pub const CLIENT_PARAMETER: &str = "client";
/// The pattern of groups, and a rule for groups; one parameter for each rule, after the pattern. Only child nodes
/// receive them this way.
pub const GROUPS_PARAMETER: &str = "groups";
pub const GROUP_PARAMETER: &str = "group";

/// A parameter for a field of `S`, which is [`Settings`] or [`PoolSettings`].
struct Parameter<S> {
    name: &'static str,
    /// The valid values, for error messages.
    expected: &'static str,
    /// Returns `None` if the value is invalid.
    read: fn(&mut S, &str) -> Option<()>,
    /// The value as text; empty if absent.
    write: fn(&S) -> String,
}

macro_rules! parameter {
    ($name:literal, $expected:expr, $($field:tt).+, $read:expr, $write:expr) => {
        Parameter {
            name: $name,
            expected: $expected,
            read: |settings, value| {
                settings.$($field).+ = $read(value)?;
                Some(())
            },
            write: |settings| $write(&settings.$($field).+),
        }
    };
}

/// A parameter with a fixed set of values.
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
            |value: &_| match value {
                $(value if *value == $value => $word.to_owned(),)+
                _ => String::new(),
            }
        )
    };
}

const AMOUNT: &str = "an amount of more than 0, at most 1e15";
const SECONDS: &str = "seconds, more than 0 and at most 31536000";
const FACTOR: &str = "a number from 0 to 1000000";

fn parsed<T: std::str::FromStr>(value: &str) -> Option<T> {
    value.parse().ok()
}

fn number(value: &str, range: impl std::ops::RangeBounds<f64>) -> Option<f64> {
    parsed(value).filter(|number| range.contains(number))
}

fn amount(value: &str) -> Option<Amount> {
    Amount::new(parsed(value)?).ok()
}

fn positive(value: &str) -> Option<Amount> {
    amount(value).filter(|amount| *amount > Amount::ZERO)
}

fn span(value: &str, range: impl std::ops::RangeBounds<f64>) -> Option<Millis> {
    number(value, range).map(|seconds| Millis((seconds * 1000.0).round() as u64))
}

fn seconds(value: &str) -> Option<Millis> {
    span(value, 0.0..=31_536_000.0).filter(|span| span.0 > 0)
}

fn in_seconds(span: &Millis) -> String {
    (span.0 as f64 / 1000.0).to_string()
}

fn text(value: &impl ToString) -> String {
    value.to_string()
}

fn if_any<T>(value: &Option<T>, write: fn(&T) -> String) -> String {
    value.as_ref().map_or_else(String::new, write)
}

const PARAMETERS: [Parameter<Settings>; 13] = [
    words!("priority", "`ignore` (as Doorman), `strict` (higher priorities first) or `weighted` (a client of \
                        priority 3 counts as three)",
        priority, "ignore" => Priority::Ignore, "strict" => Priority::Strict, "weighted" => Priority::Weighted),
    parameter!(
        "reserve",
        "a fraction from 0 (nothing) to 1 of the capacity, shared by all priorities under `priority: strict`",
        reserve,
        |value| number(value, 0.0..=1.0),
        text
    ),
    parameter!(
        "max_priority",
        "a whole number from -32768 to 32767, the highest priority a client may claim",
        max_priority,
        |value| parsed(value).map(Some),
        |most| if_any(most, text)
    ),
    parameter!(
        "doorman_priority",
        "a whole number from -32768 to 32767, the priority of clients that ask through a Doorman server",
        doorman_priority,
        parsed,
        text
    ),
    words!("reuse", "`confirmed` (leases in use never exceed the capacity) or `prompt` (as Doorman)",
        reuse, "confirmed" => Reuse::Confirmed, "prompt" => Reuse::Prompt),
    parameter!(
        "shadow",
        "`true` (clients get what they want; reports show what they would have got) or `false`",
        shadow,
        parsed,
        text
    ),
    parameter!(
        "whole_units",
        "`true` (grants are whole units, and left-over units rotate) or `false`",
        whole_units,
        parsed,
        text
    ),
    parameter!(
        "rotation_period",
        "seconds from 1 to 86400 for which a left-over unit stays with one holder",
        rotation_period,
        |value| span(value, 1.0..=86_400.0).map(Some),
        |period| if_any(period, in_seconds)
    ),
    parameter!(
        "headroom",
        "a fraction from 0 (nothing) to 1 of the unclaimed capacity, lent to child nodes in advance",
        headroom,
        |value| number(value, 0.0..=1.0),
        text
    ),
    parameter!(
        "decay_factor",
        "a factor from 0.01 to 1: the refresh interval of a child node's clients, relative to the node's own",
        decay_factor,
        |value| number(value, 0.01..=1.0),
        text
    ),
    parameter!(
        "min_request_interval",
        "seconds from 0 (off) to 86400",
        min_request_interval,
        |value| span(value, 0.0..=86_400.0),
        in_seconds
    ),
    // Bounds are not sent to child nodes, whose capacity comes from their parent.
    parameter!(
        "capacity_floor",
        "the minimum capacity that load reports may set, from 0 to 1e15",
        load_bounds.0,
        |value| amount(value).map(Some),
        |_: &_| String::new()
    ),
    parameter!(
        "capacity_ceiling",
        "the maximum capacity that load reports may set, from 0 to 1e15",
        load_bounds.1,
        |value| amount(value).map(Some),
        |_: &_| String::new()
    ),
];

/// The parameters of PRIORITY_POOL.
const POOL_PARAMETERS: [Parameter<PoolSettings>; 20] = [
    parameter!("min_capacity", AMOUNT, min_capacity, positive, text),
    parameter!("max_capacity", AMOUNT, max_capacity, |value| positive(value).map(Some), |most| if_any(most, text)),
    parameter!("raise_tc_s", SECONDS, raise_tc, seconds, in_seconds),
    parameter!(
        "raise_threshold",
        "a fraction of the total between 0 and 1",
        raise_threshold,
        |value| number(value, 0.0..1.0).filter(|part| *part > 0.0),
        text
    ),
    words!("raise_mode", "`idle` (rises while usage is low) or `demand` (rises to what clients request)", raise_mode,
        "idle" => RaiseMode::Idle, "demand" => RaiseMode::Demand),
    words!("drop_mode", "`slots` (falls by the capacity of disconnected clients), `exp` (by a fraction) or `rate` \
                         (at a constant rate)",
        drop_mode, "slots" => DropMode::Slots, "exp" => DropMode::Exp, "rate" => DropMode::Rate),
    parameter!("drop_factor", "a number from 0.001 to 10", drop_factor, |value| number(value, 0.001..=10.0), text),
    parameter!("reduction_window_s", SECONDS, reduction_window, |value| seconds(value).map(Some), |window| if_any(
        window, in_seconds
    )),
    parameter!("negative_tc_s", SECONDS, negative_tc, seconds, in_seconds),
    parameter!(
        "connected_bias_s",
        "seconds from 0 to 31536000",
        connected_bias,
        |value| number(value, 0.0..=31_536_000.0),
        text
    ),
    parameter!("time_factor", FACTOR, time_factor, |value| number(value, 0.0..=1e6), text),
    parameter!("request_factor", FACTOR, request_factor, |value| number(value, 0.0..=1e6), text),
    words!("cost_weights", "`static` (only the factors count) or `auto` (the more pressing cost counts ten times)",
        cost_weights, "static" => CostWeights::Static, "auto" => CostWeights::Auto),
    parameter!("calm_s", SECONDS, calm, seconds, in_seconds),
    parameter!(
        "calm_ratio",
        "a fraction of the capacity from 0 to 1",
        calm_ratio,
        |value| number(value, 0.0..=1.0),
        text
    ),
    words!("free_key", "`peer_ip`, `host` (the client's id up to the first `:`) or `client_id`", free_key,
        "peer_ip" => FreeKey::PeerIp, "host" => FreeKey::Host, "client_id" => FreeKey::ClientId),
    parameter!(
        "max_remembered",
        "a whole number up to 10000000",
        max_remembered,
        |value| parsed(value).filter(|most| *most <= 10_000_000),
        text
    ),
    parameter!("burst_seconds", "seconds from 0 to 3600", burst, |value| span(value, 0.0..=3600.0), in_seconds),
    parameter!(
        "usage_update_units",
        "a cost from 0 (off) to 1e15",
        usage_update_units,
        |value| number(value, 0.0..=1e15),
        text
    ),
    parameter!("eval_interval_s", SECONDS, eval_interval, |value| seconds(value).map(Some), |interval| if_any(
        interval, in_seconds
    )),
];

/// The parameters of BUDGET.
const BUDGET_PARAMETERS: [Parameter<BudgetSettings>; 6] = [
    Parameter {
        name: "period",
        expected: PeriodLength::EXPECTED,
        read: BudgetSettings::set_length,
        write: |budget| budget.periods.length.to_string(),
    },
    Parameter {
        name: "timezone",
        expected: "the name of a time zone like `Europe/Berlin` or `UTC`",
        read: BudgetSettings::set_timezone,
        write: |budget| budget.periods.timezone.to_string(),
    },
    parameter!(
        "slice_share",
        "a fraction above 0 and at most 1: how much of what is left one client may get in advance",
        slice_share,
        |value| number(value, 0.0..=1.0).filter(|share| *share > 0.0),
        text
    ),
    parameter!(
        "pace",
        "`true` (spread evenly over the period and divided fairly) or `false` (first come, first served)",
        pace,
        parsed,
        text
    ),
    parameter!(
        "carry_over",
        "the maximum amount carried over to the next period, from 0 (nothing) to 1e15",
        carry_over,
        amount,
        text
    ),
    Parameter {
        name: "thresholds",
        expected: "up to 10 ascending percentages from 1 to 100 like `50, 80, 100`, or `none`",
        read: BudgetSettings::set_thresholds,
        write: |budget| budget.thresholds.to_string(),
    },
];

impl Settings {
    pub fn apply(&mut self, parameter: &NamedParameter) -> Result<(), ParameterError> {
        let value = parameter.value.as_deref().unwrap_or_default();
        let bad = |name, expected| ParameterError::BadValue { name, value: value.to_owned(), expected };
        if let Some(known) = PARAMETERS.iter().find(|known| known.name == parameter.name) {
            return (known.read)(self, value).ok_or_else(|| bad(known.name, known.expected));
        }
        if parameter.name == CLIENT_PARAMETER {
            let pushed = ClientRule::read(value).is_some_and(|rule| self.clients.push(rule));
            return if pushed { Ok(()) } else { Err(bad(CLIENT_PARAMETER, ClientRule::EXPECTED)) };
        }
        if parameter.name == GROUPS_PARAMETER {
            let pattern = GroupPattern::new(value).map_err(|_| bad(GROUPS_PARAMETER, GroupPattern::EXPECTED))?;
            self.groups = Some(GroupSettings::new(pattern).into());
            return Ok(());
        }
        if parameter.name == GROUP_PARAMETER {
            let groups = self.groups.as_mut().map(Arc::make_mut);
            let pushed = groups.is_some_and(|groups| GroupRule::read(value).is_some_and(|rule| groups.push(rule)));
            return if pushed { Ok(()) } else { Err(bad(GROUP_PARAMETER, GroupRule::EXPECTED)) };
        }
        if let (LEASE_PARAMETER | REFRESH_PARAMETER, Some(_)) = (&*parameter.name, &parameter.value) {
            return Ok(());
        }
        if let Some(known) = BUDGET_PARAMETERS.iter().find(|known| known.name == parameter.name) {
            if !self.is_budget() {
                return Err(ParameterError::OfBudgets { name: known.name, kind: self.kind });
            }
            return (known.read)(&mut self.budget, value).ok_or_else(|| bad(known.name, known.expected));
        }
        let known = POOL_PARAMETERS.iter().find(|known| known.name == parameter.name);
        let known = known.ok_or_else(|| ParameterError::Unknown { name: parameter.name.clone(), kind: self.kind })?;
        if self.kind != AlgorithmKind::PriorityPool {
            return Err(ParameterError::OfPools { name: known.name, kind: self.kind });
        }
        (known.read)(&mut self.pool, value).ok_or_else(|| bad(known.name, known.expected))
    }

    /// The parameters that differ from their defaults, to be sent to child nodes.
    pub fn parameters(&self) -> Vec<NamedParameter> {
        let general = differing(&PARAMETERS, self, &Settings::new(self.kind, self.capacity));
        let of_pools = differing(&POOL_PARAMETERS, &self.pool, &PoolSettings::default());
        let of_budgets = differing(&BUDGET_PARAMETERS, &self.budget, &BudgetSettings::default());
        let of_clients = self.clients.iter().map(|rule| (CLIENT_PARAMETER, rule.written()));
        let pattern = self.groups.iter().map(|groups| (GROUPS_PARAMETER, groups.from.to_string()));
        let of_groups = self.groups.iter().flat_map(|groups| groups.rules());
        let of_groups = pattern.chain(of_groups.map(|rule| (GROUP_PARAMETER, rule.written())));
        let all = general.into_iter().chain(of_pools).chain(of_budgets).chain(of_clients).chain(of_groups);
        all.map(|(name, value)| NamedParameter { name: name.to_owned(), value: Some(value) }).collect()
    }
}

impl PoolSettings {
    /// All parameters as text; empty if the value is derived from another setting.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> + use<'_> {
        POOL_PARAMETERS.iter().map(|parameter| (parameter.name, (parameter.write)(self)))
    }
}

/// The parameters that differ from those of `usual`.
fn differing<S>(parameters: &[Parameter<S>], settings: &S, usual: &S) -> Vec<(&'static str, String)> {
    let changed = |known: &Parameter<S>| {
        let text = (known.write)(settings);
        (text != (known.write)(usual)).then_some((known.name, text))
    };
    parameters.iter().filter_map(changed).collect()
}

/// All names, with those of pools and budgets last.
fn names() -> impl Iterator<Item = &'static str> {
    general().chain(of_pools()).chain(of_budgets())
}

fn general() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|parameter| parameter.name)
}

fn of_pools() -> impl Iterator<Item = &'static str> {
    POOL_PARAMETERS.iter().map(|parameter| parameter.name)
}

fn of_budgets() -> impl Iterator<Item = &'static str> {
    BUDGET_PARAMETERS.iter().map(|parameter| parameter.name)
}

fn known(kind: AlgorithmKind) -> String {
    let special: Vec<_> = match kind {
        AlgorithmKind::PriorityPool => of_pools().collect(),
        AlgorithmKind::Budget => of_budgets().collect(),
        _ => Vec::new(),
    };
    general().chain(special).collect::<Vec<_>>().join(", ")
}

fn suggest(name: &str) -> String {
    nearest(name, names()).map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
}

/// The known word most similar to `word`, if one is similar enough, for "did you mean" hints.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::settings::AlgorithmKind, types::Amount};

    fn apply(name: &str, value: &str) -> Result<Settings, String> {
        let mut settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        let parameter = NamedParameter { name: name.into(), value: Some(value.into()) };
        settings.apply(&parameter).map(|()| settings).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_take_effect() {
        assert_eq!(apply("priority", "strict").expect("valid").priority, Priority::Strict);
        assert_eq!(apply("priority", "weighted").expect("valid").priority, Priority::Weighted);
        assert_eq!(apply("reserve", "0.25").expect("valid").reserve, 0.25);
        assert_eq!(apply("max_priority", "-3").expect("valid").max_priority, Some(-3));
        assert_eq!(apply("doorman_priority", "2").expect("valid").doorman_priority, 2);
        assert_eq!(apply("reuse", "prompt").expect("valid").reuse, Reuse::Prompt);
        assert_eq!(apply("min_request_interval", "0.5").expect("valid").min_request_interval, Millis(500));
    }

    #[test]
    fn only_changed_parameters_are_written() {
        for (name, value) in
            [("priority", "strict"), ("priority", "weighted"), ("reserve", "0.25"), ("doorman_priority", "-2")]
        {
            let told = apply(name, value).expect("valid").parameters();
            assert_eq!(told, [NamedParameter { name: name.into(), value: Some(value.into()) }]);
        }
        assert_eq!(apply("priority", "ignore").expect("valid").parameters(), []);
        assert_eq!(apply("reserve", "0").expect("valid").parameters(), []);
    }

    #[test]
    fn a_reserve_needs_strict_bands() {
        let check = |priority| {
            let settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
            Settings { priority, reserve: 0.25, ..settings }.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(Priority::Strict), Ok(()));
        let error = check(Priority::Weighted).expect_err("weighted bands are not strict");
        assert!(["`reserve` is 0.25", "weighted", "`strict`"].iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn errors_name_the_parameter_and_what_is_wrong() {
        assert_eq!(
            apply("priorty", "strict").expect_err("a typo"),
            "unknown parameter `priorty` (did you mean `priority`?); known: priority, reserve, max_priority, doorman_priority, reuse, shadow, whole_units, rotation_period, headroom, decay_factor, min_request_interval, capacity_floor, capacity_ceiling"
        );
        for (name, value) in [
            ("priority", "high"),
            ("reserve", "1.5"),
            ("reserve", "NaN"),
            ("min_request_interval", "NaN"),
            ("max_priority", "1e3"),
        ] {
            let error = apply(name, value).expect_err("a bad value");
            assert!(error.contains(name) && error.contains(value) && error.contains("expected"), "{error}");
        }
    }
}
