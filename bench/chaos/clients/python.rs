//! Clients of the Python package, in a separate process. They reach the peers over the degraded links.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use leaseway_process::Signal;

use crate::{
    chaos::{
        accounting::{LeaseRecord, read},
        clients::SCARCE,
        cluster::Cluster,
    },
    common::{error::Error, server::Server},
};

const CLIENTS: usize = 3;

/// The time limit for the clients to release their leases and stop.
const PARTING: Duration = Duration::from_secs(20);

pub(crate) struct PythonClients {
    process: Server,
    records: PathBuf,
}

impl PythonClients {
    /// Starts the process. The package must be installed in the interpreter `python`.
    pub(crate) fn start(python: &Path, cluster: &Cluster, seed: u64) -> Result<PythonClients, Error> {
        let script = cluster.write_file(include_str!("python.py"), "python.py")?;
        let records = script.with_extension("records");
        let servers = cluster.endpoints(cluster.nodes[0].clone()).join(",");
        let flags = [
            ("--servers", servers),
            ("--resource", SCARCE.to_owned()),
            ("--clients", CLIENTS.to_string()),
            ("--seed", seed.to_string()),
            ("--records", records.display().to_string()),
        ];
        let flags = flags.into_iter().chain(cluster.client_flags());
        let program = [python.display().to_string(), script.display().to_string()];
        let words: Vec<_> =
            program.into_iter().chain(flags.flat_map(|(flag, value)| [flag.to_owned(), value])).collect();
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        Ok(PythonClients { process: Server::start(&words, &log)?, records })
    }

    /// Fails if the process has exited.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// Stops the process. Returns the records of its clients.
    pub(crate) fn leave(mut self) -> Result<Vec<LeaseRecord>, Error> {
        self.check()?;
        self.process.expect_end();
        self.process.signal(Signal::TERM);
        if !self.process.ends_within(PARTING) {
            return Err(Error::Usage(format!("the Python clients did not stop within {} s", PARTING.as_secs())));
        }
        let mut lines = Vec::new();
        read(&self.records, &mut lines)?;
        let _ = fs::remove_file(&self.records);
        Ok(lines)
    }
}
