//! Events of random histories.

use crate::pool::Assigned;

#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A holder sends a request.
    Send(usize),
    /// Up to this many requests in flight arrive in one round. The seed selects them.
    Arrive {
        most: usize,
        pick: usize,
    },
    /// A request arrives, and a copy of it stays in flight.
    ArriveTwice(usize),
    Answer(usize),
    /// A request or an answer is lost.
    LoseRequest(usize),
    LoseAnswer(usize),
    Pass(u64),
    /// A holder changes its wants.
    Want(usize, f64),
    /// The clients of a child node learn of its cuts.
    Drain(usize),
    /// A holder releases its lease.
    Release(usize),
    /// A holder dies. Its successor has another id.
    Die(usize),
    Capacity(f64),
    /// A pool member starts to report this usage: fraction of capacity, and cost.
    Use(usize, Option<(f64, f64)>),
    /// The pool's manager assigns capacity to a holder, if it fits.
    Assign(usize, Option<Assigned>),
    /// The parent lends this capacity for this time.
    Supply {
        capacity: f64,
        length: u64,
    },
    /// A quorum stores up to this many log entries. The master may not learn of it.
    Store {
        entries: usize,
        heard: bool,
    },
    /// A peer applies up to this many stored entries.
    CatchUp {
        peer: usize,
        entries: usize,
    },
    /// A peer restarts from a snapshot.
    Restart(usize),
    /// The master dies. This number of uncommitted entries survives. After the gap another peer becomes master.
    Fail {
        survive: usize,
        gap: u64,
        next: usize,
    },
    /// Time advances without requests, and leases expire.
    Tick,
}
