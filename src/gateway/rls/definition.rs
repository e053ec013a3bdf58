//! The rules of a domain as a file or a control plane states them, and the checks that turn them into [`Rules`]. They
//! are those of envoyproxy/ratelimit.
//!
//! [`Rules`]: super::rules::Rules

use std::{borrow::Cow, sync::Arc};

use leaseway_server::config::yaml::unknown;
use prost_types::Struct;

use super::rules::{Domain, Level, Limit, Meters, Node, Rule, Rules, Unit, ValueMatch, ValuePattern};

/// Collects mistakes and warnings.
pub(super) trait Report {
    /// A position in a file, or the path of a field in a message.
    type Location: Clone;

    /// Adds a mistake. The rules will be refused.
    fn error(&mut self, at: &Self::Location, message: String);

    fn warn(&mut self, at: &Self::Location, message: String);
}

pub(super) struct DomainDefinition<'t, P> {
    pub(super) at: P,
    /// Empty if it is missing.
    pub(super) name: &'t str,
    pub(super) descriptors: Vec<DescriptorDefinition<'t, P>>,
}

pub(super) struct DescriptorDefinition<'t, P> {
    pub(super) at: P,
    /// Empty if it is missing, as is the value.
    pub(super) key: &'t str,
    pub(super) value: &'t str,
    pub(super) limit: Option<LimitDefinition<'t, P>>,
    /// The names and locations of the flags that are set.
    pub(super) flags: Vec<(&'static str, P)>,
    pub(super) metadata: Option<Struct>,
    pub(super) descriptors: Vec<DescriptorDefinition<'t, P>>,
}

pub(super) struct LimitDefinition<'t, P> {
    pub(super) at: P,
    pub(super) unlimited: bool,
    pub(super) requests_per_unit: Option<Stated<P, u32>>,
    pub(super) unit: Option<Stated<P, Cow<'t, str>>>,
    /// Empty if there is none.
    pub(super) name: &'t str,
    /// The names of other rules.
    pub(super) replaces: Vec<(P, &'t str)>,
}

/// A field that is present.
pub(super) struct Stated<P, T> {
    pub(super) key: P,
    pub(super) at: P,
    /// None: a mistake was reported.
    pub(super) value: Option<T>,
}

impl<P: Clone, T> Stated<P, T> {
    /// A field whose key and value have one location.
    pub(super) fn at(location: P, value: T) -> Stated<P, T> {
        Stated { key: location.clone(), at: location, value: Some(value) }
    }
}

/// Flags of a descriptor.
pub(super) const SHADOW_MODE: &str = "shadow_mode";
pub(super) const QUOTA_MODE: &str = "quota_mode";
pub(super) const SHARE_THRESHOLD: &str = "share_threshold";
pub(super) const DETAILED_METRIC: &str = "detailed_metric";
pub(super) const VALUE_TO_METRIC: &str = "value_to_metric";
pub(super) const FLAGS: [&str; 5] = [SHADOW_MODE, QUOTA_MODE, SHARE_THRESHOLD, DETAILED_METRIC, VALUE_TO_METRIC];

/// Flags that belong to a limit.
const OF_LIMIT: [&str; 3] = [SHADOW_MODE, QUOTA_MODE, DETAILED_METRIC];

pub(super) const REQUESTS: &str = "a whole number from 0 to 4294967295";

pub(super) fn units() -> String {
    Unit::ALL.map(Unit::name).join(", ")
}

/// Checks a domain. `origin` names its file or resource in messages. The result may be used only if no mistake was
/// reported.
pub(super) fn check<R: Report>(
    definition: DomainDefinition<'_, R::Location>,
    origin: Arc<str>,
    report: &mut R,
) -> Domain {
    let DomainDefinition { at, name, descriptors } = definition;
    if name.is_empty() {
        report.error(&at, "`domain` is missing: set the domain that Envoy sends, such as shop".to_owned());
    }
    let descriptors = level(descriptors, &format!("{name}."), report);
    let path = format!("{name}: limit in the request").into();
    let of_requests = Arc::new(Rule { path, ..Rule::default() });
    Domain { name: name.into(), origin, descriptors, of_requests, meters: Meters::default() }
}

/// Adds a domain. With `merge`, its descriptors are added to those of the domain of the same name, if there is one. The
/// error is a message.
pub(super) fn add(rules: &mut Rules, domain: Domain, merge: bool) -> Result<(), String> {
    let Some(other) = rules.domain_mut(&domain.name) else {
        rules.add(domain);
        return Ok(());
    };
    let (origin, name) = (&other.origin, &other.name);
    if !merge {
        return Err(format!(
            "duplicate domain `{name}`: it is also in {origin}; define each domain in one place, or set \
             --rls-merge-domains"
        ));
    }
    let found = format!("`{name}` in {origin}");
    let merged = other.descriptors.merge(domain.descriptors);
    merged.map_err(|path| format!("duplicate descriptor `{path}`: it is also in the domain {found}"))
}

fn level<P: Clone, R: Report<Location = P>>(
    descriptors: Vec<DescriptorDefinition<'_, P>>,
    parent: &str,
    report: &mut R,
) -> Level {
    let mut level = Level::default();
    for definition in descriptors {
        let at = definition.at.clone();
        let Checked { key, value, path, node } = descriptor(definition, parent, report);
        if !level.add(key, value, node) {
            report.error(&at, format!("duplicate descriptor `{path}` in this list"));
        }
    }
    level
}

struct Checked<'t> {
    key: &'t str,
    value: ValueMatch,
    path: String,
    node: Node,
}

fn descriptor<'t, P: Clone, R: Report<Location = P>>(
    definition: DescriptorDefinition<'t, P>,
    parent: &str,
    report: &mut R,
) -> Checked<'t> {
    let DescriptorDefinition { at, key, value, limit, flags, metadata, descriptors } = definition;
    if key.is_empty() {
        let message = "a descriptor needs a `key`: the key of an entry that Envoy sends";
        report.error(&at, message.to_owned());
    }
    let path = if value.is_empty() { format!("{parent}{key}") } else { format!("{parent}{key}_{value}") };
    let value = match ValuePattern::new(value) {
        Some(pattern) => ValueMatch::Like(pattern),
        None if value.is_empty() => ValueMatch::Any,
        None => ValueMatch::Exactly(value.into()),
    };
    let flag = |name| flags.iter().find(|(flag, _)| *flag == name).map(|(_, at)| at);
    let shares = flag(SHARE_THRESHOLD);
    if let Some(at) = shares.filter(|_| !matches!(value, ValueMatch::Like(_))) {
        report.error(at, "`share_threshold` needs a `value` with a `*`".to_owned());
    }
    for name in OF_LIMIT.iter().filter(|_| limit.is_none()) {
        if let Some(at) = flag(name) {
            report.warn(at, format!("`{name}` has no effect without a `rate_limit`"));
        }
    }
    let rule = limit.and_then(|limit| rule(&limit, report)).map(|rule| {
        let is_set = |name| flag(name).is_some();
        let (shadow, quota, detailed) = (is_set(SHADOW_MODE), is_set(QUOTA_MODE), is_set(DETAILED_METRIC));
        Arc::new(Rule { path: path.as_str().into(), shadow, quota, detailed, metadata, ..rule })
    });
    let below = level(descriptors, &format!("{path}."), report);
    let (shares_values, value_to_metric) = (shares.is_some(), flag(VALUE_TO_METRIC).is_some());
    Checked { key, value, path, node: Node { rule, below, shares_values, value_to_metric } }
}

/// The limit, the name and what it replaces.
fn rule<R: Report>(definition: &LimitDefinition<'_, R::Location>, report: &mut R) -> Option<Rule> {
    let mut replaces = Vec::new();
    for (at, name) in &definition.replaces {
        match *name {
            "" => report.error(at, "an element of `replaces` needs the `name` of a rule".to_owned()),
            name if name == definition.name => report.error(at, "a rule cannot replace itself".to_owned()),
            name => replaces.push(name.into()),
        }
    }
    let limit = limit(definition, report)?;
    let name = Some(definition.name).filter(|name| !name.is_empty()).map(Into::into);
    Some(Rule { limit, name, replaces, ..Rule::default() })
}

fn limit<R: Report>(definition: &LimitDefinition<'_, R::Location>, report: &mut R) -> Option<Limit> {
    let LimitDefinition { at, unlimited, requests_per_unit, unit, .. } = definition;
    if *unlimited {
        if let Some(unit) = unit {
            report.error(&unit.key, "`unit` contradicts `unlimited: true`: leave one of them out".to_owned());
        }
        if let Some(requests) = requests_per_unit {
            report.warn(&requests.key, "`requests_per_unit` has no effect with `unlimited: true`".to_owned());
        }
        return Some(Limit::Unlimited);
    }
    if requests_per_unit.is_none() {
        report.error(at, format!("a limit needs `requests_per_unit`, {REQUESTS}; 0 lets nothing pass"));
    }
    let Some(unit) = unit else {
        report.error(at, format!("a limit needs a `unit`, one of {}, or `unlimited: true`", units()));
        return None;
    };
    let name = unit.value.as_ref()?;
    let known = Unit::named(name);
    if known.is_none() {
        report.error(&unit.at, unknown("unit", name, &Unit::ALL.map(Unit::name)));
    }
    Some(Limit::PerUnit { requests: requests_per_unit.as_ref()?.value?, unit: known? })
}
