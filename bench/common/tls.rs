//! TLS towards servers, by the same flags for all commands.

use std::path::PathBuf;

use leaseway_client::{ClientTls, Credentials, Files, Transport};

use crate::common::error::Error;

/// Any of these turns TLS on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsFlags {
    /// Use TLS; the CA of the servers' certificates, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not the address.
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
