//! Detects peers that have lost committed entries: a data directory that was restored from an older copy, or a disk
//! that has dropped writes.
//!
//! A peer cannot notice this by itself, and a majority that lost the same entries cannot either: both look like peers
//! that are a little behind. But a peer that was told what another one has can compare. So every peer remembers
//! the newest *committed* entry that each other peer is known to have on disk, and which incarnation (process) of that
//! peer had it:
//!
//! - a master learns it from an answer to its entries;
//! - a follower learns it from its master's messages: the master has what it says is committed.
//!
//! Every introduction carries the sender's incarnation and the last entry of the log that it started with. Committed
//! entries are never taken back, so a later incarnation that started with less has lost them ([`Loss`]). Only answers
//! prove this: a request may have been on its way for an hour and come from an earlier incarnation. A request from an
//! unknown incarnation only causes [`doubts`](Acknowledged::doubts), and then that peer is asked.
//!
//! What is remembered is stored beside the floor of this peer's log (`store/floor.rs`), so that it survives when all
//! peers were stopped. It may be older than the truth, never newer.
//!
//! The second kind of evidence is a [`Conflict`]: the master sends another entry for an index at which this peer has a
//! committed one. Then a majority has lost it, and it is not known which peers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::raft::{LogId, PeerId};

/// The number of peers that are remembered. One slot of the floor has room for them.
pub(crate) const MAX_REMEMBERED: usize = 10;

/// What a peer is known to have on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The process that had it.
    pub(crate) incarnation: u64,
    pub(crate) log: LogId,
}

/// Of each peer, as it is stored.
pub(crate) type KnownPeers = BTreeMap<PeerId, Known>;

/// A process of a peer, as it introduces itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incarnation {
    pub(crate) peer: PeerId,
    /// Random. Zero: its version does not say.
    pub(crate) number: u64,
    /// The last entry of its log when this process started.
    pub(crate) started_with: Option<LogId>,
}

/// A peer has lost committed entries that it had on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    name: String,
    had: LogId,
    started_with: Option<LogId>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { name, had, started_with } = self;
        write!(f, "{name} has lost entries of the log that it had acknowledged: it had {}, and started ", entry(*had))?;
        match started_with {
            Some(log) => write!(f, "with {}", entry(*log))?,
            None => f.write_str("with an empty log")?,
        }
        f.write_str(". Its data directory is an older copy, or its disk has dropped writes")
    }
}

/// The master's log has another entry where this peer has a committed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) ours: LogId,
    pub(crate) theirs: LogId,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, theirs) = (entry(self.ours), entry(self.theirs));
        write!(
            f,
            "the other peers have lost a part of the log that was committed: this peer had {ours}, and the master has \
             {theirs} in its place. The data directory of one of them is an older copy, or its disk has dropped writes"
        )
    }
}

fn entry(id: LogId) -> String {
    format!("entry {} of term {}", id.index, id.leader_id.term)
}

/// Shared by the tasks of a peer, its peer service and the thread that writes the floor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    known: KnownPeers,
    /// The newest entry of this peer's own log that is known to be committed.
    committed: Option<LogId>,
    /// Peers that have to be asked which incarnation runs.
    doubts: BTreeSet<PeerId>,
    losses: BTreeMap<PeerId, Loss>,
    conflict: Option<Conflict>,
}

impl Acknowledged {
    /// With what was stored by the incarnation before; `is_here`: whether this peer's own log has an entry. Every peer
    /// that is known has to be asked once.
    pub(crate) fn new(known: KnownPeers, is_here: impl Fn(LogId) -> bool) -> Acknowledged {
        let doubts = known.keys().copied().collect();
        let committed = known.values().map(|known| known.log).filter(|log| is_here(*log)).max();
        Acknowledged(Arc::new(Mutex::new(Memory { known, committed, doubts, ..Memory::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of all peers: to be stored, and to be compared with an answer to a request that is sent *after*
    /// this call.
    pub(crate) fn known(&self) -> KnownPeers {
        self.lock().known.clone()
    }

    /// The newest entry of this peer's own log that is known to be committed.
    pub(crate) fn committed(&self) -> Option<LogId> {
        self.lock().committed
    }

    /// An entry of this peer's own log is committed.
    pub(crate) fn commits(&self, log: Option<LogId>) {
        let mut memory = self.lock();
        memory.committed = memory.committed.max(log);
    }

    /// A peer has answered a request. `before` is what was [`known`](Self::known) when the request was sent.
    pub(crate) fn answered(&self, name: &str, from: Incarnation, before: &KnownPeers) {
        let mut memory = self.lock();
        let Some(before) = before.get(&from.peer) else { return };
        if from.number == before.incarnation || from.number == 0 {
            memory.doubts.remove(&from.peer);
            return;
        }
        let is_less = from.started_with < Some(before.log);
        if is_less {
            let loss = Loss { name: name.to_owned(), had: before.log, started_with: from.started_with };
            tracing::error!(
                peer = name,
                "{loss}. Leases may have been given twice. Stop it, empty its directory and start it again: it rejoins"
            );
            memory.losses.insert(from.peer, loss);
        }
        // An answer of an earlier incarnation may arrive after one of the next.
        if memory.known.get(&from.peer) == Some(before) {
            memory.doubts.remove(&from.peer);
            match from.started_with {
                Some(log) if is_less => memory.known.insert(from.peer, Known { incarnation: from.number, log }),
                None => memory.known.remove(&from.peer),
                Some(_) => memory.known.insert(from.peer, Known { incarnation: from.number, ..*before }),
            };
        }
    }

    /// This incarnation of a peer has a committed entry on disk.
    pub(crate) fn has(&self, peer: PeerId, incarnation: u64, log: Option<LogId>) {
        let Some(log) = log.filter(|_| incarnation != 0) else { return };
        let mut memory = self.lock();
        let has_room = memory.known.len() < MAX_REMEMBERED;
        match memory.known.get_mut(&peer) {
            Some(known) if known.incarnation == incarnation => known.log = known.log.max(log),
            // Compared first, see `answered`.
            Some(_) => {
                memory.doubts.insert(peer);
            }
            None if has_room => {
                memory.known.insert(peer, Known { incarnation, log });
            }
            None => {}
        }
    }

    /// A request of a peer has arrived, maybe late.
    pub(crate) fn heard(&self, from: Incarnation) {
        let mut memory = self.lock();
        if memory.known.get(&from.peer).is_some_and(|known| known.incarnation != from.number) {
            memory.doubts.insert(from.peer);
        }
    }

    /// The peers to ask for an answer, so that it can be compared.
    pub(crate) fn doubts(&self) -> BTreeSet<PeerId> {
        self.lock().doubts.clone()
    }

    /// The identities that are in the membership. Those of directories that are gone are forgotten: they do not come
    /// back.
    pub(crate) fn retain(&self, is_member: impl Fn(PeerId) -> bool) {
        let mut memory = self.lock();
        memory.known.retain(|peer, _| is_member(*peer));
        memory.doubts.retain(|peer| is_member(*peer));
        memory.losses.retain(|peer, _| is_member(*peer));
    }

    /// The master's log conflicts with committed entries. Logged once.
    pub(crate) fn conflicts(&self, conflict: Conflict) {
        let before = self.lock().conflict.replace(conflict);
        if before.is_none() {
            tracing::error!("{conflict}. Leases may have been given twice. Compare when each peer was restored");
        }
    }

    /// What was noticed since this process started, in words.
    pub(crate) fn noticed(&self) -> Vec<String> {
        let memory = self.lock();
        let losses = memory.losses.values().map(ToString::to_string);
        losses.chain(memory.conflict.iter().map(ToString::to_string)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::segments::log_id;

    const PEER: PeerId = 7;

    fn incarnation(number: u64, started_with: Option<LogId>) -> Incarnation {
        Incarnation { peer: PEER, number, started_with }
    }

    /// Incarnation 1 has had entry 9 of term 2.
    fn remembered() -> Acknowledged {
        let acknowledged = Acknowledged::default();
        acknowledged.has(PEER, 1, Some(log_id(2, 9)));
        Acknowledged::new(acknowledged.known(), |_| true)
    }

    fn answer(acknowledged: &Acknowledged, from: Incarnation) -> Vec<String> {
        acknowledged.answered("b", from, &acknowledged.known());
        acknowledged.noticed()
    }

    #[test]
    fn a_later_incarnation_that_started_with_less_has_lost_entries_and_it_is_said_once() {
        for started_with in [None, Some(log_id(1, 20)), Some(log_id(2, 8))] {
            let acknowledged = remembered();
            let noticed = answer(&acknowledged, incarnation(2, started_with));
            assert!(noticed[0].starts_with("b has lost") && noticed[0].contains("entry 9 of term 2"), "{noticed:?}");
            assert_eq!(answer(&acknowledged, incarnation(2, started_with)).len(), 1);
            acknowledged.retain(|peer| peer != PEER);
            assert_eq!(acknowledged.noticed(), [""; 0], "its directory was emptied: it has another identity");
        }
    }

    #[test]
    fn an_incarnation_that_started_with_all_of_it_has_lost_nothing() {
        for started_with in [log_id(2, 9), log_id(2, 10), log_id(3, 4)] {
            let acknowledged = remembered();
            assert_eq!(answer(&acknowledged, incarnation(2, Some(started_with))), [""; 0]);
            // It has that, too: the next one is compared with it.
            assert_eq!(answer(&acknowledged, incarnation(3, Some(log_id(2, 8)))).len(), 1);
        }
        assert_eq!(answer(&remembered(), incarnation(1, None)), [""; 0], "it had it later, in the same process");
        assert_eq!(answer(&remembered(), incarnation(0, None)), [""; 0], "a version that does not say");
    }

    #[test]
    fn a_late_message_of_an_earlier_incarnation_is_no_evidence() {
        let acknowledged = remembered();
        let before = acknowledged.known();
        // Incarnation 2 has started with everything, and been given more.
        acknowledged.answered("b", incarnation(2, Some(log_id(2, 9))), &before);
        acknowledged.has(PEER, 2, Some(log_id(2, 30)));
        // A request of incarnation 1 was held back, and so was an answer of it.
        acknowledged.heard(incarnation(1, Some(log_id(1, 1))));
        acknowledged.has(PEER, 1, Some(log_id(2, 5)));
        assert!(acknowledged.doubts().contains(&PEER), "it is asked");
        acknowledged.answered("b", incarnation(1, Some(log_id(1, 1))), &before);
        assert_eq!(acknowledged.noticed(), [""; 0]);
        assert_eq!(acknowledged.known()[&PEER], Known { incarnation: 2, log: log_id(2, 30) });
        // The one that runs answers.
        assert_eq!(answer(&acknowledged, incarnation(2, Some(log_id(2, 9)))), [""; 0]);
        assert!(acknowledged.doubts().is_empty());
    }
}
