//! Assignments: the capacity of priority clients, connected or not. They are set from outside and outlive the pool.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use crate::types::{Amount, HolderKind, Sum};

/// Maximum number of assignments in one pool.
const MAX_ASSIGNMENTS: usize = 100_000;
/// Maximum number of pending cost marks.
const MAX_MARKS: usize = 10_000;

/// The assignment of a holder.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Assigned {
    #[cfg_attr(feature = "serde", serde(rename = "amount"))]
    Capacity(Amount),
    /// A fraction of the total, from 0 to 1.
    #[cfg_attr(feature = "serde", serde(rename = "part"))]
    Share(f64),
}

impl Assigned {
    /// The assigned capacity for this total, at least the minimum capacity.
    pub(super) fn of(self, total: Amount, minimum: Amount) -> Amount {
        match self {
            Assigned::Capacity(amount) => amount.max(minimum),
            Assigned::Share(share) => Amount::clamped(total.get() * share).max(minimum),
        }
    }
}

/// Why an assignment is refused.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AssignError {
    #[error("this resource is not a PRIORITY_POOL: to assign capacity, set that algorithm in its template")]
    NoPool,
    #[error(
        "{capacity} is less than the pool's `min_capacity` of {least}; assign at least {least}, or 0 to remove the \
         assignment"
    )]
    BelowMinimum { capacity: Amount, least: Amount },
    #[error("{share} is not a fraction of the total; expected more than 0 and at most 1")]
    BadShare { share: f64 },
    #[error(
        "{capacity} does not fit: all priority clients together would have {connected}, but the total is {total}; \
         assign less, or lower another assignment"
    )]
    OverTotal { capacity: Amount, connected: f64, total: Amount },
    #[error("the maximum of {MAX_ASSIGNMENTS} assignments is reached; remove one first")]
    TooMany,
    #[error("the maximum of {MAX_MARKS} pending cost alarms is reached; cancel one first")]
    TooManyMarks,
}

#[derive(Debug, Default)]
pub(super) struct Assignments {
    by_id: [BTreeMap<Arc<str>, Assigned>; 2],
    absolute: Sum,
    shares: Sum,
    marks: [BTreeMap<Arc<str>, f64>; 2],
}

impl Assignments {
    pub(super) fn get(&self, kind: HolderKind, id: &str) -> Option<Assigned> {
        self.by_id[kind as usize].get(id).copied()
    }

    /// Returns the earlier assignment.
    pub(super) fn set(&mut self, kind: HolderKind, id: &Arc<str>, assigned: Option<Assigned>) -> Option<Assigned> {
        let before = match assigned {
            Some(assigned) => {
                self.count(assigned, |sum, amount| *sum += amount);
                self.by_id[kind as usize].insert(Arc::clone(id), assigned)
            }
            None => self.by_id[kind as usize].remove(id),
        };
        if let Some(before) = before {
            self.count(before, |sum, amount| *sum -= amount);
        }
        before
    }

    fn count(&mut self, assigned: Assigned, count: impl FnOnce(&mut Sum, Amount)) {
        match assigned {
            Assigned::Capacity(amount) => count(&mut self.absolute, amount),
            Assigned::Share(share) => count(&mut self.shares, Amount::clamped(share)),
        }
    }

    /// Whether the maximum number of assignments is reached and this holder has none.
    pub(super) fn is_full(&self, kind: HolderKind, id: &str) -> bool {
        let [clients, nodes] = &self.by_id;
        clients.len() + nodes.len() >= MAX_ASSIGNMENTS && self.get(kind, id).is_none()
    }

    /// The sum of all assignments, connected or not. It may exceed the total.
    pub(super) fn sum(&self, total: Amount) -> Sum {
        let mut sum = self.absolute;
        sum += Amount::clamped(self.shares.get() * total.get());
        sum
    }

    /// The assignments after `from`, by kind and id.
    pub(super) fn after(
        &self,
        from: Option<&(HolderKind, Arc<str>)>,
    ) -> impl Iterator<Item = (HolderKind, &Arc<str>, Assigned)> {
        let begin = |kind: HolderKind| match from {
            Some((last, _)) if *last > kind => None,
            Some((last, id)) if *last == kind => Some(Bound::Excluded(Arc::clone(id))),
            _ => Some(Bound::Unbounded),
        };
        let ranges = [HolderKind::Client, HolderKind::Node].map(|kind| (kind, begin(kind)));
        ranges.into_iter().filter_map(|(kind, begin)| Some((kind, begin?))).flat_map(move |(kind, begin)| {
            let range = self.by_id[kind as usize].range::<Arc<str>, _>((begin, Bound::Unbounded));
            range.map(move |(id, assigned)| (kind, id, *assigned))
        })
    }

    pub(super) fn set_mark(&mut self, kind: HolderKind, id: &Arc<str>, mark: Option<f64>) -> Result<(), AssignError> {
        let taken: usize = self.marks.iter().map(BTreeMap::len).sum();
        let marks = &mut self.marks[kind as usize];
        match mark {
            Some(_) if taken >= MAX_MARKS && !marks.contains_key(id) => return Err(AssignError::TooManyMarks),
            Some(mark) => drop(marks.insert(Arc::clone(id), mark)),
            None => drop(marks.remove(id)),
        }
        Ok(())
    }

    /// Whether `cost` reaches the mark of this holder. The mark is then removed.
    pub(super) fn passes_mark(&mut self, kind: HolderKind, id: &str, cost: f64) -> bool {
        let marks = &mut self.marks[kind as usize];
        let passed = marks.get(id).is_some_and(|mark| cost >= *mark);
        if passed {
            marks.remove(id);
        }
        passed
    }

    pub(super) fn bytes(&self) -> usize {
        let entries: usize = self.by_id.iter().map(BTreeMap::len).sum();
        let marks: usize = self.marks.iter().map(BTreeMap::len).sum();
        entries * size_of::<(Arc<str>, Assigned)>() + marks * size_of::<(Arc<str>, f64)>()
    }
}
