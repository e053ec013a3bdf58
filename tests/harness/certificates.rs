//! Certificates of a test, made with `leaseway certs`.

use std::path::{Path, PathBuf};

use leaseway_client::{ClientTls, Credentials, Files};
use tempfile::TempDir;

use super::process::leaseway;

pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// Makes a CA, a certificate `node` for servers on loopback, and one for a client `alice`.
    pub(crate) fn new() -> Certificates {
        let certificates = Certificates { directory: tempfile::tempdir().unwrap() };
        certificates.run(&["init"]);
        certificates.issue("node", &["--host", "localhost,127.0.0.1"]);
        certificates.issue("alice", &[]);
        certificates
    }

    /// Makes a certificate, and replaces one of this name.
    pub(crate) fn issue(&self, name: &str, flags: &[&str]) {
        self.run(&[&["issue", name, "--force"], flags].concat());
    }

    fn run(&self, words: &[&str]) {
        let said = leaseway(&[&["certs"], words, &["--dir", self.directory().to_str().unwrap()]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.directory().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn ca(&self) -> String {
        self.file("ca.pem")
    }

    /// The TLS flags of a server or client with this certificate.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        let [certificate, key] = ["pem", "key"].map(|kind| self.file(&format!("{name}.{kind}")));
        ["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &self.ca()].map(str::to_owned).to_vec()
    }

    /// A client of the library with this certificate, or with none.
    pub(crate) fn client(&self, name: Option<&str>) -> ClientTls {
        let file = |kind: &str| name.map(|name| PathBuf::from(self.file(&format!("{name}.{kind}"))));
        let files = Files { certificate: file("pem"), key: file("key"), ca: Some(self.ca().into()) };
        ClientTls::new(&Credentials::load(files).unwrap(), None).unwrap()
    }
}
