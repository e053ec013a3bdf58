//! Claims: what holders want.

use smallvec::SmallVec;

use crate::Amount;

/// What similar clients want together. A plain client has one claim of one subclient, a child node has several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// The clients' total.
    pub wants: Amount,
    /// How many clients it counts for; at least one.
    pub subclients: u32,
    /// Larger goes first, where the algorithm heeds it. Claims beyond `i16` count as the nearest.
    pub priority: i16,
}

impl Claim {
    /// The most clients one claim may stand for.
    pub const MAX_SUBCLIENTS: u32 = 1_000_000_000;

    /// The claim of a plain client.
    pub fn of_client(wants: Amount, priority: i64) -> Claim {
        Claim { wants, subclients: 1, priority: clamp_priority(priority) }
    }
}

/// The wire carries 64 bits of priority, a claim 16: what is beyond counts as the nearest.
pub fn clamp_priority(priority: i64) -> i16 {
    priority.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// A holder's claims. One for a plain client, without a heap allocation.
pub type Claims = SmallVec<[Claim; 1]>;

/// A plain client, or a node that asks for the clients below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HolderKind {
    /// Asked with GetCapacity.
    Client,
    /// Asked with GetServerCapacity.
    Node,
}
