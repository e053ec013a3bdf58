//! Claims: what holders want.

use std::num::NonZeroU8;

use smallvec::SmallVec;

use crate::types::amount::Amount;

/// Which rule a client is under: its place in the list, counted from one.
pub type RuleNumber = NonZeroU8;

/// What similar clients want together. A plain client has one claim of one subclient, a child node has several.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    pub wants: Amount,
    /// How many clients it counts for; at least one.
    pub subclients: u32,
    /// Larger goes first, where the algorithm heeds it. Claims beyond `i16` count as the nearest.
    pub priority: i16,
    /// The rule that its client is under; child nodes apply the rules to what they report.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub rule: Option<RuleNumber>,
    /// A part of what other claims of the same child node want, which it is due at least: its clients' minimums.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub is_minimum: bool,
}

impl Claim {
    /// The most clients one claim may stand for.
    pub const MAX_SUBCLIENTS: u32 = 1_000_000_000;

    /// What some clients want.
    pub const fn new(wants: Amount, subclients: u32, priority: i16) -> Claim {
        Claim { wants, subclients, priority, rule: None, is_minimum: false }
    }

    /// The claim of a plain client.
    pub fn of_client(wants: Amount, priority: i64) -> Claim {
        Claim::new(wants, 1, clamp_priority(priority))
    }

    /// The same as a minimum.
    pub fn as_minimum(self) -> Claim {
        Claim { is_minimum: true, ..self }
    }
}

/// The wire carries 64 bits of priority, a claim 16: what is beyond counts as the nearest.
pub fn clamp_priority(priority: i64) -> i16 {
    priority.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// A holder's claims. One for a plain client, without a heap allocation.
pub type Claims = SmallVec<[Claim; 1]>;

/// And so many of all bands together.
pub(crate) const IN_ALL: usize = 256;

/// The claims but for minimums, which are parts of the others.
pub(crate) fn wanted(claims: &[Claim]) -> impl Iterator<Item = &Claim> {
    claims.iter().filter(|claim| !claim.is_minimum)
}

/// How many claims there are beyond the first.
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
