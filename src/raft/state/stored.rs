//! The encoding of the whole state in a snapshot. `tests/format.rs` fails if a change of a type changes the bytes.

use std::sync::Arc;

use leaseway_core::{Assigned, Changes, ClusterTime, HolderKind, Load, PoolNotes};
use serde::{Deserialize, Serialize};

use crate::log::{
    codec::{self, DecodeError},
    command::{Configuration, KeptOverride, Listening, stored_changes},
};

/// The promises of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPromises {
    pub(crate) resource: Arc<str>,
    #[serde(with = "stored_changes")]
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

/// Resource, kind and name of the holder, amount.
type StoredAssignment = (Arc<str>, HolderKind, Arc<str>, Option<Assigned>);

/// The whole state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredState {
    pub(crate) term: u64,
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

impl StoredState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<StoredState, DecodeError> {
        codec::decode(bytes)
    }
}
