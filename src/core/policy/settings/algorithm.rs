//! Algorithms and priority modes.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AlgorithmKind {
    /// Every client gets what it wants, regardless of the capacity.
    NoAlgorithm,
    /// Every client gets what it wants, up to the capacity, which applies to each client separately.
    Static,
    /// If wants exceed the capacity, each client gets an equal share, and the remainder is divided in proportion to
    /// unmet wants.
    ProportionalShare,
    /// Max-min fairness: no client can get more without taking from a client that has less.
    FairShare,
    /// Priority clients get their assignments, and free clients the minimum capacity. See [`crate::pool`].
    PriorityPool,
    /// The capacity is an amount that may be spent in each period. Holders get it in slices, first come, first served.
    /// See [`crate::resource::budget`].
    Budget,
}

impl AlgorithmKind {
    /// In the order of their wire numbers.
    pub const ALL: [AlgorithmKind; 6] = [
        AlgorithmKind::NoAlgorithm,
        AlgorithmKind::Static,
        AlgorithmKind::ProportionalShare,
        AlgorithmKind::FairShare,
        AlgorithmKind::PriorityPool,
        AlgorithmKind::Budget,
    ];

    /// The number on the wire and in configuration files.
    pub fn number(self) -> i32 {
        match self {
            AlgorithmKind::NoAlgorithm => 0,
            AlgorithmKind::Static => 1,
            AlgorithmKind::ProportionalShare => 2,
            AlgorithmKind::FairShare => 3,
            // Numbers from 100 are Leaseway's extensions.
            AlgorithmKind::PriorityPool => 100,
            AlgorithmKind::Budget => 101,
        }
    }

    pub fn from_number(number: i32) -> Option<AlgorithmKind> {
        AlgorithmKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    pub fn name(self) -> &'static str {
        match self {
            AlgorithmKind::NoAlgorithm => "NO_ALGORITHM",
            AlgorithmKind::Static => "STATIC",
            AlgorithmKind::ProportionalShare => "PROPORTIONAL_SHARE",
            AlgorithmKind::FairShare => "FAIR_SHARE",
            AlgorithmKind::PriorityPool => "PRIORITY_POOL",
            AlgorithmKind::Budget => "BUDGET",
        }
    }

    /// Whether all holders share one capacity.
    pub fn divides(self) -> bool {
        !matches!(self, AlgorithmKind::NoAlgorithm | AlgorithmKind::Static)
    }

    /// Whether dues are computed from the claims alone, which requires an index of the claims.
    pub(crate) fn is_indexed(self) -> bool {
        matches!(self, AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare)
    }
}

/// How priorities take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    /// Priorities have no effect, as in Doorman.
    #[default]
    Ignore,
    /// Each band gets what the bands above it leave, and its share of the reserve.
    Strict,
    /// A client of priority 3 counts as three clients. Priorities below 1 count as 1.
    Weighted,
}

impl Priority {
    pub const ALL: [Priority; 3] = [Priority::Ignore, Priority::Strict, Priority::Weighted];

    pub fn name(self) -> &'static str {
        match self {
            Priority::Ignore => "ignore",
            Priority::Strict => "strict",
            Priority::Weighted => "weighted",
        }
    }
}
