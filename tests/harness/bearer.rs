//! Bearer tokens, and the file that the server checks them against.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::process::leaseway;

/// The server's file of tokens, and a token file for each identity.
pub(crate) struct TokenFiles {
    directory: TempDir,
}

impl TokenFiles {
    pub(crate) fn of(identities: &[&str]) -> TokenFiles {
        let files = TokenFiles { directory: tempfile::tempdir().unwrap() };
        fs::write(files.path("tokens"), "").unwrap();
        identities.iter().for_each(|identity| files.add(identity));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file for `--tokens`.
    pub(crate) fn server(&self) -> String {
        self.path("tokens").display().to_string()
    }

    /// The token file of an identity.
    pub(crate) fn of_identity(&self, identity: &str) -> String {
        self.path(&identity.replace('/', "_")).display().to_string()
    }

    pub(crate) fn token(&self, identity: &str) -> String {
        fs::read_to_string(self.of_identity(identity)).unwrap().trim().to_owned()
    }

    /// Makes a token with `leaseway token new`.
    pub(crate) fn add(&self, identity: &str) {
        let output = leaseway(&["token", "new", identity, "--out", &self.of_identity(identity)]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let before = self.lines();
        self.write(&format!("{before}{}", output.stdout));
    }

    /// The content of the server's file.
    pub(crate) fn lines(&self) -> String {
        fs::read_to_string(self.path("tokens")).unwrap()
    }

    pub(crate) fn remove(&self, identity: &str) {
        fs::remove_file(self.of_identity(identity)).unwrap();
        let before = self.lines();
        let others = before.lines().filter(|line| !line.starts_with(&format!("{identity} ")));
        self.write(&others.map(|line| format!("{line}\n")).collect::<String>());
    }

    /// Atomically replaces the server's file.
    pub(crate) fn write(&self, text: &str) {
        let next = self.path("tokens.next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.path("tokens")).unwrap();
    }
}
