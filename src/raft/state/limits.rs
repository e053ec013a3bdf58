//! Limits: the capacities that operators have set for single resources. They replace the capacities of templates.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::types::Amount;

use super::cow_map::CowMap;
use crate::log::command::LimitChanges;

/// Maximum number of limits in one command of a snapshot or backup.
const MAX_CHANGES: usize = 4096;

/// The capacity of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub capacity: Amount,
    /// Seconds since the Unix epoch, for people.
    pub at_unix: i64,
    /// The operator, for people. Shared by the limits that were set together.
    pub by: Arc<str>,
}

/// All limits by resource id.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    by_resource: CowMap<Arc<str>, Limit>,
    len: usize,
}

impl Limits {
    pub fn get(&self, resource: &str) -> Option<&Limit> {
        self.by_resource.get(resource)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The limits of resources whose ids begin with `prefix`, in the order of their ids, after the id `after`.
    pub fn page<'a>(&'a self, prefix: &'a str, after: &'a str) -> impl Iterator<Item = (&'a Arc<str>, &'a Limit)> {
        let all = self.by_resource.from(prefix.max(after)).filter(move |(resource, _)| &***resource > after);
        all.take_while(move |(resource, _)| resource.starts_with(prefix))
    }

    pub(crate) fn apply(&mut self, changes: &LimitChanges) {
        let LimitChanges { limits, at_unix, by } = changes;
        for (resource, capacity) in limits {
            let was_known = match capacity {
                Some(capacity) => {
                    let limit = Limit { capacity: *capacity, at_unix: *at_unix, by: Arc::clone(by) };
                    self.by_resource.insert(Arc::clone(resource), limit).is_some()
                }
                None => self.by_resource.remove(&**resource).is_some(),
            };
            self.len = self.len + usize::from(capacity.is_some()) - usize::from(was_known);
        }
    }

    /// The changes that lead from no limits to these.
    pub(crate) fn record(&self) -> Vec<LimitChanges> {
        let mut by_origin: BTreeMap<(i64, &Arc<str>), Vec<_>> = BTreeMap::new();
        for (resource, Limit { capacity, at_unix, by }) in self.by_resource.iter() {
            by_origin.entry((*at_unix, by)).or_default().push((Arc::clone(resource), Some(*capacity)));
        }
        let commands = |((at_unix, by), limits): ((i64, &Arc<str>), Vec<_>)| {
            let changes = |limits: &[_]| LimitChanges { limits: limits.to_vec(), at_unix, by: Arc::clone(by) };
            limits.chunks(MAX_CHANGES).map(changes).collect::<Vec<_>>()
        };
        by_origin.into_iter().flat_map(commands).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(limits: &[(&str, Option<f64>)], at_unix: i64) -> LimitChanges {
        let amount = |amount: &Option<f64>| amount.map(Amount::clamped);
        let limits = limits.iter().map(|(resource, capacity)| ((*resource).into(), amount(capacity))).collect();
        LimitChanges { limits, at_unix, by: "ada".into() }
    }

    #[test]
    fn limits_are_set_replaced_removed_and_restored() {
        let mut limits = Limits::default();
        limits.apply(&changes(&[("a", Some(1.0)), ("t/b", Some(2.0)), ("t/c", Some(3.0)), ("u", Some(4.0))], 5));
        limits.apply(&changes(&[("a", None), ("t/c", Some(9.0)), ("unknown", None), ("t/d", Some(0.0))], 6));
        let page = |prefix: &str, after: &str| {
            let page = limits.page(prefix, after).map(|(resource, limit)| (resource.to_string(), limit.capacity.get()));
            page.collect::<Vec<_>>()
        };
        let [b, c, d, u] =
            [("t/b", 2.0), ("t/c", 9.0), ("t/d", 0.0), ("u", 4.0)].map(|(id, capacity)| (id.to_owned(), capacity));
        assert_eq!(page("", ""), [b.clone(), c.clone(), d.clone(), u.clone()]);
        assert_eq!(page("t/", ""), [b, c.clone(), d.clone()]);
        assert_eq!(page("t/", "t/b"), [c, d]);
        assert_eq!(page("", "t/d"), std::slice::from_ref(&u));
        assert_eq!(page("u", ""), [u]);
        assert_eq!((page("x", ""), limits.len()), (vec![], 4));
        let mut restored = Limits::default();
        limits.record().iter().for_each(|changes| restored.apply(changes));
        assert!(restored.page("", "").eq(limits.page("", "")) && restored.len() == 4);
    }
}
