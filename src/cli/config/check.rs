//! `leaseway config check`.

use std::path::Path;

use leaseway_core::access::{Action, Pattern, Policy};
use leaseway_server::config;

use super::differences::in_words;
use crate::{
    Outcome,
    format::number,
    output::{say, table},
};

pub(super) fn check(file: &Path) -> Outcome {
    let loaded = config::load(file)?;
    for warning in &loaded.warnings {
        say(format_args!("warning: {warning}"))?;
    }
    let heading = ["TEMPLATE", "CAPACITY", "ALGORITHM", "LEASE", "REFRESH"].map(str::to_owned).to_vec();
    let rows = loaded.repository.templates().map(|template| {
        let settings = &template.settings;
        vec![
            template.identifier_glob.clone(),
            number(settings.capacity.get()),
            settings.kind.name().to_owned(),
            format!("{} s", settings.lease.0 / 1000),
            format!("{} s", settings.refresh.0 / 1000),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let count = rows.len() - 1;
    let templates = if count == 1 { "template" } else { "templates" };
    let policy = loaded.access.as_deref();
    let rules = policy.map_or_else(String::new, |policy| {
        let count = policy.rules().len();
        format!(", {count} {} of access", if count == 1 { "rule" } else { "rules" })
    });
    say(format_args!("{} is fine: {count} {templates}{rules}", file.display()))?;
    if loaded.has_templates() {
        say(table(&rows))?;
    } else {
        say("without `resources` it is for a node with a parent")?;
    }
    policy.map_or(Ok(()), |policy| say(table(&rules_of(policy))))
}

fn rules_of(policy: &Policy) -> Vec<Vec<String>> {
    let heading = ["RULE", "WHO", "MAY", "RESOURCES", "CLIENTS", "NODES", "MAX PRIORITY"].map(str::to_owned).to_vec();
    let rows = policy.rules().iter().map(|rule| {
        let only = |patterns: &[Pattern], action: Action| {
            if rule.may.has(action) { in_words(patterns) } else { String::new() }
        };
        vec![
            rule.name.clone(),
            in_words(&rule.who),
            rule.may.to_string(),
            in_words(&rule.resources),
            only(&rule.clients, Action::Ask),
            only(&rule.nodes, Action::Lend),
            rule.max_priority.map_or_else(String::new, |most| most.to_string()),
        ]
    });
    std::iter::once(heading).chain(rows).collect()
}
