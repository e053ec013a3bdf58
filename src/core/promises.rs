//! What must survive a master: for every resource a *ceiling* per holder, beyond which the holder will never be
//! believed to hold anything, and a *horizon*, beyond which no lease will be believed.
//!
//! A master says what its leases changed about these ([`Changes`]); its peers keep them ([`Promises`]); whoever is
//! master next starts from them ([`Inherited`]) and serves at once. A ceiling may be too high and a horizon too late:
//! then the next master gives too little for a while. Neither is ever too low or too early.
//!
//! A horizon is a length of time that everybody counts on a clock of their own, anew from when they learn of it, which
//! is after the leases under it were decided: being late errs on the safe side. So no two machines need agree on what
//! time it is.
//!
//! Deliberately absent: how changes get to peers and in what order (a log sees to that), and how a record is stored.

mod book;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{Amount, Epoch, HolderKind, Millis};

pub use book::Promises;

/// What a round changed about what is promised. Peers apply these in the order of epoch and number.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The life of the resource that promises.
    pub epoch: Epoch,
    /// 1, 2, … within the epoch.
    pub number: u64,
    /// The ceilings that changed. A holder named twice has what is said last.
    pub ceilings: Vec<Ceiling>,
    /// No lease of this epoch is believed any longer than this, counted from when it is applied. Only ever later: one
    /// that would end sooner than the one before changes nothing.
    pub horizon: Option<Millis>,
}

/// The most that a holder will be believed to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceiling {
    /// Client or child node.
    pub kind: HolderKind,
    /// Who.
    pub id: Arc<str>,
    /// How much in all, not how much more. Zero: nothing is promised to it any more, and it is forgotten.
    pub amount: Amount,
}

/// What a new life of a resource starts from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inherited {
    /// The ceilings that still count, each until when.
    pub ceilings: Vec<(Ceiling, Millis)>,
    /// The newest epoch that promised anything. The tokens of the new life must lie above all of that one: its epoch must
    /// be at least [`Inherited::EPOCHS_APART`] more.
    pub newest: Option<Epoch>,
    /// When the last of the ceilings ends.
    pub until: Millis,
}

impl Inherited {
    /// A epoch may have given out this many tokens.
    pub const EPOCHS_APART: u64 = 1 << 22;
}

/// Why a change was not applied. Nothing of it was: the book is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It comes from a master that has been succeeded meanwhile, whose fault it is not: it does not know yet.
    #[error("promises of epoch {} come too late, epoch {} has promised since", got.0, newest.0)]
    OlderEpoch {
        /// The newest epoch that has promised anything.
        newest: Epoch,
        /// The epoch of the change.
        got: Epoch,
    },
    /// Changes are applied one after the other. A later number: those between are missing, and this book cannot be
    /// relied on without them. An earlier one: it has been applied already.
    #[error("change {got} of epoch {} is out of order, {expected} would be next", epoch.0)]
    Gap {
        /// The epoch of the change.
        epoch: Epoch,
        /// The number that would have been applied.
        expected: u64,
        /// The number of the change.
        got: u64,
    },
}

/// All that a book contains, as plain data: the stored format is decided elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// The newest epoch that promised anything, and the number of its last change.
    pub newest: Option<(Epoch, u64)>,
    /// The epochs that have ceilings, and the newest: how long their horizons are.
    pub horizons: Vec<(Epoch, Millis)>,
    /// The ceilings, and the epochs that wrote them.
    pub ceilings: Vec<(Ceiling, Epoch)>,
}
