//! What may happen in a history.

use crate::pool::Assigned;

/// Something that can happen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A holder sends a request.
    Send(usize),
    /// Up to this many requests in flight arrive in one round. The seed picks them.
    Arrive {
        most: usize,
        pick: usize,
    },
    /// A request arrives, and stays under way to arrive again.
    ArriveTwice(usize),
    Answer(usize),
    /// A request or an answer is lost.
    LoseRequest(usize),
    LoseAnswer(usize),
    Pass(u64),
    /// A holder changes its mind about what it wants.
    Want(usize, f64),
    /// The clients below a child node have learnt of its cuts.
    Drain(usize),
    /// A holder gives back what it has.
    Release(usize),
    /// A holder dies; its successor has another id.
    Die(usize),
    Capacity(f64),
    /// A member of a pool reports this use from now on: the part of its capacity, and the cost.
    Use(usize, Option<(f64, f64)>),
    /// The manager of a pool assigns capacity to a holder, if it fits.
    Assign(usize, Option<Assigned>),
    /// The parent has lent this capacity for this time.
    Supply {
        capacity: f64,
        length: u64,
    },
    /// A quorum stores up to this many entries of the log. The master may not learn about it.
    Store {
        entries: usize,
        heard: bool,
    },
    /// A peer applies up to this many stored entries.
    CatchUp {
        peer: usize,
        entries: usize,
    },
    /// A peer starts again from a snapshot.
    Restart(usize),
    /// The master dies. This number of entries beyond the stored ones survives. After the gap another peer is master.
    Fail {
        survive: usize,
        gap: u64,
        next: usize,
    },
    /// The clock advances without requests, and ended leases are forgotten.
    Tick,
}
