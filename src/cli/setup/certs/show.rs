//! `leaseway certs show`: the names, issuer and validity of certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_tls::Description;
use serde_json::{Value, json};

use super::authority::seconds;
use super::names::SubjectName;
use crate::Outcome;
use crate::error::CliError;
use crate::output::{Output, note, print, print_json, utc};

/// Certificates that expire sooner get a warning.
pub(super) const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 86_400);

#[derive(Args)]
pub(crate) struct ShowCertificates {
    /// PEM files, or directories with .pem files
    #[arg(value_name = "FILE", default_value = "certs")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A certificate of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    file: String,
    subject: String,
    issuer: String,
    names: Vec<String>,
    begins: i64,
    ends: i64,
}

impl ShowCertificates {
    pub(super) fn run(self) -> Outcome {
        let mut shown = Vec::new();
        for path in &self.paths {
            for file in files_of(path)? {
                shown.extend(read(&file)?);
            }
        }
        let now = SystemTime::now();
        if self.output.is_json() {
            print_json(Value::Array(shown.iter().map(Shown::as_json).collect()))?;
        } else {
            print(shown.iter().map(Shown::as_text).collect::<Vec<_>>().join("\n\n"))?;
        }
        shown.iter().filter_map(|shown| shown.warning(now)).for_each(note);
        Ok(())
    }
}

/// The file, or the .pem files of a directory by name.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error| CliError::Certificates(format!("cannot read {}: {error}", path.display()));
    let entries = fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).map_err(unreadable)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pem"));
    files.sort();
    if files.is_empty() {
        return Err(CliError::Certificates(format!("{}: no .pem files in this directory", path.display())));
    }
    Ok(files)
}

/// All certificates of a file.
pub(super) fn read(path: &Path) -> Result<Vec<Shown>, CliError> {
    let shown = |certificate| {
        let malformed = |error| CliError::Certificates(format!("{}: {error}", path.display()));
        Ok(Shown::of(path, leaseway_tls::describe(certificate).map_err(malformed)?))
    };
    leaseway_tls::certificates(path, "certificate")?.iter().map(|certificate| shown(certificate)).collect()
}

impl Shown {
    fn of(file: &Path, certificate: Description) -> Shown {
        let Description { uris, dns, addresses, common_name, issuer, from, until } = certificate;
        let addresses = addresses.iter().map(ToString::to_string);
        let nameless = || "(without a name)".to_owned();
        Shown {
            file: file.display().to_string(),
            subject: common_name.unwrap_or_else(nameless),
            issuer: issuer.unwrap_or_else(nameless),
            names: uris.into_iter().chain(dns).chain(addresses).collect(),
            begins: seconds(from),
            ends: seconds(until),
        }
    }

    pub(super) fn is_valid_until(&self, at: SystemTime) -> bool {
        self.ends > seconds(at)
    }

    pub(super) fn has(&self, name: &SubjectName) -> bool {
        self.names.contains(&name.to_string())
    }

    fn as_text(&self) -> String {
        let mut lines = vec![format!("{}: {}", escaped(&self.file), escaped(&self.subject))];
        if !self.names.is_empty() {
            lines.push(format!("  names   {}", escaped(&self.names.join(", "))));
        }
        let itself = if self.issuer == self.subject { " (self-signed)" } else { "" };
        lines.push(format!("  issuer  {}{itself}", escaped(&self.issuer)));
        lines.push(format!("  valid   from {} to {}", utc(self.begins), utc(self.ends)));
        lines.join("\n")
    }

    fn as_json(&self) -> Value {
        json!({
            "file": self.file, "subject": self.subject, "issuer": self.issuer, "names": self.names,
            "not_before": utc(self.begins), "not_after": utc(self.ends),
        })
    }

    fn warning(&self, now: SystemTime) -> Option<String> {
        let now = seconds(now);
        let (file, left) = (escaped(&self.file), self.ends - now);
        if left <= 0 {
            return Some(format!("warning: {file} has expired ({}): connections with it fail", utc(self.ends)));
        }
        if self.begins > now {
            return Some(format!("warning: {file} is not valid yet (from {}): check the clocks", utc(self.begins)));
        }
        let days = left / 86_400;
        (left < EXPIRY_WARNING.as_secs() as i64)
            .then(|| format!("warning: {file} expires in {days} days ({})", utc(self.ends)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn shown(begins: i64, ends: i64) -> Shown {
        Shown { file: "a.pem".into(), subject: "CN=a".into(), issuer: "CN=ca".into(), names: Vec::new(), begins, ends }
    }

    #[test]
    fn certificates_that_are_not_valid_or_end_soon_get_a_warning() {
        const DAY: i64 = 86_400;
        let now = UNIX_EPOCH + Duration::from_secs(100 * 86_400);
        let warning = |begins, ends| shown(begins * DAY, ends * DAY).warning(now);
        assert_eq!(warning(0, 200), None);
        assert!(warning(0, 129).is_some_and(|said| said.contains("expires in 29 days")));
        assert!(warning(0, 100).is_some_and(|said| said.contains("has expired")));
        assert!(warning(101, 200).is_some_and(|said| said.contains("not valid yet")));
    }
}
