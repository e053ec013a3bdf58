//! Claims: what holders want.

use std::num::NonZeroU8;

use smallvec::SmallVec;

use crate::types::amount::Amount;

/// The number of the client rule that applies to a claim: its position in the list, from one.
pub type RuleNumber = NonZeroU8;

/// The total wants of similar clients. A plain client has one claim of one subclient; a child node has several.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    pub wants: Amount,
    /// The number of clients that it stands for, at least one.
    pub subclients: u32,
    /// Larger priorities go first, if the algorithm uses priorities. Values beyond `i16` are clamped.
    pub priority: i16,
    /// The client rule that applies. Child nodes apply rules before they report claims.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub rule: Option<RuleNumber>,
    /// Whether this claim is a minimum: the part of the wants in the other claims of this child node that it must get.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub is_minimum: bool,
}

impl Claim {
    /// The maximum number of clients that one claim may stand for.
    pub const MAX_SUBCLIENTS: u32 = 1_000_000_000;

    pub const fn new(wants: Amount, subclients: u32, priority: i16) -> Claim {
        Claim { wants, subclients, priority, rule: None, is_minimum: false }
    }

    pub fn of_client(wants: Amount, priority: i64) -> Claim {
        Claim::new(wants, 1, clamp_priority(priority))
    }

    /// The same claim as a minimum.
    pub fn as_minimum(self) -> Claim {
        Claim { is_minimum: true, ..self }
    }
}

/// Clamps a priority from the wire, which has 64 bits.
pub fn clamp_priority(priority: i64) -> i16 {
    priority.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// A holder's claims. One for a plain client, without a heap allocation.
pub type Claims = SmallVec<[Claim; 1]>;

/// The maximum number of slices in a report to a parent, over all bands.
pub(crate) const MAX_SLICES: usize = 256;

/// The claims without minimums, which are parts of the others.
pub(crate) fn wanted(claims: &[Claim]) -> impl Iterator<Item = &Claim> {
    claims.iter().filter(|claim| !claim.is_minimum)
}

/// The number of claims beyond the first.
pub(crate) fn further(claims: &Claims) -> usize {
    claims.len().saturating_sub(1)
}

/// A plain client, or a node that asks for the clients below it. Stored as whether it is a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "bool", into = "bool"))]
pub enum HolderKind {
    /// Asked with GetCapacity.
    Client,
    /// Asked with GetServerCapacity.
    Node,
}

impl From<bool> for HolderKind {
    fn from(is_node: bool) -> HolderKind {
        if is_node { HolderKind::Node } else { HolderKind::Client }
    }
}

impl From<HolderKind> for bool {
    fn from(kind: HolderKind) -> bool {
        kind == HolderKind::Node
    }
}
