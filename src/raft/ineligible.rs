//! Why a peer takes no part although it runs. Without this, operators would only see a peer that knows of no master.

use std::fmt;

use crate::store::disk::Failure;

/// Why a peer takes no part. It decides nothing, and does not count for a majority, until an operator has acted.
#[derive(Debug, Clone)]
pub enum Ineligible {
    /// Consensus has ended on it, mostly because its disk has failed.
    Failed(Failure),
    /// It was removed from its cluster.
    Removed {
        /// The peer that says so.
        by: String,
    },
    /// Another directory has its name and its place.
    Replaced {
        /// The peer that says so.
        by: String,
    },
    /// The others are of another cluster than its directory.
    OtherCluster { by: String },
}

impl Ineligible {
    /// Every [`reason`](Ineligible::reason) there is.
    pub const REASONS: [&str; 4] = ["failed", "removed", "replaced", "other_cluster"];

    /// In one word, for machines.
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
        f.write_str("this peer takes no part: ")?;
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
