//! Certificates for the servers and clients of a run, made by the program under test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use leaseway_client::{ClientTls, Credentials, Files, Transport};
use leaseway_tls::Protocol;

use crate::common::{error::Error, server::said_by, tls};

/// The certificates of a run in a directory: those in use, and those of each CA.
pub(crate) struct Certificates {
    directory: PathBuf,
    server: Vec<String>,
    hosts: String,
    /// The numbers of the newest CA and of the CA whose certificates are in use.
    newest: usize,
    in_use: usize,
}

/// The files in use, in the order in which they are replaced. They are replaced one by one, so a key briefly does not
/// match its certificate, as happens when an operator copies files.
const SHOWN: [&str; 4] = ["peer.key", "client.key", "peer.pem", "client.pem"];

impl Certificates {
    /// Creates certificates for servers at these hosts, with the program of the command `server`.
    pub(crate) fn make(server: &[String], directory: &Path, hosts: &[String]) -> Result<Certificates, Error> {
        let (directory, server) = (directory.join("certs"), server.to_vec());
        fs::create_dir(&directory).map_err(Error::io("create a directory for certificates"))?;
        let mut certificates = Certificates { directory, server, hosts: hosts.join(","), newest: 0, in_use: 0 };
        certificates.add_authority()?;
        certificates.exchange()?;
        Ok(certificates)
    }

    /// Replaces the certificates in use with new ones of the same CA.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        self.issue(self.in_use)?;
        self.deploy()
    }

    /// Creates another CA, which is trusted in addition to the one in use.
    pub(crate) fn add_authority(&mut self) -> Result<(), Error> {
        self.newest += 1;
        self.run(self.newest, &["init", "--name", &format!("CA {}", self.newest)])?;
        self.issue(self.newest)?;
        let mut trusted = Vec::new();
        for authority in [self.newest, self.in_use].into_iter().filter(|authority| *authority > 0) {
            let file = self.of(authority).join("ca.pem");
            trusted.extend(fs::read(file).map_err(Error::io("read the certificate of a CA"))?);
        }
        self.put("ca.pem", &trusted)
    }

    /// Replaces the certificates in use with those of the newest CA.
    pub(crate) fn exchange(&mut self) -> Result<(), Error> {
        self.in_use = self.newest;
        self.deploy()
    }

    fn of(&self, authority: usize) -> PathBuf {
        self.directory.join(format!("ca-{authority}"))
    }

    fn issue(&self, authority: usize) -> Result<(), Error> {
        self.run(authority, &["issue", "peer", "--force", "--host", &self.hosts])?;
        self.run(authority, &["issue", "client", "--force"])
    }

    fn run(&self, authority: usize, words: &[&str]) -> Result<(), Error> {
        let directory = self.of(authority).display().to_string();
        said_by(&self.server, &[&["certs"], words, &["--dir", &directory]].concat()).map(drop)
    }

    fn deploy(&self) -> Result<(), Error> {
        SHOWN.into_iter().try_for_each(|file| {
            let bytes = fs::read(self.of(self.in_use).join(file)).map_err(Error::io("read a certificate"))?;
            self.put(file, &bytes)
        })
    }

    fn put(&self, file: &str, bytes: &[u8]) -> Result<(), Error> {
        let next = self.directory.join("next");
        let put = fs::write(&next, bytes).and_then(|()| fs::rename(&next, self.directory.join(file)));
        put.map_err(Error::io("put a certificate in its place"))
    }

    /// Flags of a server that asks for client certificates.
    pub(crate) fn flags(&self) -> [(&'static str, String); 3] {
        self.flags_of("peer")
    }

    fn flags_of(&self, name: &str) -> [(&'static str, String); 3] {
        let Files { certificate, key, ca } = self.files(name);
        let text = |path: Option<PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
        [("--tls-cert", text(certificate)), ("--tls-key", text(key)), ("--tls-ca", text(ca))]
    }

    pub(crate) fn client_flags(&self) -> [(&'static str, String); 3] {
        self.flags_of("client")
    }

    /// Flags of a server that does not ask for client certificates.
    pub(crate) fn server_flags(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.flags().into_iter().filter(|(flag, _)| *flag != "--tls-ca")
    }

    pub(crate) fn client(&self) -> Result<ClientTls, Error> {
        tls::client(self.files("client"), None)
    }

    /// TLS settings of a client that reads pages over HTTP/1.1.
    pub(crate) fn reader(&self) -> Result<ClientTls, Error> {
        let credentials = Credentials::load(self.files("client")).map_err(Error::usage)?;
        ClientTls::for_protocol(Protocol::Http1, &credentials, None).map_err(Error::usage)
    }

    fn files(&self, name: &str) -> Files {
        let file = |name: String| Some(self.directory.join(name));
        Files { certificate: file(format!("{name}.pem")), key: file(format!("{name}.key")), ca: file("ca.pem".into()) }
    }
}

/// TLS flags. Any of them turns TLS on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsFlags {
    /// Use TLS, and trust this CA for the servers' certificates (PEM).
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// The key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// The name in the servers' certificates, if it differs from the address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
}

impl TlsFlags {
    pub(crate) fn client(&self) -> Result<Option<ClientTls>, Error> {
        let files = Files { certificate: self.tls_cert.clone(), key: self.tls_key.clone(), ca: self.tls_ca.clone() };
        files.are_given().then(|| client(files, self.tls_server_name.as_deref())).transpose()
    }
}

pub(crate) fn client(files: Files, server_name: Option<&str>) -> Result<ClientTls, Error> {
    let credentials = Credentials::load(files).map_err(Error::usage)?;
    ClientTls::new(&credentials, server_name).map_err(Error::usage)
}

pub(crate) fn transport(tls: Option<ClientTls>) -> Transport {
    match tls {
        Some(tls) => Transport::new().with_tls(tls),
        None => Transport::new(),
    }
}
