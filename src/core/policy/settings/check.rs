//! Validation of combinations of settings.

use std::sync::Arc;

use super::{AlgorithmKind, Priority, Reuse, Settings};
use crate::{
    policy::{
        client_rules::{ClientRule, ClientRuleError},
        groups::GroupError,
    },
    types::{Amount, Millis},
};

/// Why a combination of settings is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "parameter `min_capacity` is {min}, more than the capacity of {capacity}, so no client would fit; lower \
         `min_capacity`"
    )]
    MinOverCapacity { min: Amount, capacity: Amount },
    #[error("parameter `max_capacity` is {max}, less than the capacity of {capacity}; raise or remove `max_capacity`")]
    MaxUnderCapacity { max: Amount, capacity: Amount },
    #[error(
        "parameter `whole_units` is not allowed with PRIORITY_POOL, whose unit is `min_capacity`; remove `whole_units`"
    )]
    WholeUnits,
    #[error(
        "parameter `reserve` is {reserve}, but `priority` is `{}`: a reserve needs strict priorities; set `priority` \
         to `strict`, or remove `reserve`", priority.name()
    )]
    ReserveWithoutBands { reserve: f64, priority: Priority },
    #[error("`{0}` is not allowed with BUDGET; remove it")]
    OfShares(&'static str),
    #[error(
        "`lease_length` is {} s, more than a quarter of this budget's shortest period ({period} s): lower \
         `lease_length`, or choose a longer `period`",
        lease.0 / 1000
    )]
    LeaseOverPeriod { lease: Millis, period: u64 },
    #[error(
        "`pace` is true, but `period` is `none`: an amount without a period cannot be spread evenly; set a `period`"
    )]
    PaceWithoutEnd,
    #[error(
        "`carry_over` needs a next period, but `period` is `none`: the amount is spent once. Remove `carry_over`, or \
         set a `period`"
    )]
    CarryOverWithoutEnd,
    #[error(transparent)]
    Clients(#[from] ClientRuleError),
    #[error(transparent)]
    Groups(#[from] GroupError),
    #[error(
        "the capacity of {capacity} is not between the parameters `capacity_floor` ({floor}) and `capacity_ceiling` \
         ({ceiling}); change one of the three"
    )]
    Bounds { floor: Amount, ceiling: Amount, capacity: Amount },
}

impl Settings {
    /// Validates the combination of parameters and capacity.
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
        if let Some(groups) = &self.groups {
            if !self.dividing_algorithm().is_indexed() {
                let kind = if self.is_budget() { "BUDGET without `pace`" } else { self.kind.name() };
                return Err(GroupError::NotShared(kind).into());
            }
            if self.is_budget() {
                groups.check_weights()?;
            }
            groups.check(capacity, self.whole_units)?;
        }
        if self.is_budget() {
            return self.check_budget();
        }
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

    fn check_budget(&self) -> Result<(), SettingsError> {
        let of_shares = [
            ("clients", !self.clients.is_empty()),
            ("whole_units", self.whole_units),
            ("shadow", self.shadow),
            ("reuse: prompt", self.reuse == Reuse::Prompt),
            ("headroom", self.headroom > 0.0),
            ("capacity_floor", self.load_bounds.0.is_some()),
            ("capacity_ceiling", self.load_bounds.1.is_some()),
        ];
        if let Some((field, _)) = of_shares.into_iter().find(|(_, given)| *given) {
            return Err(SettingsError::OfShares(field));
        }
        match self.budget.periods.length.least_seconds() {
            Some(period) if self.lease.0 > period * 250 => {
                Err(SettingsError::LeaseOverPeriod { lease: self.lease, period })
            }
            None if self.budget.pace => Err(SettingsError::PaceWithoutEnd),
            None if self.budget.carry_over > Amount::ZERO => Err(SettingsError::CarryOverWithoutEnd),
            _ => Ok(()),
        }
    }

    fn check_clients(&self) -> Result<(), ClientRuleError> {
        if !self.clients.is_empty() && self.kind == AlgorithmKind::PriorityPool {
            return Err(ClientRuleError::OfPool);
        }
        self.clients.iter().try_for_each(|rule| self.check_rule(rule))
    }

    fn check_rule(&self, rule: &ClientRule) -> Result<(), ClientRuleError> {
        let pattern = || Arc::clone(&rule.pattern);
        let has_min = rule.min > Amount::ZERO;
        let shared = [("weight", rule.weight != 1), ("min", has_min)];
        if let Some((field, _)) = shared.into_iter().find(|(_, given)| *given && !self.kind.is_indexed()) {
            return Err(ClientRuleError::NotShared { pattern: pattern(), field, kind: self.kind.name() });
        }
        if has_min && self.reserve > 0.0 {
            return Err(ClientRuleError::WithReserve(pattern()));
        }
        let (min, capacity) = (rule.min, self.capacity);
        for (what, most) in [("its `max`", rule.max), ("the capacity", Some(capacity))] {
            if let Some(most) = most.filter(|most| *most < min) {
                return Err(ClientRuleError::TooMuch { pattern: pattern(), min, what, most });
            }
        }
        let amounts =
            [("min", Some(min)), ("max", rule.max)].map(|(field, amount)| (field, amount.unwrap_or_default()));
        match amounts.into_iter().find(|(_, amount)| self.whole_units && *amount != amount.floor()) {
            Some((field, amount)) => Err(ClientRuleError::NotWhole { pattern: pattern(), field, amount }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_client_rules_are_refused() {
        let check = |kind, text: &str, change: fn(&mut Settings)| {
            let mut settings = Settings::new(kind, Amount::clamped(100.0));
            assert!(settings.clients.push(ClientRule::read(text).expect(text)));
            change(&mut settings);
            settings.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(AlgorithmKind::FairShare, "3 20 40 a", |_| {}), Ok(()));
        assert_eq!(check(AlgorithmKind::Static, "1 0 40 a", |_| {}), Ok(()));
        for (kind, text, change, says) in [
            (AlgorithmKind::PriorityPool, "1 0 4 a", (|_| {}) as fn(&mut Settings), "PRIORITY_POOL"),
            (AlgorithmKind::Static, "2 0 - a", |_| {}, "`weight`, but STATIC"),
            (AlgorithmKind::NoAlgorithm, "1 1 - a", |_| {}, "`min`, but NO_ALGORITHM"),
            (AlgorithmKind::FairShare, "1 50 40 a", |_| {}, "more than its `max` of 40"),
            (AlgorithmKind::FairShare, "1 101 - a", |_| {}, "more than the capacity of 100"),
            (AlgorithmKind::FairShare, "1 2.5 - a", |settings| settings.whole_units = true, "`min` of 2.5"),
            (AlgorithmKind::FairShare, "1 0 2.5 a", |settings| settings.whole_units = true, "`max` of 2.5"),
            (
                AlgorithmKind::FairShare,
                "1 2 - a",
                |settings| (settings.priority, settings.reserve) = (Priority::Strict, 0.1),
                "`reserve`",
            ),
        ] {
            let error = check(kind, text, change).expect_err(text);
            assert!(error.contains(says) && error.contains("`clients`"), "{error}");
        }
    }
}
