//! `leaseway config`: configuration files, and the versions that the peers of a node keep.

mod apply;
mod check;
mod differences;
mod history;
mod plan;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use leaseway_gateway::rls::{file, templates};
use leaseway_proto::admin::{GetConfigRequest, GetConfigResponse};
use leaseway_server::config::{self, Loaded};
use serde_json::json;
use tonic::Code;

use self::differences::Difference;
use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, note, print, print_json};

/// The path of a configuration, also as Doorman's `file:PATH`. Other prefixes are part of the name.
pub(crate) fn file_path(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some(("etcd", _)) => {
            Err("the peers store the configuration themselves (--data), not in etcd: pass a file, and apply it to all \
             peers with `leaseway config apply`"
                .to_owned())
        }
        Some(("file", path)) => Ok(path.into()),
        _ => Ok(text.into()),
    }
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Validate a configuration. Prints a summary
    Check(check::CheckFile),
    /// Convert rules of envoyproxy/ratelimit. Prints a configuration
    FromRatelimit {
        /// YAML files with rules, or directories of them
        #[arg(required = true, value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// Accept several files per domain
        #[arg(long)]
        merge_domains: bool,
    },
    /// Print the default configuration. It is a starting point for your own
    Example,
    /// Show which clients would gain or lose capacity if a file were applied
    Plan(plan::PlanFile),
    /// Put a file in force on all peers. Asks for confirmation at a terminal
    Apply(apply::Apply),
    /// Compare a file with the version in force
    Diff(Diff),
    /// Print a configuration version
    Show(history::ShowVersion),
    /// List configuration versions
    History(history::History),
    /// Put an older version in force again. It becomes a new version
    Rollback(apply::Rollback),
}

impl ConfigCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            ConfigCommand::Check(check) => check.run(),
            ConfigCommand::FromRatelimit { files, merge_domains } => from_ratelimit(&files, merge_domains),
            ConfigCommand::Example => print(config::DEVELOPMENT.trim_end()),
            ConfigCommand::Plan(plan) => plan.run(),
            ConfigCommand::Apply(apply) => apply.run(),
            ConfigCommand::Diff(diff) => diff.run(),
            ConfigCommand::Show(show) => show.run(),
            ConfigCommand::History(history) => history.run(),
            ConfigCommand::Rollback(rollback) => rollback.run(),
        }
    }
}

/// Warnings go to standard error, so that standard output can be used as it is.
fn from_ratelimit(files: &[PathBuf], merge_domains: bool) -> Outcome {
    let loaded = file::load(files, merge_domains)?;
    for warning in &loaded.warnings {
        note(format_args!("warning: {warning}"));
    }
    print(templates::resources(&loaded.rules, &BTreeSet::new()).trim_end())
}

#[derive(Args)]
pub(crate) struct Diff {
    /// File to compare with the version in force
    #[arg(value_parser = file_path)]
    file: PathBuf,
    /// Exit with 1 if there are differences
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Diff {
    fn run(self) -> Outcome {
        let file = read(&self.file)?;
        let before = block_on(in_force(&self.target, &file))?;
        let differences = before.compare(&file)?;
        if self.output.is_json() {
            let differences: Vec<_> = differences.iter().map(Difference::as_json).collect();
            print_json(json!({ "version": before.version, "differences": differences }))?;
        } else {
            print(differences::as_text(&differences))?;
        }
        if self.exit_code && !differences.is_empty() { Err(CliError::Different) } else { Ok(()) }
    }
}

/// Reads a valid file, and prints its warnings.
fn read(path: &Path) -> Result<Loaded, CliError> {
    let loaded = config::load(path)?;
    for warning in &loaded.warnings {
        note(format_args!("warning: {warning}"));
    }
    Ok(loaded)
}

/// The version in force; 0 if there is none.
struct InForce {
    version: u64,
    text: String,
}

impl InForce {
    fn compare(&self, after: &Loaded) -> Result<Vec<Difference>, CliError> {
        let before = match self.version {
            0 => None,
            version => {
                let unreadable = |error| CliError::UnreadableVersion { version, error };
                Some(config::parse(&format!("version {version}"), &self.text).map_err(unreadable)?)
            }
        };
        Ok(differences::between_configurations(before.as_ref(), after))
    }
}

/// `new` is the configuration to compare with.
async fn in_force(target: &AdminTarget, new: &Loaded) -> Result<InForce, CliError> {
    match get(target, 0).await {
        Ok(GetConfigResponse { header, text, .. }) => {
            Ok(InForce { version: header.map_or(0, |header| header.version), text })
        }
        Err(CliError::Refused { code: Code::NotFound, .. }) => Ok(InForce { version: 0, text: String::new() }),
        // A node with a parent keeps a configuration only once an access policy was applied.
        Err(CliError::HasParent { .. }) if !new.has_templates() => Ok(InForce { version: 0, text: String::new() }),
        Err(error) => Err(error),
    }
}

async fn get(target: &AdminTarget, version: u64) -> Result<GetConfigResponse, CliError> {
    target.ask(async |mut client| client.get_config(GetConfigRequest { version }).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_named_as_doorman_has_it() {
        for (text, path) in [("a.yaml", "a.yaml"), ("file:a.yaml", "a.yaml"), ("file:/x/a:b", "/x/a:b"), ("a:b", "a:b")]
        {
            assert_eq!(file_path(text), Ok(path.into()), "{text}");
        }
        let error = file_path("etcd:/doorman/config").expect_err("there is none");
        assert!(error.contains("etcd") && error.contains("config apply"), "{error}");
    }
}
