//! Why a server does not run, or no longer.

use std::{net::SocketAddr, path::PathBuf};

use crate::config::{LoadError, exposure::ExposedError, parent_error::ParentError};

/// Why a server does not run, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration cannot be read or is wrong. Nothing was started.
    #[error("{0}")]
    Config(#[from] LoadError),
    /// A port cannot be had. Nothing was started.
    #[error("cannot listen on {address}: {error}{}", listen_hint(.error, .flag))]
    Listen {
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
        /// Which flag chooses another.
        flag: &'static str,
    },
    /// Metrics cannot be set up. Nothing was started.
    #[error("cannot set up metrics: {0}")]
    Metrics(String),
    /// Traces cannot be sent. Nothing was started.
    #[cfg(feature = "otlp")]
    #[error("cannot send traces to where OTEL_EXPORTER_OTLP_ENDPOINT says, which has to be like http://HOST:4317: {0}")]
    Traces(String),
    /// Signals cannot be heard. Nothing was started.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// It cannot join its peers, or its data directory cannot be used. Nothing was started.
    #[error("{0}")]
    Quorum(#[from] leaseway_raft::StartError),
    /// This peer is not one of its node's. Nothing was started.
    #[error("--id {name} is not among --peers ({peers}): give this peer's own name with --id")]
    NotAmongPeers {
        /// What it is called.
        name: String,
        /// What they are called.
        peers: String,
    },
    /// With `--handover learning` every master learns by itself, for as long as templates say. Nothing was started.
    #[error(
        "--take-over and a backup that is restored keep promises from then on, and so do not go with --handover learning: leave that away"
    )]
    TakeOverLearning,
    /// This peer's address in --peers cannot be listened on. Nothing was started.
    #[error(
        "cannot listen for peers on {address}: it is not an IP address with a port; name one with --peer-listen, like 0.0.0.0:5120"
    )]
    PeerListen {
        /// As it is in --peers.
        address: String,
    },
    /// The node cannot have this parent. Nothing was started.
    #[error("{0}")]
    Parent(#[from] ParentError),
    /// Certificates cannot be used. Nothing was started.
    #[error("{0}")]
    Tls(#[from] leaseway_tls::TlsError),
    /// A file with a secret cannot be used. Nothing was started.
    #[error("cannot take a secret from {}: {why}", path.display())]
    Secret {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Without a token, any machine on the network could change everything. Nothing was started.
    #[error(
        "--admin {address} is not on loopback: any machine that reaches it could change everything; give it a --admin-token-file"
    )]
    AdminOpen {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// Others could reach it, and it is not protected. Nothing was started.
    #[error(transparent)]
    Exposed(#[from] ExposedError),
    /// A file of tokens or keys cannot be used. Nothing was started.
    #[error("{0}; nothing was started")]
    Credentials(String),
    /// The audit log cannot be opened. Nothing was started.
    #[error("cannot write the audit log to {}: {error}", path.display())]
    Audit {
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The node actor panicked; leases are forgotten, a new start learns them.
    #[error("the node failed; its leases are forgotten, start the server again and it will learn them")]
    NodeFailed,
}

impl ServeError {
    /// Whether other options would help.
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
            format!("; another server is running there: stop it, or choose another address with {flag}")
        }
        std::io::ErrorKind::AddrNotAvailable => format!("; this machine has no such address: see {flag}"),
        std::io::ErrorKind::PermissionDenied => format!("; choose a port above 1023 with {flag}"),
        _ => String::new(),
    }
}
