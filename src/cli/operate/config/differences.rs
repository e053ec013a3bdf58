//! The differences between two configurations, field by field, in words.

mod rules;

use std::collections::HashMap;

use leaseway_core::policy::{
    settings::Settings,
    template::{Repository, Template},
};
use leaseway_server::config::Loaded;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Difference {
    /// `brings` describes the new template.
    Added {
        template: String,
        brings: String,
    },
    Removed {
        template: String,
        had: String,
    },
    Changed {
        template: String,
        field: &'static str,
        from: String,
        to: String,
    },
    /// Order matters because the first matching pattern counts.
    Reordered {
        before: Vec<String>,
        after: Vec<String>,
    },
}

pub(super) use self::rules::in_words;

/// All differences, in the order of the newer configuration.
pub(super) fn between_configurations(before: Option<&Loaded>, after: &Loaded) -> Vec<Difference> {
    let nothing = Repository::default();
    let before_all = before.map_or(&nothing, |before| &before.repository);
    let mut differences = between(before_all, &after.repository);
    let policy = before.and_then(|before| before.access.as_deref());
    differences.extend(rules::between_policies(policy, after.access.as_deref()));
    differences
}

/// The differences between templates, in the order of the newer configuration.
fn between(before: &Repository, after: &Repository) -> Vec<Difference> {
    let old: HashMap<&str, &Template> = by_name(before);
    let new: HashMap<&str, &Template> = by_name(after);
    let removed = before.templates().filter(|template| !new.contains_key(&*template.identifier_glob));
    let mut differences: Vec<Difference> = removed
        .map(|template| Difference::Removed { template: template.identifier_glob.clone(), had: in_short(template) })
        .collect();
    for template in after.templates() {
        match old.get(&*template.identifier_glob) {
            Some(earlier) => differences.extend(changes(earlier, template)),
            None => differences
                .push(Difference::Added { template: template.identifier_glob.clone(), brings: in_short(template) }),
        }
    }
    let common = |repository: &Repository, other: &HashMap<&str, &Template>| -> Vec<String> {
        let names = repository.templates().map(|template| &template.identifier_glob);
        names.filter(|name| other.contains_key(name.as_str())).cloned().collect()
    };
    let (before, after) = (common(before, &new), common(after, &old));
    if before != after {
        differences.push(Difference::Reordered { before, after });
    }
    differences
}

fn by_name(repository: &Repository) -> HashMap<&str, &Template> {
    repository.templates().map(|template| (&*template.identifier_glob, template)).collect()
}

fn changes(before: &Template, after: &Template) -> impl Iterator<Item = Difference> {
    let template = after.identifier_glob.clone();
    let pairs = fields(before).into_iter().zip(fields(after)).filter(|(before, after)| before != after);
    pairs.map(move |((field, from), (_, to))| Difference::Changed { template: template.clone(), field, from, to })
}

/// A template in one line: the main fields, and all others that differ from their defaults.
fn in_short(template: &Template) -> String {
    let settings = Settings::new(template.settings.kind, template.settings.capacity);
    let usual = Template { settings: settings.into(), description: None, ..template.clone() };
    let shown = fields(template).into_iter().zip(fields(&usual)).filter(|((field, value), (_, usual))| {
        matches!(*field, "capacity" | "algorithm" | "lease_length") || value != usual
    });
    shown.map(|((field, value), _)| format!("{field} {value}")).collect::<Vec<_>>().join(", ")
}

/// All fields of a template in words. Parameters are part of the settings.
fn fields(template: &Template) -> Vec<(&'static str, String)> {
    let Template { identifier_glob: _, settings, parameters: _, description, declaration: _ } = template;
    let mut fields = settings.in_words();
    fields.push(("description", description.as_ref().map_or_else(|| "none".to_owned(), |text| format!("“{text}”"))));
    fields
}

impl Difference {
    fn as_text(&self) -> String {
        match self {
            Difference::Added { template, brings } => format!("{template}: new, with {brings}"),
            Difference::Removed { template, had } => format!("{template}: removed, had {had}"),
            Difference::Changed { template, field, from, to } => format!("{template}: {field} {from} → {to}"),
            Difference::Reordered { before, after } => {
                format!("order of templates: {} → {}", before.join(", "), after.join(", "))
            }
        }
    }

    pub(super) fn as_json(&self) -> Value {
        match self {
            Difference::Added { template, brings } => json!({ "change": "added", "template": template, "to": brings }),
            Difference::Removed { template, had } => json!({ "change": "removed", "template": template, "from": had }),
            Difference::Changed { template, field, from, to } => {
                json!({ "change": "changed", "template": template, "field": field, "from": from, "to": to })
            }
            Difference::Reordered { before, after } => json!({ "change": "order", "from": before, "to": after }),
        }
    }
}

pub(super) fn as_text(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "no difference".to_owned();
    }
    differences.iter().map(Difference::as_text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use leaseway_server::config;

    use super::*;

    fn repository(templates: &str) -> Repository {
        config::parse("f", &format!("resources:\n{templates}")).unwrap_or_else(|error| panic!("{error}")).repository
    }

    fn differences(before: &str, after: &str) -> String {
        as_text(&between(&repository(before), &repository(after)))
    }

    const MYSQL: &str =
        "- {identifier_glob: 'mysql*', capacity: 500, algorithm: {kind: FAIR_SHARE, lease_length: 60}}\n";
    const STAR: &str = "- {identifier_glob: '*', capacity: 1, algorithm: {kind: FAIR_SHARE}}\n";

    #[test]
    fn equivalent_notations_do_not_differ() {
        let written_out = "
- identifier_glob: mysql*
  capacity: 500.0
  algorithm: {kind: 3, lease_length: 60, refresh_interval: 5, parameters: {reuse: confirmed}}\n";
        assert_eq!(differences(MYSQL, written_out), "no difference");
    }

    #[test]
    fn every_field_has_its_line() {
        let changed = "
- identifier_glob: 'mysql*'
  capacity: 400.5
  safe_capacity: -1
  description: for orders
  algorithm:
    kind: PROPORTIONAL_SHARE
    lease_length: 30
    refresh_interval: 16
    learning_mode_duration: 0
    parameters: {priority: strict, max_priority: 3, reuse: prompt, min_request_interval: 0.5}\n";
        assert_eq!(
            differences(MYSQL, changed),
            "mysql*: capacity 500 → 400.5\n\
             mysql*: algorithm FAIR_SHARE → PROPORTIONAL_SHARE\n\
             mysql*: lease_length 60 s → 30 s\n\
             mysql*: refresh_interval 5 s → 16 s\n\
             mysql*: learning_mode_duration one lease length → 0 s\n\
             mysql*: safe_capacity an equal share → no limit\n\
             mysql*: priority ignore → strict\n\
             mysql*: max_priority none → 3\n\
             mysql*: reuse confirmed → prompt\n\
             mysql*: min_request_interval 5 s → 0.5 s\n\
             mysql*: description none → “for orders”"
        );
    }

    #[test]
    fn templates_are_added_and_removed() {
        let redis = "- {identifier_glob: redis, capacity: 7, safe_capacity: 2, algorithm: {kind: STATIC}}\n";
        assert_eq!(
            differences(&format!("{MYSQL}{STAR}"), &format!("{redis}{STAR}")),
            "mysql*: removed, had capacity 500, algorithm FAIR_SHARE, lease_length 60 s\n\
             redis: new, with capacity 7, algorithm STATIC, lease_length 60 s, safe_capacity 2"
        );
    }

    #[test]
    fn order_is_a_difference_because_the_first_pattern_wins() {
        let other = "- {identifier_glob: 'm*', capacity: 9, algorithm: {kind: FAIR_SHARE}}\n";
        assert_eq!(
            differences(&format!("{MYSQL}{other}{STAR}"), &format!("{other}{MYSQL}{STAR}")),
            "order of templates: mysql*, m*, * → m*, mysql*, *"
        );
        assert_eq!(differences(STAR, &format!("{MYSQL}{STAR}")).lines().count(), 1, "a new first one moves no other");
    }
}
