//! `leaseway config apply` and `leaseway config rollback`.

use std::io;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::admin::ApplyConfigRequest;
use leaseway_server::config::{self, Loaded};
use serde_json::json;

use super::{differences, differences::Difference, get, in_force, plan, read};
use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::AdminTarget;
use crate::output::{Output, confirm, in_words, note, print, progress};

#[derive(Args)]
pub(crate) struct Apply {
    /// Configuration file (YAML, Doorman-compatible)
    #[arg(value_parser = super::file_path)]
    file: PathBuf,
    /// Apply only if this version is in force [default: the version that the file was compared with]
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    target: AdminTarget,
}

/// Confirmation by the user.
#[derive(Args)]
struct Consent {
    /// Skip the confirmation. Required without a terminal and with -o json
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    shown: plan::PlanRows,
}

impl Apply {
    pub(crate) fn run(self) -> Outcome {
        let (loaded, source) = (read(&self.file)?, self.file.display().to_string());
        let new = NewVersion { loaded, source, expect: self.expect };
        block_on(put_in_force(&self.target, &self.output, new, &self.consent))
    }
}

#[derive(Args)]
pub(crate) struct Rollback {
    /// Version number; see `leaseway config history`
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    version: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    target: AdminTarget,
}

impl Rollback {
    pub(crate) fn run(self) -> Outcome {
        block_on(async {
            let text = get(&self.target, self.version).await?.text;
            let source = format!("rollback to version {}", self.version);
            let unreadable = |error| CliError::UnreadableVersion { version: self.version, error };
            let loaded = config::parse(&source, &text).map_err(unreadable)?;
            let new = NewVersion { loaded, source, expect: None };
            put_in_force(&self.target, &self.output, new, &self.consent).await
        })
    }
}

impl Consent {
    /// At a terminal, shows the effect on clients and asks for confirmation.
    async fn obtain(&self, target: &AdminTarget, output: &Output, new: &NewVersion) -> Outcome {
        if output.is_json() || !io::stdout().is_terminal() {
            return if self.yes { Ok(()) } else { Err(CliError::NotConfirmed) };
        }
        match plan::ask(target, &new.loaded, &new.source, None, self.shown.holders).await {
            Ok(plan) => plan::print_plan(&plan, self.shown)?,
            Err(error @ CliError::ConfigRefused { .. }) => return Err(error),
            Err(error) => note(format_args!("cannot preview what clients would gain and lose: {}", in_words(&error))),
        }
        match self.yes {
            true => Ok(()),
            false => confirm("apply it? [y/N] "),
        }
    }
}

struct NewVersion {
    loaded: Loaded,
    source: String,
    expect: Option<u64>,
}

async fn put_in_force(target: &AdminTarget, output: &Output, new: NewVersion, consent: &Consent) -> Outcome {
    let before = in_force(target, &new.loaded).await?;
    // If another version is expected, the server refuses the request.
    if before.text == new.loaded.text && new.expect.is_none_or(|expected| expected == before.version) {
        let text = || format!("version {} already has this text; nothing has changed", before.version);
        return output
            .print(text, || json!({ "version": before.version, "changed": false, "differences": [], "warnings": [] }));
    }
    let differences = match before.compare(&new.loaded) {
        Ok(differences) => Some(differences),
        // Goes on, because a version of a newer server that is bad must be replaceable.
        Err(error) => {
            note(format_args!("cannot show the differences: {}", in_words(&error)));
            None
        }
    };
    if let (Some(differences), false) = (&differences, output.is_json()) {
        print(differences::as_text(differences))?;
    }
    consent.obtain(target, output, &new).await?;
    // The server refuses to replace a version that the user has not seen.
    let expected_version = new.expect.unwrap_or(before.version);
    let request = ApplyConfigRequest { text: new.loaded.text, source: new.source, expected_version };
    let progress = progress("applying the configuration");
    let answer = target.ask_once(async |mut client| client.apply_config(request.clone()).await).await;
    drop(progress);
    let answer = answer?;
    for warning in &answer.warnings {
        note(format_args!("warning: {}", escaped(warning)));
    }
    if answer.version == 0 {
        let (address, mistakes) = (target.addresses(), answer.mistakes.join("\n"));
        return Err(CliError::ConfigRefused { address, mistakes });
    }
    output.print(
        || format!("version {} is in force", answer.version),
        || {
            let differences: Option<Vec<_>> =
                differences.as_ref().map(|differences| differences.iter().map(Difference::as_json).collect());
            json!({
                "version": answer.version, "changed": true, "differences": differences, "warnings": answer.warnings,
            })
        },
    )
}
