//! Certificates for the servers of a run and for its clients, made by the program that is tested.

use std::path::{Path, PathBuf};

use leaseway_client::{ClientTls, Credentials, Files};
use leaseway_tls::Protocol;

use crate::{error::Error, server::said_by, tls};

/// A set in a directory of the run.
pub(crate) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// For servers that are reached at these hosts. `server` is the command that starts one.
    pub(crate) fn make(server: &[String], directory: &Path, hosts: &[String]) -> Result<Certificates, Error> {
        let certificates = Certificates { directory: directory.join("certs") };
        certificates.run(server, &["init"])?;
        certificates.run(server, &["issue", "peer", "--host", &hosts.join(",")])?;
        certificates.run(server, &["issue", "client"])?;
        Ok(certificates)
    }

    fn run(&self, server: &[String], words: &[&str]) -> Result<(), Error> {
        let directory = self.directory.display().to_string();
        said_by(server, &[&["certs"], words, &["--dir", &directory]].concat()).map(drop)
    }

    /// Of a server that asks its callers for certificates, too.
    pub(crate) fn flags(&self) -> [(&'static str, String); 3] {
        let Files { certificate, key, ca } = self.files("peer");
        let text = |path: Option<PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
        [("--tls-cert", text(certificate)), ("--tls-key", text(key)), ("--tls-ca", text(ca))]
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
