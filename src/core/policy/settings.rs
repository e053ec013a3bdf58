//! The validated settings of a resource.

mod algorithm;
mod budget;
mod check;
mod field_changes;
mod pool;

use std::sync::Arc;

pub use self::{
    algorithm::{AlgorithmKind, Priority},
    budget::BudgetSettings,
    check::SettingsError,
    field_changes::FieldChange,
    pool::{CostWeights, DropMode, FreeKey, PoolSettings, RaiseMode},
};
use crate::{
    policy::{client_rules::ClientRules, groups::GroupSettings},
    types::{Amount, Claim, HolderKind, Millis, certain_end},
};

/// When capacity freed by a shrink may be given to another holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Reuse {
    /// After the holder has confirmed the smaller lease, or its older leases have expired. The leases that holders
    /// believe in never exceed the capacity.
    #[default]
    Confirmed,
    /// Immediately, as in Doorman. This is one refresh faster, but a client uses its old lease until the answer
    /// arrives, so usage may briefly exceed the capacity.
    Prompt,
}

/// Safe capacity: how much a holder may use after its lease has expired while no server can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SafeCapacity {
    /// The capacity divided by the number of known clients.
    #[default]
    Dynamic,
    Fixed(Amount),
    /// No limit; −1 on the wire.
    Unlimited,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The capacity to share. Below a parent, the capacity of the parent's lease.
    pub capacity: Amount,
    pub kind: AlgorithmKind,
    pub lease: Millis,
    pub refresh: Millis,
    /// The length of learning mode; absent: one lease length.
    pub learning: Option<Millis>,
    pub safe_capacity: SafeCapacity,
    pub priority: Priority,
    /// The fraction of the capacity that all bands share under [`Priority::Strict`].
    pub reserve: f64,
    /// The highest priority that a client may claim.
    pub max_priority: Option<i16>,
    /// The priority of clients below a Doorman server, which reports all of its clients at priority 1.
    pub doorman_priority: i16,
    pub reuse: Reuse,
    /// The fraction of the unclaimed capacity that is lent to child nodes in advance, so that they can serve spikes
    /// immediately.
    pub headroom: f64,
    /// The refresh interval of a child node's holders, relative to the node's own.
    pub decay_factor: f64,
    /// Shadow mode: clients get what they want, and the capacity they would have been granted is only reported.
    pub shadow: bool,
    /// Grants are whole units; left-over units rotate between holders.
    pub whole_units: bool,
    /// The length of one rotation; absent: eight refresh intervals.
    pub rotation_period: Option<Millis>,
    /// A holder's request is ignored if it arrives sooner than this after the previous one. Zero: never.
    pub min_request_interval: Millis,
    /// The minimum and maximum capacity that load reports may set; absent: the configured capacity.
    pub load_bounds: (Option<Amount>, Option<Amount>),
    pub pool: PoolSettings,
    pub budget: BudgetSettings,
    pub clients: ClientRules,
    /// How clients are grouped; absent: all share directly.
    pub groups: Option<Arc<GroupSettings>>,
}

impl Settings {
    pub const DEFAULT_LEASE: Millis = Millis::from_secs(60);
    pub const DEFAULT_REFRESH: Millis = Millis::from_secs(5);
    pub const DEFAULT_DECAY_FACTOR: f64 = 0.5;
    /// The minimum refresh interval after decay.
    const MIN_REFRESH: Millis = Millis::from_secs(1);
    pub const DEFAULT_MIN_REQUEST_INTERVAL: Millis = Millis::from_secs(5);

    /// The refresh interval of a lease of this length: it is refreshed before it ends.
    pub(crate) fn refresh_within(&self, length: Millis) -> Millis {
        let latest = Millis(length.0.saturating_sub(1000).max(1000));
        if self.refresh < length { self.refresh } else { latest.min(self.refresh) }
    }

    /// The defaults of Doorman's design document.
    pub fn new(kind: AlgorithmKind, capacity: Amount) -> Settings {
        Settings {
            capacity,
            kind,
            lease: Self::DEFAULT_LEASE,
            refresh: Self::DEFAULT_REFRESH,
            learning: None,
            safe_capacity: SafeCapacity::default(),
            priority: Priority::default(),
            reserve: 0.0,
            max_priority: None,
            doorman_priority: 0,
            reuse: Reuse::default(),
            headroom: 0.0,
            shadow: false,
            whole_units: false,
            rotation_period: None,
            decay_factor: Self::DEFAULT_DECAY_FACTOR,
            min_request_interval: Self::DEFAULT_MIN_REQUEST_INTERVAL,
            load_bounds: (None, None),
            pool: PoolSettings::default(),
            budget: BudgetSettings::default(),
            clients: ClientRules::default(),
            groups: None,
        }
    }

    /// The settings of a resource without a template: every request is granted.
    pub fn unmatched() -> Settings {
        let unmatched = Settings::new(AlgorithmKind::NoAlgorithm, Amount::ZERO);
        // The capacity is unlimited while the server can be reached, so the safe capacity is, too.
        Settings { safe_capacity: SafeCapacity::Unlimited, ..unmatched }
    }

    /// How long a holder keeps a left-over unit. After each rotation the unit is idle for about a refresh interval, so
    /// a longer period wastes less capacity.
    pub fn rotation(&self) -> Millis {
        self.rotation_period.unwrap_or(Millis(self.refresh.0.saturating_mul(8))).max(Millis(1000))
    }

    pub fn shares(&self) -> bool {
        self.kind.divides() && !self.shadow
    }

    /// The algorithm that divides between holders. Of a budget with a pace, it divides what may be spent now.
    pub(crate) fn dividing_algorithm(&self) -> AlgorithmKind {
        if self.is_paced() { AlgorithmKind::FairShare } else { self.kind }
    }

    /// Whether it is a budget that is spread over its period.
    pub fn is_paced(&self) -> bool {
        self.is_budget() && self.budget.pace
    }

    pub fn is_budget(&self) -> bool {
        self.kind == AlgorithmKind::Budget
    }

    /// Stores the number of the matching client rule in each claim of a client.
    pub(crate) fn put_rule(&self, kind: HolderKind, id: &str, claims: &mut [Claim]) {
        let rule = if kind == HolderKind::Client { self.clients.number_of(id) } else { None };
        claims.iter_mut().for_each(|claim| claim.rule = rule);
    }

    /// Whether the division guarantees minimums to clients.
    pub(crate) fn heeds_minimums(&self) -> bool {
        self.kind.is_indexed() && self.reserve == 0.0 && self.clients.have_minimums()
    }

    /// The settings of a child node. Its holders refresh more often than the node itself, in whole seconds, as on the
    /// wire.
    pub fn of_child(&self) -> Settings {
        let decayed = Millis::from_secs((self.refresh.0 as f64 * self.decay_factor / 1000.0) as u64);
        let mut settings = Settings { refresh: decayed.max(Self::MIN_REFRESH).min(self.refresh), ..self.clone() };
        if settings.is_paced() {
            // The root spreads the amount and knows all groups.
            (settings.budget.pace, settings.groups) = (false, None);
        }
        settings
    }

    pub fn learning_length(&self) -> Millis {
        self.learning.unwrap_or(self.lease)
    }

    /// When a master that began at `since` ends learning mode. By default, when all leases of earlier masters have
    /// certainly expired.
    pub fn learning_until(&self, since: Millis) -> Millis {
        self.learning.map_or_else(|| self.last_lease_over(since), |learning| since.plus(learning))
    }

    /// When a lease granted at `given` has certainly expired at every honest holder.
    pub fn last_lease_over(&self, given: Millis) -> Millis {
        certain_end(given, self.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_ends_with_the_last_older_lease_or_as_configured() {
        let mut settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        // 60 s, one second for rounding on the wire, and a thousandth for slow clocks.
        assert_eq!(settings.learning_until(Millis(5)), Millis(61_065));
        settings.learning = Some(Millis::from_secs(2));
        assert_eq!(settings.learning_until(Millis(5)), Millis(2_005));
        assert_eq!(
            settings.last_lease_over(Millis(5)),
            Millis(61_065),
            "a shorter learning time does not shorten leases"
        );
    }
}
