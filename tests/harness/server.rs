//! A running server.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering},
    },
};

use rustix::process::Signal;
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use super::{
    binary,
    config::{self, ConfigFile, Template},
    doorman::{Asks as _, Client, Doorman},
    http,
    legacy_client::{LegacyClient, UnknownFields},
    process::{Output, Process, Variables, leaseway},
    raw::Raw,
    slots::ServerSlot,
    wait::{block_on, eventually},
};

/// An address with a free port.
pub(crate) const ANYWHERE: &str = "127.0.0.1:0";

pub(crate) fn addresses_of_its_own() -> [String; 2] {
    let free = free_addresses(2);
    [free[0].to_string(), free[1].to_string()]
}

/// Addresses with free ports. Each call uses its own loopback address, so that no other process takes the ports.
pub(crate) fn free_addresses(number: usize) -> Vec<SocketAddr> {
    static CALLS: AtomicU16 = AtomicU16::new(2);
    let [high, low] = CALLS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let host = Ipv4Addr::new(127, 0, high, low);
    leaseway_process::ports::free(host, number).unwrap()
}

pub(crate) struct Server {
    process: Process,
    grpc: SocketAddr,
    http: SocketAddr,
    _slot: Option<ServerSlot>,
}

impl Server {
    /// A server that tests share. Each test uses its own resources and clients. Every resource has a capacity of 100,
    /// FAIR_SHARE, and leases of an hour ([`Template::fair`]).
    pub(crate) fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| {
            let config = shared_config("fair.yaml", &config::text(&[Template::fair("*", 100.0)]));
            let flags = ["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--threads", "2", "--config", &config];
            Server::begin(None, || Process::start_server(binary::path(), &flags, &[]))
        })
    }

    /// Without a configuration file: every resource has a capacity of 100 and FAIR_SHARE.
    pub(crate) fn development() -> Server {
        Server::with_flags(&[])
    }

    pub(crate) fn with_config(config: &ConfigFile) -> Server {
        Server::with_flags(&["--config", config.path()])
    }

    pub(crate) fn with_flags(flags: &[&str]) -> Server {
        let flags = [&["--listen", ANYWHERE, "--http", ANYWHERE, "--threads", "2"], flags].concat();
        Server::start(&flags, &[])
    }

    /// With these flags only.
    pub(crate) fn start(flags: &[&str], variables: Variables<'_>) -> Server {
        let flags = [&["serve"], flags].concat();
        Server::begin(Some(ServerSlot::take()), || Process::start_server(binary::path(), &flags, variables))
    }

    /// Runs another binary.
    pub(crate) fn of(binary: &Path, flags: &[&str], variables: Variables<'_>) -> Server {
        let flags = [&["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--threads", "2"], flags].concat();
        Server::begin(Some(ServerSlot::take()), || Process::start_server(binary, &flags, variables))
    }

    fn begin(slot: Option<ServerSlot>, start: impl FnOnce() -> Process) -> Server {
        let process = start();
        let (grpc, http) = eventually("the server prints its addresses", || {
            let ended = process.ended();
            assert!(ended.is_none(), "the server exited during startup: {}", process.stderr());
            addresses(&process.stdout())
        });
        Server { process, grpc, http, _slot: slot }
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    /// The admin address, if the server was started with `--admin`.
    pub(crate) fn admin(&self) -> String {
        eventually("the server prints its admin address", || {
            let output = self.stdout();
            let (_, after) = output.split_once("admin on ")?;
            let (address, _) = after.split_once([';', '\n'])?;
            Some(address.to_owned())
        })
    }

    /// The address at which its in-process gateway serves RLS, RLQS or HTTP.
    pub(crate) fn gateway(&self, protocol: &str) -> SocketAddr {
        let line = format!("\nserving {protocol} on ");
        eventually("the server prints the address of its gateway", || {
            let output = self.stdout();
            let (_, after) = output.split_once(&line)?;
            after.split_once('\n').map(|(address, _)| address.parse().unwrap())
        })
    }

    /// Its standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.process.stdout()
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(self) -> Output {
        self.signal(Signal::TERM);
        self.finish()
    }

    pub(crate) fn finish(self) -> Output {
        self.process.finish()
    }

    /// A new connection.
    pub(crate) fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap();
        block_on(endpoint.connect()).unwrap()
    }

    /// A new connection from another address of this machine.
    pub(crate) fn channel_from(&self, address: IpAddr) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap();
        block_on(endpoint.local_address(Some(address)).connect()).unwrap()
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn doorman(&self) -> Doorman {
        Doorman::over(self.channel())
    }

    /// A client of the current protocol.
    pub(crate) fn client(&self, id: &str) -> Client {
        Client::new(self.doorman(), id)
    }

    /// A client of the protocol of 2016.
    pub(crate) fn legacy_client(&self, id: &str, unknown: UnknownFields) -> LegacyClient {
        LegacyClient::new(self.raw(), id, unknown)
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::over(self.channel())
    }

    /// Runs a command with `--server`.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        leaseway(&[arguments, &["--server", &self.grpc.to_string()]].concat())
    }

    /// The output of `leaseway status --json`.
    pub(crate) fn status(&self, arguments: &[&str]) -> Value {
        let output = self.cli(&[&["status", "--json"], arguments].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }

    /// Fails unless the status is 200.
    pub(crate) fn page(&self, path: &str) -> String {
        let response = http::get(self.http, path);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.body
    }

    /// Fails unless the server is healthy and answers a client.
    pub(crate) fn assert_alive(&self) {
        assert_eq!(self.page("/healthz"), "ok\n");
        let granted = self.client("still here").ask("still here", 0.0);
        assert_eq!(granted, 0.0);
    }
}

/// The configuration file of a shared server. Shared servers are never dropped, so each test process overwrites it.
pub(crate) fn shared_config(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn addresses(stdout: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (first, _) = stdout.split_once('\n')?;
    let (grpc, http) = first.strip_prefix("serving gRPC on ")?.split_once(", HTTP on ")?;
    Some((grpc.parse().ok()?, http.parse().ok()?))
}

/// Sends bytes that are not HTTP/2.
pub(crate) fn babble(address: SocketAddr, nonsense: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may close the connection first.
    let _ = stream.write_all(nonsense);
}
