//! Whether the parameters and the capacity go together.

use super::{AlgorithmKind, Priority, Settings};
use crate::{policy::client_rules::ClientRuleError, types::amount::Amount};

/// Why settings cannot be used, though each value alone could.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// Not even one client would fit.
    #[error(
        "parameter `min_capacity` is {min}, more than the capacity, {capacity}: no client would ever fit; at most the capacity"
    )]
    MinOverCapacity {
        /// The least useful capacity.
        min: Amount,
        capacity: Amount,
    },
    /// The most that the total may be is less than what there is.
    #[error(
        "parameter `max_capacity` is {max}, less than the capacity, {capacity}; at least the capacity, or leave it out"
    )]
    MaxUnderCapacity {
        /// The most that the total may be.
        max: Amount,
        capacity: Amount,
    },
    /// A pool has a unit of its own.
    #[error("parameter `whole_units` is not for PRIORITY_POOL, whose unit is `min_capacity`; leave it out")]
    WholeUnits,
    /// Only strict bands can starve.
    #[error(
        "parameter `reserve` is {reserve}, but `priority` is `{}`: the reserve is for bands that others go before; \
         set `priority` to `strict`, or leave it out", priority.name()
    )]
    ReserveWithoutBands {
        /// The part that was to be shared.
        reserve: f64,
        /// How priorities take effect.
        priority: Priority,
    },
    /// Rules for clients that cannot be kept.
    #[error(transparent)]
    Clients(#[from] ClientRuleError),
    /// The capacity lies outside the bounds that reports of load may move it in.
    #[error(
        "parameters `capacity_floor` and `capacity_ceiling` are {floor} and {ceiling}; the capacity, {capacity}, must lie between"
    )]
    Bounds {
        floor: Amount,
        /// The upper bound.
        ceiling: Amount,
        /// What the template says.
        capacity: Amount,
    },
}

impl Settings {
    /// Whether the parameters and the capacity go together.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (capacity, (floor, ceiling)) = (self.capacity, self.load_bounds);
        let (floor, ceiling) = (floor.unwrap_or(capacity), ceiling.unwrap_or(capacity));
        if floor > capacity || ceiling < capacity {
            return Err(SettingsError::Bounds { floor, ceiling, capacity });
        }
        if self.reserve > 0.0 && self.priority != Priority::Strict {
            return Err(SettingsError::ReserveWithoutBands { reserve: self.reserve, priority: self.priority });
        }
        self.check_clients()?;
        if self.kind != AlgorithmKind::PriorityPool {
            return Ok(());
        }
        if self.whole_units {
            return Err(SettingsError::WholeUnits);
        }
        let min = self.pool.min_capacity;
        if min > capacity {
            return Err(SettingsError::MinOverCapacity { min, capacity });
        }
        match self.pool.max_capacity.filter(|max| *max < capacity) {
            Some(max) => Err(SettingsError::MaxUnderCapacity { max, capacity }),
            None => Ok(()),
        }
    }
}
