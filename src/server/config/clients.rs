//! `clients:` of a template: rules for clients by their ids.

use std::collections::HashMap;

use leaseway_core::{Amount, ClientRule, ClientRules, Glob};

use super::{diagnostic::Findings, read::Field};

const KEYS: [&str; 4] = ["glob", "weight", "min", "max"];
const LIST: &str = "a list of `{glob: …, weight: …, min: …, max: …}`";
const GLOB: &str = "the id of a client or a pattern (in quotes if it begins with `*`, `[` or `{`)";
const WEIGHT: &str = "a whole number from 1 to 1000";
const AMOUNT: &str = "a number like 10 or 7.5";

pub(super) fn read_clients(field: &Field<'_, '_>, found: &mut Findings) -> ClientRules {
    let mut rules = ClientRules::default();
    let mut seen = HashMap::new();
    for item in field.elements(ClientRules::MAX_RULES, "a rule for clients", LIST, found) {
        let Some(rule) = read_rule(&item, found) else { continue };
        if let Some(line) = seen.insert(rule.pattern.to_string(), item.at().line) {
            let message =
                format!("duplicate `glob` `{}`: line {line} has it, this one could never match", rule.pattern);
            found.error(item.at(), message);
        }
        rules.push(rule);
    }
    rules
}

fn read_rule(item: &Field<'_, '_>, found: &mut Findings) -> Option<ClientRule> {
    let fields = item.map(&KEYS, found)?;
    let weight =
        fields.optional("weight").and_then(|field| field.whole(1..=ClientRule::MAX_WEIGHT.into(), WEIGHT, found));
    let mut amount = |key| fields.optional(key).and_then(|field| field.amount(AMOUNT, found));
    let (min, max) = (amount("min"), amount("max"));
    let Some(pattern) = fields.get("glob") else {
        found.error(item.at(), "a rule for clients needs a `glob`: the id of a client or a pattern");
        return None;
    };
    let text = pattern.text(GLOB, found)?;
    let glob = Glob::new(text).map_err(|error| pattern.refuse(error, found)).ok()?;
    let mut rule = ClientRule::new(text, glob);
    rule.weight = weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1);
    (rule.min, rule.max) = (min.unwrap_or(Amount::ZERO), max);
    Some(rule)
}
