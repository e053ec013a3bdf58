//! The configuration that a server starts with, were there nothing else.

use std::path::Path;

use leaseway_core::{Millis, Repository, Settings};
use leaseway_quorum::Configuration;

use crate::{
    clock::Clock,
    config::{self, LoadError, Loaded},
};

/// The longest that a lease given under this configuration may be believed.
pub(crate) fn longest_lease(repository: &Repository) -> Millis {
    let settings = repository.templates().map(|template| &template.settings);
    let lengths = settings.map(|settings| settings.last_lease_over(Millis(0)));
    lengths.max().unwrap_or_else(|| Settings::unmatched().last_lease_over(Millis(0)))
}

/// For how long leases of this length may be believed by those who were given them.
pub(crate) fn believed(lease: Millis) -> Millis {
    Settings { lease, ..Settings::unmatched() }.last_lease_over(Millis(0))
}

/// What a file says, or what stands in for one.
pub(crate) struct FirstConfiguration {
    pub(crate) loaded: Loaded,
    pub(crate) source: String,
    /// Somebody has named a file.
    pub(crate) is_file: bool,
}

impl FirstConfiguration {
    /// `remembers`: this server keeps what it is told over restarts.
    pub(crate) fn read(path: Option<&Path>, remembers: bool) -> Result<FirstConfiguration, LoadError> {
        let Some(path) = path else {
            if !remembers {
                tracing::warn!(
                    "no --config: this is a development server. Every resource has capacity 100, shared fairly; \
                     nothing is remembered over a restart, and nothing is learnt after one"
                );
            }
            return Ok(FirstConfiguration {
                loaded: config::development(),
                source: "development default".into(),
                is_file: false,
            });
        };
        let loaded = config::load(path)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(FirstConfiguration { loaded, source: path.display().to_string(), is_file: true })
    }

    /// The parent has the templates.
    pub(crate) fn of_parent(addresses: &[String]) -> FirstConfiguration {
        let loaded = Loaded { repository: Repository::default(), text: String::new(), warnings: Vec::new() };
        FirstConfiguration { loaded, source: format!("the parent at {}", addresses.join(", ")), is_file: false }
    }

    /// As the first version that peers keep; none where the parent has it.
    pub(crate) fn fact(&self, clock: Clock, by: &str) -> Option<Configuration> {
        if self.loaded.text.is_empty() {
            return None;
        }
        let (text, source) = (self.loaded.text.as_str().into(), self.source.as_str().into());
        Some(Configuration { version: 1, text, source, at_unix: clock.now().unix, by: by.into() })
    }
}
