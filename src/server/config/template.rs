//! `resources:`, the list of templates. `*` must be last, patterns must be unique, and templates without an algorithm
//! inherit that of `*`.

use std::collections::HashMap;

use leaseway_core::{
    policy::{
        client_rules::{ClientRule, ClientRules},
        groups::{GroupPattern, GroupRule, GroupSettings},
        settings::{AlgorithmKind, SafeCapacity, SettingsError},
        template::{Repository, Template},
    },
    types::{Amount, AmountError, Glob},
};

use super::{
    algorithm::Algorithm,
    diagnostic::{Findings, Position},
    yaml::{Field, Node},
};

const KEYS: [&str; 7] =
    ["identifier_glob", "capacity", "safe_capacity", "description", "algorithm", "clients", "groups"];
const MAX_TEMPLATES: usize = 10_000;
const IDENTIFIER: &str = "a resource id or a pattern (in quotes if it begins with `*`, `[` or `{`)";
const CAPACITY: &str = "a number like 100 or 7.5, or a rate like 60000/min";
const SAFE_CAPACITY: &str = "a number, -1 for no limit";

const CLIENT_KEYS: [&str; 4] = ["glob", "weight", "min", "max"];
const CLIENT_LIST: &str = "a list of `{glob: …, weight: …, min: …, max: …}`";
const CLIENT_GLOB: &str = "the id of a client or a pattern (in quotes if it begins with `*`, `[` or `{`)";
const WEIGHT: &str = "a whole number from 1 to 1000";
const CLIENT_AMOUNT: &str = "a number like 10 or 7.5";

const GROUPS_KEYS: [&str; 2] = ["from", "rules"];
const GROUP_KEYS: [&str; 5] = ["group", "weight", "minimum", "maximum", "lend"];
const GROUP_FROM: &str = "the parts of a client id that name its groups, like \"{org}/{team}/*\" (in quotes)";
const GROUP_LIST: &str = "a list of `{group: …, weight: …, minimum: …, maximum: …, lend: …}`";
const GROUP: &str = "the path of a group or a pattern (in quotes if it begins with `*`, `[` or `{`)";
const GROUP_AMOUNT: &str = "a number like 100 or 7.5, or a rate like 60000/min";

/// A minimal configuration, for messages.
pub(super) const EXAMPLE: &str = r#"resources: [{identifier_glob: "*", capacity: 100, algorithm: {kind: FAIR_SHARE}}]"#;

/// A template as written, without inherited values.
struct Draft<'n> {
    /// The position for messages about the whole template.
    at: Position,
    identifier: &'n str,
    glob: Glob,
    capacity: Given<Amount>,
    safe_capacity: SafeCapacity,
    description: Option<&'n str>,
    algorithm: Option<Algorithm>,
    clients: ClientRules,
    /// With the position for messages about it.
    groups: Option<(Position, GroupSettings)>,
}

#[derive(Clone, Copy)]
enum Given<T> {
    No,
    /// Invalid, and already reported.
    Bad,
    Good(T),
}

/// Reads all templates. They are complete if there are no mistakes.
pub fn read_resources(field: &Field<'_, '_>, found: &mut Findings) -> Repository {
    if field.is_empty_list() {
        found.error(field.at(), format!("`resources` has no templates; for example: {EXAMPLE}"));
    }
    let list = field.list(MAX_TEMPLATES, &format!("a list of templates; for example: {EXAMPLE}"), found);
    let drafts: Vec<Draft<'_>> = list.iter().filter_map(|item| read_template(item, found)).collect();
    check_order(&drafts, found);
    let star = drafts.iter().find(|draft| draft.glob.matches_everything());
    let inherited = star.map(|star| star.algorithm.clone());
    Repository::new(drafts.into_iter().filter_map(|draft| finish(draft, inherited.as_ref(), found)).collect())
}

fn read_template<'n>(item: &'n Node<'_>, found: &mut Findings) -> Option<Draft<'n>> {
    let item = Field::element("a template", item);
    let fields = item.map(&KEYS, found)?;
    // Reads all fields even if the identifier is missing, to report all mistakes.
    let capacity = match fields.get("capacity") {
        None => Given::No,
        Some(field) => field.amount(CAPACITY, found).map_or(Given::Bad, Given::Good),
    };
    let safe_capacity = fields.optional("safe_capacity");
    let safe_capacity = safe_capacity.and_then(|field| read_safe_capacity(&field, found));
    let description = fields.optional("description");
    let description = description.and_then(|field| field.text("text", found));
    let algorithm = fields.optional("algorithm").map(|field| Algorithm::read(&field, found));
    let clients = fields.optional("clients").map_or_else(ClientRules::default, |field| read_clients(&field, found));
    let groups = fields.optional("groups").and_then(|field| Some((field.key, read_groups(&field, found)?)));
    let Some(identifier) = fields.get("identifier_glob") else {
        found.error(item.at(), "a template needs an `identifier_glob`: a resource id or a pattern");
        return None;
    };
    let at = identifier.at();
    let (identifier, glob) = read_identifier(&identifier, found)?;
    Some(Draft {
        at,
        identifier,
        glob,
        capacity,
        safe_capacity: safe_capacity.unwrap_or_default(),
        description,
        algorithm,
        clients,
        groups,
    })
}

fn read_identifier<'n>(field: &Field<'n, '_>, found: &mut Findings) -> Option<(&'n str, Glob)> {
    let text = field.text(IDENTIFIER, found)?;
    if text.is_empty() {
        field.wrong(IDENTIFIER, found);
        return None;
    }
    match Glob::new(text) {
        Ok(glob) => Some((text, glob)),
        Err(error) => {
            field.refuse(error, found);
            None
        }
    }
}

fn read_safe_capacity(field: &Field<'_, '_>, found: &mut Findings) -> Option<SafeCapacity> {
    let number = field.quantity(SAFE_CAPACITY, found)?;
    if number == -1.0 {
        return Some(SafeCapacity::Unlimited);
    }
    match Amount::new(number) {
        Ok(amount) => return Some(SafeCapacity::Fixed(amount)),
        Err(AmountError::Negative) => field.refuse("must not be negative; only -1 may be given, for no limit", found),
        Err(error) => field.refuse(error, found),
    }
    None
}

/// Reports templates that can never match.
fn check_order(drafts: &[Draft<'_>], found: &mut Findings) {
    let mut seen = HashMap::new();
    for draft in drafts {
        if let Some(line) = seen.insert(draft.identifier, draft.at.line) {
            let identifier = draft.identifier;
            let message = format!(
                "duplicate `identifier_glob` `{identifier}`: line {line} has the same, so this one would never match"
            );
            found.error(draft.at, message);
        }
    }
    let Some(star) = drafts.iter().position(|draft| draft.glob.matches_everything()) else {
        return;
    };
    // A second `*` is reported as a duplicate.
    if drafts[star..].iter().any(|draft| !draft.glob.matches_everything()) {
        let message =
            "`*` must be the last template: it matches every resource, so patterns after it would never match";
        found.error(drafts[star].at, message);
    }
}

/// Completes a template. `inherited` is the algorithm of `*`, or `None` if there is no `*`.
fn finish(draft: Draft<'_>, inherited: Option<&Option<Algorithm>>, found: &mut Findings) -> Option<(Template, Glob)> {
    let algorithm = draft.algorithm.or_else(|| {
        let algorithm = inherited.cloned().flatten();
        if algorithm.is_none() {
            found.error(draft.at, without_algorithm(&draft.glob, inherited.is_some()));
        }
        algorithm
    })?;
    let capacity = match (draft.capacity, algorithm.kind) {
        (Given::Good(capacity), _) => capacity,
        (Given::No, Some(AlgorithmKind::NoAlgorithm)) => Amount::ZERO,
        (Given::No, Some(kind)) => {
            let message = format!("a template with {} needs a `capacity`, {CAPACITY}", kind.name());
            found.error(draft.at, message);
            return None;
        }
        (Given::No, None) | (Given::Bad, _) => return None,
    };
    let mut settings = algorithm.settings;
    settings.capacity = capacity;
    settings.safe_capacity = draft.safe_capacity;
    settings.clients = draft.clients;
    let (groups_at, groups) = draft.groups.unzip();
    settings.groups = groups.map(Into::into);
    if let Err(error) = settings.check() {
        let at = if let SettingsError::Groups(_) = error { groups_at } else { None };
        found.error(at.unwrap_or(draft.at), error.to_string());
        return None;
    }
    let template = Template {
        identifier_glob: draft.identifier.to_owned(),
        settings: settings.into(),
        parameters: algorithm.parameters,
        description: draft.description.map(str::to_owned),
        declaration: None,
    };
    Some((template, draft.glob))
}

fn without_algorithm(glob: &Glob, star: bool) -> &'static str {
    if glob.matches_everything() {
        "`*` needs an `algorithm`: the other templates inherit it"
    } else if star {
        "no `algorithm`, and the template `*` has none to inherit"
    } else {
        "no `algorithm`, and there is no template `*` to inherit it from"
    }
}

fn read_clients(field: &Field<'_, '_>, found: &mut Findings) -> ClientRules {
    let mut rules = ClientRules::default();
    let mut seen = HashMap::new();
    for item in field.elements(ClientRules::MAX_RULES, "a rule for clients", CLIENT_LIST, found) {
        let Some(rule) = read_client_rule(&item, found) else { continue };
        if let Some(line) = seen.insert(rule.pattern.to_string(), item.at().line) {
            let message =
                format!("duplicate `glob` `{}`: line {line} has the same, so this one would never match", rule.pattern);
            found.error(item.at(), message);
        }
        rules.push(rule);
    }
    rules
}

fn read_client_rule(item: &Field<'_, '_>, found: &mut Findings) -> Option<ClientRule> {
    let fields = item.map(&CLIENT_KEYS, found)?;
    let weight =
        fields.optional("weight").and_then(|field| field.whole(1..=ClientRule::MAX_WEIGHT.into(), WEIGHT, found));
    let mut amount = |key| fields.optional(key).and_then(|field| field.amount(CLIENT_AMOUNT, found));
    let (min, max) = (amount("min"), amount("max"));
    let Some(pattern) = fields.get("glob") else {
        found.error(item.at(), "a rule for clients needs a `glob`: the id of a client or a pattern");
        return None;
    };
    let text = pattern.text(CLIENT_GLOB, found)?;
    let glob = Glob::new(text).map_err(|error| pattern.refuse(error, found)).ok()?;
    let mut rule = ClientRule::new(text, glob);
    rule.weight = weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1);
    (rule.min, rule.max) = (min.unwrap_or(Amount::ZERO), max);
    Some(rule)
}

fn read_groups(field: &Field<'_, '_>, found: &mut Findings) -> Option<GroupSettings> {
    let fields = field.map(&GROUPS_KEYS, found)?;
    let rules = fields.optional("rules").map_or_else(Vec::new, |rules| read_group_rules(&rules, found));
    let Some(from) = fields.get("from") else {
        found.error(field.at(), format!("`groups` needs `from`: {GROUP_FROM}"));
        return None;
    };
    let text = from.text(GROUP_FROM, found)?;
    let pattern = GroupPattern::new(text).map_err(|error| from.refuse(error, found)).ok()?;
    let mut groups = GroupSettings::new(pattern);
    for rule in rules {
        groups.push(rule);
    }
    Some(groups)
}

fn read_group_rules(field: &Field<'_, '_>, found: &mut Findings) -> Vec<GroupRule> {
    let mut rules: Vec<GroupRule> = Vec::new();
    let mut seen = HashMap::new();
    for item in field.elements(GroupSettings::MAX_RULES, "a rule for groups", GROUP_LIST, found) {
        let Some(rule) = read_group_rule(&item, found) else { continue };
        let pattern = &rule.limits.pattern;
        if let Some(line) = seen.insert(pattern.to_string(), item.at().line) {
            let message =
                format!("duplicate `group` `{pattern}`: line {line} has the same, so this one would never match");
            found.error(item.at(), message);
        }
        rules.push(rule);
    }
    rules
}

fn read_group_rule(item: &Field<'_, '_>, found: &mut Findings) -> Option<GroupRule> {
    let fields = item.map(&GROUP_KEYS, found)?;
    let weight =
        fields.optional("weight").and_then(|field| field.whole(1..=ClientRule::MAX_WEIGHT.into(), WEIGHT, found));
    let mut amount = |key| fields.optional(key).and_then(|field| field.amount(GROUP_AMOUNT, found));
    let (minimum, maximum) = (amount("minimum"), amount("maximum"));
    let lends = fields.optional("lend").and_then(|field| field.flag(found)).unwrap_or(true);
    let Some(group) = fields.get("group") else {
        found.error(item.at(), "a rule for groups needs a `group`: the path of a group or a pattern");
        return None;
    };
    let text = group.text(GROUP, found)?;
    let glob = Glob::new(text).map_err(|error| group.refuse(error, found)).ok()?;
    let mut limits = ClientRule::new(text, glob);
    limits.weight = weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1);
    (limits.min, limits.max) = (minimum.unwrap_or(Amount::ZERO), maximum);
    Some(GroupRule { limits, lends })
}
