//! The processes of a measurement: a server, gateways, and baseline services.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use leaseway_process::ports;
use tempfile::TempDir;

use crate::{
    common::{
        error::Error,
        server::{Interrupt, Server, server_words},
    },
    gateways::{
        Protocol, Served,
        lanes::{DOMAIN, KEY},
    },
};

/// The time limit for a process to accept connections.
const STARTUP: Duration = Duration::from_secs(15);

pub(crate) struct GatewayCluster {
    directory: TempDir,
    server: Server,
    address: SocketAddr,
    program: Vec<String>,
}

/// A process that serves requests. It ends when this value is dropped.
pub(crate) struct Running {
    pub(crate) served: Served,
    /// The address of the gateway's HTTP pages.
    pub(crate) pages: SocketAddr,
    process: Server,
}

impl Running {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.process.check()
    }
}

impl GatewayCluster {
    /// Starts a server. `capacity` is that of each resource, and the limit at gateways.
    pub(crate) fn start(
        command: Option<&str>,
        capacity: u32,
        [lease, refresh]: [u32; 2],
        interrupt: &Interrupt,
    ) -> Result<GatewayCluster, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let write = |name: &str, text: String| {
            fs::write(directory.path().join(name), text).map_err(Error::io(format!("write {name}")))
        };
        write(
            "cluster.yaml",
            format!(
                "resources:\n- identifier_glob: \"*\"\n  capacity: {capacity}\n  safe_capacity: 0\n  algorithm: {{kind: \
                 FAIR_SHARE, lease_length: {lease}, refresh_interval: {refresh}, learning_mode_duration: 0}}\n"
            ),
        )?;
        write(
            "rules.yaml",
            format!(
                "domain: {DOMAIN}\ndescriptors:\n- key: {KEY}\n  rate_limit: {{unit: second, requests_per_unit: \
                 {capacity}}}\n"
            ),
        )?;
        let program = server_words(command)?;
        let address = free()?;
        let config = directory.path().join("cluster.yaml").display().to_string();
        let listen = address.to_string();
        let flags = ["--listen", &listen, "--http", "127.0.0.1:0", "--config", &config];
        let bounds = ["--max-resources", "1000000", "--address-share", "100"];
        let server = process(program.iter().map(String::as_str).chain(flags).chain(bounds))?;
        let cluster = GatewayCluster { directory, server, address, program };
        await_listening(&cluster.server, address, interrupt)?;
        Ok(cluster)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn gateway(&self, protocol: Protocol, flags: &[&str], interrupt: &Interrupt) -> Result<Running, Error> {
        let (address, pages) = (free()?, free()?);
        let [listen, metrics, server] = [address, pages, self.address].map(|address| address.to_string());
        let rules = self.directory.path().join("rules.yaml").display().to_string();
        let own: &[&str] = match protocol {
            Protocol::Rls => &["--rls", &listen, "--ratelimit-config", &rules],
            Protocol::Http => &["--http", &listen],
        };
        let program = self.program.iter().map(String::as_str).take_while(|word| *word != "serve");
        let common = ["--server", &server, "--metrics", &metrics, "--address-share", "100"];
        let words = program.chain(["gateway"]).chain(own.iter().copied()).chain(common).chain(flags.iter().copied());
        running(process(words)?, protocol, address, pages, interrupt)
    }
}

/// Starts a bare service.
pub(crate) fn service(protocol: Protocol, flags: &[&str], interrupt: &Interrupt) -> Result<Running, Error> {
    let address = free()?;
    let program = std::env::current_exe().map_err(Error::io("find this program"))?.display().to_string();
    let listen = address.to_string();
    let name = match protocol {
        Protocol::Rls => "rls",
        Protocol::Http => "http",
    };
    let own = [program.as_str(), "gateways", "serve", "--listen", &listen, "--protocol", name];
    running(process(own.into_iter().chain(flags.iter().copied()))?, protocol, address, address, interrupt)
}

/// Starts a Redis without persistence.
pub(crate) fn redis(program: &str, interrupt: &Interrupt) -> Result<(Server, SocketAddr), Error> {
    let address = free()?;
    let port = address.port().to_string();
    let words = [program, "--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"];
    let server = process(words.into_iter())?;
    await_listening(&server, address, interrupt)?;
    Ok((server, address))
}

pub(crate) fn free() -> Result<SocketAddr, Error> {
    Ok(ports::free(Ipv4Addr::LOCALHOST, 1).map_err(Error::io("find a free port"))?[0])
}

pub(crate) fn process<'w>(words: impl Iterator<Item = &'w str>) -> Result<Server, Error> {
    let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
    Server::start(&words.map(str::to_owned).collect::<Vec<_>>(), &log)
}

fn running(
    process: Server,
    protocol: Protocol,
    address: SocketAddr,
    pages: SocketAddr,
    interrupt: &Interrupt,
) -> Result<Running, Error> {
    await_listening(&process, address, interrupt)?;
    Ok(Running { served: Served { protocol, address, pid: process.id() }, pages, process })
}

pub(crate) fn await_listening(process: &Server, address: SocketAddr, interrupt: &Interrupt) -> Result<(), Error> {
    process.await_ready(STARTUP, interrupt, || TcpStream::connect(address).map(drop).map_err(|error| error.to_string()))
}
