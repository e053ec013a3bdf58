//! The state that must survive a master. For every resource it is a *total*, the maximum that all holders together may
//! be using; a *horizon*, after which none of those leases is in use; and a summary of the wants.
//!
//! A master proposes [`Changes`], its peers store them ([`Promises`]), and the next master starts from them
//! ([`Inherited`]) and serves immediately. It needs no list of holders: each holder names its lease in its next
//! request, and claims it from the total. A total may be too high and a horizon too late; then the next master grants
//! too little for a while. Neither is ever too low or too early.
//!
//! The total also contains leases that expired while there was no master. `high_water_mark` is the first such lease.
//! The holders of these leases get them back and need not wait for the horizon. The mark may be too high, never too
//! low.
//!
//! A horizon is a moment on the cluster clock ([`ClusterClock`]), which the log keeps. So machines need not agree on
//! the time, and a change of master does not restart the clock. Unclaimed leases that a master has inherited itself end
//! before the leases that it grants. The log has their amount ([`Part`]), so that the successor can distinguish them.
//!
//! The log of the quorum delivers changes in order; the server stores records.

#[cfg(test)]
mod tests;

use crate::types::{Amount, Claim, Claims, ClusterClock, ClusterTime, Epoch, Millis, Sum, Token, certain_end};

/// Maximum number of parts of a resource. Beyond it, the two parts with the closest ends are merged.
const MAX_PARTS: usize = 8;

/// A part of a total that ends before the rest: unclaimed leases of earlier masters.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// The latest end of its leases.
    pub until: ClusterTime,
    /// An upper bound of the tokens of its leases.
    pub before: Token,
    /// A lower bound of the amount.
    pub amount: Amount,
}

/// The changes of promises that a round causes. Peers apply them in the order of epoch and number.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Changes {
    pub epoch: Epoch,
    /// 1, 2, … within the epoch.
    pub number: u64,
    /// The maximum amount in use, including leases of earlier epochs.
    pub total: Amount,
    /// The moment after which no lease is in use. It only moves forward: an earlier horizon than the last one changes
    /// nothing.
    pub horizon: Option<ClusterTime>,
    /// Maximum length of leases under these changes; absent if unknown.
    pub lease: Option<Millis>,
    /// Leases from this one on are in the total even if they have expired; absent: only live leases are. A mark of an
    /// earlier epoch changes nothing.
    pub high_water_mark: Option<Token>,
    /// The wants of the holders, in slices of similar wants. `None` if they have hardly changed.
    pub wants: Option<Claims>,
    /// The parts of the total that end before the horizon, in the order of their ends. They replace the earlier parts.
    pub parts: Vec<Part>,
    /// BUDGET: the period of the total.
    pub period: Option<StoredPeriod>,
}

/// The period of a budget, as the quorum stores it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StoredPeriod {
    /// Its start, in Unix seconds.
    pub start: i64,
    /// The part of its amount that the period before has left over.
    pub carried: Amount,
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
    /// The maximum amount of leases of earlier incarnations in use.
    pub total: Amount,
    /// The wants of its holders.
    pub wants: Claims,
    /// The newest epoch in the promises. The new incarnation's epoch must be higher by at least
    /// [`Inherited::EPOCHS_APART`], so that its tokens are above all earlier ones.
    pub newest: Option<Epoch>,
    /// The latest end of leases of earlier incarnations.
    pub until: Millis,
    /// Leases from this one on are in the total even if they have expired.
    pub high_water_mark: Option<Token>,
    /// The parts of the total that end sooner, in the order of their ends, including those that are over.
    pub parts: Vec<Part>,
    /// BUDGET: the period of the total.
    pub period: Option<StoredPeriod>,
    /// The clock of the cluster in this term.
    pub clock: ClusterClock,
}

impl Inherited {
    /// The maximum number of tokens of an epoch.
    pub const EPOCHS_APART: u64 = 1 << 22;
}

/// Why changes were rejected. The promises are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refused {
    #[error("stale promises of epoch {}: there are promises of epoch {} already", got.0, newest.0)]
    OlderEpoch {
        /// The newest epoch in the promises.
        newest: Epoch,
        got: Epoch,
    },
    /// If the number is too high, changes are missing, and the promises are unreliable without them. If it is too low,
    /// the changes were applied already.
    #[error("change {got} of epoch {} is out of order, expected {expected}", epoch.0)]
    Gap { epoch: Epoch, expected: u64, got: u64 },
}

/// The promises of one resource, as a peer keeps them. There may be a million.
#[derive(Debug, Clone, PartialEq)]
pub struct Promises {
    /// The newest epoch, and the number of its last change. Zeros: there was none.
    newest: (Epoch, u64),
    total: Amount,
    until: ClusterTime,
    /// The maximum lease length under the newest changes.
    lease: Millis,
    high_water_mark: Option<Token>,
    /// The wants, if they are one slice.
    wants: Option<Claim>,
    uncommon: Option<Box<UncommonPromises>>,
}

/// Promises that few resources have.
#[derive(Debug, Clone, Default, PartialEq)]
struct UncommonPromises {
    /// The maximum lease length before the newest changes, and the moment until which those leases may be in use.
    lease_before: (Millis, ClusterTime),
    parts: Vec<Part>,
    period: Option<StoredPeriod>,
    /// The wants in several slices.
    wants: Claims,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises {
            newest: (Epoch(0), 0),
            total: Amount::ZERO,
            until: ClusterTime::default(),
            lease: Millis::default(),
            high_water_mark: None,
            wants: None,
            uncommon: None,
        }
    }
}

/// An unknown lease length counts as longer than any other.
const UNKNOWN: Millis = Millis(u64::MAX);

impl Promises {
    /// Checks that changes of this epoch and number are next in order.
    pub fn follows(newest: Option<(Epoch, u64)>, epoch: Epoch, number: u64) -> Result<(), Refused> {
        let expected = match newest {
            Some((newest, _)) if epoch < newest => return Err(Refused::OlderEpoch { newest, got: epoch }),
            Some((newest, last)) if epoch == newest => last.saturating_add(1),
            _ => 1,
        };
        if number == expected { Ok(()) } else { Err(Refused::Gap { epoch, expected, got: number }) }
    }

    /// Applies all of the changes or none. `stored` is the cluster time in the log.
    pub fn apply(&mut self, changes: &Changes, stored: ClusterTime) -> Result<(), Refused> {
        Promises::follows(self.newest(), changes.epoch, changes.number)?;
        self.take(changes, stored);
        Ok(())
    }

    fn take(&mut self, changes: &Changes, stored: ClusterTime) {
        self.newest = (changes.epoch, changes.number);
        let mut uncommon = self.uncommon.take().map(|uncommon| *uncommon).unwrap_or_default();
        let lease = changes.lease.unwrap_or(UNKNOWN);
        if lease < self.lease {
            uncommon.lease_before = (longest(self.lease, uncommon.lease_before, stored), self.until);
        } else if uncommon.lease_before.1 <= stored {
            uncommon.lease_before = Default::default();
        }
        self.lease = lease;
        if changes.high_water_mark.is_none_or(|high_water_mark| high_water_mark >= Token::first(changes.epoch)) {
            self.high_water_mark = changes.high_water_mark;
        }
        self.total = changes.total;
        if let Some(wants) = &changes.wants {
            let one = if let [one] = wants[..] { Some(one) } else { None };
            self.wants = one;
            uncommon.wants = if one.is_some() { Claims::new() } else { wants.clone() };
        }
        self.until = self.until.max(changes.horizon.unwrap_or_default());
        uncommon.parts.clone_from(&changes.parts);
        uncommon.period = changes.period;
        self.uncommon = (uncommon != UncommonPromises::default()).then(|| Box::new(uncommon));
    }

    fn wants(&self) -> Claims {
        let several = self.uncommon.as_ref().map_or_else(Claims::new, |uncommon| uncommon.wants.clone());
        self.wants.map_or(several, |one| Claims::from_slice(&[one]))
    }

    fn parts(&self) -> &[Part] {
        self.uncommon.as_ref().map_or(&[], |uncommon| &uncommon.parts)
    }

    fn period(&self) -> Option<StoredPeriod> {
        self.uncommon.as_ref().and_then(|uncommon| uncommon.period)
    }

    /// The initial state of a new incarnation, if earlier ones have granted nothing since `since`. The last lease ends
    /// with the horizon, or when the longest lease granted before `since` ends, if that is sooner. `now` and `since`
    /// are on the clock of this master.
    pub fn inherited(&self, clock: ClusterClock, now: Millis, since: Millis) -> Inherited {
        let newest = self.newest().map(|(epoch, _)| epoch);
        let Some(until) = self.believed_until(clock, now, since) else {
            return Inherited { newest, clock, ..Inherited::default() };
        };
        let (total, wants, high_water_mark, parts) =
            (self.total, self.wants(), self.high_water_mark, self.parts().to_vec());
        Inherited { total, wants, newest, until, high_water_mark, parts, period: self.period(), clock }
    }

    /// The moment until which some of the total may be in use, if nothing was granted since `since`; `None` if it is
    /// over.
    pub fn believed_until(&self, clock: ClusterClock, now: Millis, since: Millis) -> Option<Millis> {
        let until = certain_end(since, self.longest(clock.at(now))).min(clock.local(self.until));
        (now < until).then_some(until)
    }

    /// The newest epoch, and the number of its last change.
    pub fn newest(&self) -> Option<(Epoch, u64)> {
        Some(self.newest).filter(|newest| *newest != (Epoch(0), 0))
    }

    pub fn total(&self) -> Amount {
        self.total
    }

    /// The total at a moment, without the parts that have ended.
    pub fn total_at(&self, moment: ClusterTime) -> Amount {
        total_at(self.total, self.parts(), moment)
    }

    pub fn until(&self) -> ClusterTime {
        self.until
    }

    /// The maximum time for which leases granted until `stored` may still be in use.
    pub fn longest_left(&self, stored: ClusterTime) -> Millis {
        certain_end(Millis(0), self.longest(stored)).min(self.until.since(stored))
    }

    fn longest(&self, at: ClusterTime) -> Millis {
        longest(self.lease, self.uncommon.as_ref().map(|uncommon| uncommon.lease_before).unwrap_or_default(), at)
    }

    /// The whole state as one change, for a snapshot. `stored` is the cluster time in the log.
    pub fn record(&self, stored: ClusterTime) -> Changes {
        let (epoch, number) = self.newest;
        let lease = Some(self.longest(stored)).filter(|longest| *longest < UNKNOWN);
        // A mark of an earlier epoch cannot be expressed in changes of this one.
        let high_water_mark = self.high_water_mark.filter(|high_water_mark| *high_water_mark >= Token::first(epoch));
        let (total, horizon, wants) = (self.total, Some(self.until), Some(self.wants()));
        let (parts, period) = (self.parts().to_vec(), self.period());
        Changes { epoch, number, total, horizon, lease, high_water_mark, wants, parts, period }
    }

    pub fn restore(record: &Changes) -> Promises {
        let mut promises = Promises::default();
        promises.take(record, ClusterTime::default());
        promises
    }
}

/// The maximum lease length at a moment, if it was another one before.
fn longest(lease: Millis, (before, until): (Millis, ClusterTime), at: ClusterTime) -> Millis {
    if at < until { lease.max(before) } else { lease }
}

/// If promises grew, a follower would need more memory for a million resources.
const _: () = assert!(size_of::<Promises>() <= 80);

/// A total at a moment, without the parts that have ended.
pub(crate) fn total_at(total: Amount, parts: &[Part], moment: ClusterTime) -> Amount {
    let over: Sum = parts.iter().filter(|part| part.until <= moment).map(|part| part.amount).collect();
    if over == Sum::ZERO { total } else { (Sum::from(total) - over).ceil() }
}

/// Limits the number of parts. A merged part may end later than necessary, which is safe.
pub(crate) fn merge_parts(parts: &mut Vec<Part>) {
    while parts.len() > MAX_PARTS {
        let gap = |index: &usize| parts[index + 1].until.since(parts[*index].until);
        let Some(closest) = (0..parts.len() - 1).min_by_key(gap) else { return };
        let sooner = parts.remove(closest);
        parts[closest].amount = [parts[closest].amount, sooner.amount].into_iter().collect::<Sum>().floor();
    }
}
