//! Named parameters of an algorithm. Ours are sent as Doorman's name/value pairs, so that the wire carries them to
//! child nodes.

use crate::{
    policy::{
        client_rules::ClientRule,
        pool_parameters,
        settings::{AlgorithmKind, Priority, Reuse, Settings},
    },
    types::{amount::Amount, time::Millis},
};

/// A name with a value, as written in the configuration or received from a parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedParameter {
    pub name: String,
    /// Its value; there is no parameter that needs none.
    pub value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("unknown parameter `{name}`{}; known: {}", suggest(name), known(*.kind))]
    Unknown { name: String, kind: AlgorithmKind },
    #[error("parameter `{name}` is for PRIORITY_POOL only; the algorithm here is {}", kind.name())]
    OfPools { name: &'static str, kind: AlgorithmKind },
    #[error("parameter `{name}` is `{value}`, expected {expected}")]
    BadValue { name: &'static str, value: String, expected: &'static str },
}

/// The length of leases in Doorman's design document. Only the configuration reader uses it; child nodes are told the
/// length itself.
pub const LEASE_PARAMETER: &str = "lease_duration_secs";
/// The same for the time after which clients ask again.
pub const REFRESH_PARAMETER: &str = "refresh_interval";

/// A rule for clients, once for each. Only child nodes are told rules so.
pub const CLIENT_PARAMETER: &str = "client";

struct Parameter {
    name: &'static str,
    expected: &'static str,
    /// `None` when the value cannot be used.
    apply: fn(&mut Settings, &str) -> Option<()>,
    /// How it is written, if it differs from the default.
    write: fn(&Settings) -> Option<String>,
}

const PARAMETERS: [Parameter; 13] = [
    Parameter {
        name: "priority",
        expected: "`ignore` (as Doorman), `strict` (higher bands first) or `weighted` (3 counts as three clients)",
        apply: |settings, value| {
            settings.priority = Priority::ALL.into_iter().find(|priority| priority.name() == value)?;
            Some(())
        },
        write: |settings| (settings.priority != Priority::Ignore).then(|| settings.priority.name().into()),
    },
    Parameter {
        name: "reserve",
        expected: "a part from 0 (nothing) to 1 of the capacity, shared by all bands under `priority: strict`",
        apply: |settings, value| {
            settings.reserve = value.parse().ok().filter(|part| (0.0..=1.0).contains(part))?;
            Some(())
        },
        write: |settings| (settings.reserve > 0.0).then(|| settings.reserve.to_string()),
    },
    Parameter {
        name: "max_priority",
        expected: "a whole number from -32768 to 32767, the highest priority a client may claim",
        apply: |settings, value| {
            settings.max_priority = Some(value.parse().ok()?);
            Some(())
        },
        write: |settings| settings.max_priority.map(|most| most.to_string()),
    },
    Parameter {
        name: "doorman_priority",
        expected: "a whole number from -32768 to 32767, the priority that what Doorman's own servers report counts at",
        apply: |settings, value| {
            settings.doorman_priority = value.parse().ok()?;
            Some(())
        },
        write: |settings| (settings.doorman_priority != 0).then(|| settings.doorman_priority.to_string()),
    },
    Parameter {
        name: "reuse",
        expected: "`confirmed` (clients never believe in more than there is) or `prompt` (as Doorman)",
        apply: |settings, value| {
            settings.reuse = match value {
                "confirmed" => Reuse::Confirmed,
                "prompt" => Reuse::Prompt,
                _ => return None,
            };
            Some(())
        },
        write: |settings| (settings.reuse == Reuse::Prompt).then(|| "prompt".into()),
    },
    Parameter {
        name: "shadow",
        expected: "`true` (all clients get what they want, and what they would have got is shown) or `false`",
        apply: |settings, value| {
            settings.shadow = value.parse().ok()?;
            Some(())
        },
        write: |settings| settings.shadow.then(|| "true".into()),
    },
    Parameter {
        name: "whole_units",
        expected: "`true` (no client gets a part of a unit, what is left over goes round) or `false`",
        apply: |settings, value| {
            settings.whole_units = value.parse().ok()?;
            Some(())
        },
        write: |settings| settings.whole_units.then(|| "true".into()),
    },
    Parameter {
        name: "rotation_period",
        expected: "seconds from 1 to 86400 for which a left over unit stays with one holder",
        apply: |settings, value| {
            let seconds: f64 = value.parse().ok()?;
            (1.0..=86_400.0).contains(&seconds).then(|| {
                settings.rotation_period = Some(Millis((seconds * 1000.0).round() as u64));
            })
        },
        write: |settings| settings.rotation_period.map(|period| (period.0 as f64 / 1000.0).to_string()),
    },
    Parameter {
        name: "headroom",
        expected: "a part from 0 (nothing) to 1 of the unclaimed capacity, lent to child nodes",
        apply: |settings, value| {
            settings.headroom = value.parse().ok().filter(|part| (0.0..=1.0).contains(part))?;
            Some(())
        },
        write: |settings| (settings.headroom > 0.0).then(|| settings.headroom.to_string()),
    },
    Parameter {
        name: "decay_factor",
        expected: "a factor from 0.01 to 1: clients of a child node ask after this part of its own interval",
        apply: |settings, value| {
            settings.decay_factor = value.parse().ok().filter(|factor| (0.01..=1.0).contains(factor))?;
            Some(())
        },
        write: |settings| {
            (settings.decay_factor != Settings::DEFAULT_DECAY_FACTOR).then(|| settings.decay_factor.to_string())
        },
    },
    Parameter {
        name: "min_request_interval",
        expected: "seconds from 0 (off) to 86400",
        apply: |settings, value| {
            let seconds: f64 = value.parse().ok()?;
            (0.0..=86_400.0).contains(&seconds).then(|| {
                settings.min_request_interval = Millis((seconds * 1000.0).round() as u64);
            })
        },
        write: |settings| {
            let interval = settings.min_request_interval;
            (interval != Settings::DEFAULT_MIN_REQUEST_INTERVAL).then(|| (interval.0 as f64 / 1000.0).to_string())
        },
    },
    Parameter {
        name: "capacity_floor",
        expected: "the least that reports of load may make of the capacity, from 0 to 1e15",
        apply: |settings, value| {
            settings.load_bounds.0 = Some(Amount::new(value.parse().ok()?).ok()?);
            Some(())
        },
        write: |_| None, // children follow what their parent lends
    },
    Parameter {
        name: "capacity_ceiling",
        expected: "the most that reports of load may make of the capacity, from 0 to 1e15",
        apply: |settings, value| {
            settings.load_bounds.1 = Some(Amount::new(value.parse().ok()?).ok()?);
            Some(())
        },
        write: |_| None,
    },
];

impl Settings {
    /// Applies one parameter.
    pub fn apply(&mut self, parameter: &NamedParameter) -> Result<(), ParameterError> {
        let value = parameter.value.as_deref().unwrap_or_default();
        let bad = |name, expected| ParameterError::BadValue { name, value: value.to_owned(), expected };
        if let Some(known) = PARAMETERS.iter().find(|known| known.name == parameter.name) {
            return (known.apply)(self, value).ok_or_else(|| bad(known.name, known.expected));
        }
        if parameter.name == CLIENT_PARAMETER {
            let pushed = ClientRule::read(value).is_some_and(|rule| self.clients.push(rule));
            return if pushed { Ok(()) } else { Err(bad(CLIENT_PARAMETER, ClientRule::EXPECTED)) };
        }
        if let (LEASE_PARAMETER | REFRESH_PARAMETER, Some(_)) = (&*parameter.name, &parameter.value) {
            return Ok(());
        }
        let known = pool_parameters::PARAMETERS.iter().find(|known| known.name == parameter.name);
        let known = known.ok_or_else(|| ParameterError::Unknown { name: parameter.name.clone(), kind: self.kind })?;
        if self.kind != AlgorithmKind::PriorityPool {
            return Err(ParameterError::OfPools { name: known.name, kind: self.kind });
        }
        (known.apply)(&mut self.pool, value).ok_or_else(|| bad(known.name, known.expected))
    }
}

impl Settings {
    /// All parameters that differ from their defaults: what a child node has to be told.
    pub fn parameters(&self) -> Vec<NamedParameter> {
        let written = |known: &Parameter| Some((known.name.to_owned(), (known.write)(self)?));
        let named = |(name, value)| NamedParameter { name, value: Some(value) };
        let general = PARAMETERS.iter().filter_map(written);
        let of_pools = pool_parameters::written(&self.pool).map(|(name, value)| (name.to_owned(), value));
        let of_clients = self.clients.iter().map(|rule| (CLIENT_PARAMETER.to_owned(), rule.written()));
        general.chain(of_pools).chain(of_clients).map(named).collect()
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    let of_pools = pool_parameters::PARAMETERS.iter().map(|parameter| parameter.name);
    PARAMETERS.iter().map(|parameter| parameter.name).chain(of_pools)
}

fn known(kind: AlgorithmKind) -> String {
    let general = PARAMETERS.len();
    let all = if kind == AlgorithmKind::PriorityPool { usize::MAX } else { general };
    names().take(all).collect::<Vec<_>>().join(", ")
}

fn suggest(name: &str) -> String {
    nearest(name, names()).map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
}

/// The known word that `word` was probably meant to be, if any is near.
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
    use crate::{policy::settings::AlgorithmKind, types::amount::Amount};

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
    fn child_nodes_are_told_what_differs_from_the_defaults() {
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
    fn a_reserve_is_for_strict_bands() {
        let check = |priority| {
            let settings =
                Settings { priority, reserve: 0.25, ..Settings::new(AlgorithmKind::FairShare, Amount::ZERO) };
            settings.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(Priority::Strict), Ok(()));
        for priority in [Priority::Ignore, Priority::Weighted] {
            let error = check(priority).expect_err("no band goes before another");
            let name = priority.name();
            assert!(
                error.contains("`reserve` is 0.25") && error.contains(name) && error.contains("`strict`"),
                "{error}"
            );
        }
        let mut plain = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        plain.priority = Priority::Weighted;
        assert_eq!(plain.check(), Ok(()));
    }

    #[test]
    fn errors_name_the_parameter_and_what_is_wrong() {
        assert_eq!(
            apply("priorty", "strict").expect_err("a typing error"),
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
