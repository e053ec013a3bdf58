//! Facts as they are encoded where that is not as they are: all facts of a snapshot, and changes of promises.
//! `tests/format.rs` fails when a change of a fact, or of a type of the core in it, changes what is stored.

use std::sync::Arc;

use leaseway_core::{
    Amount, Assigned, Changes, Claims, ClusterTime, Epoch, HolderKind, Load, Millis, Part, PoolNotes, Token,
};
use serde::{Deserialize, Serialize};

use crate::{
    codec::{self, DecodeError},
    fact::Configuration,
    listening::Listening,
    overrides::KeptOverride,
};

/// [`Changes`].
#[derive(Serialize, Deserialize)]
struct StoredChanges {
    epoch: Epoch,
    number: u64,
    total: Amount,
    horizon: Option<ClusterTime>,
    lease: Option<Millis>,
    floor: Option<Token>,
    wants: Option<Claims>,
    parts: Vec<Part>,
}

/// Encodes [`Changes`] as [`StoredChanges`].
pub(crate) mod changes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Changes, StoredChanges};

    pub(crate) fn serialize<S: Serializer>(changes: &Changes, serializer: S) -> Result<S::Ok, S::Error> {
        let Changes { epoch, number, total, horizon, lease, counted_from: floor, wants, parts } = changes.clone();
        StoredChanges { epoch, number, total, horizon, lease, floor, wants, parts }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Changes, D::Error> {
        let StoredChanges { epoch, number, total, horizon, lease, floor, wants, parts } =
            StoredChanges::deserialize(deserializer)?;
        Ok(Changes { epoch, number, total, horizon, lease, counted_from: floor, wants, parts })
    }
}

/// All that is promised about one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPromises {
    pub(crate) resource: Arc<str>,
    #[serde(with = "changes")]
    changes: Changes,
}

impl StoredPromises {
    pub(crate) fn new(resource: &Arc<str>, changes: Changes) -> StoredPromises {
        StoredPromises { resource: Arc::clone(resource), changes }
    }

    pub(crate) fn record(self) -> (Arc<str>, Changes) {
        (self.resource, self.changes)
    }
}

/// Of a resource, to a holder: how much.
type StoredAssignment = (Arc<str>, HolderKind, Arc<str>, Option<Assigned>);

/// All facts, for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredFacts {
    pub(crate) reign: u64,
    pub(crate) clock: ClusterTime,
    pub(crate) version: u64,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) assignments: Vec<StoredAssignment>,
    pub(crate) loads: Vec<(Arc<str>, Load)>,
    pub(crate) listening: Listening,
    pub(crate) pools: Vec<(Arc<str>, PoolNotes)>,
    pub(crate) promises: Vec<StoredPromises>,
    pub(crate) overrides: Vec<(Arc<str>, Option<KeptOverride>)>,
}

impl StoredFacts {
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<StoredFacts, DecodeError> {
        codec::decode(bytes)
    }
}
