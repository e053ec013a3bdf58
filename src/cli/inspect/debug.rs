//! `leaseway debug`: what a report of a fault needs.

mod archive;
mod bundle;

use clap::Subcommand;

use crate::Outcome;

#[derive(Subcommand)]
pub(crate) enum DebugCommand {
    /// Writes what a cluster says of itself into an archive, without secrets, for a report of a fault
    Bundle(Box<bundle::Bundle>),
}

impl DebugCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            DebugCommand::Bundle(bundle) => bundle.run(),
        }
    }
}
