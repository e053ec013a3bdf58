//! Reads the files of envoyproxy/ratelimit: YAML with one domain each.
//!
//! Keys that envoyproxy/ratelimit ignores cause warnings with file and line. Files that it refuses are refused, and so
//! is a limit without a number, which it reads as 0.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use leaseway_server::config::{
    self, ConfigError, Diagnostic, Position,
    yaml::{self, Document, Field, Fields, Findings},
};

use prost_types::Struct;
use serde_json::Value as Json;

use super::{
    definition::{self, DescriptorDefinition, DomainDefinition, FLAGS, LimitDefinition, REQUESTS, Report, Stated},
    metadata,
    rules::{Domain, Rules},
};

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
/// The maximum number of values in the metadata of a rule. Each answer has them.
const MAX_METADATA: usize = 100;

const EXAMPLE: &str =
    "`domain: shop` and `descriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 10}}]`";

#[derive(Debug)]
pub struct LoadedRules {
    pub rules: Rules,
    /// In the order of the files.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error(
        "cannot read {}: {error}; use a file, or a directory of .yaml files, that this user may read",
        path.display()
    )]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} contains no .yaml or .yml file", .0.display())]
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

/// Reads the rules of these files or directories. With `merge_domains` several files may have the same domain.
pub fn load(paths: &[PathBuf], merge_domains: bool) -> Result<LoadedRules, RulesError> {
    let (mut read, mut wrong, mut written) = (Vec::new(), Vec::new(), SystemTime::UNIX_EPOCH);
    for path in paths {
        for file in files(path)? {
            let modified = std::fs::metadata(&file).and_then(|metadata| metadata.modified());
            written = written.max(modified.unwrap_or(SystemTime::UNIX_EPOCH));
            let bytes = config::read_file(&file).map_err(|error| RulesError::Read { path: file.clone(), error })?;
            match parse(&file.display().to_string(), &bytes) {
                Ok(parsed) => read.push(parsed),
                Err(error) => wrong.push(error),
            }
        }
    }
    let (mut rules, mut warnings) = (Rules::default(), Vec::new());
    rules.written_unix_ms = super::unix_ms(written);
    for Parsed { domain, at, warnings: told } in read {
        let file = Arc::clone(&domain.origin);
        if let Err(message) = definition::add(&mut rules, domain, merge_domains) {
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
    let empty = format!("the file has no rules; a minimal one has {EXAMPLE}");
    let walk = |root: &Field<'_, '_>, found: &mut Findings| read_domain(file, root, found);
    let Document { content: (domain, at), warnings, .. } = yaml::read(file, bytes, "the file", &empty, walk)?;
    Ok(Parsed { domain, at, warnings })
}

fn read_domain(file: &str, root: &Field<'_, '_>, found: &mut Findings) -> (Domain, Position) {
    let (mut name, mut at, mut descriptors) = ("", root.at(), Vec::new());
    if let Some(fields) = fields(root, &OF_FILE, found) {
        if let Some(field) = fields.optional("domain") {
            name = field.text("the name of a domain", found).unwrap_or_default();
            at = if name.is_empty() { at } else { field.at() };
        }
        descriptors = read_descriptors(&fields, found);
    }
    let definition = DomainDefinition { at, name, descriptors };
    (definition::check(definition, file.into(), found), at)
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

fn read_descriptors<'n>(fields: &Fields<'n, '_>, found: &mut Findings) -> Vec<DescriptorDefinition<'n, Position>> {
    let Some(list) = fields.optional("descriptors") else { return Vec::new() };
    let expected = "a list of descriptors, like [{key: user, rate_limit: {unit: second, requests_per_unit: 10}}]";
    let items = list.elements(MAX_DESCRIPTORS, "a descriptor", expected, found);
    items.iter().filter_map(|item| read_descriptor(item, found)).collect()
}

fn read_descriptor<'n>(item: &Field<'n, '_>, found: &mut Findings) -> Option<DescriptorDefinition<'n, Position>> {
    let fields = fields(item, &OF_DESCRIPTOR, found)?;
    let key = text(&fields, "key", "the key of an entry", found);
    let value = text(&fields, "value", "the value of an entry", found);
    let mut flags = Vec::new();
    for name in FLAGS {
        if let Some(field) = fields.get(name).filter(|_| flag(&fields, name, found)) {
            flags.push((name, field.key));
        }
    }
    let metadata = fields.optional("metadata").and_then(|field| read_metadata(&field, found));
    let limit = fields.optional("rate_limit").and_then(|limit| read_limit(&limit, found));
    let descriptors = read_descriptors(&fields, found);
    Some(DescriptorDefinition { at: item.at(), key, value, limit, flags, metadata, descriptors })
}

fn read_metadata(field: &Field<'_, '_>, found: &mut Findings) -> Option<Struct> {
    match field.json(MAX_METADATA) {
        Some(Json::Object(fields)) => return Some(metadata::of_json(fields)),
        Some(_) => field.wrong("a map, like {team: search}", found),
        None => found.error(field.key, format!("`metadata` has more than {MAX_METADATA} values")),
    }
    None
}

/// The text of an optional key, or an empty one.
fn text<'n>(fields: &Fields<'n, '_>, key: &str, expected: &str, found: &mut Findings) -> &'n str {
    fields.optional(key).and_then(|field| field.text(expected, found)).unwrap_or_default()
}

fn flag(fields: &Fields<'_, '_>, key: &str, found: &mut Findings) -> bool {
    fields.optional(key).and_then(|field| field.flag(found)).unwrap_or_default()
}

fn read_limit<'n>(field: &Field<'n, '_>, found: &mut Findings) -> Option<LimitDefinition<'n, Position>> {
    let fields = fields(field, &OF_LIMIT, found)?;
    let requests = fields.optional("requests_per_unit").map(|field| {
        let number = field.whole(0..=u32::MAX.into(), REQUESTS, found);
        Stated { key: field.key, at: field.at(), value: number.and_then(|number| u32::try_from(number).ok()) }
    });
    let unit = fields.optional("unit").map(|field| {
        let name = field.text(&format!("one of {}", definition::units()), found);
        Stated { key: field.key, at: field.at(), value: name.map(Into::into) }
    });
    Some(LimitDefinition {
        at: field.key,
        unlimited: flag(&fields, "unlimited", found),
        requests_per_unit: requests,
        unit,
        name: text(&fields, "name", "a name", found),
        replaces: read_replaced(&fields, found),
    })
}

fn read_replaced<'n>(fields: &Fields<'n, '_>, found: &mut Findings) -> Vec<(Position, &'n str)> {
    let Some(list) = fields.optional("replaces") else { return Vec::new() };
    let items = list.elements(MAX_REPLACED, "an element", "a list of rules by name, like [{name: other}]", found);
    let mut replaced = Vec::new();
    for item in items {
        let Some(fields) = self::fields(&item, &OF_REPLACED, found) else { continue };
        replaced.push((item.at(), text(&fields, "name", "the name of a rule", found)));
    }
    replaced
}

impl Report for Findings {
    type Location = Position;

    fn error(&mut self, at: &Position, message: String) {
        Findings::error(self, *at, message);
    }

    fn warn(&mut self, at: &Position, message: String) {
        Findings::warn(self, *at, message);
    }
}

#[cfg(test)]
mod tests;
