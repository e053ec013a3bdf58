//! The configuration that a server starts with, were there nothing else.

use std::path::Path;

use leaseway_quorum::Configuration;

use crate::{
    clock::Clock,
    config::{self, LoadError, Loaded},
};

/// What a file says, or what stands in for one.
pub(crate) struct FirstConfiguration {
    pub(crate) loaded: Loaded,
    pub(crate) source: String,
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
            return Ok(FirstConfiguration { loaded: config::development(), source: "development default".into() });
        };
        let loaded = config::load(path)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(FirstConfiguration { loaded, source: path.display().to_string() })
    }

    /// As the first version that peers keep.
    pub(crate) fn fact(&self, clock: Clock, by: &str) -> Configuration {
        let (text, source) = (self.loaded.text.as_str().into(), self.source.as_str().into());
        Configuration { version: 1, text, source, at_unix: clock.now().unix, by: by.into() }
    }
}
