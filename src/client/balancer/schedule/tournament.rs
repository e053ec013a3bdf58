//! Which value is the largest, where each grows by its own factor with every step.
//!
//! A value is a line, `base + factor · step`, so which of two leads changes at most once as steps go on, and
//! the step at which it does is known beforehand. A tree of matches over the lines keeps, at every node, which leads
//! below it and the first step at which that may no longer hold. A step replays those matches alone that are due;
//! changing one value replays the matches on its way to the root.
//!
//! Nothing is known here of picks, of members that are disabled, or of what a charge is for.

/// Sees to it that the leader is known at every step.
#[derive(Debug, Clone)]
pub(super) struct Tournament {
    /// By slot. Those of slots that do not play are left over and not looked at.
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
    /// The lower one leads when values are equal.
    order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Match {
    leader: Option<u32>,
    /// From this step on another may lead.
    until: u64,
}

impl Match {
    const EMPTY: Match = Match { leader: None, until: u64::MAX };
}

impl Tournament {
    /// None plays.
    pub(super) fn new() -> Tournament {
        Tournament { lines: vec![Line::default()], matches: vec![Match::EMPTY; 2], step: 0 }
    }

    /// Lets a slot play that did not, with this value at the present step.
    pub(super) fn enter(&mut self, slot: u32, value: i128, factor: u64, order: u64) {
        while slot as usize >= self.lines.len() {
            self.widen();
        }
        self.lines[slot as usize] = Line { base: value - self.grown(factor), factor, order };
        self.set_leaf(slot, Match { leader: Some(slot), until: u64::MAX });
    }

    /// Takes out a slot that plays; its value at the present step.
    pub(super) fn leave(&mut self, slot: u32) -> i128 {
        let value = self.value(slot);
        self.set_leaf(slot, Match::EMPTY);
        value
    }

    /// The value of a slot that plays, at the present step.
    pub(super) fn value(&self, slot: u32) -> i128 {
        let line = &self.lines[slot as usize];
        line.base + self.grown(line.factor)
    }

    /// The slot with the largest value, of several the one with the lowest order.
    pub(super) fn leader(&self) -> Option<u32> {
        self.matches[1].leader
    }

    /// Lets every value grow by its factor.
    pub(super) fn advance(&mut self) {
        self.step += 1;
        self.replay_due(1);
    }

    /// Undoes the last `advance`. Looks at all of them.
    pub(super) fn retreat(&mut self) {
        self.step -= 1;
        self.replay_all();
    }

    /// Takes so much from the value of a slot that plays.
    pub(super) fn charge(&mut self, slot: u32, amount: u64) {
        self.lines[slot as usize].base -= i128::from(amount);
        self.replay_above(slot);
    }

    /// Gives every value that plays a new one. Looks at all of them.
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
        // Neither is above 2^64, and factors are far below, so this cannot overflow.
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
        let place = self.lines.len() + slot as usize;
        self.matches[place] = leaf;
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
        // Leaves are never due, which ends the descent.
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

    /// Which of two leads, and the first step at which the other does.
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
        // A gap too large for 64 bits counts as smaller: the match is replayed too early, which does no harm.
        let gap = u64::try_from(gap).unwrap_or(u64::MAX);
        let steps =
            if follower.order < leader.order { gap.div_ceil(closing) } else { (gap / closing).saturating_add(1) };
        self.step.saturating_add(steps)
    }
}
