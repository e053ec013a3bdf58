//! The configuration that resources are run by.

use std::sync::Arc;

use leaseway_core::{Overrides, Repository, Settings, access::Policy};

use crate::config::Loaded;

/// A configuration, and where it came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigInForce {
    pub(crate) repository: Repository,
    /// Who may do what, if the configuration says it.
    pub(crate) access: Option<Arc<Policy>>,
    /// Counts replacements; the first is 1.
    pub(crate) version: u64,
    /// A file name, or what stands in for one.
    pub(crate) source: String,
    /// Why the newest attempt to replace it was refused.
    pub(crate) rejected: Option<String>,
    /// What operators have set for a time in place of what templates say; the node puts it in.
    pub(crate) overrides: Arc<Overrides>,
}

impl ConfigInForce {
    /// Whether a configuration would change nothing.
    pub(crate) fn says_the_same_as(&self, loaded: &Loaded) -> bool {
        (&self.repository, &self.access) == (&loaded.repository, &loaded.access)
    }

    pub(super) fn template_of(&self, id: &str) -> Option<String> {
        self.repository.find(id).map(|template| template.identifier_glob.clone())
    }

    /// What the template of a resource says, if one matches.
    pub(crate) fn template_settings(&self, id: &str) -> Option<Settings> {
        self.repository.find(id).map(|template| template.settings.clone())
    }

    pub(super) fn settings_for(&self, id: &str) -> Settings {
        self.template_settings(id).unwrap_or_else(Settings::unmatched)
    }
}
