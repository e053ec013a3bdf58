//! `access:`, the list of rules. Warns about rules and keys without effect.

use leaseway_core::policy::access::{Action, Actions, Identity, PLACEHOLDER, Pattern, Policy, Rule};

use super::{
    diagnostic::{Findings, Position},
    yaml::{Field, Fields, Node, unknown},
};

const KEYS: [&str; 7] = ["name", "who", "may", "resources", "clients", "nodes", "max_priority"];
/// Maximum number of rules. Bounds the time of decisions that are not cached.
const MAX_RULES: usize = 1000;
/// Maximum number of patterns in a list of a rule.
const MAX_PATTERNS: usize = 100;

const WHO: &str =
    "an identity or a pattern (in quotes), or a list of them; `anonymous` is a caller without an identity";
const MAY: &str = "an action like `ask`, or a list of actions";
const PATTERNS: &str = "an id or a pattern (in quotes), or a list of them";
const PRIORITY: &str = "a whole number from -32768 to 32767";
const EXAMPLE: &str = r#"access: [{who: "web-*", may: ask, resources: "db/*"}]"#;

struct LocatedRule {
    at: Position,
    rule: Rule,
}

pub fn read_access(field: &Field<'_, '_>, found: &mut Findings) -> Policy {
    if field.is_empty_list() {
        found.error(field.at(), format!("`access` has no rules, so nothing is allowed; for example: {EXAMPLE}"));
    }
    let list = field.list(MAX_RULES, &format!("a list of rules; for example: {EXAMPLE}"), found);
    let rules = list.iter().enumerate().filter_map(|(index, item)| read_rule(index, item, found));
    let rules: Vec<LocatedRule> = rules.collect();
    check_rules(&rules, found);
    if !rules.is_empty() && !rules.iter().any(|located| located.rule.may.has(Action::Configure)) {
        let message = "no rule lets an identity `configure`: only the holder of the token in the server's \
                       --admin-token-file can change this configuration";
        found.warn(field.key, message);
    }
    Policy::new(rules.into_iter().map(|located| located.rule).collect())
}

fn read_rule(index: usize, item: &Node<'_>, found: &mut Findings) -> Option<LocatedRule> {
    let item = Field::element("a rule", item);
    let fields = item.map(&KEYS, found)?;
    let name = fields.optional("name").and_then(|field| field.text("text", found));
    let may = read_may(&item, &fields, found);
    let patterns = |key: &str, default: &[&str], found: &mut Findings| match fields.optional(key) {
        Some(field) => read_patterns(&field, PATTERNS, found),
        None => default.iter().map(|text| Pattern::new(text).expect("a default")).collect(),
    };
    let rule = Rule {
        name: name.map_or_else(|| format!("rule {}", index + 1), str::to_owned),
        who: read_who(&item, &fields, found),
        may,
        resources: patterns("resources", &["*"], found),
        clients: patterns("clients", &[PLACEHOLDER, "{identity}/*"], found),
        nodes: patterns("nodes", &[PLACEHOLDER], found),
        max_priority: fields.optional("max_priority").and_then(|field| {
            let range = i16::MIN.into()..=i16::MAX.into();
            field.whole(range, PRIORITY, found).and_then(|most| i16::try_from(most).ok())
        }),
    };
    warn_of_keys(&fields, &rule, found);
    Some(LocatedRule { at: item.at(), rule })
}

fn read_who(item: &Field<'_, '_>, fields: &Fields<'_, '_>, found: &mut Findings) -> Vec<Pattern> {
    let Some(field) = fields.get("who") else {
        found.error(item.at(), format!("a rule needs `who`: {WHO}"));
        return Vec::new();
    };
    let who = read_patterns(&field, WHO, found);
    for pattern in &who {
        let text = pattern.text();
        if pattern.has_placeholder() {
            found.error(field.at(), format!("`{text}`: `{PLACEHOLDER}` is not allowed in `who`"));
        } else if let Err(error) = Identity::parse(text) {
            found.error(field.at(), format!("`{text}` matches no identity: {error}"));
        }
    }
    who
}

fn read_may(item: &Field<'_, '_>, fields: &Fields<'_, '_>, found: &mut Findings) -> Actions {
    let known = Action::ALL.map(Action::name);
    let Some(field) = fields.get("may") else {
        found.error(item.at(), format!("a rule needs `may`: one or more of {}", known.join(", ")));
        return Actions::default();
    };
    let mut may = Vec::new();
    for (at, word) in texts(&field, MAY, found) {
        match Action::named(word) {
            Some(action) => may.push(action),
            None => found.error(at, unknown("action", word, &known)),
        }
    }
    may.into_iter().collect()
}

fn read_patterns(field: &Field<'_, '_>, expected: &str, found: &mut Findings) -> Vec<Pattern> {
    let mut patterns: Vec<Pattern> = Vec::new();
    for (at, text) in texts(field, expected, found) {
        match Pattern::new(text) {
            Ok(_) if text.is_empty() => found.error(at, "an empty pattern matches no id"),
            Ok(pattern) if patterns.contains(&pattern) => found.warn(at, format!("`{text}` is in this list twice")),
            Ok(pattern) => patterns.push(pattern),
            Err(error) => found.error(at, format!("`{text}`: {error}")),
        }
    }
    if patterns.len() > 1 && patterns.iter().any(Pattern::matches_everything) {
        found.warn(field.at(), "`*` matches everything, so the other patterns of this list have no effect");
    }
    patterns
}

/// A text, or a list of texts.
fn texts<'n>(field: &Field<'n, '_>, expected: &str, found: &mut Findings) -> Vec<(Position, &'n str)> {
    if !field.is_list() {
        return field.text(expected, found).map(|text| (field.at(), text)).into_iter().collect();
    }
    if field.is_empty_list() {
        found.error(field.at(), format!("an empty list, expected {expected}"));
    }
    let items = field.list(MAX_PATTERNS, expected, found).iter();
    let items = items.map(|item| Field::element("an element", item));
    items.filter_map(|item| item.text(expected, found).map(|text| (item.at(), text))).collect()
}

/// Warns about keys that do not apply to the actions of a rule, and about a placeholder in a rule for anonymous
/// callers.
fn warn_of_keys(fields: &Fields<'_, '_>, rule: &Rule, found: &mut Findings) {
    let (may, is_of_holders) = (rule.may, rule.may.iter().any(Action::is_of_holders));
    let relevant = [
        ("clients", may.has(Action::Ask), "ask"),
        ("nodes", may.has(Action::Lend), "lend"),
        ("max_priority", is_of_holders, "ask or lend"),
        ("resources", may.iter().any(Action::is_of_resources), "do anything to a resource"),
    ];
    for (key, is_relevant, action) in relevant {
        if let Some(field) = fields.optional(key).filter(|_| !is_relevant && may != Actions::default()) {
            found.warn(field.key, format!("`{key}` has no effect: the rule lets no identity {action}"));
        }
    }
    let is_of_anonymous = rule.who.iter().any(|pattern| pattern.text() == Identity::Anonymous.text());
    for (key, action, patterns) in [("clients", Action::Ask, &rule.clients), ("nodes", Action::Lend, &rule.nodes)] {
        let nothing = !patterns.is_empty() && patterns.iter().all(Pattern::has_placeholder);
        let field = fields.get(key).or_else(|| fields.get("who"));
        if let Some(field) = field.filter(|_| is_of_anonymous && may.has(action) && nothing) {
            let message = format!(
                "anonymous callers have no identity for `{PLACEHOLDER}`: list in `{key}` the ids that they may use"
            );
            found.warn(field.at(), message);
        }
    }
}

/// Reports duplicate names, and warns about redundant rules.
fn check_rules(rules: &[LocatedRule], found: &mut Findings) {
    for (index, LocatedRule { at, rule }) in rules.iter().enumerate() {
        let before = &rules[..index];
        if let Some(other) = before.iter().find(|other| other.rule.name == rule.name) {
            let (name, line) = (&rule.name, other.at.line);
            found.error(
                *at,
                format!(
                    "duplicate rule name `{name}`, already used on line {line}; rename one of the rules, because \
                     denials show only the name"
                ),
            );
        } else if let Some(other) = before.iter().find(|other| is_covered(rule, &other.rule)) {
            let name = &other.rule.name;
            found.warn(*at, format!("this rule has no effect: rule `{name}` already allows the same"));
        }
    }
}

/// Whether another rule allows everything that this one allows, by comparing their texts.
fn is_covered(rule: &Rule, other: &Rule) -> bool {
    let all_in = |patterns: &[Pattern], others: &[Pattern]| patterns.iter().all(|pattern| others.contains(pattern));
    let all_below = |patterns: &[Pattern], others: &[Pattern]| {
        others.iter().any(Pattern::matches_everything) || all_in(patterns, others)
    };
    all_in(&rule.who, &other.who)
        && rule.may.union(other.may) == other.may
        && all_below(&rule.resources, &other.resources)
        && (!rule.may.has(Action::Ask) || all_below(&rule.clients, &other.clients))
        && (!rule.may.has(Action::Lend) || all_below(&rule.nodes, &other.nodes))
        && other.max_priority.is_none_or(|most| rule.max_priority.is_some_and(|own| own <= most))
}
