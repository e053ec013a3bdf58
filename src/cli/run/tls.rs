//! The flags for certificates of servers and gateways.

use std::path::PathBuf;

use clap::Args;
use leaseway_client::Files;
use leaseway_server::{ClientCertificates, TlsOptions};

use crate::connect::TlsFlags;

/// Certificates are reloaded when their files change, and on SIGHUP. Open connections stay open.
#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct ListenerTls {
    #[command(flatten)]
    files: TlsFlags,
    /// Whether clients must show a certificate. /healthz and /readyz never need one [default: require with --tls-ca,
    /// otherwise none is requested]
    #[arg(long, value_name = "WHETHER", value_enum, requires = "tls_ca", requires = "tls_cert")]
    tls_client_auth: Option<ClientAuth>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ClientAuth {
    /// Reject clients without a certificate
    Require,
    /// Verify certificates if clients present them
    Optional,
}

impl ListenerTls {
    /// `peer_ca` is the CA of peers, if it differs.
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

    pub(crate) fn files(&self) -> Files {
        self.files.files()
    }

    /// Whether the listeners use TLS.
    pub(crate) fn are_for_listeners(&self) -> bool {
        self.files().certificate.is_some()
    }
}
