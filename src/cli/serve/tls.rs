//! Certificates of a server.

use std::path::PathBuf;

use clap::Args;
use leaseway_server::{ClientCertificates, TlsFiles, TlsOptions};

/// Certificates, all as PEM. They are read again when they change, and on SIGHUP; connections that are open stay open.
#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsFlags {
    /// The certificate of this server, with those between it and its CA: all listeners speak TLS with it, and it is
    /// shown to the parent and to peers
    #[arg(long, env = "LEASEWAY_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert
    #[arg(long, env = "LEASEWAY_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The CA that checks the certificates of all others: clients, operators, peers, the parent
    #[arg(long, env = "LEASEWAY_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Whether clients and operators have to show a certificate. /healthz and /readyz are for all [default: require,
    /// where there is a --tls-ca; else none is asked for]
    #[arg(
        long,
        env = "LEASEWAY_TLS_CLIENT_AUTH",
        value_name = "WHETHER",
        value_enum,
        requires = "tls_ca",
        requires = "tls_cert"
    )]
    tls_client_auth: Option<ClientAuth>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ClientAuth {
    /// Each has to show one
    Require,
    /// One that is shown has to be good; none is fine, too
    Optional,
}

impl TlsFlags {
    /// `peer_ca`: the CA of peers, if that is another.
    pub(crate) fn options(self, peer_ca: Option<PathBuf>) -> TlsOptions {
        TlsOptions {
            files: self.files(),
            clients: self.tls_client_auth.map(|asked| match asked {
                ClientAuth::Require => ClientCertificates::Required,
                ClientAuth::Optional => ClientCertificates::Optional,
            }),
            peer_ca,
        }
    }

    /// The files, as those of a client.
    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles { certificate: self.tls_cert.clone(), key: self.tls_key.clone(), ca: self.tls_ca.clone() }
    }

    /// Whether the listeners speak TLS.
    pub(crate) fn are_for_listeners(&self) -> bool {
        self.tls_cert.is_some()
    }
}
