//! The peers of a node as far as a resource can tell: a log that the master appends to, of which a quorum has stored
//! some, and books that follow it, each in its own time and by its own clock.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Amount, Changes, Epoch, HolderKind, Inherited, Lease, Millis, Promises, Resource, Sum, invariant::Violation,
};

/// How far the clocks of the peers are apart.
const CLOCKS: [u64; 3] = [0, 777_777, 31];

/// One entry of the log, and when (by the world's time) it was appended.
struct LogEntry {
    changes: Changes,
    at: Millis,
}

struct Peer {
    book: Promises,
    /// Entries that it has applied.
    applied: usize,
}

pub(crate) struct Peers {
    log: Vec<LogEntry>,
    /// Entries that a quorum has stored.
    stored: usize,
    /// The peer that is master.
    pub(crate) master: usize,
    peers: Vec<Peer>,
    /// What the ceilings are, by all that this master has read and written.
    said: BTreeMap<(HolderKind, Arc<str>), Amount>,
    /// Changes of this life.
    pub(crate) written: usize,
}

pub(super) fn violated(detail: String) -> Result<(), Violation> {
    Err(Violation { invariant: "promises", detail })
}

impl Peers {
    pub(crate) fn new() -> Peers {
        let peers = CLOCKS.iter().map(|_| Peer { book: Promises::default(), applied: 0 }).collect();
        Peers { log: Vec::new(), stored: 0, master: 0, peers, said: BTreeMap::new(), written: 0 }
    }

    /// What a peer's clock says.
    pub(crate) fn clock(&self, peer: usize, now: Millis) -> Millis {
        now.plus(Millis(CLOCKS[peer]))
    }

    /// The master appends an entry; it may raise ceilings above the capacity only if so much is held.
    pub(crate) fn append(&mut self, changes: Changes, resource: &Resource, now: Millis) -> Result<(), Violation> {
        let sum = |said: &BTreeMap<_, Amount>| said.values().copied().collect::<Sum>();
        let before = sum(&self.said);
        for ceiling in &changes.ceilings {
            self.said.insert((ceiling.kind, Arc::clone(&ceiling.id)), ceiling.amount);
        }
        let after = sum(&self.said);
        let most = before.max(resource.settings().capacity.into()).max(resource.sums().held);
        if resource.is_bounded() && after > most {
            return violated(format!("Σ ceilings {after:?} rises above {most:?}: {changes:?}"));
        }
        let report = resource.promises().expect("promises are kept");
        if report.promised != after {
            return violated(format!("counts {:?} as promised, the log says {after:?}", report.promised));
        }
        self.written += 1;
        self.log.push(LogEntry { changes, at: now });
        Ok(())
    }

    /// A quorum stores so many more entries. Returns the number of the last one of the present epoch.
    pub(crate) fn store(&mut self, entries: usize) -> Option<u64> {
        self.stored = self.log.len().min(self.stored.saturating_add(entries));
        let of_this_epoch = self.stored.checked_sub(self.log.len() - self.written)?;
        (of_this_epoch > 0).then_some(of_this_epoch as u64)
    }

    /// A peer learns of what has been stored, up to so many entries.
    pub(crate) fn catch_up(&mut self, peer: usize, entries: usize, now: Millis) -> Result<(), Violation> {
        let now = self.clock(peer, now);
        let Peer { book, applied } = &mut self.peers[peer];
        let until = self.stored.min(applied.saturating_add(entries));
        for entry in &self.log[*applied..until] {
            if let Err(refused) = book.apply(&entry.changes, now) {
                return violated(format!("refused: {refused}"));
            }
        }
        *applied = until;
        book.forget_ended(now);
        Ok(())
    }

    /// A peer starts again from a snapshot of its own.
    pub(crate) fn restart(&mut self, peer: usize, now: Millis) {
        let now = self.clock(peer, now);
        let book = &mut self.peers[peer].book;
        *book = Promises::restore(book.record(), now);
    }

    /// Another peer (or the same one) becomes master: of what no quorum had stored, so much survives.
    pub(crate) fn elect(&mut self, next: usize, survive: usize, now: Millis) -> Result<Inherited, Violation> {
        self.stored = self.log.len().min(self.stored.saturating_add(survive));
        self.log.truncate(self.stored);
        self.master = next % self.peers.len();
        self.catch_up(self.master, usize::MAX, now)?;
        let inherited = self.peers[self.master].book.inherited(self.clock(self.master, now));
        let ceilings = inherited.ceilings.iter().map(|(ceiling, _)| ceiling);
        self.said = ceilings.map(|ceiling| ((ceiling.kind, Arc::clone(&ceiling.id)), ceiling.amount)).collect();
        self.written = 0;
        Ok(inherited)
    }

    /// A lease leaves that its holder will believe until `end`. What is stored by then must cover it, by the clock of a
    /// peer that learnt of everything in no time at all.
    pub(crate) fn covers(
        &self,
        kind: HolderKind,
        id: &str,
        lease: &Lease,
        end: Millis,
        prompt: bool,
    ) -> Result<(), Violation> {
        let mut book = Promises::default();
        for entry in &self.log[..self.stored] {
            book.apply(&entry.changes, entry.at)
                .map_err(|refused| Violation { invariant: "promises", detail: refused.to_string() })?;
        }
        if lease.capacity == Amount::ZERO {
            return Ok(());
        }
        let found = book.iter().find(|(ceiling, _)| ceiling.kind == kind && *ceiling.id == *id);
        let Some((ceiling, until)) = found else {
            if prompt {
                return Ok(());
            }
            return violated(format!("{id} has {lease:?}, and nothing is promised to it"));
        };
        if (ceiling.amount < lease.capacity && !prompt) || until < end {
            return violated(format!("{id} has {lease:?} until {end:?}, promised: {ceiling:?} until {until:?}"));
        }
        Ok(())
    }
}

/// Above all that any master has given so far.
pub(crate) fn next_epoch(newest: Option<Epoch>) -> Epoch {
    Epoch(newest.map_or(1 << 40, |epoch| epoch.0 + Inherited::EPOCHS_APART))
}
