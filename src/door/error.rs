//! Why a door does not run.

use leaseway_client::BuildError;
use leaseway_server::ServeError;

use crate::rls::file::RulesError;

/// Why a door does not run. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
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

impl DoorError {
    /// Whether other options would help.
    pub fn is_configuration(&self) -> bool {
        match self {
            DoorError::Rules(_) | DoorError::Client(_) => true,
            DoorError::Serve(error) => error.is_configuration(),
        }
    }
}
