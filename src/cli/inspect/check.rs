//! `leaseway check`: the health of a cluster.

mod gather;

use std::path::PathBuf;

use clap::Args;
use leaseway_core::types::escaped;
use leaseway_proto::{admin::ListPeersResponse, status::GetStatusResponse};
use leaseway_server::checkup::{self, PeersObservation, Severity};
use serde_json::{Value, json};

use crate::Outcome;
use crate::connect::{Target, block_on};
use crate::error::CliError;
use crate::output::{Output, print, print_json, progress};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Print only problems
    #[arg(long)]
    quiet: bool,
    /// File with the operators' token. Replaces --token-file at admin addresses
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  leaseway check                                    check the local server, its peers and parents
  leaseway check --server a:5100,b:5100,c:5100      find the cluster even if one server is down
  leaseway check --quiet                            print nothing if all is well, for cron
  leaseway check -o json | jq '.checks[] | select(.severity != \"ok\")'

Exit codes: 0 healthy, 3 warning, 4 critical, 69 no server answers.";

/// The observations of a node, and the checks on it and the nodes above it.
pub(crate) struct CheckedCluster {
    pub(crate) checks: Vec<checkup::Check>,
    /// Each address with its status, or why there is none.
    pub(crate) servers: Vec<(String, Result<GetStatusResponse, String>)>,
    pub(crate) peers: Option<ListPeersResponse>,
}

impl CheckedCluster {
    /// The worst severity.
    pub(crate) fn severity(&self) -> Severity {
        Severity::worst(&self.checks)
    }

    /// The status of the master, which lists all resources.
    pub(crate) fn master(self) -> Option<GetStatusResponse> {
        self.servers.into_iter().filter_map(|(_, answer)| answer.ok()).find(|status| status.is_master)
    }
}

pub(crate) async fn look(target: &Target, admin_token: Option<&PathBuf>) -> Result<CheckedCluster, CliError> {
    let mut seen = gather::gather(target, admin_token).await?;
    let checks = checkup::check(&seen);
    let node = seen.nodes.swap_remove(0);
    let peers = match node.peers {
        PeersObservation::Listed(list) => Some(list),
        PeersObservation::Alone | PeersObservation::Elsewhere | PeersObservation::Unknown(_) => None,
    };
    let servers = node.servers.into_iter().map(|server| (server.address, server.answer)).collect();
    Ok(CheckedCluster { checks, servers, peers })
}

impl Check {
    pub(crate) fn run(self) -> Outcome {
        let progress = progress("asking the cluster");
        let looked = block_on(look(&self.target, self.admin_token_file.as_ref()));
        drop(progress);
        let looked = looked?;
        if self.output.is_json() {
            print_json(as_json(&looked.checks))?;
        } else {
            self.print(&looked.checks)?;
        }
        match looked.severity() {
            Severity::Ok => Ok(()),
            Severity::Warn => Err(CliError::Warned),
            Severity::Bad => Err(CliError::NotWell),
        }
    }

    fn print(&self, checks: &[checkup::Check]) -> Outcome {
        let mut node = None;
        for check in checks.iter().filter(|check| !self.quiet || check.severity > Severity::Ok) {
            if node != Some(&check.node) {
                print(format_args!("node {}", escaped(&check.node)))?;
                node = Some(&check.node);
            }
            print(format_args!("  {:<4}  {:<13}  {}", check.severity.name(), check.subject, escaped(&check.message)))?;
            if !check.remedy.is_empty() {
                print(format_args!("{:23}→ {}", "", check.remedy))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn as_json(checks: &[checkup::Check]) -> Value {
    json!({ "severity": Severity::worst(checks), "checks": checks })
}
