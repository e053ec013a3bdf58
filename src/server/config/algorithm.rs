//! `algorithm:` of a template.

use std::{collections::HashSet, ops::RangeInclusive};

use leaseway_core::{Amount, Kind, Millis, NamedParameter, ParameterError, Settings};

use super::{
    diagnostic::{Findings, Position},
    read::{Field, Fields, unknown},
};

const KEYS: [&str; 5] = ["kind", "lease_length", "refresh_interval", "learning_mode_duration", "parameters"];

/// The longest lease. A mistyped lease holds its capacity, once granted, until it ends.
const MAX_SECONDS: i64 = 31 * 24 * 3600;
const SECONDS: &str = "whole seconds from 1 to 2678400 (31 days)";
const LEARNING_SECONDS: &str = "whole seconds up to 2678400 (31 days); 0 or less: no learning mode";

const PARAMETERS: &str = "a list of `{name: …, value: …}`, or a map of names to values";
const MAX_PARAMETERS: usize = 100;

/// An algorithm; the `settings` have no capacity yet.
#[derive(Clone)]
pub(super) struct Algorithm {
    /// `None`: what was written is no kind, so that nothing which depends on it can be checked.
    pub(super) kind: Option<Kind>,
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
                let message = "no `kind`: NO_ALGORITHM is taken, as Doorman does; capacity is then not divided at all, \
                    everybody gets what they want";
                found.warn(field.key, message);
                Some(Kind::NoAlgorithm)
            }
        };
        let mut settings = Settings::new(kind.unwrap_or(Kind::NoAlgorithm), Amount::ZERO);
        read_times(&fields, &mut settings, found);
        let parameters =
            fields.get("parameters").map_or_else(Vec::new, |field| read_parameters(&field, &mut settings, found));
        Algorithm { kind, settings, parameters }
    }
}

/// By name or by number on the wire.
fn read_kind(field: &Field<'_, '_>, found: &mut Findings) -> Option<Kind> {
    let names = Kind::ALL.map(Kind::name);
    let text = field.text(&format!("one of {}", names.join(", ")), found)?;
    let by_name = || Kind::ALL.into_iter().find(|kind| kind.name() == text);
    let kind = text.parse().ok().and_then(Kind::from_number).or_else(by_name);
    if kind.is_none() {
        found.error(field.at(), unknown("kind", text, &names));
    }
    kind
}

fn read_times(fields: &Fields<'_, '_>, settings: &mut Settings, found: &mut Findings) {
    let seconds = |key: &str, range: RangeInclusive<i64>, expected: &str, found: &mut Findings| {
        let field = fields.get(key)?;
        let seconds = field.whole(range, expected, found)?;
        // Below zero means none, as zero does.
        Some(Millis::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    let lease = seconds("lease_length", 1..=MAX_SECONDS, SECONDS, found);
    let refresh = seconds("refresh_interval", 1..=MAX_SECONDS, SECONDS, found);
    settings.learning = seconds("learning_mode_duration", i64::MIN..=MAX_SECONDS, LEARNING_SECONDS, found);
    settings.lease = lease.unwrap_or(Settings::DEFAULT_LEASE);
    // A short lease alone is a complete wish: clients then ask again no later than at its end.
    settings.refresh = refresh.unwrap_or(Settings::DEFAULT_REFRESH.min(settings.lease));

    let written = fields.get("lease_length");
    // A lease that could not be read has been complained about; comparing with its stand-in would only confuse.
    let comparable = lease.is_some() || written.is_none();
    if let (Some(refresh), Some(field), true) = (refresh, fields.get("refresh_interval"), comparable)
        && refresh > settings.lease
    {
        let lease = settings.lease.0 / 1000;
        let origin = if written.is_some() { "" } else { " (the default)" };
        let why = format!("longer than `lease_length`, {lease}{origin}; leases would end before clients ask again");
        field.refuse(why, found);
    }
}

/// The parameters, each put in force. What is not understood is not kept.
fn read_parameters(field: &Field<'_, '_>, settings: &mut Settings, found: &mut Findings) -> Vec<NamedParameter> {
    let mut parameters = Vec::new();
    let mut seen = HashSet::new();
    for Written { name, at, value } in written_parameters(field, found) {
        if !seen.insert(name) {
            found.error(at, format!("duplicate parameter `{name}`: it is already given"));
            continue;
        }
        // Whether a parameter can do without a value is for the parameter to say.
        let text = match value.as_ref().filter(|value| !value.is_nothing()) {
            None => None,
            Some(value) => match value.text("text or a number", found) {
                None => continue,
                some => some,
            },
        };
        let parameter = NamedParameter { name: name.to_owned(), value: text.map(str::to_owned) };
        match settings.apply(&parameter) {
            Ok(()) => parameters.push(parameter),
            Err(error @ ParameterError::Unknown { .. }) => found.error(at, error.to_string()),
            Err(error) => found.error(value.map_or(at, |value| value.at()), error.to_string()),
        }
    }
    parameters
}

/// A parameter in either of its forms.
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
