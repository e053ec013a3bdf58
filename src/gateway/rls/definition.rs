//! The rules of a domain as a file or a control plane states them, and the checks that turn them into [`Rules`]. They
//! are those of envoyproxy/ratelimit.
//!
//! [`Rules`]: super::rules::Rules

use std::{borrow::Cow, sync::Arc};

use leaseway_server::config::yaml::unknown;

use super::rules::{Domain, Level, Limit, Meters, Node, Rule, Unit, ValueMatch, ValuePattern};

/// Collects mistakes and warnings.
pub(super) trait Report {
    /// A position in a file, or the path of a field in a message.
    type Place: Clone;

    /// Adds a mistake. The rules will be refused.
    fn error(&mut self, at: &Self::Place, message: String);

    fn warn(&mut self, at: &Self::Place, message: String);
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
    /// The names and places of the flags that are set.
    pub(super) flags: Vec<(&'static str, P)>,
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
    /// A field whose key and value are one place.
    pub(super) fn at(place: P, value: T) -> Stated<P, T> {
        Stated { key: place.clone(), at: place, value: Some(value) }
    }
}

/// Flags of a descriptor that change decisions.
pub(super) const SHADOW_MODE: &str = "shadow_mode";
pub(super) const SHARE_THRESHOLD: &str = "share_threshold";

/// Flags of a descriptor without an effect, and why.
pub(super) const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("quota_mode", "the limit works like all others"),
    ("value_to_metric", "metrics are by rule here"),
    ("detailed_metric", "metrics are by rule here"),
    ("metadata", "answers carry no dynamic metadata"),
];

pub(super) const REQUESTS: &str = "a whole number from 0 to 4294967295";

pub(super) fn units() -> String {
    Unit::ALL.map(Unit::name).join(", ")
}

/// Checks a domain. `origin` names its file or resource in messages. The result may be used only if no mistake was
/// reported.
pub(super) fn check<R: Report>(definition: DomainDefinition<'_, R::Place>, origin: Arc<str>, report: &mut R) -> Domain {
    let DomainDefinition { at, name, descriptors } = definition;
    if name.is_empty() {
        report.error(&at, "the rules need a `domain`, which is the domain that Envoy sends, such as shop".to_owned());
    }
    let descriptors = level(descriptors, &format!("{name}."), report);
    Domain { name: name.into(), origin, descriptors, meters: Meters::default() }
}

/// The message about a domain with several files or resources.
pub(super) fn duplicate_domain(other: &Domain) -> String {
    format!("{} has the domain `{}`, too; define each domain in one place", other.origin, other.name)
}

fn level<P: Clone, R: Report<Place = P>>(
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

fn descriptor<'t, P: Clone, R: Report<Place = P>>(
    definition: DescriptorDefinition<'t, P>,
    parent: &str,
    report: &mut R,
) -> Checked<'t> {
    let DescriptorDefinition { at, key, value, limit, flags, descriptors } = definition;
    if key.is_empty() {
        let message = "a descriptor needs a `key`, which is the key of an entry that Envoy sends";
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
    let shares_values = shares.is_some() && matches!(value, ValueMatch::Like(_));
    if let Some(at) = shares.filter(|_| !shares_values) {
        report.warn(at, "`share_threshold` has no effect where the `value` has no `*`".to_owned());
    }
    for (name, why) in WITHOUT_EFFECT {
        if let Some(at) = flag(name) {
            report.warn(at, format!("`{name}` changes nothing: {why}"));
        }
    }
    let shadow = flag(SHADOW_MODE);
    if let (None, Some(at)) = (&limit, shadow) {
        report.warn(at, "`shadow_mode` has no effect without a `rate_limit`".to_owned());
    }
    let rule = limit.and_then(|limit| rule(&limit, &path, shadow.is_some(), report));
    let below = level(descriptors, &format!("{path}."), report);
    Checked { key, value, path, node: Node { rule: rule.map(Arc::new), below, shares_values } }
}

fn rule<R: Report>(
    definition: &LimitDefinition<'_, R::Place>,
    path: &str,
    shadow: bool,
    report: &mut R,
) -> Option<Rule> {
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
    Some(Rule { path: path.into(), limit, shadow, name, replaces, meters: Meters::default() })
}

fn limit<R: Report>(definition: &LimitDefinition<'_, R::Place>, report: &mut R) -> Option<Limit> {
    let LimitDefinition { at, unlimited, requests_per_unit, unit, .. } = definition;
    if *unlimited {
        let contradicts = |key: &str| format!("`{key}` contradicts `unlimited: true`: leave one of them out");
        if let Some(unit) = unit {
            report.error(&unit.key, contradicts("unit"));
        }
        if let Some(requests) = requests_per_unit {
            report.error(&requests.key, contradicts("requests_per_unit"));
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
