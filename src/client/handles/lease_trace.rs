//! A record of leased capacity, for audits: the sum over all clients must never exceed the capacity of the resource.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// A trace of leased capacity, recorded as it comes into force. Fallback capacity of expired leases counts as 0,
/// because no server guarantees it. Clones share the trace, and several clients can share one.
///
/// It grows with every change until it is [taken](Self::take): use it for tests and audits, not in long-running
/// services.
#[derive(Debug, Clone, Default)]
pub struct LeaseTrace {
    changes: Arc<Mutex<Vec<LeaseChange>>>,
}

/// A change of leased capacity. It applies until the next change of the same client and resource.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseChange {
    /// The time of the change.
    pub at: Instant,
    /// The client.
    pub client: Arc<str>,
    /// The resource.
    pub resource: Arc<str>,
    /// The capacity; infinite if unlimited.
    pub capacity: f64,
}

impl LeaseTrace {
    /// Creates an empty trace.
    pub fn new() -> LeaseTrace {
        LeaseTrace::default()
    }

    /// Takes the changes since the last call, oldest first for each client.
    pub fn take(&self) -> Vec<LeaseChange> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn record(&self, client: &Arc<str>, resource: &Arc<str>, capacity: f64) {
        let (client, resource) = (Arc::clone(client), Arc::clone(resource));
        let mut changes = self.lock();
        changes.push(LeaseChange { at: Instant::now(), client, resource, capacity });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeaseChange>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
