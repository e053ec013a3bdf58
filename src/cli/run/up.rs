//! `leaseway up`: runs nodes, and trees of nodes, as real processes on this machine.
//!
//! The processes are ordinary `leaseway serve` commands, which `--print` shows: what works here works by hand and on
//! several machines. `up` does not restart processes that end. It is made for experiments, such as watching peers fail;
//! in production an init system restarts them.

mod data;
mod file;
mod founding;
mod introduction;
mod master;
mod options;
mod plan;
mod process;
mod run;

use std::path::{Path, PathBuf};

use clap::Args;
use leaseway_server::config::{self, LoadError};

use self::{file::NodeSet, plan::Start};
use crate::Outcome;
use crate::connect::block_on;
use crate::error::CliError;
use crate::output::{note, print, shell_quoted};
use crate::run::serve::TakeOverFlag;

/// The nodes without a file.
const THREE: &str = include_str!("up/three.yaml");

#[derive(Args)]
pub(crate) struct Up {
    /// What to run; --example prints one [default: three peers, a, b and c]
    file: Option<PathBuf>,
    /// Where the peers keep what they remember, instead of where the file says
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// Only these peers, with commas between them; with several nodes NODE/PEER
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// First deletes what the peers that are started remember
    #[arg(long)]
    fresh: bool,
    /// The first start in place of another server, a Doorman server say, whose clients go on: stop that one first, and
    /// give the peers its address. For so many seconds, or the longest lease of the configuration, clients keep what
    /// they have and new ones get what others give up; see `leaseway serve --help`. In a tree the root listens, and
    /// what is below waits for it
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "longest")]
    take_over: Option<TakeOverFlag>,
    /// TLS everywhere: makes a private CA and certificates in DATA/certs if they are not there, and says what a client
    /// needs
    #[arg(long)]
    tls: bool,
    /// Prints the commands instead of running them
    #[arg(long)]
    print: bool,
    /// Prints the file that is run by default, with all that a file may have
    #[arg(long, conflicts_with_all = ["file", "data", "only", "fresh", "take_over", "tls", "print"])]
    example: bool,
}

impl Up {
    pub(crate) fn run(self) -> Outcome {
        if self.example {
            return print(THREE.trim_end());
        }
        let (set, base) = self.read()?;
        // Relative paths in the file start from its directory, those on the command line from the current one.
        let data = self.data.clone().unwrap_or_else(|| base.join(&set.data));
        let start = Start { only: self.only.as_deref(), fresh: self.fresh, take_over: self.take_over, tls: self.tls };
        let plan = plan::plan(&set, &data, &base, &start)?;
        let program = std::env::args().next().unwrap_or_else(|| "leaseway".to_owned());
        if self.print {
            return print(plan.as_script(&program));
        }
        run::check_ports(&plan)?;
        data::prepare(&plan, self.fresh)?;
        if let Some(certificates) = &plan.certificates {
            certificates.make(&plan.hosts())?;
        }
        if self.take_over.is_some() && !plan.nodes.iter().any(|node| node.first.is_some() && node.parent.is_none()) {
            note("--take-over is for a first start: what is remembered goes on as it was (--fresh deletes it)");
        }
        let absolute = std::path::absolute(&data).unwrap_or(data);
        print(format_args!("data directory: {}", absolute.display()))?;
        let again = self.again(&program);
        block_on(run::run(&plan, &again))
    }

    /// The node set, and the directory that its relative paths start from.
    fn read(&self) -> Result<(NodeSet, PathBuf), CliError> {
        let Some(path) = &self.file else {
            let here = PathBuf::new();
            let set = file::parse("three.yaml", THREE.as_bytes(), &here).map_err(CliError::NodeSet)?;
            return Ok((set, here));
        };
        let bytes = config::read_file(path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
        let base = path.parent().unwrap_or(Path::new("")).to_owned();
        let set = file::parse(&path.display().to_string(), &bytes, &base).map_err(CliError::NodeSet)?;
        Ok((set, base))
    }

    /// The command that restarts a single peer, up to the peer's name.
    fn again(&self, program: &str) -> String {
        let mut words = vec![program.to_owned(), "up".to_owned()];
        words.extend(self.file.iter().map(|file| file.display().to_string()));
        if let Some(data) = &self.data {
            words.extend(["--data".to_owned(), data.display().to_string()]);
        }
        words.extend(self.tls.then(|| "--tls".to_owned()));
        words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests;
