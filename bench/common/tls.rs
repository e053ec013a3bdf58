//! TLS towards the servers that are measured: the same flags for all commands that ask some.

use std::path::PathBuf;

use leaseway_client::{ClientTls, Credentials, Files, Transport};

use crate::common::error::Error;

/// How servers are reached: over TLS if any of these is given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsFlags {
    /// Ask over TLS; the CA that signs the servers' certificates, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show to servers that ask for one, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// What the servers' certificates are for, if not for the addresses that are asked.
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

/// A pool of connections, made so.
pub(crate) fn transport(tls: Option<ClientTls>) -> Transport {
    match tls {
        Some(tls) => Transport::new().with_tls(tls),
        None => Transport::new(),
    }
}
