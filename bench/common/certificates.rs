//! Certificates for the servers of a run and for its clients, made by the program that is tested.

use std::{
    fs,
    path::{Path, PathBuf},
};

use leaseway_client::{ClientTls, Credentials, Files};
use leaseway_tls::Protocol;

use crate::common::{error::Error, server::said_by, tls};

/// A set in a directory of the run: what is in use, and beside it what each CA has made.
pub(crate) struct Certificates {
    directory: PathBuf,
    server: Vec<String>,
    hosts: String,
    /// CAs are counted: the newest, and the one whose certificates are in use.
    newest: usize,
    in_use: usize,
}

/// What servers and clients show, in the order in which it is replaced: as when files are copied one by one, a key does
/// not belong to its certificate for a moment.
const SHOWN: [&str; 4] = ["peer.key", "client.key", "peer.pem", "client.pem"];

impl Certificates {
    /// For servers that are reached at these hosts. `server` is the command that starts one.
    pub(crate) fn make(server: &[String], directory: &Path, hosts: &[String]) -> Result<Certificates, Error> {
        let (directory, server) = (directory.join("certs"), server.to_vec());
        fs::create_dir(&directory).map_err(Error::io("create a directory for certificates"))?;
        let mut certificates = Certificates { directory, server, hosts: hosts.join(","), newest: 0, in_use: 0 };
        certificates.add_authority()?;
        certificates.exchange()?;
        Ok(certificates)
    }

    /// Puts other certificates of the CA that is in use in the place of those that are.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        self.issue(self.in_use)?;
        self.deploy()
    }

    /// Makes another CA, which is trusted beside the one in use.
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

    /// Puts certificates of the newest CA in the place of those that are in use.
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

    /// Of a server that asks its callers for certificates, too.
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

    /// Of a server that does not.
    pub(crate) fn server_flags(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.flags().into_iter().filter(|(flag, _)| *flag != "--tls-ca")
    }

    pub(crate) fn client(&self) -> Result<ClientTls, Error> {
        tls::client(self.files("client"), None)
    }

    /// The same client, as it reads pages.
    pub(crate) fn reader(&self) -> Result<ClientTls, Error> {
        let credentials = Credentials::load(self.files("client")).map_err(Error::usage)?;
        ClientTls::speaking(Protocol::Http1, &credentials, None).map_err(Error::usage)
    }

    fn files(&self, name: &str) -> Files {
        let file = |name: String| Some(self.directory.join(name));
        Files { certificate: file(format!("{name}.pem")), key: file(format!("{name}.key")), ca: file("ca.pem".into()) }
    }
}
