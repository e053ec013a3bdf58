//! A caller that is known, with what it may do.

use std::net::IpAddr;

use leaseway_core::access::Permissions;

/// A caller that is known, with what it may do.
#[derive(Debug)]
pub(crate) struct Subject {
    permissions: Permissions,
    address: Option<IpAddr>,
    /// The version of policy and credentials that this follows from.
    version: u64,
}

impl Subject {
    pub(super) fn new(permissions: Permissions, address: Option<IpAddr>, version: u64) -> Subject {
        Subject { permissions, address, version }
    }

    pub(crate) fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }
}
