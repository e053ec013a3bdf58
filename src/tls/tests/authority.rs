//! A CA for tests.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{ClientCertificates, ClientTls, Credentials, Files, Names, Protocol, ServerTls};

/// First and last year of validity.
pub(super) type Years = (i32, i32);
pub(super) const NOW: Years = (2020, 2090);
pub(super) const PAST: Years = (2001, 2002);
pub(super) const FUTURE: Years = (2100, 2101);

pub(super) struct Authority {
    name: String,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    directory: TempDir,
}

impl Authority {
    /// Each CA has a name of its own.
    pub(super) fn new() -> Authority {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        Authority::named(&format!("CA {} of these tests", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    pub(super) fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority { name: name.to_owned(), issuer: Issuer::new(params, key), pem, directory };
        fs::write(authority.path("ca.pem"), &authority.pem).expect("written");
        authority
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Issues a certificate into `NAME.pem` and `NAME.key`. `NAME` is its common name.
    pub(super) fn issue(&self, name: &str, alternative: &[&str], years: Years) -> Files {
        let mut params = CertificateParams::default();
        params.subject_alt_names = alternative.iter().map(|name| alternative_name(name)).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = self.files(name);
        fs::write(files.certificate.as_deref().expect("named"), certificate.pem()).expect("written");
        fs::write(files.key.as_deref().expect("named"), key.serialize_pem()).expect("written");
        files
    }

    /// Replaces the files of another CA by a certificate of this one.
    pub(super) fn issue_over(&self, files: &Files, alternative: &[&str]) {
        let issued = self.issue("in place of another", alternative, NOW);
        for (from, to) in [(issued.certificate, &files.certificate), (issued.key, &files.key), (issued.ca, &files.ca)] {
            fs::copy(from.expect("named"), to.as_deref().expect("named")).expect("replaced");
        }
    }

    /// [`issue`](Self::issue), with this CA.
    pub(super) fn files(&self, name: &str) -> Files {
        let path = |kind: &str| Some(self.path(&format!("{name}.{kind}")));
        Files { certificate: path("pem"), key: path("key"), ca: Some(self.ca()) }
    }

    /// Only this CA, without a certificate.
    pub(super) fn trust(&self) -> Files {
        Files { ca: Some(self.ca()), ..Files::default() }
    }
}

fn alternative_name(name: &str) -> SanType {
    if name.contains("://") {
        return SanType::URI(name.try_into().expect("ASCII"));
    }
    match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into().expect("ASCII")),
    }
}

pub(super) fn load(files: Files) -> Credentials {
    Credentials::load(files).expect("valid files")
}

pub(super) fn server(files: Files, clients: ClientCertificates) -> ServerTls {
    ServerTls::new(&load(files), clients, Protocol::Http2).expect("a valid server configuration")
}

pub(super) fn client(files: Files) -> ClientTls {
    ClientTls::new(&load(files), None).expect("a valid client configuration")
}

/// The text that the client has read, and the names that the server has verified.
pub(super) type Outcome = (Result<String, String>, Result<Option<Names>, String>);

/// Connects a client as if to `host`, and lets it read what the server writes.
pub(super) async fn meet(server: &ServerTls, client: &ClientTls, host: &str) -> Outcome {
    let (listener, address) = listen().await;
    let accepting = async {
        let (stream, _) = listener.accept().await.expect("it comes");
        let mut secured = server.accept(stream).await.map_err(|error| error.to_string())?;
        // Fails if the client has refused the server.
        let _ = secured.stream.write_all(b"hello").await;
        let _ = secured.stream.shutdown().await;
        Ok(secured.names.map(|names| (*names).clone()))
    };
    let connecting = async {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let mut stream = client.connect(host, stream).await.map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
        Ok(text)
    };
    tokio::join!(connecting, accepting)
}

pub(super) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

pub(super) fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
}
