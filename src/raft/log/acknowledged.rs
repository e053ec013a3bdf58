//! Detects peers that have lost committed entries: a data directory that was restored from an older copy, or a disk
//! that has dropped writes.
//!
//! The peer itself cannot notice this, because its log looks like one that is a little behind. A majority that lost the
//! same entries cannot notice it either. So every peer remembers, for each other peer, the newest *committed* entry
//! that it is known to have on disk, and its incarnation (process):
//!
//! - A master learns it from an answer to its entries.
//! - A follower learns it from its master's messages: a master has all committed entries on disk.
//!
//! Every message carries the sender's incarnation and the last entry of the log that it started with. Committed
//! entries are never taken back, so a later incarnation that started with fewer has lost some ([`Loss`]). Only answers
//! are evidence, because a request may arrive late and come from an earlier incarnation. A request of an unknown
//! incarnation raises a [doubt](Acknowledged::doubts), and this peer asks the sender.
//!
//! The records are stored with the [high-water mark](crate::log::high_water_mark), so that they survive a restart of
//! all peers. A stored record may be older than the truth, never newer.
//!
//! The second kind of evidence is a [`Conflict`]: the master sends another entry for an index at which this peer has a
//! committed one. Then some majority has lost the committed entry.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::log::{LogId, PeerId};

/// The maximum number of remembered peers, which fits into a slot of the high-water mark.
pub(crate) const MAX_REMEMBERED: usize = 10;

/// The newest committed entry that a peer is known to have on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) incarnation: u64,
    pub(crate) log: LogId,
}

pub(crate) type KnownPeers = BTreeMap<PeerId, Known>;

/// One process of a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incarnation {
    pub(crate) peer: PeerId,
    /// Random.
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
             {theirs} in its place. The data directory of one of these peers is an older copy, or its disk has dropped \
             writes"
        )
    }
}

fn entry(id: LogId) -> String {
    format!("entry {} of term {}", id.index, id.leader_id.term)
}

/// Shared by the tasks of a peer, its service and the disk thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    known: KnownPeers,
    /// The newest entry of this peer's own log that is known to be committed.
    committed: Option<LogId>,
    /// Peers whose running incarnation is unknown.
    doubts: BTreeSet<PeerId>,
    losses: BTreeMap<PeerId, Loss>,
    conflict: Option<Conflict>,
}

impl Acknowledged {
    /// Starts with the stored records. `is_here`: whether this peer's own log has an entry. Every known peer is in
    /// doubt until it has answered once.
    pub(crate) fn new(known: KnownPeers, is_here: impl Fn(LogId) -> bool) -> Acknowledged {
        let doubts = known.keys().copied().collect();
        let committed = known.values().map(|known| known.log).filter(|log| is_here(*log)).max();
        Acknowledged(Arc::new(Mutex::new(Records { known, committed, doubts, ..Records::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of all peers, to store them, and to compare them with the answer to a request that is sent *after*
    /// this call.
    pub(crate) fn known(&self) -> KnownPeers {
        self.lock().known.clone()
    }

    /// The newest entry of this peer's own log that is known to be committed.
    pub(crate) fn committed(&self) -> Option<LogId> {
        self.lock().committed
    }

    /// Records that an entry of this peer's own log is committed.
    pub(crate) fn record_committed(&self, log: Option<LogId>) {
        let mut records = self.lock();
        records.committed = records.committed.max(log);
    }

    /// Compares the answer of a peer with the records from [`before`](Self::known) the request was sent.
    pub(crate) fn compare_answer(&self, name: &str, from: Incarnation, before: &KnownPeers) {
        let mut records = self.lock();
        let Some(before) = before.get(&from.peer) else { return };
        if from.number == before.incarnation {
            records.doubts.remove(&from.peer);
            return;
        }
        let has_lost = from.started_with < Some(before.log);
        if has_lost {
            let loss = Loss { name: name.to_owned(), had: before.log, started_with: from.started_with };
            tracing::error!(
                peer = name,
                "{loss}. Leases may have been given twice. Stop {name}, empty its data directory and start it again, \
                 so that it rejoins"
            );
            records.losses.insert(from.peer, loss);
        }
        // An answer of an earlier incarnation may arrive after one of the next.
        if records.known.get(&from.peer) == Some(before) {
            records.doubts.remove(&from.peer);
            match from.started_with {
                Some(log) if has_lost => records.known.insert(from.peer, Known { incarnation: from.number, log }),
                None => records.known.remove(&from.peer),
                Some(_) => records.known.insert(from.peer, Known { incarnation: from.number, ..*before }),
            };
        }
    }

    /// Records that an incarnation of a peer has a committed entry on disk.
    pub(crate) fn record_stored(&self, peer: PeerId, incarnation: u64, log: Option<LogId>) {
        let Some(log) = log else { return };
        let mut records = self.lock();
        let has_room = records.known.len() < MAX_REMEMBERED;
        match records.known.get_mut(&peer) {
            Some(known) if known.incarnation == incarnation => known.log = known.log.max(log),
            // `compare_answer` has to compare the incarnations first.
            Some(_) => {
                records.doubts.insert(peer);
            }
            None if has_room => {
                records.known.insert(peer, Known { incarnation, log });
            }
            None => {}
        }
    }

    /// Notes the incarnation of a request. A request may be late, so it only raises a doubt.
    pub(crate) fn note_incarnation(&self, from: Incarnation) {
        let mut records = self.lock();
        if records.known.get(&from.peer).is_some_and(|known| known.incarnation != from.number) {
            records.doubts.insert(from.peer);
        }
    }

    /// The peers whose running incarnation is unknown.
    pub(crate) fn doubts(&self) -> BTreeSet<PeerId> {
        self.lock().doubts.clone()
    }

    /// Forgets identities that are not members. A lost directory never returns, so its records are useless.
    pub(crate) fn retain(&self, is_member: impl Fn(PeerId) -> bool) {
        let mut records = self.lock();
        records.known.retain(|peer, _| is_member(*peer));
        records.doubts.retain(|peer| is_member(*peer));
        records.losses.retain(|peer, _| is_member(*peer));
    }

    /// Records that the master's log conflicts with committed entries. Logged once.
    pub(crate) fn report_conflict(&self, conflict: Conflict) {
        let before = self.lock().conflict.replace(conflict);
        if before.is_none() {
            tracing::error!(
                "{conflict}. Leases may have been given twice. Find the peer whose data directory was restored from an older copy"
            );
        }
    }

    /// Losses and conflicts since this process started, for operators.
    pub(crate) fn reports(&self) -> Vec<String> {
        let records = self.lock();
        let losses = records.losses.values().map(ToString::to_string);
        losses.chain(records.conflict.iter().map(ToString::to_string)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::harness::log_id;

    const PEER: PeerId = 7;

    fn incarnation(number: u64, started_with: Option<LogId>) -> Incarnation {
        Incarnation { peer: PEER, number, started_with }
    }

    /// Incarnation 1 has had entry 9 of term 2.
    fn remembered() -> Acknowledged {
        let acknowledged = Acknowledged::default();
        acknowledged.record_stored(PEER, 1, Some(log_id(2, 9)));
        Acknowledged::new(acknowledged.known(), |_| true)
    }

    fn answer(acknowledged: &Acknowledged, from: Incarnation) -> Vec<String> {
        acknowledged.compare_answer("b", from, &acknowledged.known());
        acknowledged.reports()
    }

    #[test]
    fn a_later_incarnation_that_started_with_fewer_entries_is_reported_once() {
        for started_with in [None, Some(log_id(1, 20)), Some(log_id(2, 8))] {
            let acknowledged = remembered();
            let noticed = answer(&acknowledged, incarnation(2, started_with));
            assert!(noticed[0].starts_with("b has lost") && noticed[0].contains("entry 9 of term 2"), "{noticed:?}");
            assert_eq!(answer(&acknowledged, incarnation(2, started_with)).len(), 1);
            acknowledged.retain(|peer| peer != PEER);
            assert_eq!(acknowledged.reports(), [""; 0], "its directory was emptied: it has another identity");
        }
    }

    #[test]
    fn a_later_incarnation_that_started_with_all_entries_is_no_loss() {
        for started_with in [log_id(2, 9), log_id(2, 10), log_id(3, 4)] {
            let acknowledged = remembered();
            assert_eq!(answer(&acknowledged, incarnation(2, Some(started_with))), [""; 0]);
            // The next incarnation is compared with the second.
            assert_eq!(answer(&acknowledged, incarnation(3, Some(log_id(2, 8)))).len(), 1);
        }
        assert_eq!(answer(&remembered(), incarnation(1, None)), [""; 0], "the same process received the entries later");
    }

    #[test]
    fn a_late_message_of_an_earlier_incarnation_is_not_evidence() {
        let acknowledged = remembered();
        let before = acknowledged.known();
        // Incarnation 2 started with everything, and has received more.
        acknowledged.compare_answer("b", incarnation(2, Some(log_id(2, 9))), &before);
        acknowledged.record_stored(PEER, 2, Some(log_id(2, 30)));
        // A request and an answer of incarnation 1 arrive late.
        acknowledged.note_incarnation(incarnation(1, Some(log_id(1, 1))));
        acknowledged.record_stored(PEER, 1, Some(log_id(2, 5)));
        assert!(acknowledged.doubts().contains(&PEER), "the peer has to be asked");
        acknowledged.compare_answer("b", incarnation(1, Some(log_id(1, 1))), &before);
        assert_eq!(acknowledged.reports(), [""; 0]);
        assert_eq!(acknowledged.known()[&PEER], Known { incarnation: 2, log: log_id(2, 30) });
        // The running incarnation answers.
        assert_eq!(answer(&acknowledged, incarnation(2, Some(log_id(2, 9)))), [""; 0]);
        assert!(acknowledged.doubts().is_empty());
    }
}
