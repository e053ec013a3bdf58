//! A record of what a client may use due to leases, for audits: the sum over all clients must not exceed the capacity.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// What clients may use because of leases, as it is put in force. What they use when a lease has ended unrenewed is no
/// server's promise, and counts as nothing here. Clones are the same book; several clients may share one.
///
/// It grows with every change. For tests and audits, not for services that run for months.
#[derive(Debug, Clone, Default)]
pub struct Book {
    entries: Arc<Mutex<Vec<Entry>>>,
}

/// From this moment on, until the next entry of the same client and resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When.
    pub at: Instant,
    /// Whose.
    pub client: Arc<str>,
    /// Of what.
    pub resource: Arc<str>,
    /// How much. Infinite without a limit.
    pub capacity: f64,
}

impl Book {
    /// An empty book.
    pub fn new() -> Book {
        Book::default()
    }

    /// What has been written since this was last called, oldest first for each client.
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn write(&self, client: &Arc<str>, resource: &Arc<str>, capacity: f64) {
        let (client, resource) = (Arc::clone(client), Arc::clone(resource));
        let mut entries = self.lock();
        entries.push(Entry { at: Instant::now(), client, resource, capacity });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
