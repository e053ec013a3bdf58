//! A client of a budget: it spends at the rate of its wants, and keeps the book of the client library.

use leaseway_client::{
    limiter::BudgetBook,
    session::{Lease, Wants as Asked},
};
use leaseway_core::types::{Amount, Millis};

pub(crate) struct Spender {
    book: BudgetBook,
    /// What callers want to spend, as of `at`.
    owed: f64,
    at: Millis,
}

/// Callers wait for at most this many seconds.
const PATIENCE_SECS: f64 = 5.0;

impl Spender {
    pub(crate) fn new(now: Millis, incarnation: u64) -> Spender {
        Spender { book: BudgetBook::new(now, incarnation), owed: 0.0, at: now }
    }

    /// Takes the newest lease of the session.
    pub(crate) fn take(&mut self, now: Millis, lease: Option<Lease>, fresh: impl FnOnce() -> u64) {
        if let Some(lease) = lease {
            self.book.take(now, &lease, fresh);
        }
    }

    /// Spends what callers want since the last call, at `rate` units per second. Returns the whole units that were
    /// spent, and the start of their period.
    pub(crate) fn spend(&mut self, now: Millis, rate: f64) -> (Amount, Option<i64>) {
        let elapsed = now.since(self.at).0 as f64 / 1000.0;
        self.owed = (self.owed + rate * elapsed).min(rate * PATIENCE_SECS.max(2.0 * elapsed) + 1.0);
        self.at = now;
        let amount = Amount::clamped(self.owed.min(self.book.left(now).get())).floor();
        let spent = if self.book.spend(now, amount) { amount } else { Amount::ZERO };
        self.owed -= spent.get();
        (spent, self.book.period().map(|period| period.start))
    }

    pub(crate) fn asked(&mut self, now: Millis, priority: i64) -> Asked {
        let waiting = self.owed.floor();
        self.book.set_waiting(waiting, waiting.min(1.0));
        let (amount, spent) = self.book.wants(now);
        Asked { amount, priority, spent: Some(spent), ..Asked::default() }
    }
}
