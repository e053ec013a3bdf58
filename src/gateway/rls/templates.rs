//! What the cluster has to be told of rules: `resources:` of its configuration.
//!
//! A rule of envoyproxy/ratelimit is a limit for each of the resources that it matches, and so is a template: its
//! capacity is the limit per second. Templates are looked through from the top, and rules are matched from the special
//! to the general, so that templates stand in that order.

use std::{cmp::Reverse, fmt::Write as _};

use super::rules::{Domain, Level, Limit, Rules, ValueMatch};
use crate::resource_id;

/// A template for each limit.
struct Template {
    glob: String,
    comment: String,
    /// Of each entry how much it leaves open.
    openness: Vec<Openness>,
    capacity: f64,
}

/// What an entry of a pattern leaves open: the less, the sooner it is looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Openness {
    Nothing,
    /// What a `*` stands for in a pattern, which has this place among those of its key.
    Rest(usize),
    Everything,
}

/// The part of what a limit lets pass that each holder may use when it has lost the cluster; divided among as many
/// holders as there may be it stays below the limit.
const SAFE_PARTS: f64 = 10.0;

/// A configuration for the cluster.
pub fn resources(rules: &Rules) -> String {
    let mut text = String::from("resources:\n");
    let mut domains: Vec<&Domain> = rules.domains().collect();
    domains.sort_by(|one, other| one.name.cmp(&other.name));
    for domain in domains {
        let mut templates = Vec::new();
        collect(&domain.descriptors, &resource_id::pattern(&domain.name), '/', &[], &mut templates);
        templates.sort_by(|one, other| one.order().cmp(&other.order()));
        for template in templates {
            template.write(&mut text);
        }
    }
    text.push_str(REST);
    text
}

/// Nothing else is asked for by gateways; what other clients ask for is theirs to configure.
const REST: &str = "\
# Everything else, and what the templates above take: change it to what other clients of this cluster need.
- identifier_glob: \"*\"
  capacity: 0
  safe_capacity: 0
  algorithm:
    kind: FAIR_SHARE
    lease_length: 60
    refresh_interval: 5
";

fn collect(level: &Level, before: &str, separator: char, openness: &[Openness], templates: &mut Vec<Template>) {
    for (place, (key, value, node)) in level.descriptors().enumerate() {
        let (value, open) = match value {
            ValueMatch::Exactly(value) => (resource_id::pattern(&value), Openness::Nothing),
            // All values are one resource, which has the name of what they have in common.
            ValueMatch::Like(pattern) if node.shares_values => {
                (resource_id::pattern(pattern.common()), Openness::Nothing)
            }
            ValueMatch::Like(pattern) => (pattern.glob(), Openness::Rest(place)),
            ValueMatch::Any => ("*".to_owned(), Openness::Everything),
        };
        let glob = format!("{before}{separator}{}={value}", resource_id::pattern(key));
        let openness = [openness, &[open]].concat();
        if let Some(rule) = &node.rule
            && let Limit::PerUnit { requests: requests @ 1.., unit } = rule.limit
        {
            let capacity = f64::from(requests) / unit.length().as_secs_f64();
            let comment = format!("{}: {requests} per {}", rule.path, unit.name());
            templates.push(Template { glob: glob.clone(), comment, openness: openness.clone(), capacity });
        }
        collect(&node.below, &glob, ',', &openness, templates);
    }
}

impl Template {
    /// A `*` matches the entries behind it as well: what has more of them comes first.
    fn order(&self) -> (Reverse<usize>, &[Openness], &str) {
        (Reverse(self.openness.len()), &self.openness, &self.glob)
    }

    fn write(&self, text: &mut String) {
        let Template { glob, comment, capacity, .. } = self;
        let quoted: String =
            glob.chars().flat_map(|c| ['\\'].into_iter().filter(move |_| matches!(c, '"' | '\\')).chain([c])).collect();
        let safe = capacity / SAFE_PARTS;
        let comment = leaseway_core::escaped(comment);
        write!(text, "# {comment}\n- identifier_glob: \"{quoted}\"\n  capacity: {capacity}\n  safe_capacity: {safe}\n")
            .expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests;
