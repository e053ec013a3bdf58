//! Certificates for the peers of a run and for its clients, made by the program that is tested.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use leaseway_client::{ClientTls, Files};

use crate::{error::Error, tls};

/// A set in a directory of the run.
pub(super) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// For servers that are reached at these hosts. `server` is the command that starts one.
    pub(super) fn make(server: &[String], directory: &Path, hosts: &[String]) -> Result<Certificates, Error> {
        let certificates = Certificates { directory: directory.join("certs") };
        certificates.run(server, &["init"])?;
        certificates.run(server, &["issue", "peer", "--host", &hosts.join(",")])?;
        certificates.run(server, &["issue", "client"])?;
        Ok(certificates)
    }

    fn run(&self, server: &[String], words: &[&str]) -> Result<(), Error> {
        let program = server.iter().take_while(|word| *word != "serve").cloned();
        let words = program.chain(["certs".to_owned()]).chain(words.iter().map(|word| (*word).to_owned()));
        let words: Vec<_> = words.chain(["--dir".to_owned(), self.directory.display().to_string()]).collect();
        let command = words.join(" ");
        let output = Command::new(&words[0]).args(&words[1..]).output();
        let output = output.map_err(|source| Error::Spawn { command: command.clone(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let said = format!("; it said:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
        Err(Error::Server { command, what: format!("ended ({})", output.status), said })
    }

    /// Of a server.
    pub(super) fn flags(&self) -> [(&'static str, String); 3] {
        let Files { certificate, key, ca } = self.files("peer");
        let text = |path: Option<PathBuf>| path.map(|path| path.display().to_string()).unwrap_or_default();
        [("--tls-cert", text(certificate)), ("--tls-key", text(key)), ("--tls-ca", text(ca))]
    }

    pub(super) fn client(&self) -> Result<ClientTls, Error> {
        tls::client(self.files("client"), None)
    }

    fn files(&self, name: &str) -> Files {
        let file = |name: String| Some(self.directory.join(name));
        Files { certificate: file(format!("{name}.pem")), key: file(format!("{name}.key")), ca: file("ca.pem".into()) }
    }
}
