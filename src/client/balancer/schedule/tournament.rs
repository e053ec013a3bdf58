//! A kinetic tournament: finds the largest of many values that each grow by their own factor per step.
//!
//! A value is a line, `base + factor · step`. The leader of two lines changes at most once, at a step that is known in
//! advance. A tree of matches stores at every node the leader below it, and the first step at which that may change. A
//! step replays only the matches that are due; changing a value replays the matches on its path to the root.

/// The tree of matches.
#[derive(Debug, Clone)]
pub(super) struct Tournament {
    /// By slot. Lines of absent slots are stale.
    lines: Vec<Line>,
    /// The root is 1, the matches below `n` are `2n` and `2n + 1`, and slot `s` is the leaf `lines.len() + s`.
    matches: Vec<Match>,
    step: u64,
}

/// A value that grows: `base + factor · step`.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    base: i128,
    factor: u64,
    /// Breaks ties: the lower one leads.
    order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Match {
    leader: Option<u32>,
    /// From this step on another slot may lead.
    until: u64,
}

impl Match {
    const EMPTY: Match = Match { leader: None, until: u64::MAX };
}

impl Tournament {
    /// An empty tournament.
    pub(super) fn new() -> Tournament {
        Tournament { lines: vec![Line::default()], matches: vec![Match::EMPTY; 2], step: 0 }
    }

    /// Adds a slot with its value at the current step.
    pub(super) fn enter(&mut self, slot: u32, value: i128, factor: u64, order: u64) {
        while slot as usize >= self.lines.len() {
            self.widen();
        }
        self.lines[slot as usize] = Line { base: value - self.grown(factor), factor, order };
        self.set_leaf(slot, Match { leader: Some(slot), until: u64::MAX });
    }

    /// Removes a slot. Returns its value at the current step.
    pub(super) fn leave(&mut self, slot: u32) -> i128 {
        let value = self.value(slot);
        self.set_leaf(slot, Match::EMPTY);
        value
    }

    /// The value of a slot at the current step.
    pub(super) fn value(&self, slot: u32) -> i128 {
        let line = &self.lines[slot as usize];
        line.base + self.grown(line.factor)
    }

    /// The slot with the largest value; the one with the lowest order if several are equal.
    pub(super) fn leader(&self) -> Option<u32> {
        self.matches[1].leader
    }

    /// Advances by a step: every value grows by its factor.
    pub(super) fn advance(&mut self) {
        self.step += 1;
        self.replay_due(1);
    }

    /// Undoes the last `advance`. Takes linear time.
    pub(super) fn retreat(&mut self) {
        self.step -= 1;
        self.replay_all();
    }

    /// Subtracts from the value of a slot.
    pub(super) fn charge(&mut self, slot: u32, amount: u64) {
        self.lines[slot as usize].base -= i128::from(amount);
        self.replay_above(slot);
    }

    /// Replaces all values. Takes linear time.
    pub(super) fn revalue(&mut self, new: impl Fn(i128) -> i128) {
        let width = self.lines.len();
        for slot in (0..width).filter_map(|slot| self.matches[width + slot].leader) {
            let line = self.lines[slot as usize];
            let grown = self.grown(line.factor);
            self.lines[slot as usize].base = new(line.base + grown) - grown;
        }
        self.replay_all();
    }

    fn grown(&self, factor: u64) -> i128 {
        // Steps are below 2^64 and factors far below that, so this cannot overflow.
        i128::from(factor) * i128::from(self.step)
    }

    fn widen(&mut self) {
        let width = self.lines.len();
        let leaves = self.matches.split_off(width);
        self.lines.resize(width * 2, Line::default());
        self.matches = vec![Match::EMPTY; width * 2];
        self.matches.extend(leaves);
        self.matches.resize(width * 4, Match::EMPTY);
        self.replay_all();
    }

    fn set_leaf(&mut self, slot: u32, leaf: Match) {
        let node = self.lines.len() + slot as usize;
        self.matches[node] = leaf;
        self.replay_above(slot);
    }

    fn replay_above(&mut self, slot: u32) {
        let mut node = (self.lines.len() + slot as usize) / 2;
        while node > 0 {
            self.replay(node);
            node /= 2;
        }
    }

    fn replay_due(&mut self, node: usize) {
        // Leaves are never due, which ends the recursion.
        if self.matches[node].until <= self.step {
            self.replay_due(2 * node);
            self.replay_due(2 * node + 1);
            self.replay(node);
        }
    }

    fn replay_all(&mut self) {
        for node in (1..self.lines.len()).rev() {
            self.replay(node);
        }
    }

    fn replay(&mut self, node: usize) {
        let (left, right) = (self.matches[2 * node], self.matches[2 * node + 1]);
        self.matches[node] = match (left.leader, right.leader) {
            (None, _) => right,
            (_, None) => left,
            (Some(one), Some(other)) => {
                let (leader, overtaken) = self.decide(one, other);
                Match { leader: Some(leader), until: overtaken.min(left.until).min(right.until) }
            }
        };
    }

    /// The leader of two slots, and the first step at which the other one leads.
    fn decide(&self, one: u32, other: u32) -> (u32, u64) {
        let (one_line, other_line) = (&self.lines[one as usize], &self.lines[other as usize]);
        let gap = self.value(one) - self.value(other);
        if gap > 0 || (gap == 0 && one_line.order < other_line.order) {
            (one, self.overtaken(gap, one_line, other_line))
        } else {
            (other, self.overtaken(-gap, other_line, one_line))
        }
    }

    fn overtaken(&self, gap: i128, leader: &Line, follower: &Line) -> u64 {
        let Some(closing) = follower.factor.checked_sub(leader.factor).filter(|closing| *closing > 0) else {
            return u64::MAX;
        };
        // A gap that exceeds 64 bits is truncated: the match is replayed too early, which is harmless.
        let gap = u64::try_from(gap).unwrap_or(u64::MAX);
        let steps =
            if follower.order < leader.order { gap.div_ceil(closing) } else { (gap / closing).saturating_add(1) };
        self.step.saturating_add(steps)
    }
}
