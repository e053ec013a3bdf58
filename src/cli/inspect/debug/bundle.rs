//! `leaseway debug bundle`.

use std::{fs, path::PathBuf, time::Duration};

use clap::Args;
use leaseway_core::escaped;
use leaseway_proto::admin::{GetConfigRequest, ListOverridesRequest};
use serde_json::json;

use super::archive::Archive;
use crate::{
    Outcome,
    connect::{Target, block_on, pages::Pages},
    error::CliError,
    inspect::{
        check::{self, Looked},
        status,
    },
    operate::{admin::AdminTarget, capacity, peers},
    output::{Output, files::write_new, progress},
};

/// The largest page that is kept.
const PAGE_BYTES: u64 = 32 << 20;
/// How long a page may take.
const PAGE_TIME: Duration = Duration::from_secs(10);
/// The last lines of a log that are kept.
const LOG_LINES: usize = 2000;

/// Writes what a cluster says of itself into an archive (tar.gz): check, status, metrics and last changes of each
/// server, peers, configuration, overrides. What cannot be had is listed
#[derive(Args)]
pub(crate) struct Bundle {
    /// The archive to write
    file: PathBuf,
    /// Puts it in the place of a file that is there
    #[arg(long)]
    force: bool,
    /// A log of a server, of which the last 2000 lines are put in; may be given several times
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// A file with the token of operators that the peers were started with; instead of --token-file
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

impl Bundle {
    pub(crate) fn run(self) -> Outcome {
        // Before the cluster is asked for nothing.
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
                text += &format!("\nnot there: {}", escaped(one));
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
        archive.add_json("check.json", "`leaseway check -o json`", &check::as_json(&looked.verdicts));
        match &looked.peers {
            Some(list) => archive.add_json("peers.json", "`leaseway peers list -o json`", &peers::as_json(list)),
            None => archive.note("peers.json", "the server keeps nothing, or tells this caller of no peers"),
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
            let place = archive.list().0.len();
            archive.add_or_note(format!("logs/{place}-{name}"), &what, text.map_err(|error| error.to_string()));
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
            return archive.note(&folder, "only those that may read all resources are told where its pages are");
        }
        for (name, path, what) in [
            ("metrics.txt", "/metrics", "its metrics"),
            ("changes.json", "/api/v1/changes", "what has changed lately"),
            ("page.json", "/api/v1/status", "what its page shows first"),
        ] {
            let body = pages.body(http, path, PAGE_TIME, PAGE_BYTES).await;
            archive.add_or_note(format!("{folder}/{name}"), what, body);
        }
    }

    /// What operators have said.
    async fn add_kept(&self, archive: &mut Archive, looked: &Looked) {
        let healths = looked.servers.iter().filter_map(|(_, answer)| answer.as_ref().ok()?.health.as_ref());
        let Some(address) = healths.map(|health| &health.admin_address).find(|address| !address.is_empty()) else {
            return archive.note("configuration.yaml", "no server has said where its operators are");
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
