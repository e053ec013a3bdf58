//! The server under attack, and its metrics.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use leaseway_process::ports;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    common::{
        certificates::Certificates,
        current_thread,
        error::Error,
        server::{Server, said_by, server_words},
        signal::Interrupt,
    },
    hostile::{HostileArgs, attack::Attack},
    load::{connection::CONNECT_PATIENCE, master::find_master, socket::Dialer},
};

/// Leases outlast a run. Attacks know the name of the pool.
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

/// Anonymous callers may ask and read.
const POLICY: &str = "\
access:
- {name: all, who: anonymous, may: [ask, read], clients: [\"*\"]}
- {name: known, who: alice, may: ask}
";

/// A public key with an unused private key: the generator of P-256.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig",
"x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;

/// How long the server may take until it answers.
const STARTUP: Duration = Duration::from_secs(15);

/// Counters of refusals: the name in the report, and the series to sum.
const REFUSED: [(&str, &str); 7] = [
    ("calls", "doorman_server_request_errors"),
    ("entries", "leaseway_entry_problems_total"),
    ("connections", "leaseway_connections_refused_total"),
    ("openings", "leaseway_openings_failed_total"),
    ("closed connections", "leaseway_connections_closed_total"),
    ("watchers", "leaseway_watchers_refused_total"),
    ("resources", "leaseway_resources_refused_total"),
];

/// Refusals by kind.
pub(crate) type Refused = BTreeMap<String, u64>;

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
        let certificates = args.tls.then(|| certificates(&words, directory.path())).transpose()?;
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

    /// Refusals since the start.
    pub(crate) fn refused(&self) -> Result<Refused, Error> {
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let page = runtime.block_on(page(&self.reader, self.http, "/metrics"));
        let page = page.map_err(|why| self.server.failed(format!("does not show /metrics: {why}")))?;
        Ok(REFUSED.map(|(kind, series)| (kind.to_owned(), sum(&page, series))).into())
    }
}

fn certificates(server: &[String], directory: &Path) -> Result<Certificates, Error> {
    Certificates::make(server, directory, &["127.0.0.1".to_owned()])
}

/// Writes the configuration and the credentials.
fn files(server: &[String], directory: &Path, configuration: &str) -> Result<Vec<(&'static str, String)>, Error> {
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

/// Sums all series of a name.
fn sum(page: &str, name: &str) -> u64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with(['{', ' '])).filter_map(|rest| rest.rsplit_once(' '));
    values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_name_are_added_up() {
        let page = "# TYPE a counter\na{why=\"x\"} 2\na{why=\"y z\"} 3\nab 100\n\na 1\n";
        assert_eq!((sum(page, "a"), sum(page, "ab"), sum(page, "b")), (6, 100, 0));
    }
}
