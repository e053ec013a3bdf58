//! The other end of a connection.

use std::{net::IpAddr, sync::Arc};

/// The other end of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// Where it calls from, as far as the system knows.
    pub(crate) address: Option<IpAddr>,
    /// What its certificate proves, the identity first.
    pub(crate) names: Option<Arc<[String]>>,
}

impl Caller {
    /// One that proves nothing.
    pub(crate) fn at(address: Option<IpAddr>) -> Caller {
        Caller { address, names: None }
    }

    /// What its certificate names first.
    pub(crate) fn certified(&self) -> Option<&str> {
        self.names.as_ref()?.first().map(String::as_str)
    }
}
