//! A caller that is known, with what it may do.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use leaseway_core::access::Permissions;

use crate::listen::accounts::{Account, RequestOrigin};

/// A caller that is known, with what it may do.
#[derive(Debug)]
pub(crate) struct Subject {
    permissions: Permissions,
    address: Option<IpAddr>,
    /// What the identity has; none where what the connection belongs to has it.
    account: Option<Arc<Account>>,
    /// When it has to be proved again.
    expires: Option<SystemTime>,
    /// The version of policy and credentials that this follows from.
    version: u64,
}

impl Subject {
    pub(super) fn new(
        permissions: Permissions,
        address: Option<IpAddr>,
        account: Option<Arc<Account>>,
        expires: Option<SystemTime>,
        version: u64,
    ) -> Subject {
        Subject { permissions, address, account, expires, version }
    }

    /// Where its calls come from; none where the connection says it.
    pub(crate) fn origin(&self) -> Option<RequestOrigin> {
        Some(RequestOrigin { address: self.address?, principal: self.account.as_ref()?.principal() })
    }

    pub(crate) fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }
}
