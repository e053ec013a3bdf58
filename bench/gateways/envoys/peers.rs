//! Three peers of a node, and their gateways.

use std::{fs, net::SocketAddr, time::Duration};

use leaseway_process::Signal;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::{
    common::{
        error::Error,
        server::{Server, server_words},
        signal::Interrupt,
    },
    gateways::cluster::{await_listening, free, process},
    load::{master::follow_to_master, socket::Dialer},
};

/// How long the first election may take.
const ELECTION: Duration = Duration::from_secs(30);

pub(crate) struct Trio {
    _directory: TempDir,
    program: Vec<String>,
    servers: Vec<Server>,
    addresses: Vec<SocketAddr>,
}

impl Trio {
    /// All buckets have this capacity. Returns when there is a master.
    pub(crate) fn start(command: Option<&str>, capacity: u32, interrupt: &Interrupt) -> Result<Trio, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let config = directory.path().join("cluster.yaml");
        let text = format!(
            "resources:\n- identifier_glob: \"*\"\n  capacity: {capacity}\n  safe_capacity: 0\n  algorithm: {{kind: \
             FAIR_SHARE, lease_length: 60, refresh_interval: 5, parameters: [{{name: whole_units, value: \"true\"}}]}}\n"
        );
        fs::write(&config, text).map_err(Error::io("write cluster.yaml"))?;
        let (config, program) = (config.display().to_string(), server_words(command)?);
        let names = ["a", "b", "c"];
        let addresses = names.map(|_| free()).into_iter().collect::<Result<Vec<_>, _>>()?;
        let between = names.map(|_| free()).into_iter().collect::<Result<Vec<_>, _>>()?;
        let peers: Vec<String> = names.iter().zip(&between).map(|(name, at)| format!("{name}={at}")).collect();
        let peers = peers.join(",");
        let start = |nth: usize| {
            let (listen, between) = (addresses[nth].to_string(), between[nth].to_string());
            let data = directory.path().join(names[nth]).display().to_string();
            let who = ["--id", names[nth], "--listen", &listen, "--data", &data];
            let pages = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
            let node = ["--peer-listen", &between, "--peers", &peers, "--config", &config, "--bootstrap"];
            process(program.iter().map(String::as_str).chain(who).chain(pages).chain(node))
        };
        let servers = (0..names.len()).map(start).collect::<Result<Vec<_>, _>>()?;
        let trio = Trio { _directory: directory, program, servers, addresses };
        let probe = || match follow_to_master(&trio.addresses, &Dialer::default()) {
            Ok(_) => trio.servers.iter().try_for_each(Server::check).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        trio.servers[0].await_ready(ELECTION, interrupt, probe)?;
        Ok(trio)
    }

    /// Starts a gateway for quotas.
    pub(crate) fn gateway(&self, id: &str, address: SocketAddr, interrupt: &Interrupt) -> Result<QuotaGateway, Error> {
        let gateway = self.begin_gateway(id, address)?;
        await_listening(&gateway.process, address, interrupt)?;
        Ok(gateway)
    }

    /// Like [`gateway`](Self::gateway), but does not wait until it listens.
    pub(crate) fn begin_gateway(&self, id: &str, address: SocketAddr) -> Result<QuotaGateway, Error> {
        let servers: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (listen, servers) = (address.to_string(), servers.join(","));
        let program = self.program.iter().map(String::as_str).take_while(|word| *word != "serve");
        let process = process(program.chain(["gateway", "--rlqs", &listen, "--server", &servers, "--id", id]))?;
        Ok(QuotaGateway { process, address })
    }

    /// Sends a signal to the master, and returns it.
    pub(crate) async fn signal_master(&mut self, signal: Signal) -> Result<&Server, Error> {
        let addresses = self.addresses.clone();
        let found = spawn_blocking(move || follow_to_master(&addresses, &Dialer::default()));
        let master = found.await.expect("it does not panic")?;
        let nth = self.addresses.iter().position(|address| *address == master);
        let server = &mut self.servers[nth.expect("it is one of them")];
        server.expect_end();
        server.signal(signal);
        Ok(server)
    }
}

pub(crate) struct QuotaGateway {
    pub(crate) process: Server,
    pub(crate) address: SocketAddr,
}
