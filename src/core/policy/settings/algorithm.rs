//! The algorithms, and how they take priorities.

/// How a resource is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AlgorithmKind {
    /// Every client gets what it wants; the capacity is ignored.
    NoAlgorithm,
    /// Every client gets what it wants up to the capacity, which is per client.
    Static,
    /// What all want if it fits; else an equal share, and the remainder in proportion to unmet wants.
    ProportionalShare,
    /// Max-min fairness: no client can get more unless one that has less gets even less.
    FairShare,
    /// What is assigned to priority clients, and the least useful capacity to free clients, see [`crate::pool`].
    PriorityPool,
}

impl AlgorithmKind {
    /// All of them, in the order of their numbers on the wire.
    pub const ALL: [AlgorithmKind; 5] = [
        AlgorithmKind::NoAlgorithm,
        AlgorithmKind::Static,
        AlgorithmKind::ProportionalShare,
        AlgorithmKind::FairShare,
        AlgorithmKind::PriorityPool,
    ];

    /// Its number on the wire and in configuration files.
    pub fn number(self) -> i32 {
        match self {
            AlgorithmKind::NoAlgorithm => 0,
            AlgorithmKind::Static => 1,
            AlgorithmKind::ProportionalShare => 2,
            AlgorithmKind::FairShare => 3,
            // Our additions are numbered from 100.
            AlgorithmKind::PriorityPool => 100,
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
        }
    }

    /// Whether the capacity is one sum that all holders share.
    pub fn divides(self) -> bool {
        matches!(self, AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare | AlgorithmKind::PriorityPool)
    }

    /// Whether what is due follows from the claims alone, so that the claims must be indexed.
    pub(crate) fn is_indexed(self) -> bool {
        matches!(self, AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare)
    }
}

/// How priorities take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    /// Not at all, as in Doorman.
    #[default]
    Ignore,
    /// A band gets what the bands above it leave, and its part of the reserve.
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
