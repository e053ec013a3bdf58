//! Reads the files of envoyproxy/ratelimit: YAML with one domain each.
//!
//! Keys that envoyproxy/ratelimit ignores cause warnings with file and line. Files that it refuses are refused, and so
//! is a limit without a number, which it reads as 0.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_server::config::{
    self, ConfigError, Diagnostic, Position,
    yaml::{self, Document, Field, Fields, Findings, unknown},
};

use super::rules::{Domain, Level, Limit, Meters, Node, Rule, Rules, Unit, ValueMatch, ValuePattern};

/// All keys of envoyproxy/ratelimit, which accepts each of them at every level.
const KEYS: [&str; 16] = [
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "shadow_mode",
    "detailed_metric",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "quota_mode",
    "share_threshold",
    "value_to_metric",
    "metadata",
];
const OF_FILE: [&str; 2] = ["domain", "descriptors"];
const OF_DESCRIPTOR: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "shadow_mode",
    "detailed_metric",
    "descriptors",
    "quota_mode",
    "share_threshold",
    "value_to_metric",
    "metadata",
];
const OF_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const OF_REPLACED: [&str; 1] = ["name"];

/// The maximum number of elements in one list.
const MAX_DESCRIPTORS: usize = 100_000;
const MAX_REPLACED: usize = 100;

const EXAMPLE: &str = "domain: shop, and descriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 10}}]";
const REQUESTS: &str = "a whole number from 0 to 4294967295";

#[derive(Debug)]
pub struct LoadedRules {
    pub rules: Rules,
    /// In the order of the files.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("cannot read {}: {error}; name a file, or a directory of .yaml files, that this user may read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} contains no .yaml file", .0.display())]
    NoFile(PathBuf),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<ConfigError>),
}

/// The path itself, or the files of the directory that end in `.yaml` or `.yml`, sorted by name.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, RulesError> {
    let unreadable = |error| RulesError::Read { path: path.to_owned(), error };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: Vec<_> = std::fs::read_dir(path).map_err(unreadable)?.collect::<Result<_, _>>().map_err(unreadable)?;
    let is_rules_file = |file: &PathBuf| {
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && file.extension().is_some_and(|end| end == "yaml" || end == "yml") && file.is_file()
    };
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_rules_file).collect();
    files.sort();
    if files.is_empty() { Err(RulesError::NoFile(path.to_owned())) } else { Ok(files) }
}

/// Reads the rules of these files or directories.
pub fn load(paths: &[PathBuf]) -> Result<LoadedRules, RulesError> {
    let (mut read, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        for file in files(path)? {
            let bytes = config::read_file(&file).map_err(|error| RulesError::Read { path: file.clone(), error })?;
            match parse(&file.display().to_string(), &bytes) {
                Ok(parsed) => read.push(parsed),
                Err(error) => wrong.push(error),
            }
        }
    }
    let (mut rules, mut warnings) = (Rules::default(), Vec::new());
    for Parsed { domain, at, warnings: told } in read {
        let (name, file) = (Arc::clone(&domain.name), Arc::clone(&domain.file));
        if let Err(other) = rules.add(domain) {
            let message = format!("{} has the domain `{name}`, too; write each domain into a single file", other.file);
            let diagnostics = vec![Diagnostic { file, at, message }];
            wrong.push(ConfigError { diagnostics, omitted: 0 });
        }
        warnings.extend(told);
    }
    if wrong.is_empty() { Ok(LoadedRules { rules, warnings }) } else { Err(RulesError::Invalid(wrong)) }
}

/// The content of one file.
#[derive(Debug)]
pub struct Parsed {
    pub domain: Domain,
    at: Position,
    pub warnings: Vec<Diagnostic>,
}

/// Parses a file. `file` is its name in messages.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Parsed, ConfigError> {
    let empty = format!("no rules; a minimal file is {EXAMPLE}");
    let walk = |root: &Field<'_, '_>, found: &mut Findings| read_domain(file, root, found);
    let Document { content: (domain, at), warnings, .. } = yaml::read(file, bytes, "the file", &empty, walk)?;
    Ok(Parsed { domain, at, warnings })
}

fn read_domain(file: &str, root: &Field<'_, '_>, found: &mut Findings) -> (Domain, Position) {
    let mut domain =
        Domain { name: "".into(), file: file.into(), descriptors: Level::default(), meters: Meters::default() };
    let mut at = root.at();
    let Some(fields) = fields(root, &OF_FILE, found) else { return (domain, at) };
    match fields.optional("domain").and_then(|field| Some((field.at(), field.text("the name of a domain", found)?))) {
        Some((_, "")) | None => found.error(root.at(), format!("a file needs a `domain`; a minimal file is {EXAMPLE}")),
        Some((place, name)) => (domain.name, at) = (name.into(), place),
    }
    domain.descriptors = read_level(&fields, &format!("{}.", domain.name), found);
    (domain, at)
}

/// Reads a map. A key that belongs to another level causes a warning.
fn fields<'n, 't>(field: &Field<'n, 't>, here: &[&str], found: &mut Findings) -> Option<Fields<'n, 't>> {
    let fields = field.map(&KEYS, found)?;
    for key in KEYS.iter().filter(|key| !here.contains(key)) {
        if let Some(other) = fields.get(key) {
            found.warn(other.key, format!("`{key}` has no effect here; known here: {}", here.join(", ")));
        }
    }
    Some(fields)
}

fn read_level(fields: &Fields<'_, '_>, parent: &str, found: &mut Findings) -> Level {
    let mut level = Level::default();
    let Some(list) = fields.optional("descriptors") else { return level };
    let expected = "a list of descriptors, like [{key: user, rate_limit: {unit: second, requests_per_unit: 10}}]";
    for item in list.elements(MAX_DESCRIPTORS, "a descriptor", expected, found) {
        let Some(Placed { key, value, path, node }) = read_descriptor(&item, parent, found) else { continue };
        if !level.add(key, value, node) {
            found.error(item.at(), format!("duplicate descriptor `{path}` in this list"));
        }
    }
    level
}

struct Placed<'n> {
    key: &'n str,
    value: ValueMatch,
    path: String,
    node: Node,
}

fn read_descriptor<'n>(item: &Field<'n, '_>, parent: &str, found: &mut Findings) -> Option<Placed<'n>> {
    let fields = fields(item, &OF_DESCRIPTOR, found)?;
    let key = fields.optional("key").and_then(|field| field.text("the key of an entry", found)).unwrap_or_default();
    if key.is_empty() {
        found.error(item.at(), "a descriptor needs a `key`, which is the key of an entry that Envoy sends");
    }
    let value = fields.optional("value").and_then(|field| field.text("the value of an entry", found));
    let value = value.unwrap_or_default();
    let path = if value.is_empty() { format!("{parent}{key}") } else { format!("{parent}{key}_{value}") };
    let shares = flag(&fields, "share_threshold", found);
    let value = match ValuePattern::new(value) {
        Some(pattern) => ValueMatch::Like(pattern),
        None if value.is_empty() => ValueMatch::Any,
        None => ValueMatch::Exactly(value.into()),
    };
    let shares_values = shares && matches!(value, ValueMatch::Like(_));
    warn_of_flags(&fields, shares && !shares_values, found);
    let shadow = flag(&fields, "shadow_mode", found);
    let rule = match fields.optional("rate_limit") {
        Some(limit) => read_rule(&limit, found).map(|rule| Rule { path: path.as_str().into(), shadow, ..rule }),
        None => None,
    };
    if let (None, Some(field)) = (&rule, fields.get("shadow_mode").filter(|_| shadow)) {
        found.warn(field.key, "`shadow_mode` has no effect without a `rate_limit`");
    }
    let below = read_level(&fields, &format!("{path}."), found);
    Some(Placed { key, value, path, node: Node { rule: rule.map(Arc::new), below, shares_values } })
}

fn warn_of_flags(fields: &Fields<'_, '_>, shares_nothing: bool, found: &mut Findings) {
    if let Some(field) = fields.get("share_threshold").filter(|_| shares_nothing) {
        found.warn(field.key, "`share_threshold` has no effect where the `value` has no `*`");
    }
    for (key, why) in [
        ("quota_mode", "the limit works like all others"),
        ("value_to_metric", "metrics are by rule here"),
        ("detailed_metric", "metrics are by rule here"),
    ] {
        if let Some(field) = fields.get(key).filter(|_| flag(fields, key, found)) {
            found.warn(field.key, format!("`{key}` changes nothing: {why}"));
        }
    }
    if let Some(field) = fields.get("metadata") {
        found.warn(field.key, "`metadata` changes nothing: answers carry no dynamic metadata");
    }
}

fn flag(fields: &Fields<'_, '_>, key: &str, found: &mut Findings) -> bool {
    fields.optional(key).and_then(|field| field.flag(found)).unwrap_or_default()
}

fn read_rule(field: &Field<'_, '_>, found: &mut Findings) -> Option<Rule> {
    let fields = fields(field, &OF_LIMIT, found)?;
    let name = fields.optional("name").and_then(|field| field.text("a name", found)).filter(|name| !name.is_empty());
    let replaces = read_replaced(&fields, name, found);
    let limit = read_limit(field, &fields, found)?;
    let name = name.map(Into::into);
    Some(Rule { path: "".into(), limit, shadow: false, name, replaces, meters: Meters::default() })
}

fn read_limit(field: &Field<'_, '_>, fields: &Fields<'_, '_>, found: &mut Findings) -> Option<Limit> {
    let known = Unit::ALL.map(Unit::name);
    let unit = fields.optional("unit");
    if flag(fields, "unlimited", found) {
        for key in ["unit", "requests_per_unit"] {
            if let Some(field) = fields.optional(key) {
                found.error(field.key, format!("`{key}` contradicts `unlimited: true`: leave one of them out"));
            }
        }
        return Some(Limit::Unlimited);
    }
    let requests = match fields.optional("requests_per_unit") {
        Some(field) => field.whole(0..=u32::MAX.into(), REQUESTS, found).and_then(|number| u32::try_from(number).ok()),
        None => {
            found.error(field.key, format!("a limit needs `requests_per_unit`, {REQUESTS}; 0 lets nothing pass"));
            None
        }
    };
    let Some(unit) = unit else {
        found.error(field.key, format!("a limit needs a `unit`, one of {}, or `unlimited: true`", known.join(", ")));
        return None;
    };
    let name = unit.text(&format!("one of {}", known.join(", ")), found)?;
    let Some(unit) = Unit::named(name) else {
        found.error(unit.at(), unknown("unit", name, &known));
        return None;
    };
    Some(Limit::PerUnit { requests: requests?, unit })
}

fn read_replaced(fields: &Fields<'_, '_>, own: Option<&str>, found: &mut Findings) -> Vec<Box<str>> {
    let Some(list) = fields.optional("replaces") else { return Vec::new() };
    let items = list.elements(MAX_REPLACED, "an element", "a list of rules by name, like [{name: other}]", found);
    let mut replaced = Vec::new();
    for item in items {
        let Some(fields) = self::fields(&item, &OF_REPLACED, found) else { continue };
        let name = fields.optional("name").and_then(|field| field.text("the name of a rule", found));
        match name.filter(|name| !name.is_empty()) {
            None => found.error(item.at(), "an element of `replaces` needs the `name` of a rule"),
            Some(name) if own == Some(name) => found.error(item.at(), "a rule cannot replace itself"),
            Some(name) => replaced.push(name.into()),
        }
    }
    replaced
}

#[cfg(test)]
mod tests;
