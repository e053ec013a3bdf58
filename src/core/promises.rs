//! What must survive a master: for every resource a *ceiling* per holder, the most that the holder will be believed to
//! hold, and a *horizon*, after which no lease will be believed. A master proposes what its leases change about these
//! ([`Changes`]); its peers keep them ([`Promises`]); the next master starts from them ([`Inherited`]) and serves at
//! once. A ceiling may be too high and a horizon too late: then the next master gives too little for a while. Neither
//! is ever too low or too early. A horizon is a length of time. Each peer counts it on its own clock from when it
//! learns of it, which is after the leases under it were decided: being late errs on the safe side. So no two machines
//! need agree on what time it is.
//!
//! Deliberately absent: how changes get to peers and in what order (the quorum's log), and how a record is stored.

mod book;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{Amount, Epoch, HolderKind, Millis};

pub use book::Promises;

/// The changes of promises that a round causes. Peers apply these in the order of epoch and number.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The life of the resource that promises.
    pub epoch: Epoch,
    /// 1, 2, … within the epoch.
    pub number: u64,
    /// The ceilings that changed. Of a holder named twice the last one counts.
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
    /// Its id.
    pub id: Arc<str>,
    /// How much in all, not how much more. Zero removes it.
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

/// Why a change was not applied. Nothing of it was: the promises are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It comes from an earlier master that does not know yet that there is a newer one.
    #[error("promises of epoch {} come too late, epoch {} has promised since", got.0, newest.0)]
    OlderEpoch {
        /// The newest epoch that has promised anything.
        newest: Epoch,
        /// The epoch of the change.
        got: Epoch,
    },
    /// Changes are applied in order. A later number: changes between are missing, and these promises cannot be relied
    /// on without them. An earlier one: it was applied already.
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

/// All promises of a resource as plain data; the stored format is defined elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// The newest epoch that promised anything, and the number of its last change.
    pub newest: Option<(Epoch, u64)>,
    /// The epochs that have ceilings, and the newest: how long their horizons are.
    pub horizons: Vec<(Epoch, Millis)>,
    /// The ceilings, and the epochs that wrote them.
    pub ceilings: Vec<(Ceiling, Epoch)>,
}
