//! Facts as they are encoded where that is not as they are: all facts of a snapshot, and what has a floor.
//! `tests/format.rs` fails when a change of a fact, or of a type of the core in it, changes what is stored.

use std::sync::Arc;

use leaseway_core::{Amount, Assigned, Changes, Claims, Epoch, HolderKind, Load, Millis, PoolNotes};
use serde::{Deserialize, Serialize};

use crate::{
    ceilings::CeilingRecord,
    codec::{self, COMMON, DecodeError, FORMAT},
    fact::Configuration,
    floor,
    listening::Listening,
    overrides::KeptOverride,
};

/// [`Changes`], with the floor in the place of the lease.
#[derive(Serialize, Deserialize)]
struct StoredChanges {
    epoch: Epoch,
    number: u64,
    total: Amount,
    horizon: Option<Millis>,
    lease: Option<u64>,
    wants: Option<Claims>,
}

/// Encodes [`Changes`] as [`StoredChanges`].
pub(crate) mod changes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Changes, StoredChanges, floor};

    pub(crate) fn serialize<S: Serializer>(changes: &Changes, serializer: S) -> Result<S::Ok, S::Error> {
        let Changes { epoch, number, total, horizon, lease, floor, wants } = changes.clone();
        let lease = floor::encode(lease, floor, epoch);
        StoredChanges { epoch, number, total, horizon, lease, wants }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Changes, D::Error> {
        let StoredChanges { epoch, number, total, horizon, lease, wants } = StoredChanges::deserialize(deserializer)?;
        let (lease, floor) = floor::decode(lease, epoch);
        Ok(Changes { epoch, number, total, horizon, lease, floor, wants })
    }
}

/// All that is promised about one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPromises {
    pub(crate) resource: Arc<str>,
    newest: Option<(Epoch, u64)>,
    total: Amount,
    pub(crate) horizon: Millis,
    lease: Option<u64>,
    wants: Claims,
}

impl StoredPromises {
    pub(crate) fn new(resource: &Arc<str>, record: Changes) -> StoredPromises {
        let Changes { epoch, number, total, horizon, lease, floor, wants } = record;
        let (horizon, wants) = (horizon.unwrap_or_default(), wants.unwrap_or_default());
        let (newest, lease) = (Some((epoch, number)), floor::encode(lease, floor, epoch));
        StoredPromises { resource: Arc::clone(resource), newest, total, horizon, lease, wants }
    }

    pub(crate) fn record(self) -> (Arc<str>, Changes) {
        let StoredPromises { resource, newest, total, horizon, lease, wants } = self;
        let (epoch, number) = newest.unwrap_or((Epoch(0), 0));
        let (lease, floor) = floor::decode(lease, epoch);
        (resource, Changes { epoch, number, total, horizon: Some(horizon), lease, floor, wants: Some(wants) })
    }
}

/// Of a resource, to a holder: how much.
type StoredAssignment = (Arc<str>, HolderKind, Arc<str>, Option<Assigned>);

/// All facts, for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredFacts {
    pub(crate) reign: u64,
    pub(crate) version: u64,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) ceilings: Vec<CeilingRecord>,
    pub(crate) assignments: Vec<StoredAssignment>,
    pub(crate) loads: Vec<(Arc<str>, Load)>,
    pub(crate) listening: Listening,
    pub(crate) pools: Vec<(Arc<str>, PoolNotes)>,
    pub(crate) promises: Vec<StoredPromises>,
    pub(crate) overrides: Vec<(Arc<str>, Option<KeptOverride>)>,
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
