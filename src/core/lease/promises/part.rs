//! A part of a total that is known to end before the rest.

use crate::types::{
    amount::{Amount, Sum},
    cluster_clock::ClusterTime,
    token::Token,
};

/// The maximum number of parts of a resource. Beyond it the two with the closest ends become one.
const MAX_PARTS: usize = 8;

/// A part of a total that ends before the rest: what earlier masters promised and nobody has claimed yet.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// The end of the last of its leases.
    pub until: ClusterTime,
    /// All of them have tokens below this one.
    pub before: Token,
    /// A lower bound.
    pub amount: Amount,
}

/// Bounds the number of parts. A part may end later than it has to, which is safe.
pub(crate) fn merge(parts: &mut Vec<Part>) {
    while parts.len() > MAX_PARTS {
        let gap = |place: &usize| parts[place + 1].until.since(parts[*place].until);
        let Some(closest) = (0..parts.len() - 1).min_by_key(gap) else { return };
        let sooner = parts.remove(closest);
        parts[closest].amount = [parts[closest].amount, sooner.amount].into_iter().collect::<Sum>().floor();
    }
}
