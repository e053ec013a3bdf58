//! The last contact with each peer, and the problems with it that were already logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leaseway_core::types::Millis;
use leaseway_proto::peer::PeerInfo;

use crate::log::PeerId;

/// The maximum number of peers whose problems are remembered. Beyond it, problems are logged again.
const MAX_PROBLEM_PEERS: usize = 64;
const MAX_PROBLEMS_PER_PEER: usize = 16;

/// The peers of a cluster start one after the other. Until then, a peer that was never reached is no problem.
const STARTUP_GRACE: Millis = Millis::from_secs(5);

/// The last message of a peer.
#[derive(Debug, Clone)]
pub(crate) struct LastContact {
    pub(crate) name: String,
    pub(crate) advertise: String,
    pub(crate) at: Millis,
}

#[derive(Debug)]
pub(crate) struct Liveness {
    started: Millis,
    known: Mutex<BTreeMap<PeerId, LastContact>>,
    problems: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Liveness {
    pub(crate) fn new(now: Millis) -> Liveness {
        Liveness { started: now, known: Mutex::default(), problems: Mutex::default() }
    }

    /// Whether a peer that cannot be connected to may just not have started yet.
    pub(crate) fn may_be_starting(&self, name: &str, now: Millis) -> bool {
        now.since(self.started) < STARTUP_GRACE && !lock(&self.known).values().any(|contact| contact.name == name)
    }

    /// Records a message of an authenticated peer.
    pub(crate) fn record_contact(&self, other: &PeerInfo, at: Millis) {
        let mut known = lock(&self.known);
        match known.get_mut(&other.peer) {
            Some(contact) if contact.name == other.name && contact.advertise == other.advertise => {
                contact.at = at;
            }
            _ => {
                // Each data directory has its own identity, so earlier identities of the name do not come back.
                known.retain(|_, contact| contact.name != other.name || at.since(contact.at) < Millis::from_secs(60));
                let (name, advertise) = (other.name.clone(), other.advertise.clone());
                let contact = LastContact { name, advertise, at };
                known.insert(other.peer, contact);
            }
        }
    }

    pub(crate) fn get(&self, peer: PeerId) -> Option<LastContact> {
        lock(&self.known).get(&peer).cloned()
    }

    /// Whether another identity of its name was heard from later. Then its directory is lost, and it never comes back.
    pub(crate) fn is_replaced(&self, peer: PeerId, name: &str) -> bool {
        let known = lock(&self.known);
        let at = known.get(&peer).map(|contact| contact.at);
        known.iter().any(|(other, contact)| *other != peer && contact.name == name && Some(contact.at) > at)
    }

    /// Logs a problem with a peer, once until a call succeeds again: callers retry many times a second.
    pub(crate) fn report_problem(&self, with: &str, what: &dyn std::fmt::Display) {
        let what = what.to_string();
        let mut problems = lock(&self.problems);
        if problems.len() >= MAX_PROBLEM_PEERS && !problems.contains_key(with) {
            problems.clear();
        }
        let logged = problems.entry(with.to_owned()).or_default();
        if !logged.contains(&what) {
            tracing::warn!(peer = with, reason = what, "problem with a peer");
            if logged.len() >= MAX_PROBLEMS_PER_PEER {
                logged.clear();
            }
            logged.insert(what);
        }
    }

    /// Forgets the problems with a peer, because a call has succeeded.
    pub(crate) fn clear_problems(&self, with: &str) {
        if lock(&self.problems).remove(with).is_some() {
            tracing::info!(peer = with, "the problem with a peer is over");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_be_starting_until_it_was_reached_or_the_grace_has_passed() {
        let start = Millis::from_secs(100);
        let liveness = Liveness::new(start);
        assert!(liveness.may_be_starting("b", start));
        assert!(!liveness.may_be_starting("b", Millis(start.0 + STARTUP_GRACE.0)));
        let other = PeerInfo { peer: 1, name: "b".into(), ..PeerInfo::default() };
        liveness.record_contact(&other, start);
        assert!(!liveness.may_be_starting("b", start), "it was reached");
        assert!(liveness.may_be_starting("c", start));
    }
}
