//! `leaseway check`: is a cluster well.

mod gather;
mod judge;
mod seen;

use std::path::PathBuf;

use clap::Args;
use leaseway_core::escaped;
use serde_json::{Value, json};

use self::judge::{Grade, Verdict};
use crate::{
    Outcome,
    connect::{Target, block_on},
    error::CliError,
    output::{Output, say, say_json},
};

/// Says whether a cluster is well: looks at all peers of the node, at its configuration, clocks, certificates, disks
/// and limits, and at each node above it. Changes nothing
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Only what is not well
    #[arg(long)]
    quiet: bool,
    /// A file with the token of operators that the peers were started with; instead of --token-file
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  leaseway check                                    the server on this machine, its peers and parents
  leaseway check --server a:5100,b:5100,c:5100      one that is down does not keep it from finding the others
  leaseway check --quiet                            nothing, if all is well: for cron
  leaseway check --json | jq '.verdicts[] | select(.grade != \"ok\")'

Exit codes: 0 all is well, 3 something should be looked at, 4 clients may not get what they should, 69 no server answers.";

impl Check {
    pub(crate) fn run(self) -> Outcome {
        let seen = block_on(gather::gather(&self.target, self.admin_token_file.as_ref()))?;
        let verdicts = judge::judge(&seen);
        let worst = verdicts.iter().map(|verdict| verdict.grade).max().unwrap_or(Grade::Ok);
        if self.output.is_json() {
            say_json(as_json(&verdicts, worst))?;
        } else {
            self.print(&verdicts)?;
        }
        match worst {
            Grade::Ok => Ok(()),
            Grade::Warn => Err(CliError::Warned),
            Grade::Bad => Err(CliError::NotWell),
        }
    }

    fn print(&self, verdicts: &[Verdict]) -> Outcome {
        let mut node = None;
        for verdict in verdicts.iter().filter(|verdict| !self.quiet || verdict.grade > Grade::Ok) {
            if node != Some(&verdict.node) {
                say(format_args!("node {}", escaped(&verdict.node)))?;
                node = Some(&verdict.node);
            }
            say(format_args!("  {:<4}  {:<13}  {}", name(verdict.grade), verdict.about, escaped(&verdict.found)))?;
            if !verdict.next.is_empty() {
                say(format_args!("{:23}→ {}", "", verdict.next))?;
            }
        }
        Ok(())
    }
}

fn name(grade: Grade) -> &'static str {
    match grade {
        Grade::Ok => "ok",
        Grade::Warn => "warn",
        Grade::Bad => "bad",
    }
}

fn as_json(verdicts: &[Verdict], worst: Grade) -> Value {
    let verdict = |verdict: &Verdict| {
        json!({
            "node": verdict.node, "about": verdict.about, "grade": name(verdict.grade), "found": verdict.found,
            "next": verdict.next,
        })
    };
    json!({ "grade": name(worst), "verdicts": verdicts.iter().map(verdict).collect::<Vec<_>>() })
}
