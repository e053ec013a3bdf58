//! The configuration that a server starts with, unless its peers have one.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use leaseway_core::{
    policy::{settings::Settings, template::Repository},
    types::Millis,
};
use leaseway_raft::Configuration;

use crate::{
    config::{self, LoadError, Loaded},
    runtime::clock::Clock,
};

/// The longest time that clients may trust a lease granted under this configuration.
pub(crate) fn longest_lease(repository: &Repository) -> Millis {
    let settings = repository.templates().map(|template| &template.settings);
    let lengths = settings.map(|settings| settings.last_lease_over(Millis(0)));
    lengths.max().unwrap_or_else(|| Settings::unmatched().last_lease_over(Millis(0)))
}

/// The longest time that clients may trust a lease of this length.
pub(crate) fn believed(lease: Millis) -> Millis {
    Settings { lease, ..Settings::unmatched() }.last_lease_over(Millis(0))
}

/// The configuration file, or the default configuration if there is none.
pub(crate) struct InitialConfiguration {
    pub(crate) loaded: Loaded,
    pub(crate) source: String,
    /// Read from a file.
    pub(crate) is_file: bool,
}

impl InitialConfiguration {
    /// `remembers`: the server has a data directory.
    pub(crate) fn read(path: Option<&Path>, remembers: bool) -> Result<InitialConfiguration, LoadError> {
        let Some(path) = path else {
            if !remembers {
                tracing::warn!(
                    "no --config: this is a development server. Every resource has capacity 100, shared fairly; \
                     a restart forgets all leases"
                );
            }
            return Ok(InitialConfiguration {
                loaded: config::development(),
                source: "development default".into(),
                is_file: false,
            });
        };
        let read = InitialConfiguration::of_file(path, false)?;
        let learning = read
            .loaded
            .repository
            .templates()
            .filter(|template| template.settings.shares())
            .map(|template| template.settings.learning_until(Millis(0)));
        if let Some(learning) = learning.max().filter(|learning| !remembers && learning.0 > 0) {
            tracing::warn!(
                "without --data this server keeps no state over a restart. It is in learning mode until {} ({} s): \
                 clients that have leases keep them, and clients without a lease get nothing, because leases of an \
                 earlier server may still be in use. To avoid this at later starts, use --data DIRECTORY. \
                 `learning_mode_duration: 0` in a template turns learning mode off; that is safe only if no client can \
                 have a lease of an earlier server",
                humantime::format_rfc3339_seconds(SystemTime::now() + Duration::from_millis(learning.0)),
                learning.0.div_ceil(1000)
            );
        }
        Ok(read)
    }

    /// The configuration of a node with a parent. Its file contains only the policy.
    pub(crate) fn of_parent(path: Option<&Path>, addresses: &[String]) -> Result<InitialConfiguration, LoadError> {
        let Some(path) = path else {
            let source = format!("the parent at {}", addresses.join(", "));
            return Ok(InitialConfiguration { loaded: Loaded::empty(), source, is_file: false });
        };
        InitialConfiguration::of_file(path, true)
    }

    fn of_file(path: &Path, has_parent: bool) -> Result<InitialConfiguration, LoadError> {
        let (loaded, source) = (config::load(path)?, path.display().to_string());
        loaded.check_templates(&source, has_parent)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(InitialConfiguration { loaded, source, is_file: true })
    }

    /// The first version for the peers; `None` without a text.
    pub(crate) fn configuration(&self, clock: Clock, by: &str) -> Option<Configuration> {
        if self.loaded.text.is_empty() {
            return None;
        }
        let (text, source) = (self.loaded.text.as_str().into(), self.source.as_str().into());
        Some(Configuration { version: 1, text, source, at_unix: clock.now().unix, by: by.into() })
    }
}
