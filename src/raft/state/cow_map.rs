//! A sorted copy-on-write map. A clone shares all parts with the original, and a later change copies only the part that
//! it touches. So cloning the state for a snapshot takes microseconds, and the clone is encoded while the original
//! changes. Parts are sorted vectors, because there may be a million entries, and nodes of a tree are half empty.

use std::{borrow::Borrow, sync::Arc};

/// A part of this length is split before an insertion, so that copying a part takes microseconds.
const MAX_PART_LEN: usize = 128;

type Part<K, V> = Vec<(K, V)>;

/// The parts are sorted and never empty.
#[derive(Debug, Clone)]
pub(crate) struct CowMap<K, V>(Vec<Arc<Part<K, V>>>);

impl<K, V> Default for CowMap<K, V> {
    fn default() -> CowMap<K, V> {
        CowMap(Vec::new())
    }
}

fn position<K: Borrow<Q>, V, Q: Ord + ?Sized>(part: &[(K, V)], key: &Q) -> Result<usize, usize> {
    part.binary_search_by(|(known, _)| known.borrow().cmp(key))
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of the part that holds the key if the map does.
    fn part_index<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let begins_behind = |part: &Arc<Part<K, V>>| part.first().is_none_or(|(first, _)| first.borrow() > key);
        self.0.partition_point(|part| !begins_behind(part)).saturating_sub(1)
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let part = self.0.get(self.part_index(key))?;
        position(part, key).ok().map(|at| &part[at].1)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let index = self.part_index(key);
        // A missing key must not cause a copy.
        let at = position(self.0.get(index)?, key).ok()?;
        Some(&mut Arc::make_mut(&mut self.0[index])[at].1)
    }

    /// Returns the value that was replaced.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.part_of(&key) {
            (part, Ok(at)) => Some(std::mem::replace(&mut part[at].1, value)),
            (part, Err(at)) => {
                part.insert(at, (key, value));
                None
            }
        }
    }

    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let (part, at) = self.part_of(&key);
        let at = at.unwrap_or_else(|at| {
            part.insert(at, (key, V::default()));
            at
        });
        &mut part[at].1
    }

    /// The part that the key belongs to, with room for one more, and the position of the key in it.
    fn part_of(&mut self, key: &K) -> (&mut Part<K, V>, Result<usize, usize>) {
        let mut index = self.part_index(key);
        if self.0.is_empty() {
            self.0.push(Arc::default());
        }
        if self.0[index].len() >= MAX_PART_LEN {
            let part = Arc::make_mut(&mut self.0[index]);
            let behind = part.split_off(MAX_PART_LEN / 2);
            part.shrink_to_fit();
            let belongs_behind = *key >= behind[0].0;
            self.0.insert(index + 1, Arc::new(behind));
            index += usize::from(belongs_behind);
        }
        let part = Arc::make_mut(&mut self.0[index]);
        let at = position(part, key);
        (part, at)
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.part_index(key);
        let at = position(self.0.get(index)?, key).ok()?;
        let part = Arc::make_mut(&mut self.0[index]);
        let (_, removed) = part.remove(at);
        if part.is_empty() {
            self.0.remove(index);
        }
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flat_map(|part| part.iter().map(|(key, value)| (key, value)))
    }

    /// The entries from `key` on.
    pub(crate) fn from<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        let parts = self.0.iter().skip(self.part_index(key));
        let entries = parts.flat_map(|part| part.iter().map(|(key, value)| (key, value)));
        entries.skip_while(move |(known, _)| (*known).borrow() < key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn a_cow_map_equals_the_model_and_its_clones_do_not_change(
            steps in prop::collection::vec((0_u8..4, 0_u16..2000), 0..4000), copy_at in 0_usize..4000,
        ) {
            let (mut parts, mut map) = (CowMap::default(), BTreeMap::new());
            let mut copy = None;
            for (step, (what, key)) in steps.into_iter().enumerate() {
                if step == copy_at {
                    copy = Some((parts.clone(), map.clone()));
                }
                match what {
                    0 => prop_assert_eq!(parts.remove(&key), map.remove(&key)),
                    1 => prop_assert_eq!(parts.get_mut(&key).map(|value| std::mem::replace(value, step)),
                        map.get_mut(&key).map(|value| std::mem::replace(value, step))),
                    _ => prop_assert_eq!(parts.insert(key, step), map.insert(key, step)),
                }
                prop_assert_eq!(parts.get(&key), map.get(&key));
                prop_assert!(parts.from(&key).take(3).eq(map.range(key..).take(3)));
            }
            prop_assert!(parts.iter().eq(map.iter()) && parts.is_empty() == map.is_empty());
            prop_assert!(parts.0.iter().all(|part| !part.is_empty() && part.len() <= MAX_PART_LEN));
            if let Some((parts, map)) = copy {
                prop_assert!(parts.iter().eq(map.iter()));
            }
        }
    }
}
