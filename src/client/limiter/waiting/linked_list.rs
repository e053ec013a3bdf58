//! A doubly linked queue in a slab: entries can leave from the middle in constant time.
//!
//! Unlinking an entry keeps its value, so a key stays valid until its owner removes it.

use slab::Slab;

/// The index of a value. Valid until the value is removed.
pub(super) type Key = usize;

/// An empty queue with more capacity than this frees its memory.
const RETAINED_CAPACITY: usize = 1024;

#[derive(Debug)]
struct Node<T> {
    value: T,
    before: Option<Key>,
    after: Option<Key>,
}

#[derive(Debug)]
pub(super) struct LinkedList<T> {
    entries: Slab<Node<T>>,
    front: Option<Key>,
    back: Option<Key>,
}

impl<T> LinkedList<T> {
    pub(super) fn new() -> LinkedList<T> {
        LinkedList { entries: Slab::new(), front: None, back: None }
    }

    pub(super) fn front(&self) -> Option<Key> {
        self.front
    }

    /// The entry behind a queued one.
    pub(super) fn after(&self, key: Key) -> Option<Key> {
        self.entries[key].after
    }

    pub(super) fn push_back(&mut self, value: T) -> Key {
        let key = self.entries.insert(Node { value, before: self.back, after: None });
        match self.back {
            Some(back) => self.entries[back].after = Some(key),
            None => self.front = Some(key),
        }
        self.back = Some(key);
        key
    }

    /// Unlinks an entry of the queue. Its value stays.
    pub(super) fn unlink(&mut self, key: Key) {
        let entry = &mut self.entries[key];
        let (before, after) = (entry.before.take(), entry.after.take());
        match before {
            Some(before) => self.entries[before].after = after,
            None => self.front = after,
        }
        match after {
            Some(after) => self.entries[after].before = before,
            None => self.back = before,
        }
    }

    pub(super) fn value(&mut self, key: Key) -> &mut T {
        &mut self.entries[key].value
    }

    /// Removes the value of an unlinked entry.
    pub(super) fn remove(&mut self, key: Key) -> T {
        let value = self.entries.remove(key).value;
        if self.entries.is_empty() && self.entries.capacity() > RETAINED_CAPACITY {
            self.entries = Slab::new();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn entries_can_leave_in_any_order(steps in proptest::collection::vec((0..3u8, any::<usize>()), 0..200)) {
            let mut queue = LinkedList::new();
            let mut oracle = VecDeque::new(); // of keys and values
            let mut unlinked = Vec::new(); // values not removed yet
            for (n, (step, pick)) in steps.into_iter().enumerate() {
                match step {
                    0 => oracle.push_back((queue.push_back(n), n)),
                    1 => {
                        if let Some((key, value)) = oracle.pop_front() {
                            queue.unlink(key);
                            unlinked.push((key, value));
                        }
                    }
                    _ if !oracle.is_empty() => {
                        let (key, value) = oracle.remove(pick % oracle.len()).unwrap();
                        queue.unlink(key);
                        prop_assert_eq!(queue.remove(key), value);
                    }
                    _ => {
                        for (key, value) in unlinked.drain(..) {
                            prop_assert_eq!(queue.remove(key), value);
                        }
                    }
                }
                prop_assert_eq!(queue.front(), oracle.front().map(|&(key, _)| key));
                for &(key, value) in oracle.iter().chain(&unlinked) {
                    prop_assert_eq!(*queue.value(key), value);
                }
            }
            // The remaining entries leave in order of arrival.
            while let Some(key) = queue.front() {
                queue.unlink(key);
                prop_assert_eq!(Some((key, queue.remove(key))), oracle.pop_front());
            }
            prop_assert!(oracle.is_empty());
        }
    }
}
