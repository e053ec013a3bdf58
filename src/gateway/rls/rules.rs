//! Finds the rule for a descriptor.
//!
//! The rules of a domain form a tree, as in the files. The entries of a descriptor are matched from the root down. At
//! each level the most specific rule applies: that of key and value, else the first whose value has a `*` and matches,
//! else that of the key alone. A limit applies to descriptors that end at its level. A descriptor with more or fewer
//! entries has no limit.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use leaseway_core::types::escaped;
use leaseway_proto::envoy::ratelimit::rate_limit_response::rate_limit::Unit as WireUnit;
use metrics::{Counter, counter};
use prost_types::Struct;

use crate::resource_id;

/// All rules of a gateway, by domain.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain>,
    not_loaded: bool,
    /// Milliseconds since the Unix epoch: the newest modification of their files, or their arrival from a control
    /// plane.
    pub written_unix_ms: u64,
}

#[derive(Debug)]
pub struct Domain {
    pub name: Arc<str>,
    /// Its file or resource, for messages.
    pub origin: Arc<str>,
    pub descriptors: Level,
    /// The rule for descriptors that bring a limit of their own.
    pub of_requests: Arc<Rule>,
    /// Counts requests.
    pub meters: Meters,
}

/// The rules for the entries of descriptors at one depth of the tree.
#[derive(Debug, Default)]
pub struct Level(HashMap<Box<str>, Values>);

/// The rules of one key.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<Box<str>, Node>,
    /// In the order of the file.
    patterns: Vec<(ValuePattern, Node)>,
    any: Option<Box<Node>>,
}

/// The values that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueMatch {
    Exactly(Box<str>),
    Like(ValuePattern),
    Any,
}

/// A value with at least one `*`, each of which matches any characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValuePattern(Box<str>);

impl ValuePattern {
    /// None if there is no `*`.
    pub fn new(text: &str) -> Option<ValuePattern> {
        text.contains('*').then(|| ValuePattern(text.into()))
    }

    pub fn matches(&self, value: &str) -> bool {
        let mut parts = self.0.split('*');
        let (first, last) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
        let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
        parts.all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }

    /// As in the file. It also names the resource that matching values share: no rule for an exact value has a `*`.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The glob for a template.
    pub fn glob(&self) -> String {
        self.0.split('*').map(resource_id::pattern).collect::<Vec<_>>().join("*")
    }
}

/// A descriptor in a file.
#[derive(Debug, Default)]
pub struct Node {
    /// For descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    pub below: Level,
    /// All matching values share one resource.
    pub shares_values: bool,
    /// Metrics of the rules here and below are by value.
    pub value_to_metric: bool,
}

#[derive(Debug, Default)]
pub struct Rule {
    /// Its place in the tree, as in the statistics of envoyproxy/ratelimit: `key_value.key`.
    pub path: Arc<str>,
    pub limit: Limit,
    /// It is evaluated, but everything passes.
    pub shadow: bool,
    /// A request with several such rules is refused only if all of them refuse it.
    pub quota: bool,
    /// Metrics are by all values of a descriptor.
    pub detailed: bool,
    /// Is added to answers if the rule lets the request pass.
    pub metadata: Option<Struct>,
    /// For `replaces` of other rules, and for answers.
    pub name: Option<Box<str>>,
    /// The names of rules that do not apply where this one does.
    pub replaces: Vec<Box<str>>,
    /// Counts descriptors.
    pub meters: Meters,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    #[default]
    Unlimited,
    PerUnit {
        requests: u32,
        unit: Unit,
    },
}

/// A limit that a descriptor brought with it. Its resources have names of their own, because the same limit applies to
/// all requests for a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLimit {
    pub domain: Arc<str>,
    pub requests: u32,
    pub unit: Unit,
}

impl RequestLimit {
    /// The first part of its resources' names, after the domain. Descriptors cannot have it, because `~` is escaped.
    pub fn mark(&self) -> String {
        format!("~limit={}-per-{}", self.requests, self.unit.name())
    }
}

/// The rule for a descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Matched<'r> {
    pub rule: &'r Arc<Rule>,
    /// Some values share a resource: see [`shared`](Domain::shared).
    pub shares: bool,
    /// Metrics depend on the values: see [`metric_path`](Domain::metric_path).
    pub has_own_metric: bool,
}

impl Rules {
    /// Stands for the rules of a control plane until the first ones arrive.
    pub fn awaited() -> Rules {
        Rules { not_loaded: true, ..Rules::default() }
    }

    /// Whether no rules have arrived yet.
    pub fn not_loaded(&self) -> bool {
        self.not_loaded
    }

    /// Why a gateway with these rules is not ready, if it is not.
    pub fn problem(&self) -> Option<&'static str> {
        self.not_loaded.then_some("waiting for the first rules from the xDS control plane")
    }

    /// Adds a domain, in place of one with the same name.
    pub fn add(&mut self, domain: Domain) {
        self.domains.insert(domain.name.as_ref().into(), domain);
    }

    pub(super) fn domain_mut(&mut self, name: &str) -> Option<&mut Domain> {
        self.domains.get_mut(name)
    }

    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// A line for each rule, in the form of envoyproxy/ratelimit, sorted by path.
    pub fn dump(&self) -> String {
        let mut lines: Vec<String> =
            self.domains().flat_map(|domain| domain.descriptors.rules()).map(Rule::dump).collect();
        lines.sort();
        lines.concat()
    }

    /// In arbitrary order.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }
}

impl Level {
    /// All rules, with those below.
    fn rules(&self) -> Vec<&Rule> {
        let nodes = self.descriptors().map(|(_, _, node)| node);
        nodes.flat_map(|node| node.rule.as_deref().into_iter().chain(node.below.rules())).collect()
    }
}

impl Domain {
    /// The rule for a descriptor, if there is one.
    pub fn rule<'e>(&self, entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> Option<Matched<'_>> {
        let (mut level, mut last) = (&self.descriptors, None);
        let (mut shares, mut has_own_metric) = (false, false);
        for (key, value) in entries {
            let (node, _) = level.find(key, value)?;
            (level, last) = (&node.below, Some(node));
            shares |= node.shares_values;
            has_own_metric |= node.value_to_metric;
        }
        let rule = last?.rule.as_ref()?;
        Some(Matched { rule, shares, has_own_metric: has_own_metric || rule.detailed })
    }

    /// The name of a descriptor in metrics if its rules ask for values there, as in envoyproxy/ratelimit.
    pub fn metric_path<'e>(&self, entries: impl IntoIterator<Item = (&'e str, &'e str)>, detailed: bool) -> String {
        let (mut path, mut level) = (self.name.to_string(), Some(&self.descriptors));
        for (key, value) in entries {
            let found = level.and_then(|level| level.find(key, value));
            level = found.map(|(node, _)| &node.below);
            let shown = match found {
                Some((node, Found::Like(pattern))) if node.shares_values => pattern.text(),
                _ if detailed => value,
                Some((Node { value_to_metric: true, .. }, _)) => value,
                Some((_, Found::Like(pattern))) => pattern.text(),
                Some((_, Found::Exactly(value))) => value,
                Some((_, Found::Any)) | None => "",
            };
            path.extend([".", key]);
            if !shown.is_empty() {
                path.extend(["_", shown]);
            }
        }
        path
    }

    /// The entries of a descriptor for its resource id. Values that share a resource are replaced by their pattern.
    pub fn shared<'e: 'r, 'r>(
        &'r self,
        entries: impl IntoIterator<Item = (&'e str, &'e str)> + 'r,
    ) -> impl Iterator<Item = (&'r str, &'r str)> {
        let mut level = Some(&self.descriptors);
        entries.into_iter().map(move |(key, value)| match level.and_then(|level| level.find(key, value)) {
            Some((node, found)) => {
                level = Some(&node.below);
                match found {
                    Found::Like(pattern) if node.shares_values => (key, pattern.text()),
                    _ => (key, value),
                }
            }
            None => (key, value),
        })
    }
}

impl Level {
    /// Adds a descriptor. Returns false if there is one for the same key and value.
    pub fn add(&mut self, key: &str, value: ValueMatch, node: Node) -> bool {
        let values = self.0.entry(key.into()).or_default();
        match value {
            ValueMatch::Exactly(value) if !values.exact.contains_key(&value) => drop(values.exact.insert(value, node)),
            ValueMatch::Like(pattern) if !values.patterns.iter().any(|(other, _)| *other == pattern) => {
                values.patterns.push((pattern, node));
            }
            ValueMatch::Any if values.any.is_none() => values.any = Some(Box::new(node)),
            _ => return false,
        }
        true
    }

    /// In arbitrary order.
    pub fn descriptors(&self) -> impl Iterator<Item = (&str, ValueMatch, &Node)> {
        self.0.iter().flat_map(|(key, values)| {
            let exact = values.exact.iter().map(|(value, node)| (ValueMatch::Exactly(value.clone()), node));
            let patterns = values.patterns.iter().map(|(pattern, node)| (ValueMatch::Like(pattern.clone()), node));
            let any = values.any.iter().map(|node| (ValueMatch::Any, &**node));
            exact.chain(patterns).chain(any).map(|(value, node)| (&**key, value, node))
        })
    }

    /// The descriptor that matches an entry, and how.
    fn find(&self, key: &str, value: &str) -> Option<(&Node, Found<'_>)> {
        let values = self.0.get(key)?;
        if let Some((value, node)) = values.exact.get_key_value(value) {
            return Some((node, Found::Exactly(value)));
        }
        if let Some((pattern, node)) = values.patterns.iter().find(|(pattern, _)| pattern.matches(value)) {
            return Some((node, Found::Like(pattern)));
        }
        values.any.as_deref().map(|node| (node, Found::Any))
    }

    /// Moves the descriptors of another level here. Fails with the path of the first that exists already.
    pub fn merge(&mut self, other: Level) -> Result<(), String> {
        for (key, Values { exact, patterns, any }) in other.0 {
            let exact = exact.into_iter().map(|(value, node)| (ValueMatch::Exactly(value), node));
            let patterns = patterns.into_iter().map(|(pattern, node)| (ValueMatch::Like(pattern), node));
            let any = any.map(|node| (ValueMatch::Any, *node));
            for (value, node) in exact.chain(patterns).chain(any) {
                let value_text = match &value {
                    ValueMatch::Exactly(value) => format!("_{value}"),
                    ValueMatch::Like(pattern) => format!("_{}", pattern.text()),
                    ValueMatch::Any => String::new(),
                };
                if !self.add(&key, value, node) {
                    return Err(format!("{key}{value_text}"));
                }
            }
        }
        Ok(())
    }
}

/// How a descriptor of the rules matches a value.
#[derive(Debug, Clone, Copy)]
enum Found<'r> {
    Exactly(&'r str),
    Like(&'r ValuePattern),
    Any,
}

impl Rule {
    fn dump(&self) -> String {
        let path = escaped(&self.path);
        let limit = match self.limit {
            Limit::Unlimited => "unlimited: true".to_owned(),
            Limit::PerUnit { requests, unit } => {
                format!("unit={} requests_per_unit={requests}", unit.on_the_wire().as_str_name())
            }
        };
        format!("{path}: {limit}, shadow_mode: {}, quota_mode: {}\n", self.shadow, self.quota)
    }

    /// Whether one of these rules replaces the rule with this name.
    pub fn replaced<'r>(rules: impl Iterator<Item = Option<&'r Rule>> + Clone, name: Option<&str>) -> bool {
        let Some(name) = name else { return false };
        rules.flatten().any(|rule| rule.replaces.iter().any(|replaced| **replaced == *name))
    }
}

/// The window of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 30 days, as in Envoy.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    pub const ALL: [Unit; 7] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// The name in files.
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

    /// Case does not matter.
    pub fn named(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

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

    pub fn of_wire(unit: WireUnit) -> Option<Unit> {
        Unit::ALL.into_iter().find(|known| known.on_the_wire() == unit)
    }

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

/// The outcome for a request, or for one of its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    OverLimit,
    /// Over the limit of a rule in shadow mode, so it passes.
    Shadow,
    NoLease,
}

impl Verdict {
    pub const ALL: [Verdict; 4] = [Verdict::Ok, Verdict::OverLimit, Verdict::Shadow, Verdict::NoLease];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::OverLimit => "over_limit",
            Verdict::Shadow => "shadow",
            Verdict::NoLease => "no_lease",
        }
    }
}

/// Counters of a rule or of a domain, by verdict. They are looked up once, because a lookup costs more than a decision.
/// Labels come from the operator's files, never from requests.
#[derive(Default)]
pub struct Meters(OnceLock<[Counter; Verdict::ALL.len()]>);

impl Meters {
    pub(super) fn count_of_domain(&self, domain: &str, verdict: Verdict) {
        let make = |verdict: Verdict| counter!("leaseway_rls_requests_total", "domain" => domain.to_owned(), "result" => verdict.name());
        self.0.get_or_init(|| Verdict::ALL.map(make))[verdict as usize].increment(1);
    }

    pub(super) fn count_of_rule(&self, path: &str, verdict: Verdict) {
        let make = |verdict: Verdict| counter!("leaseway_rls_decisions_total", "rule" => path.to_owned(), "result" => verdict.name());
        self.0.get_or_init(|| Verdict::ALL.map(make))[verdict as usize].increment(1);
    }
}

/// Counters of the paths that contain values of requests. They outlive the rules.
static BY_VALUE: LazyLock<Mutex<HashMap<Box<str>, Meters>>> = LazyLock::new(Mutex::default);

/// The maximum number of paths with values of requests, in this process, and their maximum length in bytes.
const MAX_BY_VALUE: usize = 10_000;
const MAX_BY_VALUE_BYTES: usize = 256;

/// Counts a decision under a path that contains values of requests. Returns false if there are too many such paths.
pub(super) fn count_by_value(path: &str, verdict: Verdict) -> bool {
    let mut known = BY_VALUE.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains_key(path) {
        if known.len() >= MAX_BY_VALUE || path.len() > MAX_BY_VALUE_BYTES {
            return false;
        }
        known.insert(path.into(), Meters::default());
    }
    known[path].count_of_rule(path, verdict);
    true
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}

#[cfg(test)]
mod tests;
