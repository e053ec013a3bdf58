//! What a template says about the resources that follow it, checked and in the core's own types.

use crate::{Amount, Kind, Millis, Priority, Reuse};

/// What a holder may use once its lease has ended unrenewed and the server cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SafeCapacity {
    /// The capacity divided by the clients that are known now.
    #[default]
    Dynamic,
    /// Always so much.
    Fixed(Amount),
    /// No limit: −1 on the wire.
    Unlimited,
}

/// How a resource is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much there is. For a node with a parent: what the parent's lease says.
    pub capacity: Amount,
    /// The algorithm.
    pub kind: Kind,
    /// How long leases last.
    pub lease: Millis,
    /// How soon holders should ask again.
    pub refresh: Millis,
    /// How long a new master listens before it divides; absent: one lease length.
    pub learning: Option<Millis>,
    /// What to use when the server is gone.
    pub safe_capacity: SafeCapacity,
    /// Whether bands of higher priority go first.
    pub priority: Priority,
    /// The highest priority a client may claim for itself.
    pub max_priority: Option<i16>,
    /// When freed capacity may be given to somebody else.
    pub reuse: Reuse,
    /// A second request of one holder sooner than this is ignored. Zero: none is.
    pub min_request_interval: Millis,
}

impl Settings {
    /// The lease length where a template gives none.
    pub const DEFAULT_LEASE: Millis = Millis::from_secs(60);
    /// The refresh interval where a template gives none.
    pub const DEFAULT_REFRESH: Millis = Millis::from_secs(16);
    /// The minimum request interval where a template gives none.
    pub const DEFAULT_MIN_REQUEST_INTERVAL: Millis = Millis::from_secs(5);

    /// The design document's defaults for an algorithm and a capacity.
    pub fn new(kind: Kind, capacity: Amount) -> Settings {
        Settings {
            capacity,
            kind,
            lease: Self::DEFAULT_LEASE,
            refresh: Self::DEFAULT_REFRESH,
            learning: None,
            safe_capacity: SafeCapacity::default(),
            priority: Priority::default(),
            max_priority: None,
            reuse: Reuse::default(),
            min_request_interval: Self::DEFAULT_MIN_REQUEST_INTERVAL,
        }
    }

    /// What a resource that no template matches gets: its requests are honoured as they come.
    pub fn unmatched() -> Settings {
        Settings::new(Kind::NoAlgorithm, Amount::ZERO)
    }

    /// How long learning mode lasts.
    pub fn learning_length(&self) -> Millis {
        self.learning.unwrap_or(self.lease)
    }
}
