//! Translates rules into `resources:` of the cluster's configuration.
//!
//! Like a rule of envoyproxy/ratelimit, a template limits each resource that it matches. Its capacity is the limit per
//! second. The first matching template applies, but the most specific matching rule, so templates are sorted from the
//! most specific to the most general.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashSet},
    fmt::Write as _,
};

use super::rules::{Domain, Level, Limit, RequestLimit, Rules, Unit, ValueMatch};
use crate::resource_id;

struct Template {
    glob: String,
    comment: String,
    /// One element for each entry of the descriptor.
    openness: Vec<Openness>,
    requests: u32,
    unit: Unit,
}

/// How general the pattern of an entry is. Specific patterns come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Openness {
    Nothing,
    /// A pattern with a `*`. The number keeps the patterns of a key in the order of the file.
    Pattern(usize),
    Everything,
}

/// The safe capacity is the capacity divided by this number: with up to that many holders the sum stays within the
/// limit.
const SAFE_PARTS: f64 = 10.0;

/// `request_limits` are the limits that requests bring with them.
pub fn resources(rules: &Rules, request_limits: &BTreeSet<RequestLimit>) -> String {
    let mut text = String::from("resources:\n");
    // No other template of a domain matches their resources, but one for the whole domain.
    let in_force = request_limits.iter().filter(|limit| rules.domain(&limit.domain).is_some());
    in_force.for_each(|limit| of_request_limit(limit).write(&mut text));
    let mut domains: Vec<&Domain> = rules.domains().collect();
    domains.sort_by(|one, other| one.name.cmp(&other.name));
    for template in domains.into_iter().flat_map(of_domain) {
        template.write(&mut text);
    }
    text.push_str(REST);
    text
}

/// The `resources:` of one domain, which the gateway declares to the cluster. `None` if nothing is limited. Equal rules
/// have equal texts, so that gateways with the same rules agree.
pub fn declaration(domain: &Domain) -> Option<String> {
    let templates = of_domain(domain);
    let mut text = String::from("resources:\n");
    templates.iter().for_each(|template| template.write(&mut text));
    (!templates.is_empty()).then_some(text)
}

/// The `resources:` for a limit that requests bring with them.
pub fn declaration_of_request_limit(limit: &RequestLimit) -> String {
    let mut text = String::from("resources:\n");
    of_request_limit(limit).write(&mut text);
    text
}

fn of_request_limit(limit: &RequestLimit) -> Template {
    let RequestLimit { domain, requests, unit } = limit;
    let glob = format!("{}/{}*", resource_id::pattern(domain), limit.mark());
    let comment = format!("{domain}: {requests} per {}, the limit of requests", unit.name());
    Template { glob, comment, openness: Vec::new(), requests: *requests, unit: *unit }
}

/// The lease length in seconds. A lease is not used in the last window before its end, because what it lets pass counts
/// for a window. Windows longer than a minute are excepted: a gateway that died would hold its share for too long.
fn lease_length(unit: Unit) -> u32 {
    if unit == Unit::Minute { 120 } else { 60 }
}

fn of_domain(domain: &Domain) -> Vec<Template> {
    let mut templates = Vec::new();
    collect(&domain.descriptors, &resource_id::pattern(&domain.name), '/', &[], &mut templates);
    templates.sort_by(|one, other| one.order().cmp(&other.order()));
    // A rule for the key alone never applies beside one for the value `*`, which has the same pattern and comes first.
    let mut known = HashSet::new();
    templates.retain(|template| known.insert(template.glob.clone()));
    templates
}

/// The template for the resources of other clients. Gateways do not request them.
const REST: &str = "\
# All other resources. Change it to what other clients of this cluster need.
- identifier_glob: \"*\"
  capacity: 0
  safe_capacity: 0
  algorithm:
    kind: FAIR_SHARE
    lease_length: 60
    refresh_interval: 5
";

fn collect(level: &Level, before: &str, separator: char, openness: &[Openness], templates: &mut Vec<Template>) {
    let mut descriptors: Vec<_> = level.descriptors().collect();
    // The patterns of a key stay in the order of the file.
    descriptors.sort_by_key(|(key, ..)| *key);
    for (index, (key, value, node)) in descriptors.into_iter().enumerate() {
        let (value, open) = match value {
            ValueMatch::Exactly(value) => (resource_id::pattern(&value), Openness::Nothing),
            // All values share one resource.
            ValueMatch::Like(pattern) if node.shares_values => {
                (resource_id::pattern(pattern.text()), Openness::Nothing)
            }
            ValueMatch::Like(pattern) => (pattern.glob(), Openness::Pattern(index)),
            ValueMatch::Any => ("*".to_owned(), Openness::Everything),
        };
        let glob = format!("{before}{separator}{}={value}", resource_id::pattern(key));
        let openness = [openness, &[open]].concat();
        if let Some(rule) = &node.rule
            && let Limit::PerUnit { requests: requests @ 1.., unit } = rule.limit
        {
            let comment = format!("{}: {requests} per {}", rule.path, unit.name());
            templates.push(Template { glob: glob.clone(), comment, openness: openness.clone(), requests, unit });
        }
        collect(&node.below, &glob, ',', &openness, templates);
    }
}

impl Template {
    /// A `*` also matches the entries after it, so templates with more entries come first.
    fn order(&self) -> (Reverse<usize>, &[Openness], &str) {
        (Reverse(self.openness.len()), &self.openness, &self.glob)
    }

    fn write(&self, text: &mut String) {
        let Template { glob, comment, requests, unit, .. } = self;
        let (capacity, lease) = (f64::from(*requests) / unit.length().as_secs_f64(), lease_length(*unit));
        let quoted: String =
            glob.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| matches!(c, '"' | '\\')).chain([c])).collect();
        let safe = capacity / SAFE_PARTS;
        let comment = leaseway_core::types::escaped(comment);
        let algorithm = format!("{{kind: FAIR_SHARE, lease_length: {lease}, refresh_interval: 5}}");
        write!(
            text,
            "# {comment}\n- identifier_glob: \"{quoted}\"\n  capacity: {capacity}\n  safe_capacity: {safe}\n  algorithm: {algorithm}\n"
        )
        .expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use leaseway_server::config;

    use super::*;
    use crate::rls::file::parse;

    #[test]
    fn the_first_template_of_a_resource_has_the_limit_of_its_rule() {
        let text = "
domain: 'a/b'
descriptors:
- {key: user, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: user, value: root, rate_limit: {unlimited: true}}
- {key: user, value: '*x?', rate_limit: {unit: minute, requests_per_unit: 60}}
- {key: path, value: /api/*/act, rate_limit: {unit: hour, requests_per_unit: 10800}}
- {key: path, value: /api/*, rate_limit: {unit: hour, requests_per_unit: 7200}}
- {key: path, value: /api/v2*, rate_limit: {unit: hour, requests_per_unit: 3600}}
- {key: any, rate_limit: {unit: second, requests_per_unit: 6}}
- {key: any, value: '*', rate_limit: {unit: second, requests_per_unit: 5}}
- key: path
  value: /v2*
  share_threshold: true
  rate_limit: {unit: second, requests_per_unit: 4}
  descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 864}}]
";
        let mut rules = Rules::default();
        rules.add(parse("rules.yaml", text.as_bytes()).expect("rules").domain);
        let configuration = resources(&rules, &BTreeSet::new());
        let loaded = config::parse("made.yaml", &configuration).expect(&configuration);
        assert_eq!(loaded.warnings, [], "{configuration}");
        let domain = rules.domain("a/b").expect("it was read");
        for (entries, capacity) in [
            (&[("user", "ann")][..], 10.0),
            (&[("user", "*x?")], 1.0),
            (&[("user", "yxz")], 10.0),
            (&[("path", "/api/v1")], 2.0),
            (&[("path", "/api/v2")], 2.0),
            (&[("path", "/api/9/act")], 3.0),
            (&[("path", "/v2/x")], 4.0),
            (&[("path", "/v2/x"), ("user", "ann")], 0.01),
            (&[("any", "x")], 5.0),
        ] {
            let entries = entries.iter().copied();
            let id = resource_id::of("a/b", domain.shared(entries).collect::<Vec<_>>());
            let found = loaded.repository.find(&id).map(|template| template.settings.capacity.get());
            assert!(found.is_some_and(|found| (found - capacity).abs() < 1e-9), "{id}: {found:?} in\n{configuration}");
        }
        let declared = declaration(domain).expect("there are limits");
        let declared = config::parse("declared", &declared).expect(&declared).repository;
        let all: Vec<_> = loaded.repository.templates().collect();
        let (_, limited) = all.split_last().expect("the rest");
        assert!(declared.templates().eq(limited.iter().copied()), "the same settings");
    }

    #[test]
    fn equal_rules_have_the_same_declaration() {
        let text = "domain: d\ndescriptors:\n".to_owned()
            + &["a", "b", "c", "d", "e", "f"]
                .map(|key| format!("- {{key: {key}, value: 'x*', rate_limit: {{unit: day, requests_per_unit: 5}}}}\n"))
                .concat();
        let read = || parse("rules.yaml", text.as_bytes()).expect("rules").domain;
        let first = declaration(&read());
        assert!(first.is_some() && (0..20).all(|_| declaration(&read()) == first));
        let unlimited = "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]";
        assert_eq!(declaration(&parse("rules.yaml", unlimited.as_bytes()).expect("rules").domain), None);
    }
}
