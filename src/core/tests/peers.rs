//! The peers of a node: a log that the master appends to, of which a quorum has stored a prefix, and peers that apply
//! it with delays. Each master advances the cluster clock by its own clock.

use crate::{
    lease::promises::{Changes, Inherited, Promises},
    resource::{Resource, invariant::Violation},
    types::{Amount, ClusterClock, ClusterTime, Epoch, Millis, Sum},
};

/// The offsets of the peers' clocks.
const CLOCKS: [u64; 3] = [0, 777_777, 31];

/// A log entry, and the cluster time when it was appended.
struct LogEntry {
    changes: Changes,
    reached: ClusterTime,
}

struct Peer {
    book: Promises,
    /// Entries that it has applied.
    applied: usize,
    /// The cluster time in the applied entries.
    stored: ClusterTime,
}

pub(crate) struct Peers {
    log: Vec<LogEntry>,
    /// Entries that a quorum has stored.
    stored: usize,
    /// The index of the master.
    pub(crate) master: usize,
    clock: ClusterClock,
    /// The last stored advance of the cluster clock.
    advanced: ClusterTime,
    peers: Vec<Peer>,
    /// The total according to everything that this master has read and written.
    said: Amount,
    /// The number of changes in this incarnation.
    pub(crate) written: usize,
}

pub(super) fn violated(detail: String) -> Result<(), Violation> {
    Err(Violation { invariant: "promises", detail })
}

impl Peers {
    pub(crate) fn new() -> Peers {
        let peers = CLOCKS.iter().map(|_| Peer { book: Promises::default(), applied: 0, stored: ClusterTime(0) });
        let (peers, clock) = (peers.collect(), ClusterClock::default());
        Peers {
            log: Vec::new(),
            stored: 0,
            master: 0,
            clock,
            advanced: ClusterTime(0),
            peers,
            said: Amount::ZERO,
            written: 0,
        }
    }

    /// The time on a peer's clock.
    pub(crate) fn clock(&self, peer: usize, now: Millis) -> Millis {
        now.plus(Millis(CLOCKS[peer]))
    }

    /// The master appends an entry. A total above the capacity must not exceed the held amount.
    pub(crate) fn append(&mut self, changes: Changes, resource: &Resource, now: Millis) -> Result<(), Violation> {
        let before = std::mem::replace(&mut self.said, changes.total);
        let held = resource.sums().held.min(Amount::MAX.into());
        let most = Sum::from(before.max(resource.total())).max(held.ceil().into());
        if resource.is_bounded() && Sum::from(changes.total) > most {
            return violated(format!("the total rises above {most:?}: {changes:?}"));
        }
        if Sum::from(changes.total) < held {
            return violated(format!("{held:?} is held: {changes:?}"));
        }
        let report = resource.promises().expect("promises are kept");
        if report.total != changes.total {
            return violated(format!("counts {:?} as promised, the log says {changes:?}", report.total));
        }
        self.written += 1;
        self.log.push(LogEntry { changes, reached: self.clock.reached(self.clock(self.master, now)) });
        Ok(())
    }

    /// A quorum stores this many more entries. Returns the number of the last stored entry of the current epoch.
    pub(crate) fn store(&mut self, entries: usize) -> Option<u64> {
        self.stored = self.log.len().min(self.stored.saturating_add(entries));
        let of_this_epoch = self.stored.checked_sub(self.log.len() - self.written)?;
        (of_this_epoch > 0).then_some(of_this_epoch as u64)
    }

    /// A peer applies up to this many of the stored entries.
    pub(crate) fn catch_up(&mut self, peer: usize, entries: usize) -> Result<(), Violation> {
        let Peer { book, applied, stored } = &mut self.peers[peer];
        let until = self.stored.min(applied.saturating_add(entries));
        for entry in &self.log[*applied..until] {
            *stored = (*stored).max(entry.reached);
            if let Err(refused) = book.apply(&entry.changes, *stored) {
                return violated(format!("refused: {refused}"));
            }
        }
        *applied = until;
        Ok(())
    }

    /// The master stores the cluster time.
    pub(crate) fn advance(&mut self, now: Millis) {
        self.advanced = self.clock.reached(self.clock(self.master, now));
    }

    /// A peer restarts from a snapshot.
    pub(crate) fn restart(&mut self, peer: usize) {
        let Peer { book, stored, .. } = &mut self.peers[peer];
        *book = Promises::restore(&book.record(*stored));
    }

    /// A peer becomes master. This number of uncommitted entries survives.
    pub(crate) fn elect(&mut self, next: usize, survive: usize, now: Millis) -> Result<Inherited, Violation> {
        self.stored = self.log.len().min(self.stored.saturating_add(survive));
        self.log.truncate(self.stored);
        self.master = next % self.peers.len();
        self.catch_up(self.master, usize::MAX)?;
        let now = self.clock(self.master, now);
        let Peer { book, stored, .. } = &self.peers[self.master];
        self.clock = ClusterClock::new((*stored).max(self.advanced), now);
        let inherited = book.inherited(self.clock, now, now);
        self.said = inherited.total;
        self.written = 0;
        Ok(inherited)
    }

    /// Checks that the stored changes cover a lease that is sent now, and that its holder may believe in until `end`.
    pub(crate) fn covers_until(&self, end: Millis) -> Result<(), Violation> {
        let mut book = Promises::default();
        for entry in &self.log[..self.stored] {
            book.apply(&entry.changes, entry.reached)
                .map_err(|refused| Violation { invariant: "promises", detail: refused.to_string() })?;
        }
        let until = self.clock.local(book.until());
        if until < self.clock(self.master, end) {
            return violated(format!("a lease until {end:?} is sent, but the horizon is {until:?}"));
        }
        Ok(())
    }

    /// Checks that a successor would count at least `believed`, regardless of how much of the log survives.
    pub(crate) fn covers(&self, believed: Sum, now: Millis) -> Result<(), Violation> {
        let moment = self.clock.at(self.clock(self.master, now));
        let entries = self.log[self.stored.saturating_sub(1)..].iter();
        let least = entries.map(|entry| entry.changes.total_at(moment));
        let least = least.reduce(Amount::min).unwrap_or_default();
        if Sum::from(least) < believed {
            return violated(format!("holders believe in {believed:?}, but only {least:?} is promised"));
        }
        Ok(())
    }
}

/// An epoch above all tokens of earlier masters.
pub(crate) fn next_epoch(newest: Option<Epoch>) -> Epoch {
    Epoch(newest.map_or(1 << 40, |epoch| epoch.0 + Inherited::EPOCHS_APART))
}
