//! The caller of a connection.

use std::{fmt, net::IpAddr, sync::Arc};

use leaseway_core::{policy::access::Identity, types::escaped};
use leaseway_tls::Names;

use crate::listen::{accounts::RequestOrigin, open_connections::OpenConnection};

/// The caller of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Its address. IPv4 addresses are not mapped to IPv6.
    pub(crate) address: IpAddr,
    /// The names in its certificate, if it has presented one.
    pub(crate) names: Option<Arc<Names>>,
    /// Whether it is part of this process; then everything is allowed.
    pub(crate) is_in_process: bool,
    pub(crate) connection: Arc<OpenConnection>,
}

impl Caller {
    /// The caller of a request that came through a listener.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Option<&Caller> {
        request.extensions().get()
    }

    /// The origin of its requests, unless they are authenticated themselves.
    pub(crate) fn origin(&self) -> RequestOrigin {
        RequestOrigin { address: self.address, ..self.connection.origin() }
    }

    /// The identity that its certificate proves.
    pub(crate) fn certified(&self) -> Option<Identity> {
        self.identity().and_then(|name| Identity::named(name).ok())
    }

    /// The first name in its certificate.
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
