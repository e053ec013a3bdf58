//! Connections that are being opened, of all listeners: how many there may be, and of whom.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use leaseway_core::{Principal, PrincipalShare};

/// Connections that are being opened.
#[derive(Debug, Clone)]
pub(crate) struct PendingHandshakes(Arc<HandshakeTable>);

#[derive(Debug)]
struct HandshakeTable {
    most: usize,
    share: PrincipalShare,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    by_principal: HashMap<Principal, usize>,
}

/// One of them, for as long as it lives.
pub(super) struct HandshakePermit {
    table: Arc<HandshakeTable>,
    principal: Principal,
}

impl PendingHandshakes {
    pub(crate) fn new(most: usize, share: PrincipalShare) -> PendingHandshakes {
        PendingHandshakes(Arc::new(HandshakeTable { most, share, taken: Mutex::default() }))
    }

    /// One more, if there may be.
    pub(super) fn begin(&self, principal: Principal) -> Option<HandshakePermit> {
        let HandshakeTable { most, share, taken } = &*self.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_principal.get(&principal).copied().unwrap_or_default();
        if !share.allows(own, 1, taken.in_all, *most) {
            return None;
        }
        taken.in_all += 1;
        taken.by_principal.insert(principal, own + 1);
        Some(HandshakePermit { table: Arc::clone(&self.0), principal })
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut taken = self.table.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.in_all -= 1;
        let own = taken.by_principal.remove(&self.principal).unwrap_or_default();
        if own > 1 {
            taken.by_principal.insert(self.principal, own - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_that_opens_and_says_nothing_leaves_room_for_others() {
        let pending_handshakes = PendingHandshakes::new(8, PrincipalShare::default());
        let begin = |principal| pending_handshakes.begin(Principal(principal));
        let silent: Vec<_> = std::iter::from_fn(|| begin(1)).collect();
        assert_eq!(silent.len(), 7);
        let other = begin(2).expect("there is room");
        assert!(begin(3).is_none(), "there is none any more");
        drop((silent, other));
        assert!(begin(1).is_some());
    }
}
