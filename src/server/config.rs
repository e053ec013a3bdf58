//! The configuration file: parses YAML into a checked [`Repository`], or reports all mistakes.
//!
//! # Format
//! Doorman's files are accepted: a list `resources` of templates with `identifier_glob`, `capacity`, `safe_capacity`,
//! `description` and `algorithm` (`kind` by name or number, `lease_length`, `refresh_interval`,
//! `learning_mode_duration`, `parameters`). See `development.yaml`. Extensions:
//!
//! * A template without `algorithm` inherits that of `*`. `*` is optional, and must be last.
//! * `lease_length` defaults to 60 seconds, `refresh_interval` to 5, or to the lease length if that is shorter.
//! * `parameters` may be a map of names to values instead of a list of `{name, value}`.
//! * Without `kind`, NO_ALGORITHM applies as in Doorman, with a warning. Only then is `capacity` optional.
//! * `clients` of a template, a list of rules: weight, minimum and maximum of clients by their ids.
//! * `groups` of a template: the groups of clients, between which capacity is divided first, and rules for them.
//! * `access`, a list of rules: who may do what. A node with a parent has `access` only.
//!
//! Of YAML: one document, aliases and merge keys, no tags. Numbers are decimal and unquoted.
//!
//! Some mistakes that Doorman ignores are refused here, because they would lead to wrong grants: unknown and duplicate
//! keys, unknown parameters, negative capacities. So are mistakes that crash it: a missing capacity, an unknown kind.
//!
//! # Why not a deserializer
//! A deserializer stops at the first mistake, and loses positions. Here all mistakes are reported together with line
//! and column, including conflicts between templates. So the text is parsed into a tree with positions ([`yaml`]), from
//! which typed readers take values. After a mistake they continue with a substitute value.

mod access;
mod algorithm;
mod diagnostic;
pub(crate) mod error;
pub(crate) mod initial_config;
pub mod limits;
pub(crate) mod listeners;
mod template;
#[cfg(test)]
mod tests;
pub mod watched_files;
pub mod yaml;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_core::{
    policy::{
        access::Policy,
        template::{Repository, Template},
    },
    types::Glob,
};

pub use self::{
    access::read_access,
    diagnostic::{ConfigError, Diagnostic, Findings, Position},
    template::read_resources,
};
use self::{
    error::ServeError,
    yaml::{Document, Field},
};

/// The start of messages about templates on a node with a parent.
pub(crate) const TEMPLATES: &str = "a node with a parent takes its templates from the parent";

/// Maximum length of a configuration in bytes: twice the length of 10,000 templates with all keys.
pub const MAX_BYTES: usize = 4 << 20;

/// The default configuration, as text.
pub const DEVELOPMENT: &str = include_str!("config/development.yaml");

#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Empty if there is only `access`.
    pub repository: Repository,
    /// The policy, if there is one.
    pub access: Option<Arc<Policy>>,
    /// The position of `resources`.
    templates_at: Option<Position>,
    pub text: String,
    /// In the order of the file.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read the configuration file {}: {error}; use a file that this user may read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Reads a configuration file.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let bytes = read_file(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })?;
    Ok(parse_bytes(&path.display().to_string(), &bytes)?)
}

/// Reads at most [`MAX_BYTES`] + 1 bytes of a file. Parsing reports if it is too long.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a secret from a file, without the final line break.
pub(crate) fn read_secret(path: &Path) -> Result<String, ServeError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ServeError::Secret { path: path.to_owned(), why: error.to_string() })?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(ServeError::Secret { path: path.to_owned(), why: "it is empty".into() });
    }
    Ok(text.to_owned())
}

/// Parses a configuration. `file` is its name in messages.
pub fn parse(file: &str, text: &str) -> Result<Loaded, ConfigError> {
    parse_bytes(file, text.as_bytes())
}

/// Like [`parse`], for bytes that may not be UTF-8.
pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Loaded, ConfigError> {
    let empty = format!("the configuration is empty; for example: {}", template::EXAMPLE);
    let Document { content, text, warnings } = yaml::read(file, bytes, "the configuration", &empty, read_content)?;
    let Sections { repository, access, templates_at } = content;
    Ok(Loaded { repository, access: access.map(Arc::new), templates_at, text: text.to_owned(), warnings })
}

/// Parses the templates that are declared under a name: a configuration that has only `resources`, without a lone `*`.
pub(crate) fn parse_declared(name: &Arc<str>, text: &str) -> Result<Vec<(Template, Glob)>, ConfigError> {
    let Loaded { repository, access, templates_at, .. } = parse(name, text)?;
    let mut found = Findings::new(name);
    if access.is_some() {
        found.error(Position::START, "a declaration must not have `access`: only the configuration sets the policy");
    }
    if templates_at.is_none() {
        found.error(Position::START, without_templates());
    }
    let mut templates = repository.into_templates();
    if templates.iter().any(|(_, glob)| glob.matches_everything()) {
        let at = templates_at.unwrap_or(Position::START);
        found.error(
            at,
            "a declaration must not have the template `*`: only the configuration sets one for all other resources",
        );
    }
    found.finish()?;
    templates.iter_mut().for_each(|(template, _)| template.declaration = Some(Arc::clone(name)));
    Ok(templates)
}

struct Sections {
    repository: Repository,
    access: Option<Policy>,
    templates_at: Option<Position>,
}

fn read_content(root: &Field<'_, '_>, found: &mut Findings) -> Sections {
    let fields = root.map(&["resources", "access"], found);
    let get = |key| fields.as_ref().and_then(|fields| fields.get(key));
    let (resources, access) = (get("resources"), get("access"));
    if fields.is_some() && resources.is_none() && access.is_none() {
        found.error(root.at(), without_templates());
    }
    Sections {
        templates_at: resources.as_ref().map(|field| field.key),
        repository: resources.map(|field| read_resources(&field, found)).unwrap_or_default(),
        access: access.map(|field| read_access(&field, found)),
    }
}

fn without_templates() -> String {
    format!("no `resources`; for example: {}", template::EXAMPLE)
}

impl Loaded {
    pub(crate) fn empty() -> Loaded {
        let (text, warnings) = (String::new(), Vec::new());
        Loaded { repository: Repository::default(), access: None, templates_at: None, text, warnings }
    }

    /// Without a text, for tests.
    #[cfg(test)]
    pub(crate) fn of(repository: Repository) -> Loaded {
        Loaded { repository, ..Loaded::empty() }
    }

    pub fn has_templates(&self) -> bool {
        self.templates_at.is_some()
    }

    /// Refuses a configuration without templates at a root, and one with templates below a parent.
    pub fn check_templates(&self, file: &str, has_parent: bool) -> Result<(), ConfigError> {
        let mut found = Findings::new(file);
        match self.templates_at {
            Some(at) if has_parent => found.error(at, format!("{TEMPLATES}: omit `resources` here, or --parent")),
            None if !has_parent => found.error(Position::START, without_templates()),
            _ => {}
        }
        found.finish().map(drop)
    }
}

/// The configuration of a server without a file.
pub fn development() -> Loaded {
    parse("development.yaml", DEVELOPMENT).expect("valid, as tested")
}
