//! The settings of a resource, as a template gives them: checked, in the types of the core.

mod algorithm;
mod check;
mod pool;
mod words;

pub use self::{
    algorithm::{AlgorithmKind, Priority},
    check::SettingsError,
    pool::{CostWeights, DropMode, FreeKey, PoolSettings, RaiseMode},
    words::FieldChange,
};
use crate::{
    policy::client_rules::ClientRules,
    types::{Amount, Claim, HolderKind, Millis, certain_end},
};

/// When capacity freed by a shrink may be given to another holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Reuse {
    /// When the holder has confirmed the smaller lease, or its older leases have ended. Holders never believe in more
    /// than there is.
    #[default]
    Confirmed,
    /// As soon as it is decided, as in Doorman: a refresh faster, but a client uses its old lease until the answer
    /// arrives.
    Prompt,
}

/// Safe capacity: what a holder may use after its lease has ended while no server can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SafeCapacity {
    /// The capacity divided by the clients that are known now.
    #[default]
    Dynamic,
    Fixed(Amount),
    /// No limit: −1 on the wire.
    Unlimited,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much there is. For a node with a parent: what the parent's lease says.
    pub capacity: Amount,
    pub kind: AlgorithmKind,
    pub lease: Millis,
    pub refresh: Millis,
    /// How long a new master listens before it divides; absent: one lease length.
    pub learning: Option<Millis>,
    pub safe_capacity: SafeCapacity,
    /// Whether bands of higher priority go first, or count for more.
    pub priority: Priority,
    /// The part of the capacity that all bands share, where bands of higher priority go first.
    pub reserve: f64,
    /// The highest priority a client may claim for itself.
    pub max_priority: Option<i16>,
    /// What counts for priority 1 in the report of a child node that speaks only the original protocol: Doorman's
    /// servers report all of their clients at 1.
    pub doorman_priority: i16,
    /// When freed capacity may be given to another holder.
    pub reuse: Reuse,
    /// The part of the unclaimed capacity that is lent to child nodes, so that they can answer a spike at once.
    pub headroom: f64,
    /// The refresh interval of the holders of a child node, as a part of its own: 0.5 is twice as often.
    pub decay_factor: f64,
    /// All clients get what they want; what they would have been given is only reported.
    pub shadow: bool,
    /// Only whole units are given out; what is left over goes round.
    pub whole_units: bool,
    /// How long a round of that lasts; absent: eight refresh intervals.
    pub rotation_period: Option<Millis>,
    /// A second request of one holder sooner than this is ignored. Zero: none is.
    pub min_request_interval: Millis,
    /// Between what reports of load may move the capacity; absent: the capacity itself.
    pub load_bounds: (Option<Amount>, Option<Amount>),
    pub pool: PoolSettings,
    pub clients: ClientRules,
}

impl Settings {
    pub const DEFAULT_LEASE: Millis = Millis::from_secs(60);
    pub const DEFAULT_REFRESH: Millis = Millis::from_secs(5);
    pub const DEFAULT_DECAY_FACTOR: f64 = 0.5;
    /// The refresh interval decays no further.
    const MIN_REFRESH: Millis = Millis::from_secs(1);
    pub const DEFAULT_MIN_REQUEST_INTERVAL: Millis = Millis::from_secs(5);

    /// The design document's defaults for an algorithm and a capacity.
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
            clients: ClientRules::default(),
        }
    }

    /// The settings of a resource that no template matches: every request is granted.
    pub fn unmatched() -> Settings {
        let unmatched = Settings::new(AlgorithmKind::NoAlgorithm, Amount::ZERO);
        // Clients that get what they want while the server is there are not cut off when it is gone.
        Settings { safe_capacity: SafeCapacity::Unlimited, ..unmatched }
    }

    /// How long a holder keeps a left-over unit. A unit is idle from when its holder has to give it up until the next
    /// one has it, about a refresh interval: the longer the period, the smaller that cost.
    pub fn rotation(&self) -> Millis {
        self.rotation_period.unwrap_or(Millis(self.refresh.0.saturating_mul(8))).max(Millis(1000))
    }

    pub fn shares(&self) -> bool {
        self.kind.divides() && !self.shadow
    }

    /// Notes on the claim of a client which rule it is under.
    pub(crate) fn put_rule(&self, kind: HolderKind, id: &str, claims: &mut [Claim]) {
        let rule = if kind == HolderKind::Client { self.clients.number_of(id) } else { None };
        claims.iter_mut().for_each(|claim| claim.rule = rule);
    }

    /// Whether minimums of clients are set aside.
    pub(crate) fn heeds_minimums(&self) -> bool {
        self.kind.is_indexed() && self.reserve == 0.0 && self.clients.have_minimums()
    }

    /// The settings at a child node: its clients refresh more often than it does itself. In whole seconds, as on the
    /// wire.
    pub fn of_child(self) -> Settings {
        let decayed = Millis::from_secs((self.refresh.0 as f64 * self.decay_factor / 1000.0) as u64);
        Settings { refresh: decayed.max(Self::MIN_REFRESH).min(self.refresh), ..self }
    }

    /// How long learning mode lasts, as people write it.
    pub fn learning_length(&self) -> Millis {
        self.learning.unwrap_or(self.lease)
    }

    /// When a master that began at `since` ends learning. By default when no lease of its predecessors can be believed
    /// any more.
    pub fn learning_until(&self, since: Millis) -> Millis {
        self.learning.map_or_else(|| self.last_lease_over(since), |learning| since.plus(learning))
    }

    /// When a lease given at `given` is over at every holder that keeps the rules.
    pub fn last_lease_over(&self, given: Millis) -> Millis {
        certain_end(given, self.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_ends_when_no_older_lease_can_be_believed_unless_the_template_says_sooner() {
        let mut settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        // 60 s, a second for the rounding of the wire, one part in a thousand for slow clocks.
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
