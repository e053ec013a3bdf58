//! Claims in the order of what they want per subclient, with sums over any prefix.
//!
//! Both sharing rules need one thing: "the sum of wants, and of subclients, of all claims below this ratio". Kept in a sorted
//! tree whose every branch knows the sums below it, a change costs one walk down and so does a question — whatever the
//! distribution of wants, also when all of them are nearly or exactly equal. (Buckets of wants, or a pointer that follows the
//! level, are cheaper on good days and a scan on bad ones.)
//!
//! A B+ tree: leaves hold keys and weights, branches hold sums. Sums are exact ([`Sum`]), so the tree's shape, and with it
//! the order of past updates, cannot be seen in any answer. A branch's `firsts` may lag behind after a removal (they stay
//! lower bounds), and only leaves are merged: a branch is dropped when it is empty.

use slab::Slab;

use crate::{Amount, Sum};

/// Entries of a leaf; a leaf is ten cache lines, read one after the other.
const LEAF: usize = 32;
/// Children of a branch.
const FAN: usize = 32;

/// Where a claim stands: by band, then by wants per subclient, then by whose it is (which makes it unique).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u128);

impl Key {
    const END: Key = Key(u128::MAX);

    pub(crate) fn new(band: i16, ratio: f64, slot: u32, ordinal: u16) -> Key {
        Key(Self::prefix(band, ratio) | u128::from(slot) << 16 | u128::from(ordinal))
    }

    /// Before every claim of the band.
    pub(crate) fn band_start(band: i16) -> Key {
        Key(Self::prefix(band, 0.0))
    }

    /// After every claim of the band.
    pub(crate) fn band_end(band: i16) -> Key {
        band.checked_add(1).map_or(Self::END, Self::band_start)
    }

    /// After every claim of the band that wants at most `ratio` per subclient.
    pub(crate) fn after(band: i16, ratio: f64) -> Key {
        Key(Self::prefix(band, ratio) + (1 << 48))
    }

    fn prefix(band: i16, ratio: f64) -> u128 {
        debug_assert!(ratio >= 0.0 && ratio.is_finite(), "a ratio of amounts");
        let biased = (band as u16) ^ 0x8000;
        // The bits of non-negative floats sort like the floats.
        u128::from(biased) << 112 | u128::from(ratio.to_bits()) << 48
    }

    fn ratio(self) -> f64 {
        f64::from_bits((self.0 >> 48) as u64)
    }
}

/// What a set of claims wants together, and how many subclients they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) wants: Sum,
    pub(crate) weight: u64,
}

impl Totals {
    fn of(key: Key, weight: u32) -> Totals {
        Totals { wants: Amount::clamped(key.ratio() * f64::from(weight)).into(), weight: weight.into() }
    }

    fn add(&mut self, other: Totals) {
        self.wants += other.wants;
        self.weight += other.weight;
    }

    fn take(&mut self, other: Totals) {
        self.wants -= other.wants;
        self.weight -= other.weight;
    }

    pub(crate) fn minus(mut self, other: Totals) -> Totals {
        self.take(other);
        self
    }
}

struct Leaf {
    len: usize,
    keys: [Key; LEAF],
    weights: [u32; LEAF],
}

impl Leaf {
    const EMPTY: Leaf = Leaf { len: 0, keys: [Key(0); LEAF], weights: [0; LEAF] };

    fn keys(&self) -> &[Key] {
        &self.keys[..self.len]
    }

    fn insert(&mut self, at: usize, key: Key, weight: u32) {
        self.keys.copy_within(at..self.len, at + 1);
        self.weights.copy_within(at..self.len, at + 1);
        self.keys[at] = key;
        self.weights[at] = weight;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.keys.copy_within(at + 1..self.len, at);
        self.weights.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    fn append(&mut self, other: &Leaf) {
        self.keys[self.len..self.len + other.len].copy_from_slice(other.keys());
        self.weights[self.len..self.len + other.len].copy_from_slice(&other.weights[..other.len]);
        self.len += other.len;
    }

    /// Moves the upper half into a leaf of its own.
    fn split(&mut self) -> Leaf {
        let mut right = Leaf::EMPTY;
        let half = self.len / 2;
        right.len = self.len - half;
        right.keys[..right.len].copy_from_slice(&self.keys[half..self.len]);
        right.weights[..right.len].copy_from_slice(&self.weights[half..self.len]);
        self.len = half;
        right
    }

    fn totals(&self, range: std::ops::Range<usize>) -> Totals {
        let mut totals = Totals::default();
        for at in range {
            totals.add(Totals::of(self.keys[at], self.weights[at]));
        }
        totals
    }
}

/// A leaf or a branch as its parent sees it.
#[derive(Clone, Copy)]
struct Child {
    first: Key,
    node: u32,
    totals: Totals,
}

struct Branch {
    len: usize,
    firsts: [Key; FAN],
    nodes: [u32; FAN],
    totals: [Totals; FAN],
}

impl Branch {
    fn empty() -> Branch {
        Branch { len: 0, firsts: [Key(0); FAN], nodes: [0; FAN], totals: [Totals::default(); FAN] }
    }

    /// The child that `key` belongs to.
    fn child_of(&self, key: Key) -> usize {
        self.firsts[..self.len].partition_point(|first| *first <= key).saturating_sub(1)
    }

    fn insert(&mut self, at: usize, child: Child) {
        self.firsts.copy_within(at..self.len, at + 1);
        self.nodes.copy_within(at..self.len, at + 1);
        self.totals.copy_within(at..self.len, at + 1);
        (self.firsts[at], self.nodes[at], self.totals[at]) = (child.first, child.node, child.totals);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.firsts.copy_within(at + 1..self.len, at);
        self.nodes.copy_within(at + 1..self.len, at);
        self.totals.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }

    fn split(&mut self) -> Branch {
        let mut right = Branch::empty();
        let half = self.len / 2;
        right.len = self.len - half;
        right.firsts[..right.len].copy_from_slice(&self.firsts[half..self.len]);
        right.nodes[..right.len].copy_from_slice(&self.nodes[half..self.len]);
        right.totals[..right.len].copy_from_slice(&self.totals[half..self.len]);
        self.len = half;
        right
    }

    fn sum(&self) -> Totals {
        let mut totals = Totals::default();
        for child in &self.totals[..self.len] {
            totals.add(*child);
        }
        totals
    }
}

/// The tree.
pub(crate) struct Index {
    leaves: Slab<Leaf>,
    branches: Slab<Branch>,
    root: u32,
    /// Branches between the root and a leaf; 0 when the root is a leaf.
    height: u32,
    totals: Totals,
}

impl Index {
    pub(crate) fn new() -> Index {
        let mut leaves = Slab::new();
        let root = leaves.insert(Leaf::EMPTY) as u32;
        Index { leaves, branches: Slab::new(), root, height: 0, totals: Totals::default() }
    }

    /// The sums over everything.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn insert(&mut self, key: Key, weight: u32) {
        let added = Totals::of(key, weight);
        if let Some(right) = self.insert_below(self.root, self.height, key, weight, added) {
            let left = Child { first: Key(0), node: self.root, totals: self.totals_with(added).minus(right.totals) };
            let mut root = Branch::empty();
            root.insert(0, left);
            root.insert(1, right);
            self.root = self.branches.insert(root) as u32;
            self.height += 1;
        }
        self.totals.add(added);
    }

    fn totals_with(&self, added: Totals) -> Totals {
        let mut totals = self.totals;
        totals.add(added);
        totals
    }

    /// Returns the right half if the node had to be split.
    fn insert_below(&mut self, node: u32, height: u32, key: Key, weight: u32, added: Totals) -> Option<Child> {
        if height == 0 {
            return self.insert_into_leaf(node, key, weight);
        }
        let branch = &mut self.branches[node as usize];
        let at = branch.child_of(key);
        branch.totals[at].add(added);
        branch.firsts[at] = branch.firsts[at].min(key);
        let below = branch.nodes[at];
        let split = self.insert_below(below, height - 1, key, weight, added)?;
        let branch = &mut self.branches[node as usize];
        branch.totals[at].take(split.totals);
        if branch.len < FAN {
            branch.insert(at + 1, split);
            return None;
        }
        let mut right = branch.split();
        if at < branch.len {
            branch.insert(at + 1, split);
        } else {
            right.insert(at + 1 - branch.len, split);
        }
        let (first, totals) = (right.firsts[0], right.sum());
        Some(Child { first, node: self.branches.insert(right) as u32, totals })
    }

    fn insert_into_leaf(&mut self, node: u32, key: Key, weight: u32) -> Option<Child> {
        let leaf = &mut self.leaves[node as usize];
        let at = leaf.keys().partition_point(|other| *other < key);
        debug_assert!(leaf.keys().get(at) != Some(&key), "keys are unique");
        if leaf.len < LEAF {
            leaf.insert(at, key, weight);
            return None;
        }
        let mut right = leaf.split();
        if at <= leaf.len {
            leaf.insert(at, key, weight);
        } else {
            right.insert(at - leaf.len, key, weight);
        }
        let (first, totals) = (right.keys[0], right.totals(0..right.len));
        Some(Child { first, node: self.leaves.insert(right) as u32, totals })
    }

    pub(crate) fn remove(&mut self, key: Key, weight: u32) {
        let removed = Totals::of(key, weight);
        self.remove_below(self.root, self.height, key, removed);
        self.totals.take(removed);
        while self.height > 0 && self.branches[self.root as usize].len == 1 {
            self.root = self.branches.remove(self.root as usize).nodes[0];
            self.height -= 1;
        }
    }

    /// Returns how many entries (or children) the node has left.
    fn remove_below(&mut self, node: u32, height: u32, key: Key, removed: Totals) -> usize {
        if height == 0 {
            let leaf = &mut self.leaves[node as usize];
            let at = leaf.keys().binary_search(&key).expect("only what was inserted is removed");
            leaf.remove(at);
            return leaf.len;
        }
        let branch = &mut self.branches[node as usize];
        let at = branch.child_of(key);
        branch.totals[at].take(removed);
        let below = branch.nodes[at];
        let left = self.remove_below(below, height - 1, key, removed);
        if left == 0 {
            self.free(below, height - 1);
            self.branches[node as usize].remove(at);
        } else if height == 1 && left < LEAF / 4 {
            self.merge_leaf(node, at);
        }
        self.branches[node as usize].len
    }

    fn free(&mut self, node: u32, height: u32) {
        if height == 0 {
            self.leaves.remove(node as usize);
        } else {
            self.branches.remove(node as usize);
        }
    }

    /// Moves a nearly empty leaf's entries into a neighbour that has room, so that leaves stay reasonably full.
    fn merge_leaf(&mut self, branch: u32, at: usize) {
        let branch = &mut self.branches[branch as usize];
        for (left, right) in [(at.wrapping_sub(1), at), (at, at + 1)] {
            if left >= branch.len || right >= branch.len {
                continue;
            }
            let (into, from) = (branch.nodes[left] as usize, branch.nodes[right] as usize);
            if self.leaves[into].len + self.leaves[from].len <= LEAF * 3 / 4 {
                let moved = self.leaves.remove(from);
                self.leaves[into].append(&moved);
                let totals = branch.totals[right];
                branch.totals[left].add(totals);
                branch.remove(right);
                return;
            }
        }
    }

    /// The sums over everything that stands before `key`.
    pub(crate) fn before(&self, key: Key) -> Totals {
        if key == Key::END {
            return self.totals;
        }
        let mut sum = Totals::default();
        let mut node = self.root as usize;
        for _ in 0..self.height {
            let branch = &self.branches[node];
            let at = branch.child_of(key);
            for totals in &branch.totals[..at] {
                sum.add(*totals);
            }
            node = branch.nodes[at] as usize;
        }
        let leaf = &self.leaves[node];
        sum.add(leaf.totals(0..leaf.keys().partition_point(|other| *other < key)));
        sum
    }

    /// The longest prefix all of whose entries satisfy `fits(entry, what stands before it)`, as its sums. `fits` must not
    /// turn true again once it was false.
    pub(crate) fn prefix_where(&self, fits: impl Fn(Key, Totals) -> bool) -> Totals {
        let mut sum = Totals::default();
        let mut node = self.root as usize;
        for _ in 0..self.height {
            let branch = &self.branches[node];
            let mut at = 0;
            while at + 1 < branch.len {
                let mut with = sum;
                with.add(branch.totals[at]);
                if !fits(branch.firsts[at + 1], with) {
                    break;
                }
                sum = with;
                at += 1;
            }
            node = branch.nodes[at] as usize;
        }
        let leaf = &self.leaves[node];
        for at in 0..leaf.len {
            if !fits(leaf.keys[at], sum) {
                break;
            }
            sum.add(Totals::of(leaf.keys[at], leaf.weights[at]));
        }
        sum
    }

    /// The wants per subclient that `key` stands for.
    pub(crate) fn ratio(key: Key) -> f64 {
        key.ratio()
    }

    /// Bytes in use, for the benchmarks.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.branches.capacity() * size_of::<Branch>()
    }
}
