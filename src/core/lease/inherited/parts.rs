//! Parts of inherited leases that end before the rest.
//!
//! When a second master fails, its successor inherits one total. It consists of leases that the second master granted,
//! and of leases that it had inherited itself and nobody had claimed. The latter end sooner, and the log has a lower
//! bound of their amount ([`Part`]). So a chain of masters frees unclaimed capacity when the last lease that it can
//! consist of has ended, regardless of the number of failovers.
//!
//! Proof of safety. Order the parts by their ends. Invariant: for each end, the sum of all later parts and the rest is
//! at least the amount that holders without a claim may be using under leases that outlive that end. A claim takes from
//! the part of its own lease, then from earlier parts, and from later ones only when those are used up. All three steps
//! keep the invariant. A returned amount is added to the rest.

use crate::{
    lease::promises::{Part, merge_parts},
    types::{Amount, ClusterClock, Millis, Sum, Token},
};

/// The parts that end before the rest, in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct Parts {
    clock: ClusterClock,
    earlier: Vec<Part>,
    /// All leases below this one have ended.
    over: Option<Token>,
}

impl Parts {
    /// Parts of inherited leases; the rest ends at `until`.
    pub(super) fn new(clock: ClusterClock, mut parts: Vec<Part>, until: Millis) -> Parts {
        parts.retain(|part| clock.local(part.until) < until && part.amount > Amount::ZERO);
        merge_parts(&mut parts);
        Parts { clock, earlier: parts, over: None }
    }

    /// The parts for the log: these parts and the rest, which contains everything granted before `first`.
    pub(super) fn for_log(&self, left: Sum, until: Millis, first: Token, now: Millis) -> Vec<Part> {
        let mut parts = self.earlier.clone();
        let amount = self.rest(left).max(Sum::ZERO).floor();
        if amount > Amount::ZERO && now < until {
            // The result is always the same, because `until` is no earlier than the start of the term.
            let until = self.clock.end(until, self.clock.begun());
            parts.push(Part { until, before: first, amount });
        }
        parts
    }

    /// Whether the part of this lease has ended.
    pub(super) fn is_over(&self, token: Token) -> bool {
        Some(token) < self.over
    }

    /// The holder of lease `token` claims `amount` of `left`. Without a token, the lease may be in any part.
    pub(super) fn take(&mut self, left: Sum, amount: Amount, token: Option<Token>) {
        let rest = self.rest(left);
        let own = token.map_or(0, |token| self.earlier.partition_point(|part| part.before <= token));
        let count = self.earlier.len();
        let mut amount = Sum::from(amount);
        if own == count {
            amount = amount - amount.min(rest.max(Sum::ZERO));
        }
        let order = (0..count.min(own + 1)).rev().chain(own + 1..count);
        for index in order {
            let part = &mut self.earlier[index];
            let taken = amount.min(part.amount.into());
            part.amount = (Sum::from(part.amount) - taken).floor();
            amount -= taken;
        }
        self.earlier.retain(|part| part.amount > Amount::ZERO);
    }

    /// Removes the parts that have ended. Returns their sum.
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

    /// When this amount of the parts has ended; `None` if only the end of the rest frees it.
    pub(super) fn over_by(&self, amount: Amount) -> Option<Millis> {
        let mut over = Sum::ZERO;
        let enough = self.earlier.iter().find(|part| {
            over += part.amount;
            over >= amount.into()
        });
        enough.map(|part| self.clock.local(part.until))
    }

    /// The end of the next part.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.earlier.first().map(|part| self.clock.local(part.until))
    }

    /// Forgets the parts, because leases that no master promised may end at any time.
    pub(super) fn forget(&mut self) {
        self.earlier.clear();
    }

    /// All leases below this one ended with a part.
    pub(super) fn over(&self) -> Option<Token> {
        self.over
    }

    fn rest(&self, left: Sum) -> Sum {
        left - self.earlier.iter().map(|part| part.amount).collect::<Sum>()
    }
}
