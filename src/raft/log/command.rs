//! Commands: the changes that a master proposes because the next master has to know them.

use std::sync::Arc;

use leaseway_core::{
    lease::promises::{Changes, Refused},
    policy::overrides::{Load, OverrideTarget, OverrideValue},
    pool::{Assigned, PoolNotes},
    resource::budget::usage::UsageRow,
    types::{Amount, ClusterTime, Epoch, HolderKind, Millis},
};
use serde::{Deserialize, Serialize};

/// One change of the [`State`](crate::state::State). Variants are encoded by their position: append new ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Puts a configuration in force.
    Configuration(Configuration),
    /// Removes a resource with the promises of this epoch and earlier ones. Promises of later epochs stay.
    ForgetPromises {
        resource: Arc<str>,
        epoch: Epoch,
    },
    /// Assigns a part of a resource to a holder, replacing an earlier assignment.
    Assignment {
        resource: Arc<str>,
        #[serde(rename = "node")]
        kind: HolderKind,
        holder: Arc<str>,
        /// The total for the holder. `None` removes the assignment.
        assigned: Option<Assigned>,
    },
    /// Begins or ends a learning period.
    Listen(Listening),
    /// Sets the load that a protected resource can serve. It takes precedence over the template.
    Load {
        resource: Arc<str>,
        /// `None` restores the template's value.
        load: Option<Load>,
    },
    /// Changes the notes about a pool. Losing them costs fairness, not safety.
    Pool {
        resource: Arc<str>,
        notes: Box<PoolNotes>,
    },
    ForgetPool {
        resource: Arc<str>,
    },
    /// Changes the promises of a resource.
    Promises {
        resource: Arc<str>,
        changes: Changes,
    },
    /// Sets or removes a temporary capacity or rule of a group. It takes precedence over templates.
    Override {
        target: OverrideTarget,
        /// `None` removes the override.
        set: Option<Box<KeptOverride>>,
    },
    /// Advances the cluster clock. The master adds it to every entry.
    Clock(ClusterTime),
    /// Sets or removes the capacities of single resources. They take precedence over templates, and overrides over
    /// them.
    Limits(LimitChanges),
    /// Sets or removes the templates that are declared under a name.
    Declare {
        name: Arc<str>,
        /// `None` removes them.
        declaration: Option<Declaration>,
    },
    /// Adds or replaces what holders of a budget have spent.
    Usage {
        resource: Arc<str>,
        rows: Vec<UsageRow>,
    },
}

impl Command {
    pub(crate) fn is_of_promises(&self) -> bool {
        matches!(self, Command::Promises { .. } | Command::ForgetPromises { .. })
    }
}

/// A configuration that was, or is, in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Counts from 1, and is assigned when the command is applied: the next version, or the proposed one if that is
    /// higher, as when a backup is restored.
    pub version: u64,
    /// The YAML text as the operator wrote it.
    pub text: Arc<str>,
    /// The file or command that the text came from, for people.
    pub source: Arc<str>,
    /// Seconds since the Unix epoch, for people.
    pub at_unix: i64,
    /// The server that put it in force, for people.
    pub by: Arc<str>,
}

/// A learning period: unknown promises may be in force, so resources learn from clients before they divide capacity. It
/// begins when the command is applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Zero ends the period.
    pub length: Millis,
    /// Resources learn for the whole length even if their templates say less.
    pub whole: bool,
}

/// A temporary capacity, or rule of a group, that an operator has set in place of the template's. It ends by wall-clock
/// time, which is the same for all peers and survives a restart of all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptOverride {
    pub value: OverrideValue,
    /// Milliseconds since the Unix epoch.
    pub from_unix_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub until_unix_ms: u64,
    /// The operator, for people.
    pub by: Arc<str>,
    /// The reason, for people.
    pub why: Arc<str>,
}

/// Limits that an operator sets together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitChanges {
    /// The capacities by resource id. `None` removes a limit.
    pub limits: Vec<(Arc<str>, Option<Amount>)>,
    /// Seconds since the Unix epoch, for people.
    pub at_unix: i64,
    /// The operator, for people.
    pub by: Arc<str>,
}

/// Templates that a gateway declares for its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// Milliseconds since the Unix epoch at which the templates were written. Newer versions are higher.
    pub version: u64,
    /// A configuration that has only templates.
    pub text: Arc<str>,
    /// Seconds since the Unix epoch, for people.
    pub at_unix: i64,
    /// The gateway, for people.
    pub by: Arc<str>,
}

/// Why a proposal failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProposeError {
    #[error("this peer is no longer the master; nothing was stored")]
    Deposed,
    /// The lease or consensus ended before the outcome was known. The next master knows whether it was stored.
    #[error("mastership was lost before the outcome was known: the change may have been stored, or not")]
    Uncertain,
    /// The proposal does not fit into one message to the peers. Nothing was stored.
    #[error("the change has {bytes} bytes, more than the maximum of {most}")]
    TooLarge { bytes: u64, most: u64 },
    /// The promises do not continue the stored ones, which is a bug of the caller. Nothing was stored.
    #[error("cannot store new totals of {resource:?}: {why}")]
    Refused { resource: Arc<str>, why: Refused },
}
