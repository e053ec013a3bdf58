//! A sorted copy-on-write map. A clone shares all parts with the original, and a later change copies only the part that
//! it touches. So cloning the state for a snapshot takes microseconds, and the clone is encoded while the original
//! changes.

use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

/// A part of this length is split before an insertion, so that copying a part takes microseconds.
const MAX_PART_LEN: usize = 256;

/// The parts are sorted and never empty.
#[derive(Debug, Clone)]
pub(crate) struct CowMap<K, V>(Vec<Arc<BTreeMap<K, V>>>);

impl<K, V> Default for CowMap<K, V> {
    fn default() -> CowMap<K, V> {
        CowMap(Vec::new())
    }
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
        let begins_behind = |part: &Arc<BTreeMap<K, V>>| part.keys().next().is_none_or(|first| first.borrow() > key);
        self.0.partition_point(|part| !begins_behind(part)).saturating_sub(1)
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(self.part_index(key))?.get(key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let index = self.part_index(key);
        // A missing key must not cause a copy.
        self.0.get(index)?.contains_key(key).then_some(())?;
        Arc::make_mut(&mut self.0[index]).get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.part_of(&key).insert(key, value);
    }

    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.part_of(&key).entry(key).or_default()
    }

    /// The part that the key belongs to, with room for one more.
    fn part_of(&mut self, key: &K) -> &mut BTreeMap<K, V> {
        let mut index = self.part_index(key);
        if self.0.is_empty() {
            self.0.push(Arc::default());
        }
        if self.0[index].len() >= MAX_PART_LEN {
            let part = Arc::make_mut(&mut self.0[index]);
            let middle = part.keys().nth(MAX_PART_LEN / 2).cloned().expect("the part has more keys");
            let behind = part.split_off(&middle);
            self.0.insert(index + 1, Arc::new(behind));
            index += usize::from(*key >= middle);
        }
        Arc::make_mut(&mut self.0[index])
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.part_index(key);
        self.0.get(index)?.contains_key(key).then_some(())?;
        let part = Arc::make_mut(&mut self.0[index]);
        let removed = part.remove(key);
        if part.is_empty() {
            self.0.remove(index);
        }
        removed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flat_map(|part| part.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
                    _ => {
                        parts.insert(key, step);
                        map.insert(key, step);
                    }
                }
                prop_assert_eq!(parts.get(&key), map.get(&key));
            }
            prop_assert!(parts.iter().eq(map.iter()) && parts.is_empty() == map.is_empty());
            prop_assert!(parts.0.iter().all(|part| !part.is_empty() && part.len() <= MAX_PART_LEN));
            if let Some((parts, map)) = copy {
                prop_assert!(parts.iter().eq(map.iter()));
            }
        }
    }
}
