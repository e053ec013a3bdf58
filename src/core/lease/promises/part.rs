//! Part of a total that is known to end before the rest.

use crate::types::{
    amount::{Amount, Sum},
    cluster_clock::ClusterTime,
    token::Token,
};

/// At most this many are kept of a resource; the two with the closest ends become one beyond that.
const MOST: usize = 8;

/// Part of a total that ends before the rest: what earlier masters promised and no holder has named yet.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// The last of its leases has ended then.
    pub until: ClusterTime,
    /// They are leases below this one.
    pub before: Token,
    /// How much it is at least.
    pub amount: Amount,
}

/// Keeps the number of parts bounded. A part that ends later than it has to errs on the safe side.
pub(crate) fn merge(parts: &mut Vec<Part>) {
    while parts.len() > MOST {
        let gap = |place: &usize| parts[place + 1].until.since(parts[*place].until);
        let Some(closest) = (0..parts.len() - 1).min_by_key(gap) else { return };
        let sooner = parts.remove(closest);
        parts[closest].amount = [parts[closest].amount, sooner.amount].into_iter().collect::<Sum>().floor();
    }
}
