//! Errors of starting a server.

use std::{net::SocketAddr, path::PathBuf};

use leaseway_client::transport::BadToken;
use leaseway_tls::TlsError;

use super::{LoadError, listeners::ExposedError};

/// Why a server did not start, or failed. With all errors but `NodeFailed`, nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Config(#[from] LoadError),
    #[error("cannot listen on {address}: {error}{}", listen_hint(.error, .flag))]
    Listen { address: SocketAddr, error: std::io::Error, flag: &'static str },
    #[error("cannot set up metrics: {0}")]
    Metrics(String),
    #[cfg(feature = "otlp")]
    #[error("cannot send traces to OTEL_EXPORTER_OTLP_ENDPOINT: {0}; expected an address like http://HOST:4317")]
    Traces(String),
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Quorum(#[from] leaseway_raft::StartError),
    #[error("--id {name} is not among --peers ({peers}): give this peer's own name with --id")]
    NotAmongPeers { name: String, peers: String },
    #[error(
        "--handover learning cannot be used with --take-over or a restored backup, because it stores no promises: omit \
         --handover learning"
    )]
    TakeOverLearning,
    #[error(
        "cannot listen for peers on {address}: it is not an IP address with a port; pass one with --peer-listen, like \
         0.0.0.0:5120"
    )]
    PeerListen { address: String },
    #[error("{0}")]
    Parent(#[from] ParentError),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("cannot use the secret in {}: {why}", path.display())]
    Secret { path: PathBuf, why: String },
    #[error(
        "--admin {address} is not on loopback: any machine on the network could change everything; pass --admin-token-file"
    )]
    AdminOpen { address: SocketAddr },
    #[error(transparent)]
    Exposed(#[from] ExposedError),
    #[error("{0}; nothing was started")]
    Credentials(String),
    #[error("cannot write the audit log to {}: {error}", path.display())]
    Audit { path: PathBuf, error: std::io::Error },
    /// The node actor panicked. After a restart, the server learns the leases.
    #[error("the node failed and lost its leases; restart the server to learn them from the clients")]
    NodeFailed,
}

impl ServeError {
    /// Whether the cause is a mistake in the options.
    pub fn is_configuration(&self) -> bool {
        match self {
            ServeError::Config(_)
            | ServeError::NotAmongPeers { .. }
            | ServeError::TakeOverLearning
            | ServeError::Exposed(_)
            | ServeError::Credentials(_)
            | ServeError::Tls(_)
            | ServeError::PeerListen { .. } => true,
            ServeError::Parent(ParentError::TokenInTheClear { .. } | ParentError::Token(_) | ParentError::Tls(_)) => {
                true
            }
            ServeError::Quorum(error) => error.is_configuration(),
            _ => false,
        }
    }
}

fn listen_hint(error: &std::io::Error, flag: &str) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("; another program listens there: stop that program, or choose another address with {flag}")
        }
        std::io::ErrorKind::AddrNotAvailable => format!("; this machine has no such address: see {flag}"),
        std::io::ErrorKind::PermissionDenied => format!("; choose a port above 1023 with {flag}"),
        _ => String::new(),
    }
}

/// Why a node cannot have this parent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParentError {
    #[error(
        "--parent with --peers needs --node NAME: the name of this node at its parent, the same for all peers of this \
         node"
    )]
    NoName,
    #[error("--parent {address} is this server: a node cannot be its own parent")]
    Itself { address: String },
    #[error("--parent is `{address}`: expected HOST:PORT, like 10.0.0.1:5100, or https://HOST:PORT")]
    Address { address: String },
    /// Peers name each other without a scheme, so the scheme must be the same for all.
    #[error("--parent has addresses with https:// and others without: use https:// for all addresses or for none")]
    Mixed,
    #[error(
        "the token of --parent-token-file would be sent to {address} without TLS, so others could read it: write \
         https://{address}, or pass --tls-ca"
    )]
    TokenInTheClear { address: String },
    #[error("--parent-token-file: {0}")]
    Token(#[from] BadToken),
    #[error("--parent: {0}")]
    Tls(#[from] TlsError),
}
