//! Limits: the capacities that operators set for single resources, in place of the templates'. The peers keep them.

use std::{collections::HashSet, sync::Arc};

use leaseway_core::{policy::settings::AlgorithmKind, types::Amount};
use leaseway_raft::{Command, Limit, LimitChanges, Limits, MasterLease, ProposeError};

use super::NodeHandle;
use crate::node::{node_actor::LimitsChanged, request_error::NotMaster};

/// Maximum number of limits that are set together: all peers have to receive them within a heartbeat.
pub(crate) const MAX_TOGETHER: usize = 10_000;
/// Maximum size of the ids of limits that are set together, in bytes.
const MAX_ID_BYTES: usize = 1 << 20;
/// Maximum number of limits. A million take about 150 MB in each peer.
const MAX_LIMITS: usize = 2_000_000;

/// New capacities by resource id; `None` removes a limit.
pub(crate) type Changes = Vec<(Arc<str>, Option<Amount>)>;

/// The number of limits that were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    pub(crate) added: u64,
    pub(crate) replaced: u64,
    pub(crate) removed: u64,
}

/// Why limits were not set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("this peer is not the master")]
    NotMaster(NotMaster),
    #[error("the capacities come from the parent ({0}): set limits at the root of the tree")]
    HasParent(String),
    #[error(
        "this server has no data directory to keep limits in: start it with --data, or set the capacity in the configuration"
    )]
    NotKept,
    #[error(
        "too many limits in one request ({0}): at most {MAX_TOGETHER} with 1 MiB of ids are allowed; send the limits \
         in parts"
    )]
    TooMany(usize),
    #[error("`{0}` appears twice: send each resource once")]
    Twice(Arc<str>),
    #[error(
        "the template of `{0}` divides nothing (NO_ALGORITHM), so a limit would have no effect: give the template another algorithm"
    )]
    NotDivided(Arc<str>),
    #[error(
        "there would be {0} limits, but at most {MAX_LIMITS} are allowed: use a template for resources with the same \
         capacity"
    )]
    Full(usize),
    #[error(transparent)]
    Proposal(#[from] ProposeError),
}

impl NodeHandle {
    /// Reads the limits. `None` if no peers keep any.
    pub(crate) fn read_limits<T>(&self, read: impl FnOnce(&Limits) -> T) -> Option<T> {
        self.raft().map(|raft| raft.read(|state| read(state.limits())))
    }

    /// The limit of a resource, if it has one.
    pub(crate) fn limit(&self, id: &str) -> Option<Limit> {
        self.read_limits(|limits| limits.get(id).cloned()).flatten()
    }

    /// Sets and removes limits, all or none. Returns when they are stored, and the active resources have been told.
    pub(crate) async fn set_limits(&self, changes: Changes, by: Arc<str>) -> Result<Changed, LimitError> {
        let master_lease = self.check_limits(&changes)?;
        let known = |limits: &Limits| {
            let mut changed = Changed::default();
            for (id, capacity) in &changes {
                match (limits.get(id), capacity) {
                    (None, Some(_)) => changed.added += 1,
                    (Some(_), Some(_)) => changed.replaced += 1,
                    (Some(_), None) => changed.removed += 1,
                    (None, None) => {}
                }
            }
            (changed, limits.len() + changed.added as usize)
        };
        let (changed, total) = self.read_limits(known).ok_or(LimitError::NotKept)?;
        if total > MAX_LIMITS && changed.added > 0 {
            return Err(LimitError::Full(total));
        }
        let node = self.clone();
        // Spawned, because the resources must be told of limits that are stored even if the caller goes away.
        let stored = tokio::spawn(async move { node.store_limits(changes, by, &master_lease).await });
        stored.await.unwrap_or(Err(ProposeError::Uncertain))?;
        Ok(changed)
    }

    fn check_limits(&self, changes: &Changes) -> Result<MasterLease, LimitError> {
        if let Some(parent) = self.parent() {
            let addresses = parent.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
            return Err(LimitError::HasParent(addresses.join(", ")));
        }
        let master_lease = self.master_lease().map_err(LimitError::NotMaster)?.ok_or(LimitError::NotKept)?;
        let bytes: usize = changes.iter().map(|(id, _)| id.len()).sum();
        if changes.len() > MAX_TOGETHER || bytes > MAX_ID_BYTES {
            return Err(LimitError::TooMany(changes.len()));
        }
        let config = self.config();
        let mut named = HashSet::with_capacity(changes.len());
        for (id, capacity) in changes {
            if !named.insert(id) {
                return Err(LimitError::Twice(Arc::clone(id)));
            }
            let template = config.template_settings(id);
            if capacity.is_some() && template.is_some_and(|settings| settings.kind == AlgorithmKind::NoAlgorithm) {
                return Err(LimitError::NotDivided(Arc::clone(id)));
            }
        }
        Ok(master_lease)
    }

    async fn store_limits(
        &self,
        changes: Changes,
        by: Arc<str>,
        master_lease: &MasterLease,
    ) -> Result<(), ProposeError> {
        let Some(raft) = self.raft() else { return Err(ProposeError::Deposed) };
        let ids = changes.iter().map(|(id, _)| Arc::clone(id)).collect();
        let command = Command::Limits(LimitChanges { limits: changes, at_unix: self.clock.now().unix, by });
        let stored = raft.propose(master_lease, vec![command]).await;
        // If the node is gone, the process is ending.
        let _ = self.tell(LimitsChanged(ids)).await;
        stored
    }
}
