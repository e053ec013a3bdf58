//! Who was heard of, when, and what it said about itself; and who was turned away, so that it is said once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leaseway_core::Millis;
use leaseway_proto::peer::Introduction;

use crate::raft::PeerId;

/// More strangers than this are not remembered: then it is said again.
const STRANGERS: usize = 64;
/// Nor more than this of what is wrong with each.
const REASONS: usize = 16;

/// What is known about a peer besides the membership.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    pub(crate) name: String,
    pub(crate) advertise: String,
    pub(crate) at: Millis,
}

#[derive(Debug, Default)]
pub(crate) struct Contacts {
    known: Mutex<BTreeMap<PeerId, Contact>>,
    trouble: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Contacts {
    /// Somebody who was checked has spoken.
    pub(crate) fn heard(&self, other: &Introduction, at: Millis) {
        let mut known = lock(&self.known);
        match known.get_mut(&other.peer) {
            Some(contact) if contact.name == other.name && contact.advertise == other.advertise => contact.at = at,
            _ => {
                // Identities are made with directories: the ones of a name that went before this will not come back.
                known.retain(|_, contact| contact.name != other.name || at.since(contact.at) < Millis::from_secs(60));
                let contact = Contact { name: other.name.clone(), advertise: other.advertise.clone(), at };
                known.insert(other.peer, contact);
            }
        }
    }

    pub(crate) fn get(&self, peer: PeerId) -> Option<Contact> {
        lock(&self.known).get(&peer).cloned()
    }

    /// Something is wrong with whoever is there. Each thing is said once until all is well again: those who retry do
    /// so many times a second.
    pub(crate) fn trouble(&self, with: &str, what: &dyn std::fmt::Display) {
        let what = what.to_string();
        let mut trouble = lock(&self.trouble);
        if trouble.len() >= STRANGERS && !trouble.contains_key(with) {
            trouble.clear();
        }
        let said = trouble.entry(with.to_owned()).or_default();
        if !said.contains(&what) {
            tracing::warn!(peer = with, reason = what, "cannot talk to a peer");
            if said.len() >= REASONS {
                said.clear();
            }
            said.insert(what);
        }
    }

    /// All is well with whoever is there.
    pub(crate) fn well(&self, with: &str) {
        if lock(&self.trouble).remove(with).is_some() {
            tracing::info!(peer = with, "a peer can be talked to again");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
