//! Parts of an estate that end before the rest of it.
//!
//! When a second master dies, its successor inherits one total: leases of the second master, and what it had inherited
//! itself and no holder had named. The latter ends sooner, and the log says how much that is at least ([`Part`]). So a
//! chain of masters frees what no holder names when the last lease that it can consist of has ended, however often the
//! master changes meanwhile.
//!
//! The safety of it: let the parts be ordered by their ends. For each end, what lies in later parts and in the rest is
//! no less than what holders that have named nothing believe under leases that outlive that end. A name takes from the
//! part of its own lease, then from earlier ones, and from later ones only when all those are used up; all three keep
//! that true. What goes back to the estate goes to the rest.

use crate::{
    lease::promises::{Part, part},
    types::{
        amount::{Amount, Sum},
        cluster_clock::ClusterClock,
        time::Millis,
        token::Token,
    },
};

/// The parts that end before the rest, in the order of their ends.
#[derive(Debug, Default)]
pub(in crate::resource) struct Parts {
    clock: ClusterClock,
    earlier: Vec<Part>,
    /// Leases below this one have all ended.
    over: Option<Token>,
}

impl Parts {
    /// Of an estate whose rest ends at `until`.
    pub(super) fn new(clock: ClusterClock, mut parts: Vec<Part>, until: Millis) -> Parts {
        parts.retain(|part| clock.local(part.until) < until && part.amount > Amount::ZERO);
        part::merge(&mut parts);
        Parts { clock, earlier: parts, over: None }
    }

    /// What the log is to be told: these, and the rest, which is all that was given before `first`.
    pub(super) fn told(&self, left: Sum, until: Millis, first: Token, now: Millis) -> Vec<Part> {
        let mut parts = self.earlier.clone();
        let amount = self.rest(left).max(Sum::ZERO).floor();
        if amount > Amount::ZERO && now < until {
            // The same moment each time: `until` is no earlier than when the reign began.
            let until = self.clock.end(until, self.clock.begun());
            parts.push(Part { until, before: first, amount });
        }
        parts
    }

    /// Whether all leases that were given with it have ended, with the part that they were in.
    pub(super) fn is_over(&self, token: Token) -> bool {
        Some(token) < self.over
    }

    /// So much leaves an estate of `left` under the name of a lease; without one, it may have been in any part.
    pub(super) fn take(&mut self, left: Sum, amount: Amount, token: Option<Token>) {
        let rest = self.rest(left);
        let own = token.map_or(0, |token| self.earlier.partition_point(|part| part.before <= token));
        let count = self.earlier.len();
        let mut amount = Sum::from(amount);
        if own == count {
            amount = amount - amount.min(rest.max(Sum::ZERO));
        }
        let order = (0..count.min(own + 1)).rev().chain(own + 1..count);
        for place in order {
            let part = &mut self.earlier[place];
            let taken = amount.min(part.amount.into());
            part.amount = (Sum::from(part.amount) - taken).floor();
            amount -= taken;
        }
        self.earlier.retain(|part| part.amount > Amount::ZERO);
    }

    /// Ends the parts whose time has come. Returns what they had.
    pub(super) fn end(&mut self, now: Millis) -> Sum {
        let (clock, over) = (self.clock, &mut self.over);
        let ended = self.earlier.extract_if(.., |part| clock.local(part.until) <= now);
        ended
            .map(|part| {
                *over = (*over).max(Some(part.before));
                part.amount
            })
            .collect()
    }

    /// When so much of them has ended; `None` if only with the rest.
    pub(super) fn over_by(&self, amount: Amount) -> Option<Millis> {
        let mut over = Sum::ZERO;
        let enough = self.earlier.iter().find(|part| {
            over += part.amount;
            over >= amount.into()
        });
        enough.map(|part| self.clock.local(part.until))
    }

    /// When the next of them ends.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.earlier.first().map(|part| self.clock.local(part.until))
    }

    /// Leases that no master has promised may be in any part.
    pub(super) fn forget(&mut self) {
        self.earlier.clear();
    }

    /// Leases below this one have all ended, the last with a part.
    pub(super) fn over(&self) -> Option<Token> {
        self.over
    }

    fn rest(&self, left: Sum) -> Sum {
        left - self.earlier.iter().map(|part| part.amount).collect::<Sum>()
    }
}
