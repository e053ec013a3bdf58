//! A running server of a test's own.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicU16, Ordering},
};

use rustix::process::Signal;
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use super::{
    config::ConfigFile,
    doorman::{Asks as _, Client, Doorman},
    http,
    original::{Original, Unknown},
    process::{Process, Said, Variables, leaseway},
    raw::Raw,
    seats::Seat,
    wait::{block_on, eventually},
};

/// Where the system chooses a port.
pub(crate) const ANYWHERE: &str = "127.0.0.1:0";

/// Two of [`free_addresses`].
pub(crate) fn addresses_of_its_own() -> [String; 2] {
    let free = free_addresses(2);
    [free[0].to_string(), free[1].to_string()]
}

/// Addresses that no other process will take meanwhile: every call has a loopback address to itself, and everything
/// else that tests start is at 127.0.0.1.
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
    _seat: Seat,
}

impl Server {
    /// Without a configuration file: every resource has 100, shared fairly.
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

    /// With nothing but these.
    pub(crate) fn start(flags: &[&str], variables: Variables<'_>) -> Server {
        Server::begin(|| Process::start(&[&["serve"], flags].concat(), variables))
    }

    /// Of a binary that was built otherwise.
    pub(crate) fn of(binary: &Path, flags: &[&str], variables: Variables<'_>) -> Server {
        let flags = [&["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--threads", "2"], flags].concat();
        Server::begin(|| Process::start_program(binary, &flags, variables))
    }

    fn begin(start: impl FnOnce() -> Process) -> Server {
        let seat = Seat::take();
        let process = start();
        let (grpc, http) = eventually("the server says where it serves", || {
            let ended = process.ended();
            assert!(ended.is_none(), "the server ended at once: {}", process.stderr());
            addresses(&process.stdout())
        });
        Server { process, grpc, http, _seat: seat }
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where operators are served, if it was started with `--admin`.
    pub(crate) fn admin(&self) -> String {
        eventually("the server says where operators are served", || {
            let said = self.said();
            let (_, after) = said.split_once("admin on ")?;
            let (address, _) = after.split_once([';', '\n'])?;
            Some(address.to_owned())
        })
    }

    /// Where a gateway in its process serves RLS, RLQS or HTTP.
    pub(crate) fn gateway(&self, protocol: &str) -> SocketAddr {
        let line = format!("\nserving {protocol} on ");
        eventually("it says where its gateway serves", || {
            let said = self.said();
            let (_, after) = said.split_once(&line)?;
            after.split_once('\n').map(|(address, _)| address.parse().unwrap())
        })
    }

    /// What it has said on standard output so far.
    pub(crate) fn said(&self) -> String {
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

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(self) -> Said {
        self.signal(Signal::TERM);
        self.finish()
    }

    pub(crate) fn finish(self) -> Said {
        self.process.finish()
    }

    /// A connection of its own.
    pub(crate) fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap();
        block_on(endpoint.connect()).unwrap()
    }

    /// A connection from another address of this machine.
    pub(crate) fn channel_from(&self, address: IpAddr) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap();
        block_on(endpoint.local_address(Some(address)).connect()).unwrap()
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn doorman(&self) -> Doorman {
        Doorman::over(self.channel())
    }

    /// A client that knows our protocol.
    pub(crate) fn client(&self, id: &str) -> Client {
        Client::new(self.doorman(), id)
    }

    /// A client that was compiled from the original protocol.
    pub(crate) fn original(&self, id: &str, unknown: Unknown) -> Original {
        Original::new(self.raw(), id, unknown)
    }

    pub(crate) fn raw(&self) -> Raw {
        Raw::over(self.channel())
    }

    /// Runs a command that asks this server.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Said {
        leaseway(&[arguments, &["--server", &self.grpc.to_string()]].concat())
    }

    /// What `leaseway status --json` says.
    pub(crate) fn status(&self, arguments: &[&str]) -> Value {
        let said = self.cli(&[&["status", "--json"], arguments].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.stdout).unwrap()
    }

    /// A page that must be there.
    pub(crate) fn page(&self, path: &str) -> String {
        let response = http::get(self.http, path);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.body
    }

    /// It is there, and still does what it is for.
    pub(crate) fn assert_alive(&self) {
        assert_eq!(self.page("/healthz"), "ok\n");
        let granted = self.client("still here").ask("still here", 0.0);
        assert_eq!(granted, 0.0);
    }
}

fn addresses(stdout: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (first, _) = stdout.split_once('\n')?;
    let (grpc, http) = first.strip_prefix("serving gRPC on ")?.split_once(", HTTP on ")?;
    Some((grpc.parse().ok()?, http.parse().ok()?))
}

/// Says something that is not HTTP/2 to a port.
pub(crate) fn babble(address: SocketAddr, nonsense: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The other side may hang up in the middle of it.
    let _ = stream.write_all(nonsense);
}
