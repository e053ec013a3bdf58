//! `leaseway config check`.

use std::path::{Path, PathBuf};

use clap::Args;
use leaseway_core::policy::access::{Action, Pattern, Policy, Rule};
use leaseway_core::{
    policy::{client_rules::ClientRule, groups::GroupRule, template::Template},
    types::Amount,
};
use leaseway_server::config::{self, Loaded};
use serde_json::{Value, json};

use super::differences::in_words;
use crate::Outcome;
use crate::output::{Output, number, print, print_json, table};

#[derive(Args)]
pub(crate) struct CheckFile {
    /// Configuration file (YAML, Doorman-compatible)
    #[arg(value_parser = super::file_path)]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl CheckFile {
    pub(super) fn run(self) -> Outcome {
        let loaded = config::load(&self.file)?;
        if self.output.is_json() {
            print_json(as_json(&self.file, &loaded))
        } else {
            print_configuration(&self.file, &loaded)
        }
    }
}

fn client(rule: &ClientRule) -> Value {
    json!({
        "glob": &*rule.pattern, "weight": rule.weight, "min": rule.min.get(), "max": rule.max.map(Amount::get),
    })
}

fn group(rule: &GroupRule) -> Value {
    let limits = &rule.limits;
    json!({
        "group": &*limits.pattern, "weight": limits.weight, "minimum": limits.min.get(),
        "maximum": limits.max.map(Amount::get), "lend": rule.lends,
    })
}

fn as_json(file: &Path, loaded: &Loaded) -> Value {
    let template = |template: &Template| {
        let settings = &template.settings;
        json!({
            "template": template.identifier_glob, "capacity": settings.capacity.get(),
            "algorithm": settings.kind.name(), "lease_seconds": settings.lease.0 / 1000,
            "refresh_seconds": settings.refresh.0 / 1000, "clients": settings.clients.iter().map(client).collect::<Vec<_>>(),
            "groups": settings.groups.as_ref().map(|groups| json!({
                "from": groups.from.to_string(), "rules": groups.rules().iter().map(group).collect::<Vec<_>>(),
            })),
        })
    };
    let texts = |patterns: &[Pattern]| patterns.iter().map(|pattern| pattern.text().to_owned()).collect::<Vec<_>>();
    let rule = |rule: &Rule| {
        json!({
            "rule": rule.name, "who": texts(&rule.who), "may": rule.may.to_string(),
            "resources": texts(&rule.resources), "clients": texts(&rule.clients), "nodes": texts(&rule.nodes),
            "max_priority": rule.max_priority,
        })
    };
    let rules = loaded.access.as_deref().map(|policy| policy.rules().iter().map(rule).collect::<Vec<_>>());
    json!({
        "file": file.display().to_string(), "warnings": loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "templates": loaded.repository.templates().map(template).collect::<Vec<_>>(), "rules": rules,
    })
}

fn print_configuration(file: &Path, loaded: &Loaded) -> Outcome {
    for warning in &loaded.warnings {
        print(format_args!("warning: {warning}"))?;
    }
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
    let rows: Vec<Vec<String>> = rows.collect();
    let (count, templates) = (rows.len(), if rows.len() == 1 { "template" } else { "templates" });
    let policy = loaded.access.as_deref();
    let rules = policy.map_or_else(String::new, |policy| {
        let count = policy.rules().len();
        format!(", {count} access {}", if count == 1 { "rule" } else { "rules" })
    });
    print(format_args!("{} is valid: {count} {templates}{rules}", file.display()))?;
    if loaded.has_templates() {
        print(table(&["TEMPLATE", "CAPACITY", "ALGORITHM", "LEASE", "REFRESH"], rows))?;
    } else {
        print("without `resources`, this configuration is for a node with a parent")?;
    }
    let clients = clients_of(loaded);
    if !clients.is_empty() {
        print(table(&["TEMPLATE", "CLIENTS", "WEIGHT", "MIN", "MAX"], clients))?;
    }
    let groups = groups_of(loaded);
    if !groups.is_empty() {
        print(table(&["TEMPLATE", "GROUPS", "WEIGHT", "MINIMUM", "MAXIMUM", "LENT"], groups))?;
    }
    let heading = ["RULE", "WHO", "MAY", "RESOURCES", "CLIENTS", "NODES", "MAX PRIORITY"];
    policy.map_or(Ok(()), |policy| print(table(&heading, rules_of(policy))))
}

/// Rules for clients, in the order of evaluation.
fn clients_of(loaded: &Loaded) -> Vec<Vec<String>> {
    let row = |template: &Template, rule: &ClientRule| {
        vec![
            template.identifier_glob.clone(),
            rule.pattern.to_string(),
            rule.weight.to_string(),
            number(rule.min.get()),
            rule.max.map_or_else(|| "none".to_owned(), |max| number(max.get())),
        ]
    };
    let templates = loaded.repository.templates();
    templates.flat_map(|template| template.settings.clients.iter().map(move |rule| row(template, rule))).collect()
}

/// Groups of clients, and the rules for them in the order of evaluation.
fn groups_of(loaded: &Loaded) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for template in loaded.repository.templates() {
        let Some(groups) = &template.settings.groups else { continue };
        let name = &template.identifier_glob;
        rows.push(vec![name.clone(), format!("from {}", groups.from)]);
        rows.extend(groups.rules().iter().map(|rule| {
            let limits = &rule.limits;
            vec![
                name.clone(),
                limits.pattern.to_string(),
                limits.weight.to_string(),
                number(limits.min.get()),
                limits.max.map_or_else(|| "none".to_owned(), |max| number(max.get())),
                if rule.lends { "yes" } else { "no" }.to_owned(),
            ]
        }));
    }
    rows
}

fn rules_of(policy: &Policy) -> Vec<Vec<String>> {
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
    rows.collect()
}
