//! The other side of a connection.

use std::{fmt, net::IpAddr, sync::Arc};

use leaseway_core::{access::Identity, escaped};
use leaseway_tls::Names;

use crate::listen::{accounts::RequestOrigin, open_connections::OpenConnection};

/// The other side of a connection, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Where it calls from. IPv4 is never written as IPv6.
    pub(crate) address: IpAddr,
    /// What its certificate proves, if it has shown one.
    pub(crate) names: Option<Arc<Names>>,
    /// It is part of this process, and may do everything.
    pub(crate) is_in_process: bool,
    /// The connection as one of those that are open.
    pub(crate) connection: Arc<OpenConnection>,
}

impl Caller {
    /// What a request says about its connection.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Option<&Caller> {
        request.extensions().get()
    }

    /// Where its requests come from, as far as they say nothing of that themselves.
    pub(crate) fn origin(&self) -> RequestOrigin {
        RequestOrigin { address: self.address, ..self.connection.origin() }
    }

    /// Who its certificate proves it to be.
    pub(crate) fn certified(&self) -> Option<Identity> {
        self.identity().and_then(|name| Identity::named(name).ok())
    }

    /// What its certificate calls it.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.names.as_ref()?.identity()
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity() {
            Some(identity) => write!(f, "{} at {}", escaped(identity), self.address),
            None => write!(f, "{}", self.address),
        }
    }
}
