//! What must survive a master: for every resource a *total*, the most that all its holders together may believe in, a
//! *horizon*, after which no lease of it is believed, and the condensed wants.
//!
//! A master proposes what its leases change about these ([`Changes`]); its peers keep them ([`Promises`]); the next
//! master starts from them ([`Inherited`]) and serves at once. It needs no list of holders: each says what it has when
//! it asks, and that is taken out of the total. A total may be too high and a horizon too late: then the next master
//! gives too little for a while. Neither is ever too low or too early.
//!
//! Leases that ended while there was no master are in the total, too. The *floor* says from which lease on that is so,
//! so that their holders get their part back, and need not wait for the horizon. It may be too high, never too low.
//!
//! A horizon is a length of time. Each peer counts it on its own clock from when it learns of it, which is after the
//! leases under it were decided: being late errs on the safe side. So no two machines need agree on what time it is.
//!
//! Deliberately absent: how changes get to peers and in what order (the quorum's log), and how a record is stored.

#[cfg(test)]
mod tests;

use crate::{Amount, Claims, Epoch, Millis, Token, time::certain_end};

/// The changes of promises that a round causes. Peers apply these in the order of epoch and number.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The epoch of the resource that promises.
    pub epoch: Epoch,
    /// 1, 2, … within the epoch.
    pub number: u64,
    /// All that may be believed, leases of earlier epochs included.
    pub total: Amount,
    /// No lease is believed any longer than this, counted from when it is applied. Only ever later: one that would end
    /// sooner than the one before changes nothing.
    pub horizon: Option<Millis>,
    /// No lease given under this is longer; unknown in logs of former versions.
    pub lease: Option<Millis>,
    /// The total contains the leases from this one on, also those that have ended by now. Absent: only those in force.
    /// Of an earlier epoch: the floor stays where it is.
    pub floor: Option<Token>,
    /// What the holders want, in slices of similar wants; `None`: about what they wanted before.
    pub wants: Option<Claims>,
}

/// What a new incarnation of a resource starts from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inherited {
    /// All that may be believed of earlier incarnations.
    pub total: Amount,
    /// What its holders want.
    pub wants: Claims,
    /// The newest epoch that promised anything. The tokens of the new one must lie above all of that one: its epoch
    /// must be at least [`Inherited::EPOCHS_APART`] more.
    pub newest: Option<Epoch>,
    /// When the last lease of earlier incarnations ends.
    pub until: Millis,
    /// Leases of earlier incarnations from this one on are in the total also if they have ended.
    pub floor: Option<Token>,
}

impl Inherited {
    /// An epoch may have given out this many tokens.
    pub const EPOCHS_APART: u64 = 1 << 22;
}

/// Why a change was not applied. Nothing of it was: the promises are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// The promises of one resource, as a peer keeps them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promises {
    /// The newest epoch, and the number of its last change.
    newest: Option<(Epoch, u64)>,
    total: Amount,
    wants: Claims,
    /// The horizon on the clock of this peer.
    until: Millis,
    /// Its full length.
    length: Millis,
    /// The longest lease of the newest changes, and of changes before, until when those may be believed.
    lease: Millis,
    lease_before: (Millis, Millis),
    floor: Option<Token>,
}

/// A length of leases that is unknown: longer than any.
const UNKNOWN: Millis = Millis(u64::MAX);

impl Promises {
    /// Whether changes of this epoch and number come next.
    pub fn follows(newest: Option<(Epoch, u64)>, epoch: Epoch, number: u64) -> Result<(), Refused> {
        let expected = match newest {
            Some((newest, _)) if epoch < newest => return Err(Refused::OlderEpoch { newest, got: epoch }),
            Some((newest, last)) if epoch == newest => last.saturating_add(1),
            _ => 1,
        };
        if number == expected { Ok(()) } else { Err(Refused::Gap { epoch, expected, got: number }) }
    }

    /// Applies changes, all or none; their horizon counts from `now`.
    pub fn apply(&mut self, changes: &Changes, now: Millis) -> Result<(), Refused> {
        Promises::follows(self.newest, changes.epoch, changes.number)?;
        self.take(changes, now);
        Ok(())
    }

    fn take(&mut self, changes: &Changes, now: Millis) {
        self.newest = Some((changes.epoch, changes.number));
        let lease = changes.lease.unwrap_or(UNKNOWN);
        if lease < self.lease {
            self.lease_before = (self.longest(now), self.until);
        }
        self.lease = lease;
        if changes.floor.is_none_or(|floor| floor >= Token::first(changes.epoch)) {
            self.floor = changes.floor;
        }
        self.total = changes.total;
        if let Some(wants) = &changes.wants {
            self.wants.clone_from(wants);
        }
        if let Some(horizon) = changes.horizon {
            self.extend(now, horizon);
        }
    }

    /// What a new incarnation of the resource starts from, if earlier ones have given nothing since then. Their last
    /// lease ends with the horizon, or sooner if the longest does.
    pub fn inherited(&self, now: Millis, since: Millis) -> Inherited {
        let newest = self.newest.map(|(epoch, _)| epoch);
        let Some(until) = self.believed_until(now, since) else {
            return Inherited { newest, ..Inherited::default() };
        };
        Inherited { total: self.total, wants: self.wants.clone(), newest, until, floor: self.floor }
    }

    /// Until when some of the total may be believed, if nothing was given since then.
    pub fn believed_until(&self, now: Millis, since: Millis) -> Option<Millis> {
        let until = certain_end(since, self.longest(now)).min(self.until);
        (now < until).then_some(until)
    }

    /// The newest epoch that has promised anything, and the number of its last change.
    pub fn newest(&self) -> Option<(Epoch, u64)> {
        self.newest
    }

    /// All that may be believed before the horizon.
    pub fn total(&self) -> Amount {
        self.total
    }

    /// The horizon on the clock of this peer.
    pub fn until(&self) -> Millis {
        self.until
    }

    fn longest(&self, now: Millis) -> Millis {
        let (before, until) = self.lease_before;
        if now < until { self.lease.max(before) } else { self.lease }
    }

    /// Everything, for a snapshot: as if the last changes had made all of it.
    pub fn record(&self, now: Millis) -> Changes {
        let (epoch, number) = self.newest.unwrap_or((Epoch(0), 0));
        let lease = Some(self.longest(now)).filter(|longest| *longest < UNKNOWN);
        // One of an earlier epoch has no place there.
        let floor = self.floor.filter(|floor| *floor >= Token::first(epoch));
        let (total, horizon, wants) = (self.total, Some(self.length), Some(self.wants.clone()));
        Changes { epoch, number, total, horizon, lease, floor, wants }
    }

    /// From a snapshot of unknown age: the horizon counts anew from `now`, at its full length.
    pub fn restore(record: &Changes, now: Millis) -> Promises {
        let mut promises = Promises::default();
        promises.take(record, now);
        promises
    }

    /// A horizon of `length` was learnt of at `now`. The one that ends later counts.
    fn extend(&mut self, now: Millis, length: Millis) {
        let until = now.plus(length);
        if until >= self.until {
            (self.until, self.length) = (until, length);
        }
    }
}
