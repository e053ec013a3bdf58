//! The configuration file: YAML text in, a checked [`Repository`] out, or everything that is wrong with it.
//!
//! # What is accepted
//! Doorman's files as they are: a list `resources` of templates with `identifier_glob`, `capacity`, `safe_capacity`,
//! `description` and `algorithm` (`kind` by name or number, `lease_length`, `refresh_interval`,
//! `learning_mode_duration`, `parameters`). `development.yaml` beside this file shows it. Beyond Doorman:
//!
//! * A template without `algorithm` takes all of the algorithm of `*`. `*` itself may be missing; if it is there it is
//!   last.
//! * Without `lease_length` leases last 60 seconds; without `refresh_interval` clients come back after 5, or after the
//!   lease length if that is shorter.
//! * `parameters` may be a map of names to values instead of a list of `{name, value}`.
//! * Without `kind` it is NO_ALGORITHM, as in Doorman, with a warning; only there `capacity` may be missing.
//! * `clients` of a template, a list of rules: weight, minimum and maximum of clients by their ids.
//! * `access`, a list of rules: who may do what. It may stand alone, for a node whose templates are its parent's.
//!
//! Of YAML: one document, aliases and merge keys, no tags. Numbers are decimal and unquoted.
//!
//! What Doorman ignored is refused instead, because it is a mistake that otherwise shows as a wrong grant: unknown and
//! duplicate keys, unknown parameters (Doorman's files may have some, but nothing ever used them), negative capacities.
//! Nothing that crashed it gets through: a missing capacity, an unknown kind.
//!
//! # Why the tree is walked by hand
//! A deserializer stops at the first mistake and forgets places once a value has the right type. We want every mistake
//! of a file at once, each with line and column, what was written and what was expected; also those that only a look at
//! several templates shows. So the text becomes a tree that knows its places (`node`), typed readers take values out of
//! it and note what they cannot read (`read`), and reading goes on with a stand-in to the end (`template`,
//! `algorithm`).

pub(crate) mod error;
pub(crate) mod exposure;
pub(crate) mod initial_config;
pub mod limits;
pub(crate) mod parent_error;
pub(crate) mod secret;
pub(crate) mod service;
pub mod watched_files;

mod access;
mod algorithm;
mod clients;
mod diagnostic;
mod node;
mod read;
mod template;
#[cfg(test)]
mod tests;
pub mod yaml;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_core::{Repository, access::Policy};

pub use self::diagnostic::{ConfigError, Diagnostic, Position};
use self::{diagnostic::Findings, read::Field, yaml::Document};

/// The message for operators who configure templates in two places.
pub(crate) const TEMPLATES: &str = "a node with a parent takes its templates from the parent";

/// The largest configuration that is read, in bytes. 10,000 templates with all keys take about half of it.
pub const MAX_BYTES: usize = 4 << 20;

/// The configuration of a server that is given none, as text to copy from.
pub const DEVELOPMENT: &str = include_str!("config/development.yaml");

/// A configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Its templates; none where there is only `access`.
    pub repository: Repository,
    /// Who may do what; without it nothing is said about that.
    pub access: Option<Arc<Policy>>,
    /// Where its templates begin, if it has any.
    templates_at: Option<Position>,
    /// As it was written.
    pub text: String,
    /// What is allowed but probably not meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Why a file gave no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error("cannot read the configuration file {}: {error}; name a file that this user may read", path.display())]
    Read {
        path: PathBuf,
        /// What the operating system says.
        #[source]
        error: io::Error,
    },
    /// It could be read, and is wrong.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Reads a configuration file.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let bytes = read_file(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })?;
    Ok(parse_bytes(&path.display().to_string(), &bytes)?)
}

/// The bytes of a file, but not many more than [`MAX_BYTES`]: reading them as a configuration says when they are too
/// many.
///
/// One byte more than is allowed shows that a file is too large; the rest of it need not be in memory.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a configuration that is in memory. `file` is what complaints call it.
pub fn parse(file: &str, text: &str) -> Result<Loaded, ConfigError> {
    parse_bytes(file, text.as_bytes())
}

/// As [`parse`], for what may not even be text.
pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Loaded, ConfigError> {
    let empty = format!("the configuration is empty; the least is: {}", template::EXAMPLE);
    let Document { content, text, warnings } = yaml::read(file, bytes, "the configuration", &empty, read_content)?;
    let Sections { repository, access, templates_at } = content;
    Ok(Loaded { repository, access: access.map(Arc::new), templates_at, text: text.to_owned(), warnings })
}

/// What a file says.
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
        repository: resources.map(|field| template::read_resources(&field, found)).unwrap_or_default(),
        access: access.map(|field| access::read_access(&field, found)),
    }
}

fn without_templates() -> String {
    format!("no `resources`; the least is: {}", template::EXAMPLE)
}

impl Loaded {
    /// A configuration that says nothing.
    pub(crate) fn nothing() -> Loaded {
        let (text, warnings) = (String::new(), Vec::new());
        Loaded { repository: Repository::default(), access: None, templates_at: None, text, warnings }
    }

    /// Whether it has templates.
    pub fn has_templates(&self) -> bool {
        self.templates_at.is_some()
    }

    /// Refuses one without templates at a root, and one with templates where the parent has them.
    pub fn check_place(&self, file: &str, has_parent: bool) -> Result<(), ConfigError> {
        let mut found = Findings::new(file);
        match self.templates_at {
            Some(at) if has_parent => found.error(at, format!("{TEMPLATES}: leave out `resources` here, or --parent")),
            None if !has_parent => found.error(Position::START, without_templates()),
            _ => {}
        }
        found.finish().map(drop)
    }
}

/// What a server without a configuration file runs on.
pub fn development() -> Loaded {
    parse("development.yaml", DEVELOPMENT).expect("tested")
}
