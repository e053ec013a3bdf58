//! A gateway and its HTTP callers. Each caller has a lease of the resource that all clients share. The gateway reaches
//! the peers over the degraded links.

pub(crate) mod passes;
pub(crate) mod rlqs;
pub(crate) mod rls;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::LeaseChange;
use leaseway_process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{timeout, timeout_at},
};

use crate::{
    chaos::{
        args::REFRESH,
        clients::{SCARCE, draw},
        cluster::{Cluster, addresses},
        gateway::rls::rules,
    },
    common::{error::Error, server::Server},
};

const CALLERS: usize = 4;

/// The timeout of a call, and the pause after a failed one.
const DEADLINE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Gateway {
    /// The address for Envoys that report usage (RLQS).
    pub(crate) rlqs: SocketAddr,
    /// The address for Envoys that ask about each request (RLS).
    pub(crate) rls: SocketAddr,
    /// The times of all starts.
    pub(crate) starts: Vec<Instant>,
    words: Vec<String>,
    process: Option<Server>,
    leave: watch::Sender<bool>,
    callers: Vec<JoinHandle<Vec<LeaseChange>>>,
}

impl Gateway {
    /// Starts a gateway that asks the peers of the last node.
    pub(crate) fn open(cluster: &Cluster, seed: u64, runtime: &Handle) -> Result<Gateway, Error> {
        // Use a separate loopback address, so that no connection takes a port of the gateway while it is down.
        let [address, rlqs, rls] = addresses(cluster.peers.len())?;
        let program = cluster.program().iter().take_while(|word| *word != "serve").cloned();
        let servers = cluster.endpoints(cluster.nodes.last().cloned().unwrap_or_default());
        let rules = cluster.write_file(&rules(), "ratelimit.yaml")?;
        let flags = [
            ("--http", address.to_string()),
            ("--rlqs", rlqs.to_string()),
            ("--rls", rls.to_string()),
            ("--ratelimit-config", rules.to_string_lossy().into_owned()),
            ("--server", servers.join(",")),
            // A restarted gateway keeps its id, and so its leases.
            ("--id", "gateway".to_owned()),
        ];
        let flags = flags.into_iter().chain(cluster.ca().map(|ca| ("--tls-ca", ca)));
        let flags = flags.flat_map(|(flag, value)| [flag.to_owned(), value]);
        let (leave, _) = watch::channel(false);
        let caller = |number: usize| GatewayCaller {
            name: format!("caller:{number}").into(),
            gateway: address,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            has: None,
            records: Vec::new(),
        };
        let callers = (0..CALLERS).map(|number| runtime.spawn(caller(number).live(leave.subscribe()))).collect();
        let words = program.chain(["gateway".to_owned()]).chain(flags).collect();
        let mut gateway = Gateway { rlqs, rls, starts: Vec::new(), words, process: None, leave, callers };
        gateway.start()?;
        Ok(gateway)
    }

    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        self.starts.push(Instant::now());
        self.process = Some(Server::start(&self.words, &log)?);
        Ok(())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.expect_end();
            process.signal(Signal::KILL);
        }
    }

    /// The error if the gateway has exited unexpectedly.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.process.as_ref()?.check().err().map(|error| format!("the gateway: {error}"))
    }

    /// Stops the callers. Returns their records.
    pub(crate) async fn close(self) -> Vec<LeaseChange> {
        self.leave.send_replace(true);
        let mut entries = Vec::new();
        for caller in self.callers {
            entries.extend(caller.await.expect("a caller of ours does not panic"));
        }
        entries
    }
}

struct GatewayCaller {
    name: Arc<str>,
    gateway: SocketAddr,
    random: fastrand::Rng,
    /// The token of the lease, and the time at which the lease ends.
    has: Option<(String, Instant)>,
    records: Vec<LeaseChange>,
}

impl GatewayCaller {
    /// Asks again and again until `left` is true. It does not release its last lease, so that one counts until it ends.
    async fn live(mut self, mut left: watch::Receiver<bool>) -> Vec<LeaseChange> {
        while !*left.borrow() {
            let pause = if self.ask().await { REFRESH } else { PAUSE };
            let _ = timeout_at((Instant::now() + pause).into(), left.wait_for(|left| *left)).await;
            self.expire();
        }
        if let Some((_, ends)) = self.has.take() {
            self.note(ends, 0.0);
        }
        self.records
    }

    /// Requests a lease, or renews it. Ignores an answer that arrives after the end of the named lease.
    async fn ask(&mut self) -> bool {
        let mut said = json!({"client": *self.name, "resource": SCARCE, "wants": draw(&mut self.random)});
        let named = self.has.clone();
        if let Some((token, _)) = &named {
            said["token"] = json!(token);
        }
        let method = if named.is_some() { "PUT" } else { "POST" };
        let asked = Instant::now();
        let answer = timeout(DEADLINE, post(self.gateway, method, &said)).await.ok().flatten();
        let at = Instant::now();
        self.expire();
        let Some(answer) = answer.filter(|_| named.is_none() || self.has.is_some()) else { return false };
        let lease = (answer["capacity"].as_f64(), answer["expires_in"].as_f64(), answer["token"].as_str());
        let (Some(capacity), Some(length), Some(token)) = lease else { return false };
        let ends = asked + Duration::from_secs_f64(length.max(0.0));
        self.note(at, capacity);
        self.has = Some((token.to_owned(), ends));
        true
    }

    fn expire(&mut self) {
        if let Some((_, ends)) = self.has.take_if(|(_, ends)| *ends <= Instant::now()) {
            self.note(ends, 0.0);
        }
    }

    fn note(&mut self, at: Instant, capacity: f64) {
        let entry = LeaseChange { at: at.into(), client: Arc::clone(&self.name), resource: SCARCE.into(), capacity };
        self.records.push(entry);
    }
}

/// Sends a request over HTTP. Returns the answer if it is a lease.
async fn post(gateway: SocketAddr, method: &str, said: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(gateway).await.ok()?;
    let body = said.to_string();
    let head = format!(
        "{method} /v1/leases HTTP/1.1\r\nhost: {gateway}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1)?.starts_with('2').then_some(())?;
    serde_json::from_str(body).ok()
}
