//! Bounds on connections before their first request, of all listeners together.

use std::sync::{Arc, Mutex, PoisonError};

use leaseway_core::types::{Principal, PrincipalShare};

use crate::listen::accounts::SlotsTaken;

/// Counts connections whose handshake is pending. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct PendingHandshakes {
    most: usize,
    share: PrincipalShare,
    taken: Arc<Mutex<SlotsTaken>>,
}

/// Counts one pending handshake until it is dropped.
pub(super) struct HandshakePermit {
    taken: Arc<Mutex<SlotsTaken>>,
    principal: Principal,
}

impl PendingHandshakes {
    pub(crate) fn new(most: usize, share: PrincipalShare) -> PendingHandshakes {
        PendingHandshakes { most, share, taken: Arc::default() }
    }

    /// Counts a handshake. `None` if the limit or the share of the principal is reached.
    pub(super) fn begin(&self, principal: Principal) -> Option<HandshakePermit> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = || HandshakePermit { taken: Arc::clone(&self.taken), principal };
        taken.take(principal, self.most, self.share).then(permit)
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.principal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_with_silent_connections_leaves_room_for_others() {
        let pending_handshakes = PendingHandshakes::new(8, PrincipalShare::default());
        let begin = |principal| pending_handshakes.begin(Principal(principal));
        let silent: Vec<_> = std::iter::from_fn(|| begin(1)).collect();
        assert_eq!(silent.len(), 7);
        let other = begin(2).expect("there is room");
        assert!(begin(3).is_none(), "all slots are taken");
        drop((silent, other));
        assert!(begin(1).is_some());
    }
}
