//! `algorithm:` of a template.

use std::{collections::HashSet, ops::RangeInclusive};

use leaseway_core::{
    policy::{
        parameters::{
            CLIENT_PARAMETER, GROUP_PARAMETER, GROUPS_PARAMETER, LEASE_PARAMETER, NamedParameter, ParameterError,
            REFRESH_PARAMETER,
        },
        settings::{AlgorithmKind, Settings},
    },
    types::{Amount, Millis},
};

use super::{
    diagnostic::{Findings, Position},
    yaml::{Field, Fields, unknown, whole},
};

const KEYS: [&str; 5] = ["kind", "lease_length", "refresh_interval", "learning_mode_duration", "parameters"];

/// Maximum duration in seconds. A mistyped lease length would hold capacity until the lease expires.
const MAX_SECONDS: i64 = 31 * 24 * 3600;

const SECONDS: &str = "whole seconds from 1 to 2678400 (31 days)";
const LEARNING_SECONDS: &str = "whole seconds up to 2678400 (31 days); 0 or less: no learning mode";

const PARAMETERS: &str = "a list of `{name: …, value: …}`, or a map of names to values";
const MAX_PARAMETERS: usize = 100;

/// An algorithm. The `settings` have no capacity yet.
#[derive(Clone)]
pub(super) struct Algorithm {
    /// `None` if it is invalid. Then nothing that depends on it is checked.
    pub(super) kind: Option<AlgorithmKind>,
    pub(super) settings: Settings,
    pub(super) parameters: Vec<NamedParameter>,
}

impl Algorithm {
    pub(super) fn read(field: &Field<'_, '_>, found: &mut Findings) -> Algorithm {
        let unreadable = Algorithm { kind: None, settings: Settings::unmatched(), parameters: Vec::new() };
        let Some(fields) = field.map(&KEYS, found) else {
            return unreadable;
        };
        let kind = match fields.get("kind") {
            Some(kind) => read_kind(&kind, found),
            None => {
                let message = "no `kind`: NO_ALGORITHM applies, as in Doorman; the capacity is not divided, and every \
                    client gets its wants";
                found.warn(field.key, message);
                Some(AlgorithmKind::NoAlgorithm)
            }
        };
        let mut settings = Settings::new(kind.unwrap_or(AlgorithmKind::NoAlgorithm), Amount::ZERO);
        let mut lengths = Lengths::read(&fields, found);
        let parameters = fields
            .optional("parameters")
            .map_or_else(Vec::new, |field| read_parameters(&field, &mut settings, &mut lengths, found));
        lengths.put_in_force(&fields, &mut settings, found);
        Algorithm { kind, settings, parameters }
    }
}

/// Reads a kind by its name, or by its number on the wire.
fn read_kind(field: &Field<'_, '_>, found: &mut Findings) -> Option<AlgorithmKind> {
    let names = AlgorithmKind::ALL.map(AlgorithmKind::name);
    let text = field.text(&format!("one of {}", names.join(", ")), found)?;
    let by_name = || AlgorithmKind::ALL.into_iter().find(|kind| kind.name() == text);
    let kind = text.parse().ok().and_then(AlgorithmKind::from_number).or_else(by_name);
    if kind.is_none() {
        found.error(field.at(), unknown("kind", text, &names));
    }
    kind
}

/// The durations of a template. The first two can also be parameters, with the names of Doorman's design document.
struct Lengths<'n, 't> {
    lease: Length<'n, 't>,
    refresh: Length<'n, 't>,
    learning: Option<Millis>,
}

/// A duration and its field. A field without a value is invalid.
struct Length<'n, 't> {
    key: &'static str,
    value: Option<Millis>,
    written: Option<Field<'n, 't>>,
}

impl<'n, 't> Lengths<'n, 't> {
    fn read(fields: &Fields<'n, 't>, found: &mut Findings) -> Lengths<'n, 't> {
        let mut seconds = |key, range: RangeInclusive<i64>, expected: &str| {
            let written = fields.optional(key);
            let value = written.as_ref().and_then(|field| field.whole(range, expected, found));
            // Negative values count as zero.
            let value = value.map(|seconds| Millis::from_secs(u64::try_from(seconds).unwrap_or(0)));
            Length { key, value, written }
        };
        Lengths {
            lease: seconds("lease_length", 1..=MAX_SECONDS, SECONDS),
            refresh: seconds("refresh_interval", 1..=MAX_SECONDS, SECONDS),
            learning: seconds("learning_mode_duration", i64::MIN..=MAX_SECONDS, LEARNING_SECONDS).value,
        }
    }

    /// The duration that a parameter sets.
    fn named(&mut self, parameter: &str) -> Option<&mut Length<'n, 't>> {
        match parameter {
            LEASE_PARAMETER => Some(&mut self.lease),
            REFRESH_PARAMETER => Some(&mut self.refresh),
            _ => None,
        }
    }

    fn put_in_force(self, fields: &Fields<'_, '_>, settings: &mut Settings, found: &mut Findings) {
        let Lengths { lease, refresh, learning } = self;
        settings.learning = learning;
        settings.lease = lease.value.unwrap_or(Settings::DEFAULT_LEASE);
        // By default, at most the lease length.
        settings.refresh = refresh.value.unwrap_or(Settings::DEFAULT_REFRESH.min(settings.lease));
        // An invalid lease length has been reported, and is not compared.
        let comparable = lease.value.is_some() || lease.written.is_none();
        if let (Some(length), Some(field), true) = (refresh.value, refresh.written, comparable)
            && length > settings.lease
        {
            let of_lease = settings.lease.0 / 1000;
            let origin = match lease.written {
                None => " (the default)",
                Some(_) if fields.optional("lease_length").is_none() => " (the parameter)",
                Some(_) => "",
            };
            let why = format!(
                "longer than the `lease_length` of {of_lease}{origin}; leases would end before clients ask again"
            );
            field.refuse(why, found);
        }
    }
}

impl<'n, 't> Length<'n, 't> {
    /// Sets the duration by a parameter. Returns whether that is valid.
    fn put(
        &mut self,
        parameter: &str,
        text: &str,
        (at, field): (Position, Option<Field<'n, 't>>),
        found: &mut Findings,
    ) -> bool {
        let Some(seconds) = whole(text).filter(|seconds| (1..=MAX_SECONDS).contains(seconds)) else {
            found.error(at, format!("parameter `{parameter}` is `{text}`, expected {SECONDS}"));
            return false;
        };
        let value = Millis::from_secs(seconds.unsigned_abs());
        match self.value {
            Some(before) if before != value => {
                let (key, before) = (self.key, before.0 / 1000);
                let why = format!(
                    "parameter `{parameter}` is {seconds}, but the key `{key}` is {before}; give one of the two"
                );
                found.error(at, why);
                return false;
            }
            _ => self.value = Some(value),
        }
        self.written = self.written.take().or(field);
        true
    }
}

/// Reads and applies the parameters. Returns the valid ones.
fn read_parameters<'n, 't>(
    field: &Field<'n, 't>,
    settings: &mut Settings,
    lengths: &mut Lengths<'n, 't>,
    found: &mut Findings,
) -> Vec<NamedParameter> {
    let mut parameters = Vec::new();
    let mut seen = HashSet::new();
    for Written { name, at, value } in written_parameters(field, found) {
        if !seen.insert(name) {
            found.error(at, format!("duplicate parameter `{name}`: it is already given"));
            continue;
        }
        // `Settings::apply` decides whether a parameter requires a value.
        let text = match value.as_ref().filter(|value| !value.is_nothing()) {
            None => None,
            Some(value) => match value.text("text or a number", found) {
                None => continue,
                some => some,
            },
        };
        let parameter = NamedParameter { name: name.to_owned(), value: text.map(str::to_owned) };
        if let Some(length) = lengths.named(name) {
            let at = value.as_ref().map_or(at, Field::at);
            if length.put(name, text.unwrap_or_default(), (at, value), found) {
                parameters.push(parameter);
            }
            continue;
        }
        if name == CLIENT_PARAMETER {
            found.error(at, "rules for clients belong under the key `clients` of the template, not in `parameters`");
            continue;
        }
        if name == GROUPS_PARAMETER || name == GROUP_PARAMETER {
            found.error(at, "groups belong under the key `groups` of the template, not in `parameters`");
            continue;
        }
        match settings.apply(&parameter) {
            Ok(()) => parameters.push(parameter),
            Err(error @ ParameterError::Unknown { .. }) => found.error(at, error.to_string()),
            Err(error) => found.error(value.map_or(at, |value| value.at()), error.to_string()),
        }
    }
    parameters
}

/// A parameter from a list or a map.
struct Written<'n, 't> {
    name: &'n str,
    at: Position,
    value: Option<Field<'n, 't>>,
}

fn written_parameters<'n, 't>(field: &Field<'n, 't>, found: &mut Findings) -> Vec<Written<'n, 't>> {
    if !field.is_list() {
        let entries = field.entries(PARAMETERS, found).into_iter();
        return entries.map(|(name, value)| Written { name, at: value.key, value: Some(value) }).collect();
    }
    let mut written = Vec::new();
    for item in field.list(MAX_PARAMETERS, PARAMETERS, found) {
        let item = Field::element("a parameter", item);
        let Some(fields) = item.map(&["name", "value"], found) else {
            continue;
        };
        let Some(name) = fields.get("name") else {
            found.error(item.at(), "a parameter needs a `name`");
            continue;
        };
        if let Some(text) = name.text("the name of a parameter", found) {
            written.push(Written { name: text, at: name.at(), value: fields.get("value") });
        }
    }
    written
}
