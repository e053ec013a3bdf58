//! What is proposed: one thing that must survive a master.

use std::sync::Arc;

use leaseway_core::{Assigned, Changes, ClusterTime, Epoch, HolderKind, Load, PoolNotes};
use serde::{Deserialize, Serialize};

use crate::{listening::Listening, overrides::KeptOverride, stored};

/// Something that must survive a master. StoredSnapshot in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The configuration from now on.
    Configuration(Configuration),
    /// A resource is gone, and with it what this epoch and those before it promised. What a later one promised stays.
    ForgetPromises {
        resource: Arc<str>,
        /// The incarnation that has ended.
        epoch: Epoch,
    },
    /// A part of a resource is assigned to a holder, in place of an earlier assignment.
    Assignment {
        resource: Arc<str>,
        /// To a client, or to a child node.
        #[serde(rename = "node")]
        kind: HolderKind,
        holder: Arc<str>,
        /// How much in all. `None` removes the assignment.
        assigned: Option<Assigned>,
    },
    /// Promises that these peers know nothing of may be in force, or are not any more.
    Listen(Listening),
    /// A protected resource can serve so much from now on. Takes precedence over its template.
    Load {
        resource: Arc<str>,
        /// How much. `None`: as much as its template says.
        load: Option<Load>,
    },
    /// What has changed about a pool. Not a promise: losing it costs fairness, not safety.
    Pool { resource: Arc<str>, notes: Box<PoolNotes> },
    /// A pool is to be forgotten.
    ForgetPool { resource: Arc<str> },
    /// What a master changed about the promises of a resource.
    Promises {
        resource: Arc<str>,
        #[serde(with = "stored::changes")]
        changes: Changes,
    },
    /// An operator sets a capacity for a time. Takes precedence over templates.
    Override {
        /// For which resources: an id, or a pattern.
        pattern: Arc<str>,
        /// What. `None`: what templates say counts again.
        set: Option<Box<KeptOverride>>,
    },
    /// How far the clock of the cluster has got. The master adds it to every entry.
    Clock(ClusterTime),
}

impl Command {
    pub(crate) fn is_of_promises(&self) -> bool {
        matches!(self, Command::Promises { .. } | Command::ForgetPromises { .. })
    }
}

/// A configuration that was, or is, in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Counts from 1. A configuration is numbered when it is applied; the value in a proposal counts where it is
    /// higher, as that of one that is restored is.
    pub version: u64,
    /// As it was written.
    pub text: Arc<str>,
    /// Where it came from, for people.
    pub source: Arc<str>,
    /// When, in seconds since the epoch, for people.
    pub at_unix: i64,
    /// Which server put it in force, for people.
    pub by: Arc<str>,
}
