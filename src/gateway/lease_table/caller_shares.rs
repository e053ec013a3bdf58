//! Counts the open resources of each caller.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::types::{Principal, PrincipalShare};

use super::NotOpened;

#[derive(Debug)]
pub(crate) struct CallerShares(Arc<ShareTable>);

#[derive(Debug)]
struct ShareTable {
    most: usize,
    share: PrincipalShare,
    used: AtomicUsize,
    by_principal: Mutex<HashMap<Principal, usize>>,
}

/// Permission for one open resource, until it is dropped.
#[derive(Debug)]
pub(crate) struct SharePermit {
    shares: Arc<ShareTable>,
    owner: Principal,
}

impl CallerShares {
    pub(crate) fn new(most: usize, share: PrincipalShare) -> CallerShares {
        CallerShares(Arc::new(ShareTable { most, share, used: AtomicUsize::new(0), by_principal: Mutex::default() }))
    }

    pub(crate) fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    pub(crate) fn admit(&self, owner: Principal) -> Result<SharePermit, NotOpened> {
        let ShareTable { most, share, used, by_principal } = &*self.0;
        let mut by_principal = by_principal.lock().unwrap_or_else(PoisonError::into_inner);
        let (in_all, own) = (self.used(), by_principal.get(&owner).copied().unwrap_or_default());
        if in_all >= *most {
            return Err(NotOpened::TooMany(*most));
        }
        if !share.allows(own, 1, in_all, *most) {
            return Err(NotOpened::OfCaller(*most));
        }
        by_principal.insert(owner, own + 1);
        used.fetch_add(1, Ordering::Relaxed);
        Ok(SharePermit { shares: Arc::clone(&self.0), owner })
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        let mut by_principal = self.shares.by_principal.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_principal.remove(&self.owner).unwrap_or_default();
        if own > 1 {
            by_principal.insert(self.owner, own - 1);
        }
        self.shares.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_use_the_whole_table() {
        let caller_shares = CallerShares::new(8, PrincipalShare::default());
        let mut shares: Vec<SharePermit> = std::iter::from_fn(|| caller_shares.admit(Principal(1)).ok()).collect();
        assert_eq!(shares.len(), 7);
        assert_eq!(caller_shares.admit(Principal(1)).err(), Some(NotOpened::OfCaller(8)));
        let other = caller_shares.admit(Principal(2)).expect("there is room");
        assert_eq!(caller_shares.admit(Principal(3)).err(), Some(NotOpened::TooMany(8)));
        drop((other, shares.pop()));
        assert_eq!(caller_shares.used(), 6);
        assert!(caller_shares.admit(Principal(1)).is_ok());
    }
}
