//! Configuration files.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

/// By default leases outlast the test, and there is no learning mode and no minimum request interval.
#[derive(Clone, Copy)]
pub(crate) struct Template<'a> {
    pub(crate) glob: &'a str,
    pub(crate) capacity: f64,
    pub(crate) kind: &'a str,
    pub(crate) lease: u64,
    pub(crate) refresh: u64,
    pub(crate) learning: u64,
    pub(crate) min_request_interval: u64,
}

impl<'a> Template<'a> {
    pub(crate) fn fair(glob: &'a str, capacity: f64) -> Template<'a> {
        let (lease, refresh, learning, min_request_interval) = (3600, 600, 0, 0);
        Template { glob, capacity, kind: "FAIR_SHARE", lease, refresh, learning, min_request_interval }
    }

    pub(crate) fn text(&self) -> String {
        let Template { glob, capacity, kind, lease, refresh, learning, min_request_interval } = self;
        format!(
            "- identifier_glob: \"{glob}\"
  capacity: {capacity}
  algorithm:
    kind: {kind}
    lease_length: {lease}
    refresh_interval: {refresh}
    learning_mode_duration: {learning}
    parameters:
    - name: min_request_interval
      value: {min_request_interval}
"
        )
    }
}

pub(crate) fn text(templates: &[Template<'_>]) -> String {
    let templates: String = templates.iter().map(Template::text).collect();
    format!("resources:\n{templates}")
}

/// Dropping it deletes the file.
pub(crate) struct ConfigFile {
    directory: TempDir,
    path: PathBuf,
}

impl ConfigFile {
    pub(crate) fn new(text: &str) -> ConfigFile {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leaseway.yaml");
        fs::write(&path, text).unwrap();
        ConfigFile { directory, path }
    }

    pub(crate) fn of(templates: &[Template<'_>]) -> ConfigFile {
        ConfigFile::new(&text(templates))
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Overwrites the file in place.
    pub(crate) fn rewrite(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    /// Replaces the file atomically, with a rename.
    pub(crate) fn replace(&self, text: &str) {
        let other = self.directory.path().join("other");
        fs::write(&other, text).unwrap();
        fs::rename(other, &self.path).unwrap();
    }
}
