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
    /// Another data directory has its name and its place, according to the peer `by`.
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
            Ineligible::Failed(failure) => write!(f, "{failure}. See to the cause, and start it again"),
            Ineligible::Removed { by } => write!(
                f,
                "it was removed from its cluster, as {by} says. Stop it and delete its data directory; to have it \
                 back, start it with an empty one and add it with `leaseway peers add`"
            ),
            Ineligible::Replaced { by } => write!(
                f,
                "a newer directory has its name and its place, as {by} says. Stop it and delete this directory, \
                 which is out of date; start it with the newer one, or with an empty one"
            ),
            Ineligible::OtherCluster { by } => write!(
                f,
                "its data directory belongs to another cluster than {by}. To join that, empty the directory and \
                 start it again; to go on as it was, name the peers of its own cluster in --peers"
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
            None if before.is_some() => tracing::info!("this peer takes part again"),
            _ => {}
        }
    }
}
