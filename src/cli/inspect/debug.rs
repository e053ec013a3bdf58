//! `leaseway debug bundle`: a support bundle.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use clap::{Args, Subcommand};
use flate2::{Compression, write::GzEncoder};
use leaseway_core::types::escaped;
use leaseway_proto::admin::{GetConfigRequest, ListOverridesRequest};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::pages::Pages;
use crate::connect::{Target, block_on};
use crate::error::CliError;
use crate::inspect::check::CheckedCluster;
use crate::inspect::{check, status};
use crate::operate::admin::AdminTarget;
use crate::operate::{capacity, peers};
use crate::output::{Output, progress, write_new};

#[derive(Subcommand)]
pub(crate) enum DebugCommand {
    /// Collect a support bundle. It is an archive without secrets
    Bundle(Box<Bundle>),
}

impl DebugCommand {
    pub(crate) fn run(self) -> Outcome {
        let DebugCommand::Bundle(bundle) = self;
        bundle.run()
    }
}

/// The maximum size of a page.
const PAGE_BYTES: u64 = 32 << 20;
/// The time limit for a page.
const PAGE_TIME: Duration = Duration::from_secs(10);
/// The number of lines kept of each log.
const LOG_LINES: usize = 2000;

#[derive(Args)]
pub(crate) struct Bundle {
    /// Archive to write
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Add the last 2,000 lines of this server log. Can be repeated
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// File with the operators' token. Replaces --token-file at admin addresses
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

impl Bundle {
    fn run(self) -> Outcome {
        // Checked before the cluster is asked.
        if !self.force && self.file.exists() {
            return Err(CliError::FileExists { path: self.file });
        }
        let progress = progress("asking the cluster");
        let archive = block_on(self.gather())?;
        drop(progress);
        let bytes = archive.to_bytes().map_err(CliError::Output)?;
        write_new(&self.file, &bytes, self.force)?;
        let (files, missing) = archive.list();
        let text = || {
            let file = self.file.display().to_string();
            let mut text = format!("{}: {} files, {} bytes", escaped(&file), files.len() + 1, bytes.len());
            for one in missing {
                text += &format!("\nmissing: {}", escaped(one));
            }
            text
        };
        self.output.print(text, || json!({ "files": files, "missing": missing, "bytes": bytes.len() }))
    }

    async fn gather(&self) -> Result<Archive, CliError> {
        let mut archive = Archive::default();
        for file in self.target.security.token_file().into_iter().chain(&self.admin_token_file) {
            archive.hide(fs::read_to_string(file).unwrap_or_default().trim().to_owned());
        }
        let looked = check::look(&self.target, self.admin_token_file.as_ref()).await?;
        archive.add_json("check.json", "`leaseway check -o json`", &check::as_json(&looked.checks));
        match &looked.peers {
            Some(list) => archive.add_json("peers.json", "`leaseway peers list -o json`", &peers::as_json(list)),
            None => archive.note("peers.json", "the server has no peers, or does not list them for this caller"),
        }
        let pages = self.target.pages()?;
        for (address, answer) in &looked.servers {
            self.add_server(&mut archive, &pages, address, answer).await;
        }
        self.add_kept(&mut archive, &looked).await;
        for log in &self.log {
            let name = log.file_name().map_or_else(|| "log".into(), |name| name.to_string_lossy().into_owned());
            let text = fs::read(log).map(|bytes| last_lines(&String::from_utf8_lossy(&bytes)));
            let what = format!("the last {LOG_LINES} lines of {}", log.display());
            let index = archive.list().0.len();
            archive.add_or_note(format!("logs/{index}-{name}"), &what, text.map_err(|error| error.to_string()));
        }
        Ok(archive)
    }

    async fn add_server(
        &self,
        archive: &mut Archive,
        pages: &Pages,
        address: &str,
        answer: &Result<leaseway_proto::status::GetStatusResponse, String>,
    ) {
        let folder = format!("servers/{}", address.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_"));
        let status = match answer {
            Ok(status) => status,
            Err(why) => return archive.note(&folder, why),
        };
        let what = format!("`leaseway status -o json` of {address}");
        archive.add_json(format!("{folder}/status.json"), &what, &status::as_json(status));
        let http = status.health.as_ref().map_or("", |health| &health.http_address);
        if http.is_empty() {
            return archive.note(&folder, "its HTTP address is visible only to callers that may read all resources");
        }
        for (name, path, what) in [
            ("metrics.txt", "/metrics", "its metrics"),
            ("changes.json", "/api/v1/changes", "its recent changes"),
            ("page.json", "/api/v1/status", "the data of its status page"),
        ] {
            let body = pages.body(http, path, PAGE_TIME, PAGE_BYTES).await;
            archive.add_or_note(format!("{folder}/{name}"), what, body);
        }
    }

    /// Adds the configuration and the overrides, which the admin service knows.
    async fn add_kept(&self, archive: &mut Archive, looked: &CheckedCluster) {
        let healths = looked.servers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?.health.as_ref());
        let Some(address) = healths.map(|health| &health.admin_address).find(|address| !address.is_empty()) else {
            return archive.note("configuration.yaml", "no server has reported an admin address");
        };
        let asked = async {
            let admin = AdminTarget::beside(&self.target, address, self.admin_token_file.clone())?;
            let config = admin.ask(async |mut client| client.get_config(GetConfigRequest { version: 0 }).await).await?;
            let overrides = admin.ask(async |mut client| client.list_overrides(ListOverridesRequest {}).await).await?;
            Ok::<_, CliError>((config, overrides))
        };
        match asked.await {
            Ok((config, overrides)) => {
                archive.add("configuration.yaml", "the configuration in force", &config.text);
                let list = overrides.r#override.iter().map(capacity::as_json).collect::<Vec<_>>();
                archive.add_json("overrides.json", "`leaseway capacity -o json`", &json!({ "overrides": list }));
            }
            Err(error) => archive.note("configuration.yaml", &error.brief()),
        }
    }
}

fn last_lines(text: &str) -> String {
    let from = text.rmatch_indices('\n').nth(LOG_LINES).map_or(0, |(at, _)| at + 1);
    text[from..].to_owned()
}

/// The folder of all files in the archive.
const FOLDER: &str = "leaseway-debug";

/// Collected files, and what is missing.
#[derive(Default)]
struct Archive {
    /// Name, description and content.
    files: Vec<(String, String, String)>,
    missing: Vec<String>,
    /// Words to hide in all files.
    secrets: Vec<String>,
}

impl Archive {
    /// Hides a secret in the files added from now on.
    fn hide(&mut self, secret: String) {
        if !secret.is_empty() {
            self.secrets.push(secret);
        }
    }

    /// Adds a file with its description.
    fn add(&mut self, name: impl Into<String>, what: &str, text: &str) {
        let mut text = without_bearers(text);
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "(hidden)");
        }
        self.files.push((name.into(), what.to_owned(), text));
    }

    fn add_json(&mut self, name: impl Into<String>, what: &str, value: &Value) {
        self.add(name, what, &format!("{value:#}\n"));
    }

    /// Adds a file, or notes why it is missing.
    fn add_or_note(&mut self, name: String, what: &str, text: Result<String, String>) {
        match text {
            Ok(text) => self.add(name, what, &text),
            Err(why) => self.note(&name, &why),
        }
    }

    fn note(&mut self, name: &str, why: &str) {
        self.missing.push(format!("{name}: {why}"));
    }

    /// The names of the files, and what is missing.
    fn list(&self) -> (Vec<&str>, &[String]) {
        (self.files.iter().map(|(name, ..)| name.as_str()).collect(), &self.missing)
    }

    fn contents(&self) -> String {
        let mut text = format!(
            "Created by `leaseway debug bundle` of leaseway {}. The files contain no tokens, keys or secrets. They contain\n\
             the configuration, addresses, and ids of resources and clients.\n\n",
            env!("CARGO_PKG_VERSION")
        );
        for (name, what, _) in &self.files {
            let _ = writeln!(text, "{name}: {what}");
        }
        if !self.missing.is_empty() {
            let _ = writeln!(text, "\nMissing:\n{}", self.missing.join("\n"));
        }
        text
    }

    /// The archive as a compressed tar file.
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
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

/// Hides what follows `Bearer`.
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
    fn no_file_contains_a_secret() {
        let mut archive = Archive::default();
        archive.hide("s3cret".into());
        archive.hide(String::new());
        archive.add("log", "a log", "token s3cret\nAuthorization: Bearer abc.def, bearer xyz\n");
        assert_eq!(archive.files[0].2, "token (hidden)\nAuthorization: Bearer (hidden), bearer (hidden)\n");
        archive.add_or_note("metrics".into(), "metrics", Err("no answer".into()));
        let contents = archive.contents();
        assert!(
            contents.contains("\nlog: a log\n") && contents.ends_with("Missing:\nmetrics: no answer\n"),
            "{contents}"
        );
    }
}
