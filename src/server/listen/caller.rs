//! The other side of a connection.

use std::{fmt, net::IpAddr, sync::Arc};

use leaseway_core::{Principal, escaped};
use leaseway_tls::Names;

use crate::accounts::Origin;

/// The other side of a connection, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Where it calls from. IPv4 is never written as IPv6.
    pub(crate) address: IpAddr,
    /// What its certificate proves, if it has shown one.
    pub(crate) names: Option<Arc<Names>>,
    /// To whom what it leaves behind is counted.
    pub(crate) principal: Principal,
}

impl Caller {
    /// What a request says about its connection.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Option<&Caller> {
        request.extensions().get()
    }

    /// Where its requests come from.
    pub(crate) fn origin(&self) -> Origin {
        Origin { address: self.address, principal: self.principal }
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
