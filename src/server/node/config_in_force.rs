//! The configuration in force.

use std::sync::{Arc, LazyLock};

use leaseway_core::policy::{access::Policy, overrides::Overrides, settings::Settings, template::Repository};

use crate::config::Loaded;

/// A configuration, and where it came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigInForce {
    pub(crate) repository: Repository,
    /// The access policy, if the configuration has one.
    pub(crate) access: Option<Arc<Policy>>,
    /// Starts at 1 and counts replacements.
    pub(crate) version: u64,
    /// A file name, or a description.
    pub(crate) source: String,
    /// The YAML as the operator wrote it. Empty if the templates come from a parent.
    pub(crate) text: Arc<str>,
    /// Why the newest replacement was refused, if it was.
    pub(crate) rejected: Option<String>,
    /// Temporary settings of operators. The node actor sets them.
    pub(crate) overrides: Arc<Overrides>,
}

impl ConfigInForce {
    pub(crate) fn is_same_as(&self, loaded: &Loaded) -> bool {
        (&self.repository, &self.access) == (&loaded.repository, &loaded.access)
    }

    pub(super) fn template_of(&self, id: &str) -> Option<String> {
        self.repository.find(id).map(|template| template.identifier_glob.clone())
    }

    /// The settings of the matching template, if there is one.
    pub(crate) fn template_settings(&self, id: &str) -> Option<Arc<Settings>> {
        self.repository.find(id).map(|template| Arc::clone(&template.settings))
    }

    pub(super) fn settings_for(&self, id: &str) -> Arc<Settings> {
        static UNMATCHED: LazyLock<Arc<Settings>> = LazyLock::new(|| Settings::unmatched().into());
        self.template_settings(id).unwrap_or_else(|| Arc::clone(&UNMATCHED))
    }
}
