//! The files of a set. Only the owner can read keys, and existing files are kept unless replacement is requested.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{error::CliError, output::write_file};

/// The name of the CA's files.
pub(super) const CA: &str = "ca";

/// A certificate and its key, as PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    /// In seconds since the epoch.
    pub(super) ends: i64,
}

/// Whether existing files are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Kept,
    Replaced,
}

pub(super) fn certificate(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pem"))
}

pub(super) fn key(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.key"))
}

/// Writes `NAME.pem` and `NAME.key`, each atomically for servers that reload them.
pub(super) fn write(directory: &Path, name: &str, pair: &Pair, existing: Existing) -> Result<[PathBuf; 2], CliError> {
    let (certificate, key) = (certificate(directory, name), key(directory, name));
    if existing == Existing::Kept
        && let Some(path) = [&certificate, &key].into_iter().find(|path| path.exists())
    {
        return Err(CliError::FileExists { path: path.clone() });
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| CliError::Data { path, error }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    write_file(&key, pair.key.as_bytes(), 0o600).map_err(failed(&key))?;
    write_file(&certificate, pair.certificate.as_bytes(), 0o644).map_err(failed(&certificate))?;
    Ok([certificate, key])
}

pub(super) fn read(path: &Path) -> Result<String, CliError> {
    let unreadable = |error| CliError::Certificates(format!("cannot read {}: {error}", path.display()));
    fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn pair(text: &str) -> Pair {
        Pair { certificate: format!("certificate {text}"), key: format!("key {text}"), ends: 0 }
    }

    #[test]
    fn only_the_owner_reads_keys_and_existing_files_are_kept() {
        let temporary = tempfile::tempdir().expect("a directory");
        let directory = temporary.path().join("certs");
        let [certificate, key] = write(&directory, "a", &pair("1"), Existing::Kept).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&key), 0o600);
        let error = write(&directory, "a", &pair("2"), Existing::Kept).expect_err("it is there").to_string();
        assert!(error.contains("a.pem") && error.contains("--force"), "{error}");
        assert_eq!(fs::read_to_string(&key).expect("still there"), "key 1");
        fs::remove_file(&certificate).expect("deleted");
        assert!(write(&directory, "a", &pair("2"), Existing::Kept).is_err(), "the key alone counts as well");
        write(&directory, "a", &pair("2"), Existing::Replaced).expect("told so");
        assert_eq!(fs::read_to_string(&certificate).expect("written"), "certificate 2");
        assert_eq!(mode(&key), 0o600);
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 2, "nothing is left beside them");
    }
}
