//! The files of TLS: the same flags for servers and for all that connects to them.

use std::path::PathBuf;

use clap::Args;
use leaseway_client::Files;

/// A certificate of one's own, and what checks those of others; all as PEM.
#[derive(Args, Clone)]
pub(crate) struct TlsFlags {
    /// The certificate of this side, with those between it and its CA, as PEM. A server's listeners speak TLS with it,
    /// and it is shown to parent and peers; other commands show it to servers that ask for one
    #[arg(long, env = "LEASEWAY_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert, as PEM
    #[arg(long, env = "LEASEWAY_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The CA that the certificates of all others must be signed by, as PEM
    #[arg(long, env = "LEASEWAY_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsFlags {
    pub(crate) fn files(&self) -> Files {
        Files { certificate: self.tls_cert.clone(), key: self.tls_key.clone(), ca: self.tls_ca.clone() }
    }
}
