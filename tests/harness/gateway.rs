//! A running gateway for RLS, RLQS or HTTP.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    binary,
    config::ConfigFile,
    http::{self, Connection, Response},
    peers::{Peers, channel},
    process::{Output, Process},
    quotas::{self, QuotaStream},
    rls::RlsCaller,
    server::ANYWHERE,
    slots::ServerSlot,
    wait::eventually,
};

pub(crate) struct Gateway {
    process: Process,
    _slot: ServerSlot,
}

impl Gateway {
    /// Starts an RLS gateway with rules in the format of envoyproxy/ratelimit. Unless `flags` change that, first
    /// requests wait up to 20 s for a lease.
    pub(crate) fn for_requests(servers: &[String], rules: &ConfigFile, flags: &[&str]) -> Gateway {
        Gateway::with_rules(servers, ["--ratelimit-config", rules.path()], flags)
    }

    /// As [`for_requests`](Self::for_requests), and declares the templates of the rules. Returns when they are in
    /// force.
    pub(crate) fn declaring(peers: &Peers, rules: &ConfigFile) -> Gateway {
        let admin = peers.admin(peers.master()).to_string();
        let gateway = Gateway::for_requests(&peers.endpoints(), rules, &["--declare", "--declare-admin", &admin]);
        gateway.await_declared();
        gateway
    }

    /// Waits until the cluster has the templates for the rules in force.
    pub(crate) fn await_declared(&self) {
        eventually("the gateway has declared its templates", || {
            self.metrics().contains("\nleaseway_rls_declared 1\n").then_some(())
        });
    }

    /// As [`for_requests`](Self::for_requests), with the rules of a directory.
    pub(crate) fn with_directory(servers: &[String], rules: &str, flags: &[&str]) -> Gateway {
        Gateway::with_rules(servers, ["--ratelimit-config", rules], flags)
    }

    /// As [`for_requests`](Self::for_requests), with rules from a control plane.
    pub(crate) fn following(servers: &[String], control_plane: &str, flags: &[&str]) -> Gateway {
        Gateway::with_rules(servers, ["--rls-xds", control_plane], flags)
    }

    fn with_rules(servers: &[String], rules: [&str; 2], flags: &[&str]) -> Gateway {
        let patient = ["--first-wait-ms", "20000"];
        let patient = if flags.contains(&"--first-wait-ms") { &[][..] } else { &patient };
        let own = ["--rls", ANYWHERE, "--metrics", ANYWHERE];
        Gateway::start(&servers.join(","), &[&own[..], &rules, patient, flags].concat())
    }

    pub(crate) fn for_quotas(servers: &[String], flags: &[&str]) -> Gateway {
        let own = ["--rlqs", ANYWHERE, "--metrics", ANYWHERE];
        Gateway::start(&servers.join(","), &[&own[..], flags].concat())
    }

    pub(crate) fn for_http(servers: &str, flags: &[&str]) -> Gateway {
        Gateway::start(servers, &[&["--http", ANYWHERE], flags].concat())
    }

    fn start(servers: &str, flags: &[&str]) -> Gateway {
        let slot = ServerSlot::take();
        let flags_of_all = [&["gateway", "--server", servers], flags].concat();
        let gateway = Gateway { process: Process::start_server(binary::path(), &flags_of_all, &[]), _slot: slot };
        // The gateway prints this line when it is ready.
        gateway.serving(if flags.contains(&"--metrics") { "metrics" } else { "HTTP" });
        gateway
    }

    pub(crate) fn serving(&self, what: &str) -> SocketAddr {
        eventually("the gateway prints its address", || {
            assert!(self.process.ended().is_none(), "the gateway exited during startup: {}", self.log());
            let output = self.process.stdout();
            let line = output.split_inclusive('\n').find_map(|line| {
                line.strip_suffix('\n')?.strip_prefix("serving ")?.strip_prefix(what)?.strip_prefix(" on ")
            })?;
            line.parse().ok()
        })
    }

    pub(crate) fn rls(&self) -> SocketAddr {
        self.serving("RLS")
    }

    pub(crate) fn rlqs(&self) -> SocketAddr {
        self.serving("RLQS")
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.serving("HTTP")
    }

    /// The body of a page of the `--metrics` listener.
    pub(crate) fn page(&self, path: &str) -> String {
        http::get(self.serving("metrics"), path).body
    }

    pub(crate) fn metrics(&self) -> String {
        self.page("/metrics")
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn finish(self) -> Output {
        self.process.finish()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(self) -> Output {
        self.signal(Signal::TERM);
        self.finish()
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        self.finish();
    }

    /// Connects as an Envoy.
    pub(crate) fn caller(&self) -> RlsCaller {
        RlsCaller::on(channel(self.rls()))
    }

    /// Opens the RLQS stream of the Envoy with this name.
    pub(crate) fn stream(&self, name: Option<&str>) -> QuotaStream {
        quotas::stream(channel(self.rlqs()), name)
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.http())
    }

    /// Sends a request over a new connection.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Response {
        self.connect().request(method, path, body)
    }

    pub(crate) fn acquire(&self, resource: &str, permits: u32, wait: f64) -> Response {
        self.ask("POST", &format!("/v1/resources/{resource}/acquire"), &json!({ "permits": permits, "wait": wait }))
    }

    /// Fails unless the gateway still works.
    pub(crate) fn assert_alive(&self) {
        assert_eq!(self.ask("GET", "/healthz", &Value::Null).body, "ok\n");
        let told = self.acquire("still-here", 1, 10.0);
        assert_eq!(told.status, 200, "{told:?}");
    }
}
