//! What must survive a master. For every resource this is a *total*, the most that all its holders may be using
//! together; a *horizon*, after which none of those leases is in use; and a summary of the wants.
//!
//! A master proposes [`Changes`] of these, its peers store them ([`Promises`]), and the next master starts from them
//! ([`Inherited`]) and serves at once. It needs no list of holders: each holder says with its next request which lease
//! it has, and claims it from the total. A total may be too high and a horizon too late: then the next master gives too
//! little for a while. Neither is ever too low or too early.
//!
//! The total contains leases that ended while there was no master, too. `high_water_mark` is the first lease for which
//! this is so. Holders of these leases get their part back and need not wait for the horizon. It may be too high, never
//! too low.
//!
//! A horizon is a moment on the clock of the cluster ([`ClusterClock`]), which the log keeps. So machines need not
//! agree on the time, and a change of master does not restart the clock. Leases that a master inherited itself, and
//! nobody has claimed, end before the leases that it gives. The log has their amount ([`Part`]), so that the
//! successor can tell them apart.
//!
//! Not here: how changes reach peers and in which order (the log of the quorum), and how a record is stored.

#[cfg(test)]
mod tests;

use crate::types::{Amount, Claims, ClusterClock, ClusterTime, Epoch, Millis, Sum, Token, certain_end};

/// The maximum number of parts of a resource. Beyond it the two with the closest ends become one.
const MAX_PARTS: usize = 8;

/// A part of a total that ends before the rest: what earlier masters promised and nobody has claimed yet.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// The end of the last of its leases.
    pub until: ClusterTime,
    /// All of them have tokens below this one.
    pub before: Token,
    /// A lower bound.
    pub amount: Amount,
}

/// The changes of promises that a round causes. Peers apply them in the order of epoch and number.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Changes {
    /// The epoch of the resource that promises.
    pub epoch: Epoch,
    /// 1, 2, … within the epoch.
    pub number: u64,
    /// All that may be in use, leases of earlier epochs included.
    pub total: Amount,
    /// No lease is in use after this moment. It only moves forward: a horizon before the last one changes nothing.
    pub horizon: Option<ClusterTime>,
    /// The maximum length of leases given under these changes. Absent: unknown.
    pub lease: Option<Millis>,
    /// Leases from this one on are in the total even if they have ended. Absent: only those that are in force. Of an
    /// earlier epoch: stays as it is.
    pub high_water_mark: Option<Token>,
    /// The wants of the holders, in slices of similar wants. `None` if they have hardly changed.
    pub wants: Option<Claims>,
    /// The parts of the total that end before the horizon, in the order of their ends. They replace the parts before.
    pub parts: Vec<Part>,
}

impl Changes {
    /// The total at a moment, without the parts that have ended.
    pub fn total_at(&self, moment: ClusterTime) -> Amount {
        total_at(self.total, &self.parts, moment)
    }
}

/// The state from which a new incarnation of a resource starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inherited {
    /// All leases of earlier incarnations that may be in use.
    pub total: Amount,
    /// The wants of its holders.
    pub wants: Claims,
    /// The newest epoch that promised anything. The tokens of the new incarnation must be above all of that epoch, so
    /// its own epoch must be at least [`Inherited::EPOCHS_APART`] more.
    pub newest: Option<Epoch>,
    /// When the last lease of earlier incarnations ends.
    pub until: Millis,
    /// Leases from this one on are in the total even if they have ended.
    pub high_water_mark: Option<Token>,
    /// The parts of the total that end sooner, in the order of their ends, including those that are over.
    pub parts: Vec<Part>,
    /// The clock of the cluster in this term.
    pub clock: ClusterClock,
}

impl Inherited {
    /// The maximum number of tokens of an epoch.
    pub const EPOCHS_APART: u64 = 1 << 22;
}

/// Why changes were not applied. The promises are unchanged then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refused {
    #[error("promises of epoch {} come too late, epoch {} has promised since", got.0, newest.0)]
    OlderEpoch {
        /// The newest epoch that has promised anything.
        newest: Epoch,
        got: Epoch,
    },
    /// Changes are applied in order. If the number is later, changes are missing, and the promises cannot be relied on
    /// without them. If it is earlier, the changes were applied already.
    #[error("change {got} of epoch {} is out of order, {expected} would be next", epoch.0)]
    Gap { epoch: Epoch, expected: u64, got: u64 },
}

/// The promises of one resource, as a peer keeps them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promises {
    /// The newest epoch, and the number of its last change.
    newest: Option<(Epoch, u64)>,
    total: Amount,
    wants: Claims,
    until: ClusterTime,
    /// The maximum lease length of the newest changes; and that of changes before, with the moment until which those
    /// leases may be in use.
    lease: Millis,
    lease_before: (Millis, ClusterTime),
    high_water_mark: Option<Token>,
    parts: Vec<Part>,
}

/// An unknown length of leases counts as longer than any.
const UNKNOWN: Millis = Millis(u64::MAX);

impl Promises {
    /// Checks that changes of this epoch and number come next.
    pub fn follows(newest: Option<(Epoch, u64)>, epoch: Epoch, number: u64) -> Result<(), Refused> {
        let expected = match newest {
            Some((newest, _)) if epoch < newest => return Err(Refused::OlderEpoch { newest, got: epoch }),
            Some((newest, last)) if epoch == newest => last.saturating_add(1),
            _ => 1,
        };
        if number == expected { Ok(()) } else { Err(Refused::Gap { epoch, expected, got: number }) }
    }

    /// Applies changes, all or none. `stored`: the moment in the log.
    pub fn apply(&mut self, changes: &Changes, stored: ClusterTime) -> Result<(), Refused> {
        Promises::follows(self.newest, changes.epoch, changes.number)?;
        self.take(changes, stored);
        Ok(())
    }

    fn take(&mut self, changes: &Changes, stored: ClusterTime) {
        self.newest = Some((changes.epoch, changes.number));
        let lease = changes.lease.unwrap_or(UNKNOWN);
        if lease < self.lease {
            self.lease_before = (self.longest(stored), self.until);
        }
        self.lease = lease;
        if changes.high_water_mark.is_none_or(|high_water_mark| high_water_mark >= Token::first(changes.epoch)) {
            self.high_water_mark = changes.high_water_mark;
        }
        self.total = changes.total;
        if let Some(wants) = &changes.wants {
            self.wants.clone_from(wants);
        }
        self.until = self.until.max(changes.horizon.unwrap_or_default());
        self.parts.clone_from(&changes.parts);
    }

    /// What a new incarnation of the resource starts from, if earlier ones have given nothing since `since`. Their last
    /// lease ends with the horizon, or when the longest lease given before `since` ends, if that is sooner. `now` and
    /// `since` are on the clock of this master.
    pub fn inherited(&self, clock: ClusterClock, now: Millis, since: Millis) -> Inherited {
        let newest = self.newest.map(|(epoch, _)| epoch);
        let Some(until) = self.believed_until(clock, now, since) else {
            return Inherited { newest, clock, ..Inherited::default() };
        };
        let (total, wants, high_water_mark, parts) =
            (self.total, self.wants.clone(), self.high_water_mark, self.parts.clone());
        Inherited { total, wants, newest, until, high_water_mark, parts, clock }
    }

    /// Until when some of the total may be in use, if nothing was given since `since`.
    pub fn believed_until(&self, clock: ClusterClock, now: Millis, since: Millis) -> Option<Millis> {
        let until = certain_end(since, self.longest(clock.at(now))).min(clock.local(self.until));
        (now < until).then_some(until)
    }

    /// The newest epoch that has promised anything, and the number of its last change.
    pub fn newest(&self) -> Option<(Epoch, u64)> {
        self.newest
    }

    pub fn total(&self) -> Amount {
        self.total
    }

    /// The total at a moment, without the parts that have ended.
    pub fn total_at(&self, moment: ClusterTime) -> Amount {
        total_at(self.total, &self.parts, moment)
    }

    pub fn until(&self) -> ClusterTime {
        self.until
    }

    fn longest(&self, at: ClusterTime) -> Millis {
        let (before, until) = self.lease_before;
        if at < until { self.lease.max(before) } else { self.lease }
    }

    /// Everything, for a snapshot, as one change. `stored`: the moment in the log.
    pub fn record(&self, stored: ClusterTime) -> Changes {
        let (epoch, number) = self.newest.unwrap_or((Epoch(0), 0));
        let lease = Some(self.longest(stored)).filter(|longest| *longest < UNKNOWN);
        // One of an earlier epoch cannot be expressed there.
        let high_water_mark = self.high_water_mark.filter(|high_water_mark| *high_water_mark >= Token::first(epoch));
        let (total, horizon, wants) = (self.total, Some(self.until), Some(self.wants.clone()));
        Changes { epoch, number, total, horizon, lease, high_water_mark, wants, parts: self.parts.clone() }
    }

    pub fn restore(record: &Changes) -> Promises {
        let mut promises = Promises::default();
        promises.take(record, ClusterTime::default());
        promises
    }
}

/// A total at a moment, without the parts that have ended.
pub(crate) fn total_at(total: Amount, parts: &[Part], moment: ClusterTime) -> Amount {
    let over: Sum = parts.iter().filter(|part| part.until <= moment).map(|part| part.amount).collect();
    if over == Sum::ZERO { total } else { (Sum::from(total) - over).ceil() }
}

/// Bounds the number of parts. A part may end later than it has to, which is safe.
pub(crate) fn merge_parts(parts: &mut Vec<Part>) {
    while parts.len() > MAX_PARTS {
        let gap = |place: &usize| parts[place + 1].until.since(parts[*place].until);
        let Some(closest) = (0..parts.len() - 1).min_by_key(gap) else { return };
        let sooner = parts.remove(closest);
        parts[closest].amount = [parts[closest].amount, sooner.amount].into_iter().collect::<Sum>().floor();
    }
}
