//! Facts as they are encoded. Plain mirrors of the core's types, so that a change there cannot change the format
//! unnoticed.

use std::sync::Arc;

use leaseway_core::{
    Amount, Assigned, Changes, Claim, Claims, Epoch, HolderKind, Load, Millis, NotedBalance, NotedCost, PoolClock,
    PoolNotes, Record, Token,
};
use serde::{Deserialize, Serialize};

use crate::{
    ceilings::{CeilingChanges, CeilingRecord},
    codec::{self, COMMON, DecodeError, FORMAT},
    fact::{Configuration, Fact},
    floor, listening,
    overrides::KeptOverride,
};

/// A [`Fact`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredFact {
    Configuration(Configuration),
    Ceilings { resource: Arc<str>, changes: CeilingChanges },
    ForgetPromises { resource: Arc<str>, epoch: u64 },
    Assignment(StoredAssignment),
    Listen { length: u64 },
    Load { resource: Arc<str>, load: Option<StoredPortion> },
    Pool { resource: Arc<str>, notes: StoredNotes },
    ForgetPool { resource: Arc<str> },
    Promises { resource: Arc<str>, changes: StoredChanges },
    Override(StoredOverride),
}

impl StoredFact {
    /// The oldest format that has it.
    pub(crate) fn format(&self) -> u8 {
        if matches!(self, StoredFact::Override(_)) { FORMAT } else { COMMON }
    }

    pub(crate) fn is_of_promises(&self) -> bool {
        matches!(self, StoredFact::Promises { .. } | StoredFact::ForgetPromises { .. })
    }
}

/// [`PoolNotes`]: what has changed, or in a snapshot all that is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredNotes {
    pub(crate) anew: bool,
    pub(crate) clock: StoredClock,
    pub(crate) total: f64,
    pub(crate) balances: Vec<(Arc<str>, StoredBalance)>,
    pub(crate) costs: Vec<(bool, Arc<str>, Option<StoredCost>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredClock {
    lived: f64,
    grown: f64,
    decayed: f64,
    speed: f64,
    time_constant: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredBalance {
    None,
    Away(f64),
    Connected(f64, u32),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredCost {
    capacity: f64,
    time: f64,
    request: f64,
    account: Option<Arc<str>>,
    counted: Option<(Option<u64>, f64)>,
}

/// An assignment, or its removal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredAssignment {
    pub(crate) resource: Arc<str>,
    node: bool,
    pub(crate) holder: Arc<str>,
    assigned: Option<StoredPortion>,
}

/// An amount, or a part of another amount.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredPortion {
    Amount(f64),
    Part(f64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredChanges {
    epoch: u64,
    number: u64,
    total: f64,
    horizon: Option<u64>,
    lease: Option<u64>,
    wants: Option<Vec<StoredClaim>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct StoredClaim {
    wants: f64,
    subclients: u32,
    priority: i16,
}

/// Why a proposal was not applied. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredRefusal {
    /// Another reign had begun.
    Deposed,
    OlderEpoch {
        resource: Arc<str>,
        newest: u64,
        got: u64,
    },
    Gap {
        resource: Arc<str>,
        epoch: u64,
        expected: u64,
        got: u64,
    },
}

/// A [`Record`] of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPromises {
    pub(crate) resource: Arc<str>,
    newest: Option<(u64, u64)>,
    total: f64,
    horizon: u64,
    lease: Option<u64>,
    wants: Vec<StoredClaim>,
}

/// All facts, for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredFacts {
    pub(crate) reign: u64,
    pub(crate) version: u64,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) ceilings: Vec<CeilingRecord>,
    pub(crate) assignments: Vec<StoredAssignment>,
    pub(crate) loads: Vec<(Arc<str>, StoredPortion)>,
    pub(crate) listening: u64,
    pub(crate) pools: Vec<(Arc<str>, StoredNotes)>,
    pub(crate) promises: Vec<StoredPromises>,
    pub(crate) overrides: Vec<StoredOverride>,
}

/// The formats 3 to 5 have each added a list at the end of [`StoredFacts`].
const LISTS_ADDED: usize = 3;

impl StoredFacts {
    /// The oldest format that has them all.
    pub(crate) fn format(&self) -> u8 {
        if self.overrides.is_empty() { COMMON } else { FORMAT }
    }

    /// In their format: without the last list, if that is empty.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bytes = codec::encode(self);
        bytes[..bytes.len() - usize::from(FORMAT - self.format())].to_vec()
    }

    /// From a snapshot of this format or of one before, which ends before the lists that were added since.
    pub(crate) fn decode(bytes: &[u8]) -> Result<StoredFacts, DecodeError> {
        let older = |lists| codec::decode([bytes, &[0; LISTS_ADDED][..lists]].concat().as_slice()).ok();
        codec::decode(bytes).or_else(|error| (1..=LISTS_ADDED).find_map(older).ok_or(error))
    }
}

impl From<&Fact> for StoredFact {
    fn from(fact: &Fact) -> StoredFact {
        match fact {
            Fact::Configuration(configuration) => StoredFact::Configuration(configuration.clone()),
            Fact::Promises { resource, changes } => {
                StoredFact::Promises { resource: Arc::clone(resource), changes: changes.into() }
            }
            Fact::Ceilings { resource, changes } => {
                StoredFact::Ceilings { resource: Arc::clone(resource), changes: changes.clone() }
            }
            Fact::ForgetPromises { resource, epoch } => {
                StoredFact::ForgetPromises { resource: Arc::clone(resource), epoch: epoch.0 }
            }
            Fact::Assignment { resource, kind, holder, assigned } => {
                StoredFact::Assignment(StoredAssignment::new(resource, *kind, holder, *assigned))
            }
            Fact::Load { resource, load } => {
                StoredFact::Load { resource: Arc::clone(resource), load: load.map(StoredPortion::from) }
            }
            Fact::Override { pattern, set } => StoredFact::Override(StoredOverride::new(pattern, set.as_deref())),
            Fact::Listen { length, whole } => StoredFact::Listen { length: listening::encode(*length, *whole) },
            Fact::Pool { resource, notes } => {
                StoredFact::Pool { resource: Arc::clone(resource), notes: (&**notes).into() }
            }
            Fact::ForgetPool { resource } => StoredFact::ForgetPool { resource: Arc::clone(resource) },
        }
    }
}

impl From<&StoredFact> for Fact {
    fn from(fact: &StoredFact) -> Fact {
        match fact {
            StoredFact::Configuration(configuration) => Fact::Configuration(configuration.clone()),
            StoredFact::Promises { resource, changes } => {
                Fact::Promises { resource: Arc::clone(resource), changes: changes.into() }
            }
            StoredFact::Ceilings { resource, changes } => {
                Fact::Ceilings { resource: Arc::clone(resource), changes: changes.clone() }
            }
            StoredFact::ForgetPromises { resource, epoch } => {
                Fact::ForgetPromises { resource: Arc::clone(resource), epoch: Epoch(*epoch) }
            }
            StoredFact::Assignment(assignment) => Fact::Assignment {
                resource: Arc::clone(&assignment.resource),
                kind: assignment.kind(),
                holder: Arc::clone(&assignment.holder),
                assigned: assignment.assigned(),
            },
            StoredFact::Load { resource, load } => {
                Fact::Load { resource: Arc::clone(resource), load: load.map(Load::from) }
            }
            StoredFact::Override(stored) => {
                Fact::Override { pattern: Arc::clone(&stored.pattern), set: stored.kept().map(Box::new) }
            }
            StoredFact::Listen { length } => {
                let (length, whole) = listening::decode(*length);
                Fact::Listen { length, whole }
            }
            StoredFact::Pool { resource, notes } => {
                Fact::Pool { resource: Arc::clone(resource), notes: Box::new(notes.into()) }
            }
            StoredFact::ForgetPool { resource } => Fact::ForgetPool { resource: Arc::clone(resource) },
        }
    }
}

impl StoredAssignment {
    pub(crate) fn new(
        resource: &Arc<str>,
        kind: HolderKind,
        holder: &Arc<str>,
        assigned: Option<Assigned>,
    ) -> StoredAssignment {
        StoredAssignment {
            resource: Arc::clone(resource),
            node: kind == HolderKind::Node,
            holder: Arc::clone(holder),
            assigned: assigned.map(|assigned| match assigned {
                Assigned::Capacity(amount) => StoredPortion::Amount(amount.get()),
                Assigned::Share(share) => StoredPortion::Part(share),
            }),
        }
    }

    pub(crate) fn kind(&self) -> HolderKind {
        if self.node { HolderKind::Node } else { HolderKind::Client }
    }

    pub(crate) fn assigned(&self) -> Option<Assigned> {
        self.assigned.map(|assigned| match assigned {
            StoredPortion::Amount(amount) => Assigned::Capacity(amount_of(amount)),
            StoredPortion::Part(share) => Assigned::Share(share),
        })
    }
}

impl From<Load> for StoredPortion {
    fn from(load: Load) -> StoredPortion {
        match load {
            Load::Capacity(amount) => StoredPortion::Amount(amount.get()),
            Load::Factor(factor) => StoredPortion::Part(factor),
        }
    }
}

impl From<StoredPortion> for Load {
    fn from(load: StoredPortion) -> Load {
        match load {
            StoredPortion::Amount(amount) => Load::Capacity(amount_of(amount)),
            StoredPortion::Part(factor) => Load::Factor(factor),
        }
    }
}

impl From<&Changes> for StoredChanges {
    fn from(changes: &Changes) -> StoredChanges {
        StoredChanges {
            epoch: changes.epoch.0,
            number: changes.number,
            total: changes.total.get(),
            horizon: changes.horizon.map(|horizon| horizon.0),
            lease: floor::encode(changes.lease, changes.floor, changes.epoch),
            wants: changes.wants.as_ref().map(stored_claims),
        }
    }
}

impl From<&StoredChanges> for Changes {
    fn from(changes: &StoredChanges) -> Changes {
        let epoch = Epoch(changes.epoch);
        let (lease, floor) = floor::decode(changes.lease, epoch);
        Changes {
            epoch,
            number: changes.number,
            total: amount_of(changes.total),
            horizon: changes.horizon.map(Millis),
            lease,
            floor,
            wants: changes.wants.as_deref().map(claims),
        }
    }
}

impl StoredPromises {
    #[cfg(test)]
    pub(crate) fn without_horizon(&mut self) {
        self.horizon = 0;
    }

    pub(crate) fn new(resource: &Arc<str>, record: &Record) -> StoredPromises {
        StoredPromises {
            resource: Arc::clone(resource),
            newest: record.newest.map(|(epoch, number)| (epoch.0, number)),
            total: record.total.get(),
            horizon: record.horizon.0,
            lease: floor::encode(record.lease, record.floor, record.newest.map_or(Epoch(0), |(epoch, _)| epoch)),
            wants: stored_claims(&record.wants),
        }
    }

    pub(crate) fn record(&self) -> Record {
        let newest = self.newest.map(|(epoch, number)| (Epoch(epoch), number));
        let (lease, floor) = floor::decode(self.lease, newest.map_or(Epoch(0), |(epoch, _)| epoch));
        Record {
            newest,
            total: amount_of(self.total),
            horizon: Millis(self.horizon),
            lease,
            floor,
            wants: claims(&self.wants),
        }
    }
}

fn stored_claims(wants: &Claims) -> Vec<StoredClaim> {
    let stored = |claim: &Claim| {
        let Claim { wants, subclients, priority, .. } = *claim;
        StoredClaim { wants: wants.get(), subclients, priority }
    };
    wants.iter().map(stored).collect()
}

fn claims(stored: &[StoredClaim]) -> Claims {
    let claim = |stored: &StoredClaim| {
        let StoredClaim { wants, subclients, priority } = *stored;
        Claim::new(Amount::clamped(number(wants)), subclients, priority)
    };
    stored.iter().map(claim).collect()
}

impl From<&PoolNotes> for StoredNotes {
    fn from(notes: &PoolNotes) -> StoredNotes {
        let balance = |(id, balance): &(Arc<str>, NotedBalance)| {
            let stored = match *balance {
                NotedBalance::None => StoredBalance::None,
                NotedBalance::Away(key) => StoredBalance::Away(key),
                NotedBalance::Connected(base, clients) => StoredBalance::Connected(base, clients),
            };
            (Arc::clone(id), stored)
        };
        let cost = |(kind, id, cost): &(HolderKind, Arc<str>, Option<NotedCost>)| {
            (*kind == HolderKind::Node, Arc::clone(id), cost.as_ref().map(StoredCost::from))
        };
        let PoolClock { lived, grown, decayed, speed, time_constant } = notes.clock;
        StoredNotes {
            anew: notes.anew,
            clock: StoredClock { lived, grown, decayed, speed, time_constant: time_constant.0 },
            total: notes.total.get(),
            balances: notes.balances.iter().map(balance).collect(),
            costs: notes.costs.iter().map(cost).collect(),
        }
    }
}

impl From<&StoredNotes> for PoolNotes {
    fn from(notes: &StoredNotes) -> PoolNotes {
        let balance = |(id, balance): &(Arc<str>, StoredBalance)| {
            let noted = match *balance {
                StoredBalance::None => NotedBalance::None,
                StoredBalance::Away(key) => NotedBalance::Away(number(key)),
                StoredBalance::Connected(base, clients) => NotedBalance::Connected(number(base), clients),
            };
            (Arc::clone(id), noted)
        };
        let cost = |(node, id, cost): &(bool, Arc<str>, Option<StoredCost>)| {
            let kind = if *node { HolderKind::Node } else { HolderKind::Client };
            (kind, Arc::clone(id), cost.as_ref().map(NotedCost::from))
        };
        let StoredClock { lived, grown, decayed, speed, time_constant } = notes.clock;
        PoolNotes {
            anew: notes.anew,
            clock: PoolClock {
                lived: number(lived),
                grown: number(grown),
                decayed: number(decayed),
                speed: number(speed),
                time_constant: Millis(time_constant),
            },
            total: Amount::clamped(number(notes.total)),
            balances: notes.balances.iter().map(balance).collect(),
            costs: notes.costs.iter().map(cost).collect(),
        }
    }
}

impl From<&NotedCost> for StoredCost {
    fn from(cost: &NotedCost) -> StoredCost {
        StoredCost {
            capacity: cost.capacity.get(),
            time: cost.time,
            request: cost.request,
            account: cost.account.clone(),
            counted: cost.counted.map(|(lease, counted)| (lease.map(Token::get), counted)),
        }
    }
}

impl From<&StoredCost> for NotedCost {
    fn from(cost: &StoredCost) -> NotedCost {
        NotedCost {
            capacity: Amount::clamped(number(cost.capacity)),
            time: number(cost.time),
            request: number(cost.request),
            account: cost.account.clone(),
            counted: cost.counted.map(|(lease, counted)| (lease.and_then(Token::new), number(counted))),
        }
    }
}

/// Numbers were checked before. One that is not finite all the same must not spoil sums.
fn number(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Amounts were checked, too. An invalid one all the same counts as the largest: promises err upwards.
fn amount_of(value: f64) -> Amount {
    Amount::new(value).unwrap_or(Amount::MAX)
}

/// A [`KeptOverride`], or that there is none for a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredOverride {
    pub(crate) pattern: Arc<str>,
    set: Option<StoredSetting>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSetting {
    capacity: StoredPortion,
    above: bool,
    from_unix_ms: u64,
    until_unix_ms: u64,
    by: Arc<str>,
    why: Arc<str>,
}

impl StoredOverride {
    pub(crate) fn new(pattern: &Arc<str>, set: Option<&KeptOverride>) -> StoredOverride {
        let stored = |set: &KeptOverride| StoredSetting {
            capacity: set.capacity.into(),
            above: set.above,
            from_unix_ms: set.from_unix_ms,
            until_unix_ms: set.until_unix_ms,
            by: Arc::clone(&set.by),
            why: Arc::clone(&set.why),
        };
        StoredOverride { pattern: Arc::clone(pattern), set: set.map(stored) }
    }

    pub(crate) fn kept(&self) -> Option<KeptOverride> {
        let StoredSetting { capacity, above, from_unix_ms, until_unix_ms, by, why } = self.set.clone()?;
        let (pattern, capacity) = (Arc::clone(&self.pattern), Load::from(capacity));
        Some(KeptOverride { pattern, capacity, above, from_unix_ms, until_unix_ms, by, why })
    }
}
