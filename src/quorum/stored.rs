//! Facts as they are encoded. Plain mirrors of the core's types, so that a change there cannot change the format
//! unnoticed.

use std::sync::Arc;

use leaseway_core::{Amount, Ceiling, Changes, HolderKind, Millis, Record, Term};
use serde::{Deserialize, Serialize};

use crate::facts::{Configuration, Fact};

/// A [`Fact`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum StoredFact {
    Configuration(Configuration),
    Promises { resource: Arc<str>, changes: StoredChanges },
    ForgetPromises { resource: Arc<str>, term: u64 },
    Assignment { resource: Arc<str>, client: Arc<str>, amount: f64 },
    Listen { length: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredChanges {
    term: u64,
    number: u64,
    ceilings: Vec<StoredCeiling>,
    horizon: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredCeiling {
    node: bool,
    id: Arc<str>,
    amount: f64,
}

/// Why a proposal was not applied. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredRefusal {
    /// Another reign had begun.
    Deposed,
    OlderTerm {
        resource: Arc<str>,
        newest: u64,
        got: u64,
    },
    Gap {
        resource: Arc<str>,
        term: u64,
        expected: u64,
        got: u64,
    },
}

/// A [`Record`] of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredBook {
    pub(crate) resource: Arc<str>,
    newest: Option<(u64, u64)>,
    horizons: Vec<(u64, u64)>,
    ceilings: Vec<(StoredCeiling, u64)>,
}

/// All facts, for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredFacts {
    pub(crate) reign: u64,
    pub(crate) version: u64,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) books: Vec<StoredBook>,
    pub(crate) assignments: Vec<(Arc<str>, Arc<str>, f64)>,
    pub(crate) listening: u64,
}

impl From<&Fact> for StoredFact {
    fn from(fact: &Fact) -> StoredFact {
        match fact {
            Fact::Configuration(configuration) => StoredFact::Configuration(configuration.clone()),
            Fact::Promises { resource, changes } => {
                StoredFact::Promises { resource: Arc::clone(resource), changes: changes.into() }
            }
            Fact::ForgetPromises { resource, term } => {
                StoredFact::ForgetPromises { resource: Arc::clone(resource), term: term.0 }
            }
            Fact::Assignment { resource, client, amount } => StoredFact::Assignment {
                resource: Arc::clone(resource),
                client: Arc::clone(client),
                amount: amount.get(),
            },
            Fact::Listen { length } => StoredFact::Listen { length: length.0 },
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
            StoredFact::ForgetPromises { resource, term } => {
                Fact::ForgetPromises { resource: Arc::clone(resource), term: Term(*term) }
            }
            StoredFact::Assignment { resource, client, amount } => Fact::Assignment {
                resource: Arc::clone(resource),
                client: Arc::clone(client),
                amount: amount_of(*amount),
            },
            StoredFact::Listen { length } => Fact::Listen { length: Millis(*length) },
        }
    }
}

impl From<&Changes> for StoredChanges {
    fn from(changes: &Changes) -> StoredChanges {
        StoredChanges {
            term: changes.term.0,
            number: changes.number,
            ceilings: changes.ceilings.iter().map(StoredCeiling::from).collect(),
            horizon: changes.horizon.map(|horizon| horizon.0),
        }
    }
}

impl From<&StoredChanges> for Changes {
    fn from(changes: &StoredChanges) -> Changes {
        Changes {
            term: Term(changes.term),
            number: changes.number,
            ceilings: changes.ceilings.iter().map(Ceiling::from).collect(),
            horizon: changes.horizon.map(Millis),
        }
    }
}

impl From<&Ceiling> for StoredCeiling {
    fn from(ceiling: &Ceiling) -> StoredCeiling {
        StoredCeiling {
            node: ceiling.kind == HolderKind::Node,
            id: Arc::clone(&ceiling.id),
            amount: ceiling.amount.get(),
        }
    }
}

impl From<&StoredCeiling> for Ceiling {
    fn from(ceiling: &StoredCeiling) -> Ceiling {
        let kind = if ceiling.node { HolderKind::Node } else { HolderKind::Client };
        Ceiling { kind, id: Arc::clone(&ceiling.id), amount: amount_of(ceiling.amount) }
    }
}

impl StoredBook {
    pub(crate) fn new(resource: Arc<str>, record: &Record) -> StoredBook {
        StoredBook {
            resource,
            newest: record.newest.map(|(term, number)| (term.0, number)),
            horizons: record.horizons.iter().map(|(term, length)| (term.0, length.0)).collect(),
            ceilings: record.ceilings.iter().map(|(ceiling, term)| (ceiling.into(), term.0)).collect(),
        }
    }

    pub(crate) fn record(&self) -> Record {
        Record {
            newest: self.newest.map(|(term, number)| (Term(term), number)),
            horizons: self.horizons.iter().map(|(term, length)| (Term(*term), Millis(*length))).collect(),
            ceilings: self.ceilings.iter().map(|(ceiling, term)| (ceiling.into(), Term(*term))).collect(),
        }
    }
}

/// Amounts were checked before they were encoded and are covered by checksums since. A peer that sends nonsense all
/// the same is believed to mean the most: promises err upwards.
pub(crate) fn amount_of(value: f64) -> Amount {
    Amount::new(value).unwrap_or(Amount::MAX)
}
