//! `leaseway backup` and `leaseway restore`: the replicated state in a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use leaseway_core::types::{Millis, escaped};
use leaseway_proto::admin::GetBackupRequest;
use leaseway_server::{Backup, RestoreError, config};
use serde_json::{Value, json};
use tonic::Response;

use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, number, progress, utc, write_new};

#[derive(Args)]
#[command(after_help = "\
A backup has no leases, so a restored cluster waits for clients to report theirs before it grants more. The file has the
access policy and all ids: protect it like the configuration.")]
pub(crate) struct MakeBackup {
    /// File to write
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Back up from the given server even if it is not the master. The backup may lack the latest changes
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl MakeBackup {
    pub(crate) fn run(self) -> Outcome {
        let progress = progress("downloading the backup");
        let bytes = block_on(self.get())?;
        drop(progress);
        // Detects a truncated transfer.
        let backup = Backup::read(&bytes).map_err(|error| damaged(&self.file, &error))?;
        write_new(&self.file, &bytes, self.force)?;
        let text = || {
            let (file, peer) = (self.file.display().to_string(), escaped(&backup.header().peer));
            format!("{}: {}, from peer {peer}, {} bytes", escaped(&file), in_words(&backup), bytes.len())
        };
        self.output.print(text, || as_json(&backup))
    }

    async fn get(&self) -> Result<Vec<u8>, CliError> {
        let any_peer = self.here;
        let get = self.target.ask(async |mut client| {
            let mut parts = client.get_backup(GetBackupRequest { any_peer }).await?.into_inner();
            let mut bytes = Vec::new();
            while let Some(part) = parts.message().await? {
                bytes.extend(part.bytes);
            }
            Ok(Response::new(bytes))
        });
        get.await
    }
}

#[derive(Args)]
#[command(after_help = "\
Restore the same file for each peer of the new cluster. The new peers may differ from the lost ones. Then start
them without --bootstrap. Until --listen-for has passed, no client gets more capacity than it has.

Never restore while peers of the lost cluster run: both clusters would grant the same capacity.")]
pub(crate) struct Restore {
    /// Backup file
    file: PathBuf,
    /// Data directory to create; it must be empty or absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Time that clients have to reclaim their leases from the restored cluster, such as 10m. Raise it if leases became
    /// longer after the backup [default: the longest lease at the time of the backup]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    listen_for: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

impl Restore {
    pub(crate) fn run(self) -> Outcome {
        let bytes = fs::read(&self.file).map_err(|error| CliError::File { path: self.file.clone(), error })?;
        let mut backup = Backup::read(&bytes).map_err(|error| damaged(&self.file, &error))?;
        if let Some(length) = self.listen_for {
            backup = self.listening(backup, Millis(length.as_millis() as u64))?;
        }
        if let Some(kept) = backup.configuration() {
            let unread = |error| CliError::UnreadableVersion { version: kept.version, error };
            config::parse(&kept.source, &kept.text).map_err(unread)?;
        }
        backup.put_into(&self.data).map_err(|error| match error {
            RestoreError::NotEmpty(_) => CliError::Flags(error.to_string()),
            RestoreError::Store(_) => CliError::Client(error.to_string()),
        })?;
        self.output.print(|| self.as_text(&backup), || as_json(&backup))
    }

    /// Sets the waiting time. A shorter one than that of the backup could grant capacity that clients still hold.
    fn listening(&self, backup: Backup, length: Millis) -> Result<Backup, CliError> {
        let least = backup.believed();
        if length < least {
            return Err(CliError::Flags(format!(
                "--listen-for {} is too short: pass at least {}, because leases from before this backup may last that long",
                seconds(length),
                seconds(least)
            )));
        }
        Ok(backup.believed_for(length))
    }

    fn as_text(&self, backup: &Backup) -> String {
        let (header, data) = (backup.header(), self.data.display().to_string());
        let peers: Vec<_> =
            header.members.iter().map(|peer| format!("{}={}", peer.name, escaped(&peer.peer_address))).collect();
        let named = if peers.len() > 1 { format!(" --id NAME --peers {}", peers.join(",")) } else { String::new() };
        format!(
            "{}: {}, made by peer {} on {}\n\
             Restored to {}. After restoring the file for all peers, start each:\n\n  \
             leaseway serve --data {}{named}\n\n\
             The node waits {} for clients to report their leases before it grants more",
            escaped(&self.file.display().to_string()),
            in_words(backup),
            escaped(&header.peer),
            utc(header.at_unix),
            escaped(&data),
            escaped(&data),
            seconds(backup.believed()),
        )
    }
}

fn seconds(length: Millis) -> String {
    format!("{} s", number((length.0 as f64 / 1000.0).ceil()))
}

fn damaged(file: &Path, error: &dyn std::error::Error) -> CliError {
    CliError::Backup(format!("{}: {error}", file.display()))
}

fn in_words(backup: &Backup) -> String {
    let counts = backup.counts();
    let configuration = match backup.configuration() {
        Some(configuration) => format!("version {} of the configuration", configuration.version),
        None => "no configuration (the parent has it)".to_owned(),
    };
    let several = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (limits, overrides) = (several(counts.limits, "limit"), several(counts.overrides, "override"));
    let declarations = several(counts.declarations, "declaration");
    let (assignments, pools) = (several(counts.assignments, "assignment"), several(counts.pools, "record"));
    let usage = several(counts.usage, "row");
    format!(
        "{configuration}, {limits}, {declarations}, {overrides}, {assignments}, {pools} of costs and balances in \
         pools, {usage} of usage"
    )
}

fn as_json(backup: &Backup) -> Value {
    let (header, counts) = (backup.header(), backup.counts());
    json!({
        "cluster_id": header.cluster, "name": header.peer, "made_at_unix": header.at_unix, "program": header.program,
        "version": backup.configuration().map(|configuration| configuration.version),
        "limits": counts.limits, "declarations": counts.declarations, "overrides": counts.overrides,
        "assignments": counts.assignments, "loads": counts.loads, "pool_records": counts.pools, "usage_rows": counts.usage,
        "listen_ms": header.believed_ms,
    })
}
