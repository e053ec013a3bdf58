//! Files that are gathered, as a tar.gz.

use std::{
    fmt::Write as _,
    io,
    time::{SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

/// The folder that all files are in.
const FOLDER: &str = "leaseway-debug";

/// What was gathered, and what could not be.
#[derive(Default)]
pub(super) struct Archive {
    files: Vec<(String, String, String)>,
    missing: Vec<String>,
    /// Words that are not to occur in any file.
    secrets: Vec<String>,
}

impl Archive {
    /// From now on nothing says this.
    pub(super) fn hide(&mut self, secret: String) {
        if !secret.is_empty() {
            self.secrets.push(secret);
        }
    }

    /// A file, and what it is.
    pub(super) fn add(&mut self, name: impl Into<String>, what: &str, text: &str) {
        let mut text = without_bearers(text);
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "(hidden)");
        }
        self.files.push((name.into(), what.to_owned(), text));
    }

    pub(super) fn add_json(&mut self, name: impl Into<String>, what: &str, value: &Value) {
        self.add(name, what, &format!("{value:#}\n"));
    }

    /// A file, or why it is not there.
    pub(super) fn add_or_note(&mut self, name: String, what: &str, text: Result<String, String>) {
        match text {
            Ok(text) => self.add(name, what, &text),
            Err(why) => self.note(&name, &why),
        }
    }

    pub(super) fn note(&mut self, name: &str, why: &str) {
        self.missing.push(format!("{name}: {why}"));
    }

    /// Names of files, and what is missing.
    pub(super) fn list(&self) -> (Vec<&str>, &[String]) {
        (self.files.iter().map(|(name, ..)| name.as_str()).collect(), &self.missing)
    }

    fn contents(&self) -> String {
        let mut text = format!(
            "Made by `leaseway debug bundle` of leaseway {}. Tokens, keys and secrets are in none of the files; ids of\n\
             resources and clients, addresses and the configuration are.\n\n",
            env!("CARGO_PKG_VERSION")
        );
        for (name, what, _) in &self.files {
            let _ = writeln!(text, "{name}: {what}");
        }
        if !self.missing.is_empty() {
            let _ = writeln!(text, "\nNot there:\n{}", self.missing.join("\n"));
        }
        text
    }

    /// The archive, with a list of what is in it.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let contents = self.contents();
        let files = self.files.iter().map(|(name, _, text)| (name.as_str(), text));
        for (name, text) in std::iter::once(("contents.txt", &contents)).chain(files) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now);
            archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()
    }
}

/// What stands after `Bearer` says who asks.
fn without_bearers(text: &str) -> String {
    const BEARER: &str = "bearer ";
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.to_ascii_lowercase().find(BEARER) {
        let (before, after) = rest.split_at(at + BEARER.len());
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')).unwrap_or(after.len());
        clean.push_str(before);
        clean.push_str("(hidden)");
        rest = &after[end..];
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_no_file() {
        let mut archive = Archive::default();
        archive.hide("s3cret".into());
        archive.hide(String::new());
        archive.add("log", "a log", "token s3cret\nAuthorization: Bearer abc.def, bearer xyz\n");
        assert_eq!(archive.files[0].2, "token (hidden)\nAuthorization: Bearer (hidden), bearer (hidden)\n");
        archive.add_or_note("metrics".into(), "metrics", Err("no answer".into()));
        let contents = archive.contents();
        assert!(
            contents.contains("\nlog: a log\n") && contents.ends_with("Not there:\nmetrics: no answer\n"),
            "{contents}"
        );
    }
}
