//! The event queue, ordered by time. Events with equal times keep the order in which they were scheduled, which makes
//! runs reproducible to the bit.

use std::{cmp::Ordering, collections::BinaryHeap};

use leaseway_core::Millis;

pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

struct Entry<E> {
    at: Millis,
    sequence: u64,
    event: E,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::with_capacity(4096), sequence: 0 }
    }

    pub(crate) fn put(&mut self, at: Millis, event: E) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, event });
    }

    /// Takes the next event, if it is not after `until`.
    pub(crate) fn take(&mut self, until: Millis) -> Option<(Millis, E)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

// The heap has its maximum on top, so the order is reversed.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_in_the_order_in_which_it_was_put_there() {
        let mut queue = Queue::new();
        for (at, name) in [(7, "d"), (3, "a"), (5, "c"), (3, "b"), (7, "e"), (9, "later")] {
            queue.put(Millis(at), name);
        }
        let names: Vec<_> = std::iter::from_fn(|| queue.take(Millis(8))).map(|(_, name)| name).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
    }
}
