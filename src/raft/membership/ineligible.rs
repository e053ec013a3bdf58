//! Why a running peer cannot vote or lead, for operators.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::log::disk_thread::Failure;

/// The reason why a peer cannot decide or count for a majority until an operator acts.
#[derive(Debug, Clone)]
pub enum Ineligible {
    /// Consensus has ended on it, usually because its disk has failed.
    Failed(Failure),
    /// It was removed from its cluster, according to the peer `by`.
    Removed { by: String },
    /// According to the peer `by`, a member with the same name has a newer data directory.
    Replaced { by: String },
    /// Its data directory belongs to another cluster than the peer `by`.
    OtherCluster { by: String },
}

impl Ineligible {
    /// All values of [`reason`](Ineligible::reason).
    pub const REASONS: [&str; 4] = ["failed", "removed", "replaced", "other_cluster"];

    /// A label for metrics and JSON.
    pub fn reason(&self) -> &'static str {
        match self {
            Ineligible::Failed(_) => "failed",
            Ineligible::Removed { .. } => "removed",
            Ineligible::Replaced { .. } => "replaced",
            Ineligible::OtherCluster { .. } => "other_cluster",
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this peer is ineligible: ")?;
        match self {
            Ineligible::Failed(failure) => write!(f, "{failure}. Fix the cause and restart this peer"),
            Ineligible::Removed { by } => write!(
                f,
                "according to {by}, it was removed from its cluster. Stop it and delete its data directory; to add it \
                 again, start it with an empty directory and run `leaseway peers add`"
            ),
            Ineligible::Replaced { by } => write!(
                f,
                "according to {by}, this peer has a newer data directory, and this one is outdated. Stop the peer and \
                 delete the outdated directory; then start the peer with the newer directory, or with an empty one"
            ),
            Ineligible::OtherCluster { by } => write!(
                f,
                "its data directory belongs to another cluster than {by}. To join the cluster of {by}, empty the \
                 directory and restart this peer; to stay in its own cluster, list the peers of that cluster in \
                 --peers"
            ),
        }
    }
}

/// The conclusion of [`discovery`](crate::membership::discovery).
#[derive(Debug, Default)]
pub(crate) struct Eligibility(Mutex<Option<Ineligible>>);

impl Eligibility {
    pub(crate) fn get(&self) -> Option<Ineligible> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs a change.
    pub(crate) fn set(&self, ineligible: Option<Ineligible>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, ineligible.clone());
        match ineligible {
            Some(ineligible) if before.as_ref().map(Ineligible::reason) != Some(ineligible.reason()) => {
                tracing::error!(reason = ineligible.reason(), "{ineligible}");
            }
            None if before.is_some() => tracing::info!("this peer is eligible again"),
            _ => {}
        }
    }
}
