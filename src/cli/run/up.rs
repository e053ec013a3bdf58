//! `leaseway up`: runs nodes, and trees of nodes, as real processes on this machine.
//!
//! The processes are ordinary `leaseway serve` commands, which `--print` shows, so that they can also be run by hand or
//! on several machines. `up` does not restart processes that end. It is made for experiments, such as watching peers
//! fail; in production an init system restarts them.

mod banner;
mod bootstrap_marker;
mod data;
mod demo;
mod file;
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

/// The file that is used if none is given.
const THREE: &str = include_str!("up/three.yaml");

#[derive(Args)]
pub(crate) struct Up {
    /// File that describes the cluster; --example prints one [default: three peers, a, b and c]
    file: Option<PathBuf>,
    /// Data directory, instead of `data` in the file
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// Start only these peers. With several nodes, write NODE/PEER
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// Delete the peers' data first
    #[arg(long)]
    fresh: bool,
    /// Bootstrap a cluster that replaces another server, such as Doorman. Stop that server first, then start the
    /// peers at its address. SECONDS is the longest remaining lease of the old server [default: the longest lease in the
    /// configuration]; until it has passed, existing clients keep their capacity. In a tree, only the root takes over.
    /// See `leaseway serve --help-all`
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "longest")]
    take_over: Option<TakeOverFlag>,
    /// Use TLS everywhere. Creates a private CA and certificates in DATA/certs if they are missing, and prints the
    /// environment variables for clients
    #[arg(long)]
    tls: bool,
    /// Print the commands instead of running them
    #[arg(long)]
    print: bool,
    /// Print the default file, with every key
    #[arg(long, conflicts_with_all = ["file", "data", "only", "fresh", "take_over", "tls", "print"])]
    example: bool,
    /// Run a demonstration in this process, and print the address of its web page
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        conflicts_with_all = ["file", "data", "only", "fresh", "take_over", "tls", "print", "example"]
    )]
    demo: Option<demo::Demo>,
}

impl Up {
    pub(crate) fn run(self) -> Outcome {
        if let Some(demo) = self.demo {
            return demo::run(demo);
        }
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
            note("--take-over is ignored: it applies to a first start only, and there is data (--fresh deletes it)");
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
