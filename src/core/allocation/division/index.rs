//! An index of claims by wants per subclient, with sums over any prefix.
//!
//! Both sharing algorithms need the sums of wants and of subclients over all claims below a ratio. In a sorted tree
//! whose branches store the sums below them, a change and a query cost one walk each, for any distribution of wants,
//! even if all wants are equal. (Buckets of wants, or a pointer that follows the level, are cheaper in good cases, but
//! scan everything in bad ones.)
//!
//! This is a B+ tree: leaves hold claims, branches hold sums. Sums are exact ([`Sum`]), so no result depends on the
//! shape of the tree or on the order of past updates. A branch's `firsts` may lag behind after a removal, but they
//! remain lower bounds. Only leaves are merged; a branch is dropped when it is empty.
//!
//! With a million claims, nearly all of the time is spent waiting for memory. So leaves are large and unordered: an
//! insertion touches only the end of a leaf, and the branches fit the processor's cache. The order within a leaf
//! matters only in the leaf where a query ends. Most queries end near the last one, so a cursor stays at that place. If
//! a leaf is queried again without a change, a sorted copy of it is kept until it changes.

mod key;

use std::cell::RefCell;

use slab::Slab;

pub(crate) use self::key::{ClaimKey, Totals};
use crate::types::Sum;

const LEAF: usize = 128;
const FAN: usize = 32;

/// Unordered claims, with their fields in separate arrays, because a search reads owners only.
struct Leaf {
    len: usize,
    /// Counts changes, so that a copy knows when it is out of date.
    version: u64,
    owners: [u64; LEAF],
    ratios: [u64; LEAF],
    weights: [u32; LEAF],
}

impl Leaf {
    const EMPTY: Leaf = Leaf { len: 0, version: 0, owners: [0; LEAF], ratios: [0; LEAF], weights: [0; LEAF] };

    fn entries(&self) -> impl Iterator<Item = (ClaimKey, u32)> {
        let parts = self.ratios.iter().zip(&self.owners).zip(&self.weights).take(self.len);
        parts.map(|((ratio, owner), weight)| (ClaimKey::together(*ratio, *owner), *weight))
    }

    fn push(&mut self, key: ClaimKey, weight: u32) {
        (self.ratios[self.len], self.owners[self.len]) = key.split();
        self.weights[self.len] = weight;
        self.len += 1;
        self.version += 1;
    }

    fn remove(&mut self, key: ClaimKey) {
        let (_, owner) = key.split();
        let at = self.owners[..self.len].iter().position(|other| *other == owner);
        let at = at.expect("only inserted claims are removed");
        self.len -= 1;
        self.owners[at] = self.owners[self.len];
        self.ratios[at] = self.ratios[self.len];
        self.weights[at] = self.weights[self.len];
        self.version += 1;
    }

    fn append(&mut self, other: &Leaf) {
        for (key, weight) in other.entries() {
            self.push(key, weight);
        }
    }

    /// Moves the upper half into a new leaf. Returns the leaf and its first key.
    fn split(&mut self) -> (ClaimKey, Leaf) {
        let mut entries: Vec<(ClaimKey, u32)> = self.entries().collect();
        let half = entries.len() / 2;
        let (lower, middle, upper) = entries.select_nth_unstable(half);
        let mut right = Leaf::EMPTY;
        right.push(middle.0, middle.1);
        upper.iter().for_each(|(key, weight)| right.push(*key, *weight));
        self.len = 0;
        lower.iter().for_each(|(key, weight)| self.push(*key, *weight));
        (middle.0, right)
    }

    /// The last entry before `key`, and the first one from there on. A weight of zero: there is none.
    fn beside(&self, key: ClaimKey) -> [(ClaimKey, u32); 2] {
        let (mut last, mut next) = ((ClaimKey::START, 0), (ClaimKey::END, 0));
        for (other, weight) in self.entries() {
            if other < key {
                last = last.max((other, weight));
            } else {
                next = next.min((other, weight));
            }
        }
        [last, next]
    }

    fn totals_where(&self, counts: impl Fn(ClaimKey) -> bool) -> Totals {
        let mut totals = Totals::default();
        for (key, weight) in self.entries().filter(|(key, _)| counts(*key)) {
            totals.add(Totals::of(key, weight));
        }
        totals
    }
}

/// The leaf of the last query.
struct Sorted {
    node: usize,
    version: u64,
    /// Present if the leaf was queried twice without a change: each claim with the sums over those before it.
    entries: Vec<(ClaimKey, Totals)>,
    totals: Totals,
    cursor: Cursor,
}

impl Sorted {
    fn none() -> Sorted {
        Sorted { node: usize::MAX, version: 0, entries: Vec::new(), totals: Totals::default(), cursor: Cursor::NONE }
    }

    /// The sums over the longest prefix of the leaf whose entries all satisfy `fits(entry, sums before it)`.
    fn prefix_where(&mut self, node: usize, leaf: &Leaf, fits: impl Fn(ClaimKey, Totals) -> bool) -> Totals {
        if (self.node, self.version) != (node, leaf.version) {
            (self.node, self.version) = (node, leaf.version);
            self.entries.clear();
            if let Some(prefix) = self.cursor.seek(node, leaf, &fits) {
                return prefix;
            }
        }
        if self.entries.is_empty() {
            self.copy(leaf);
        }
        let end = self.entries.partition_point(|(key, before)| fits(*key, *before));
        let first = self.entries.get(end);
        let prefix = first.map_or(self.totals, |(_, before)| *before);
        self.cursor.set(node, first.map_or(ClaimKey::END, |(key, _)| *key), prefix);
        prefix
    }

    fn copy(&mut self, leaf: &Leaf) {
        self.entries.extend(leaf.entries().map(|(key, weight)| (key, Totals::of(key, weight))));
        self.entries.sort_unstable_by_key(|(key, _)| *key);
        self.totals = Totals::default();
        for (_, totals) in &mut self.entries {
            let own = std::mem::replace(totals, self.totals);
            self.totals.add(own);
        }
    }
}

/// The end of the last query in an unsorted leaf. It is kept up to date while the leaf changes, so the next query,
/// which usually ends there or one entry further, need not sort the leaf.
struct Cursor {
    node: usize,
    end: ClaimKey,
    /// The sums over the entries before `end`.
    below: Totals,
    /// The last entry before `end` and the first one from there on, if known. A weight of zero: there is none.
    beside: Option<[(ClaimKey, u32); 2]>,
}

/// The number of entries that a cursor moves before the leaf is sorted.
const MAX_STEPS: usize = 3;

impl Cursor {
    const NONE: Cursor =
        Cursor { node: usize::MAX, end: ClaimKey::START, below: Totals { wants: Sum::ZERO, weight: 0 }, beside: None };

    fn set(&mut self, node: usize, end: ClaimKey, below: Totals) {
        *self = Cursor { node, end, below, beside: None };
    }

    fn insert(&mut self, node: usize, key: ClaimKey, weight: u32) {
        if self.node != node {
            return;
        }
        if key < self.end {
            self.below.add(Totals::of(key, weight));
        }
        if let Some([last, next]) = &mut self.beside {
            if key < self.end && (last.1 == 0 || last.0 < key) {
                *last = (key, weight);
            } else if key >= self.end && (next.1 == 0 || key < next.0) {
                *next = (key, weight);
            }
        }
    }

    fn remove(&mut self, node: usize, key: ClaimKey, removed: Totals) {
        if self.node != node {
            return;
        }
        if key < self.end {
            self.below.take(removed);
        }
        if self.beside.is_some_and(|[last, next]| last.0 == key || next.0 == key) {
            self.beside = None;
        }
    }

    /// The sums over the longest prefix of a leaf that `fits`, if it ends at most a few entries from here.
    fn seek(&mut self, node: usize, leaf: &Leaf, fits: impl Fn(ClaimKey, Totals) -> bool) -> Option<Totals> {
        if self.node != node {
            self.set(node, self.end, leaf.totals_where(|key| key < self.end));
        }
        for _ in 0..=MAX_STEPS {
            let [last, next] = *self.beside.get_or_insert_with(|| leaf.beside(self.end));
            let without = self.below.minus(Totals::of(last.0, last.1));
            if last.1 > 0 && !fits(last.0, without) {
                self.set(node, last.0, without);
            } else if next.1 > 0 && fits(next.0, self.below) {
                self.set(node, next.0.successor(), self.below.plus(Totals::of(next.0, next.1)));
            } else {
                return Some(self.below);
            }
        }
        None
    }
}

/// A leaf or a branch as its parent sees it.
#[derive(Clone, Copy)]
struct Child {
    first: ClaimKey,
    node: u32,
    totals: Totals,
}

struct Branch {
    len: usize,
    firsts: [ClaimKey; FAN],
    nodes: [u32; FAN],
    totals: [Totals; FAN],
}

impl Branch {
    fn empty() -> Branch {
        Branch { len: 0, firsts: [ClaimKey::START; FAN], nodes: [0; FAN], totals: [Totals::default(); FAN] }
    }

    /// The child that `key` belongs to. Counting has no branch to mispredict, unlike a binary search.
    fn child_of(&self, key: ClaimKey) -> usize {
        self.firsts[..self.len].iter().filter(|first| **first <= key).count().saturating_sub(1)
    }

    /// The last child whose first entry fits, or else the first child, and the sums over all children before it. The
    /// binary search adds up the sums of a half only when necessary.
    fn last_where(&self, mut before: Totals, fits: impl Fn(ClaimKey, Totals) -> bool) -> (usize, Totals) {
        let (mut low, mut high) = (0, self.len);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let with = self.totals[low..middle].iter().fold(before, |sum, child| sum.plus(*child));
            if fits(self.firsts[middle], with) {
                (low, before) = (middle, with);
            } else {
                high = middle;
            }
        }
        (low, before)
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

pub(crate) struct Index {
    leaves: Slab<Leaf>,
    branches: Slab<Branch>,
    root: u32,
    /// Branches between the root and a leaf; 0 when the root is a leaf.
    height: u32,
    totals: Totals,
    sorted: RefCell<Sorted>,
}

impl Index {
    pub(crate) fn new() -> Index {
        let mut leaves = Slab::new();
        let root = leaves.insert(Leaf::EMPTY) as u32;
        let sorted = RefCell::new(Sorted::none());
        Index { leaves, branches: Slab::new(), root, height: 0, totals: Totals::default(), sorted }
    }

    /// A copy of this index with all claims in one band.
    pub(crate) fn in_band(&self, band: i16) -> Index {
        let mut index = Index::new();
        let claims = self.leaves.iter().flat_map(|(_, leaf)| leaf.entries());
        claims.for_each(|(key, weight)| index.insert(key.in_band(band), weight));
        index
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Reads from every cache line of the root, if it is a leaf.
    pub(crate) fn touch(&self) -> u64 {
        if self.height > 0 {
            return self.totals.weight;
        }
        let leaf = &self.leaves[self.root as usize];
        let lines = |words: &[u64]| words[..leaf.len].iter().step_by(8).fold(0, |touched, word| touched ^ word);
        let weights = leaf.weights[..leaf.len].iter().step_by(16).fold(0, |touched, weight| touched ^ weight);
        lines(&leaf.owners) ^ lines(&leaf.ratios) ^ u64::from(weights)
    }

    pub(crate) fn insert(&mut self, key: ClaimKey, weight: u32) {
        let added = Totals::of(key, weight);
        if let Some(right) = self.insert_below(self.root, self.height, key, weight, added) {
            let left =
                Child { first: ClaimKey::START, node: self.root, totals: self.totals.plus(added).minus(right.totals) };
            let mut root = Branch::empty();
            root.insert(0, left);
            root.insert(1, right);
            self.root = self.branches.insert(root) as u32;
            self.height += 1;
        }
        self.totals.add(added);
    }

    /// Returns the right half if the node had to be split.
    fn insert_below(&mut self, node: u32, height: u32, key: ClaimKey, weight: u32, added: Totals) -> Option<Child> {
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

    fn insert_into_leaf(&mut self, node: u32, key: ClaimKey, weight: u32) -> Option<Child> {
        let leaf = &mut self.leaves[node as usize];
        if leaf.len < LEAF {
            leaf.push(key, weight);
            self.sorted.get_mut().cursor.insert(node as usize, key, weight);
            return None;
        }
        let (first, mut right) = leaf.split();
        if key < first {
            leaf.push(key, weight)
        } else {
            right.push(key, weight)
        }
        let totals = right.totals_where(|_| true);
        // The new leaf may reuse the number of a freed one.
        self.forget_query();
        Some(Child { first, node: self.leaves.insert(right) as u32, totals })
    }

    pub(crate) fn remove(&mut self, key: ClaimKey, weight: u32) {
        let removed = Totals::of(key, weight);
        self.remove_below(self.root, self.height, key, removed);
        self.totals.take(removed);
        while self.height > 0 && self.branches[self.root as usize].len == 1 {
            self.root = self.branches.remove(self.root as usize).nodes[0];
            self.height -= 1;
        }
    }

    /// Returns how many entries (or children) the node has left.
    fn remove_below(&mut self, node: u32, height: u32, key: ClaimKey, removed: Totals) -> usize {
        if height == 0 {
            let leaf = &mut self.leaves[node as usize];
            leaf.remove(key);
            self.sorted.get_mut().cursor.remove(node as usize, key, removed);
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

    fn forget_query(&mut self) {
        let sorted = self.sorted.get_mut();
        (sorted.node, sorted.cursor.node) = (usize::MAX, usize::MAX);
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
                self.sorted.get_mut().cursor.node = usize::MAX;
                let moved = self.leaves.remove(from);
                self.leaves[into].append(&moved);
                let totals = branch.totals[right];
                branch.totals[left].add(totals);
                branch.remove(right);
                return;
            }
        }
    }

    /// The sums over all entries before `key`.
    pub(crate) fn before(&self, key: ClaimKey) -> Totals {
        if key == ClaimKey::END {
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
        sum.add(leaf.totals_where(|other| other < key));
        sum
    }

    /// The first entry at or after `key`.
    pub(crate) fn first_from(&self, key: ClaimKey) -> Option<ClaimKey> {
        self.first_below(self.root, self.height, key)
    }

    fn first_below(&self, node: u32, height: u32, key: ClaimKey) -> Option<ClaimKey> {
        if height == 0 {
            return self.leaves[node as usize].entries().map(|(other, _)| other).filter(|other| *other >= key).min();
        }
        let branch = &self.branches[node as usize];
        branch.nodes[branch.child_of(key)..branch.len].iter().find_map(|node| self.first_below(*node, height - 1, key))
    }

    /// The last entry before `key`.
    pub(crate) fn last_before(&self, key: ClaimKey) -> Option<ClaimKey> {
        self.last_below(self.root, self.height, key)
    }

    fn last_below(&self, node: u32, height: u32, key: ClaimKey) -> Option<ClaimKey> {
        if height == 0 {
            return self.leaves[node as usize].entries().map(|(other, _)| other).filter(|other| *other < key).max();
        }
        let branch = &self.branches[node as usize];
        let nodes = branch.nodes[..branch.len].iter().take(branch.child_of(key) + 1).rev();
        nodes.into_iter().find_map(|node| self.last_below(*node, height - 1, key))
    }

    /// The sums over the longest prefix whose entries all satisfy `fits(entry, sums before it)`. `fits` must be
    /// monotonic: once false, always false.
    pub(crate) fn prefix_where(&self, fits: impl Fn(ClaimKey, Totals) -> bool) -> Totals {
        let mut sum = Totals::default();
        let mut node = self.root as usize;
        for _ in 0..self.height {
            let branch = &self.branches[node];
            let (at, before) = branch.last_where(sum, &fits);
            sum = before;
            node = branch.nodes[at] as usize;
        }
        let fits_in_leaf = |key, before| fits(key, sum.plus(before));
        sum.plus(self.sorted.borrow_mut().prefix_where(node, &self.leaves[node], fits_in_leaf))
    }

    /// The wants per subclient in `key`.
    pub(crate) fn ratio(key: ClaimKey) -> f64 {
        key.ratio()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.branches.capacity() * size_of::<Branch>()
    }
}
