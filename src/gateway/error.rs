//! Why a gateway does not run.

use leaseway_client::BuildError;
use leaseway_server::ServeError;

use crate::rls::file::RulesError;

/// Why a gateway does not run. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The rules of envoyproxy/ratelimit.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A listener, or what protects it.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The client that holds the leases.
    #[error(transparent)]
    Client(#[from] BuildError),
}

impl GatewayError {
    /// Whether other options would help.
    pub fn is_configuration(&self) -> bool {
        match self {
            GatewayError::Rules(_) | GatewayError::Client(_) => true,
            GatewayError::Serve(error) => error.is_configuration(),
        }
    }
}
