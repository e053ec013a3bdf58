//! The server under attack.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{self},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_process::ports;
use leaseway_proto::doorman::{GetCapacityRequest, GetCapacityResponse, ResourceRequest};
use serde::Serialize;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    common::{
        current_thread,
        error::Error,
        server::{Interrupt, Server, said_by, server_words},
        tls::Certificates,
    },
    hostile::{HostileArgs, attack::Attack},
    load::connection::{CONNECT_PATIENCE, Connection, Dialer, Failure, Path, find_master},
};

/// Leases are longer than a run. Attacks use the name of the pool.
const CONFIGURATION: &str = "\
resources:
- identifier_glob: \"pool-*\"
  capacity: 100
  algorithm: {kind: PRIORITY_POOL, lease_length: 600, refresh_interval: 16, learning_mode_duration: 0,
              parameters: {min_capacity: 1, min_request_interval: 0}}
- identifier_glob: \"*\"
  capacity: 25000
  algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 16, learning_mode_duration: 0,
              parameters: {min_request_interval: 0}}
";

/// Anonymous callers may ask for capacity and read.
const POLICY: &str = "\
access:
- {name: all, who: anonymous, may: [ask, read], clients: [\"*\"]}
- {name: known, who: alice, may: ask}
";

/// The public key for JWTs. It is the generator of P-256, because no valid signature is needed.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig",
"x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;

/// The time limit for the server to start.
const STARTUP: Duration = Duration::from_secs(15);

pub(crate) struct Target {
    pub(crate) server: Server,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) dialer: Dialer,
    /// For pages over HTTP/1.1.
    pub(crate) reader: Dialer,
    /// Dropped last, because the process uses its files.
    _directory: TempDir,
}

impl Target {
    pub(crate) fn start(args: &HostileArgs, attack: Attack, interrupt: &Interrupt) -> Result<Target, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("create a directory for the server"))?;
        let mut words = server_words(args.server.as_deref())?;
        let certificates = args.tls.then(|| Certificates::make(&words, directory.path(), &["127.0.0.1".to_owned()]));
        let certificates = certificates.transpose()?;
        let found = ports::free(Ipv4Addr::LOCALHOST, 2).map_err(Error::io("find free ports"))?;
        let (grpc, http) = (found[0], found[1]);
        let flags = [("--listen", grpc.to_string()), ("--http", http.to_string())];
        let policy = if attack.meets_policy() { POLICY } else { "" };
        let files = files(&words, directory.path(), &format!("{CONFIGURATION}{policy}"))?;
        let secured = certificates.iter().flat_map(Certificates::server_flags);
        words.extend(flags.into_iter().chain(files).chain(secured).flat_map(|(flag, value)| [flag.to_owned(), value]));
        words.extend(attack.flags().iter().map(|&word| word.to_owned()));
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        let target = Target {
            server: Server::start(&words, &log)?,
            grpc,
            http,
            dialer: Dialer::new(certificates.as_ref().map(Certificates::client).transpose()?),
            reader: Dialer::new(certificates.as_ref().map(Certificates::reader).transpose()?),
            _directory: directory,
        };
        let probe = || find_master(target.grpc, &target.dialer).map_err(|error| error.to_string());
        target.server.await_ready(STARTUP, interrupt, probe)?;
        Ok(target)
    }
}

/// Writes the configuration and the credentials.
fn files(server: &[String], directory: &path::Path, configuration: &str) -> Result<Vec<(&'static str, String)>, Error> {
    let path = |name: &str| directory.join(name).display().to_string();
    let (config, tokens, keys, token) = (path("leaseway.yaml"), path("tokens"), path("keys.json"), path("token"));
    let line = said_by(server, &["token", "new", "alice", "--out", &token])?;
    for (file, text) in [(&config, configuration), (&tokens, &line), (&keys, KEYS)] {
        fs::write(file, text).map_err(Error::io(format!("write {file}")))?;
    }
    let issuer = |flag| (flag, "bench".to_owned());
    let files = [("--config", config), ("--tokens", tokens), ("--jwks", keys)];
    Ok(files.into_iter().chain([issuer("--jwt-issuer"), issuer("--jwt-audience")]).collect())
}

/// Reads a page over a new connection.
pub(crate) async fn page(reader: &Dialer, address: SocketAddr, path: &str) -> Result<String, String> {
    let read = async {
        let mut stream = reader.dial(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let exchange = async {
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await?;
            stream.read_to_end(&mut answer).await
        };
        exchange.await.map_err(|error| error.to_string())?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        if head.starts_with("HTTP/1.1 200") { Ok(body.to_owned()) } else { Err(head.to_owned()) }
    };
    timeout(CONNECT_PATIENCE, read).await.unwrap_or_else(|_| Err("no answer in time".into()))
}

/// An address that neither the well-behaved clients nor the attacker use.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The pause between two newcomers.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NewcomerCount {
    pub(crate) came: u64,
    pub(crate) failed: u64,
    /// The error of the first newcomer that failed.
    pub(crate) why: Option<String>,
    /// The longest time from connecting until the newcomer had a lease.
    pub(crate) slowest_ms: f64,
}

/// Newcomers arrive until this is dropped.
pub(crate) struct Newcomers {
    over: watch::Sender<()>,
    handle: JoinHandle<NewcomerCount>,
}

impl Newcomers {
    /// `name` has to be unique.
    pub(crate) fn come(target: &Target, name: String) -> Result<Newcomers, Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let (over, is_over) = watch::channel(());
        let [dialer, reader] = [&target.dialer, &target.reader].map(|dialer| dialer.clone().from(ADDRESS.into()));
        let (grpc, http) = (target.grpc, target.http);
        let body = move || {
            runtime.block_on(async {
                let mut count = NewcomerCount::default();
                while is_over.has_changed().is_ok() {
                    let began = Instant::now();
                    let came = newcomer(&dialer, grpc, format!("{name}-{}", count.came)).await;
                    let took = began.elapsed().as_secs_f64() * 1e3;
                    let alive = page(&reader, http, "/healthz").await.map_err(|why| format!("/healthz: {why}"));
                    count.add(took, came.and(alive.map(drop)));
                    sleep(PAUSE).await;
                }
                count
            })
        };
        let handle =
            thread::Builder::new().name("newcomers".into()).spawn(body).map_err(Error::io("start a thread"))?;
        Ok(Newcomers { over, handle })
    }

    pub(crate) fn count(self) -> NewcomerCount {
        drop(self.over);
        self.handle.join().expect("newcomers do not panic")
    }
}

impl NewcomerCount {
    fn add(&mut self, took_ms: f64, outcome: Result<(), String>) {
        self.came += 1;
        self.slowest_ms = self.slowest_ms.max(took_ms);
        if let Err(why) = outcome {
            self.failed += 1;
            self.why.get_or_insert(why);
        }
    }

    pub(crate) fn and(mut self, other: NewcomerCount) -> NewcomerCount {
        self.came += other.came;
        self.failed += other.failed;
        self.why = self.why.or(other.why);
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self
    }
}

async fn newcomer(dialer: &Dialer, target: SocketAddr, name: String) -> Result<(), String> {
    let (connection, driver) = Connection::open(dialer, target).await?;
    let path = Path::new(dialer, target, "GetCapacity");
    let entry = ResourceRequest {
        resource_id: Some(name.clone()),
        priority: Some(0),
        wants: Some(1.0),
        ..ResourceRequest::default()
    };
    let request = GetCapacityRequest { client_id: Some(name), resource: vec![entry], ..GetCapacityRequest::default() };
    let answer = tokio::select! {
        answer = timeout(CONNECT_PATIENCE, connection.call::<GetCapacityResponse>(&path, &request)) => {
            answer.map_err(|_| "no answer in time".to_owned())?.map_err(Failure::reason)?
        }
        _ = driver => return Err("the connection ended".to_owned()),
    };
    match &answer.response[..] {
        [_] => Ok(()),
        _ => Err(format!("no lease: {:?}", answer.problem)),
    }
}
