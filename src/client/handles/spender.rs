//! Spends from the allowance of a budget, first come, first served.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leaseway_core::{
    policy::period::Span,
    types::{Amount, Millis},
};
use tokio::sync::Notify;

use crate::{
    limiter::{BudgetBook, Closed, SpendingPeriod},
    session::{BudgetUse, Lease},
};

/// Why an amount was not spent.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpendError {
    /// The allowance does not cover it now. More may be left of the budget.
    #[error("this client's allowance of {left} does not cover this amount now")]
    NotCovered {
        /// What is left of the allowance.
        left: f64,
    },
    /// Another caller waits, and was first.
    #[error("another caller was first, and still waits for an allowance")]
    Behind,
    /// It is no amount: not finite, negative or too large.
    #[error("not an amount: it must be a finite number from 0 to 1e15")]
    Invalid,
    /// The client was closed.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The book of a client, and the callers that wait.
#[derive(Debug)]
pub(crate) struct Spender {
    state: Mutex<State>,
    /// Held by the first caller that waits; the others queue for it.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
    pressure: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    book: BudgetBook,
    waiting: f64,
    first: f64,
    closed: bool,
}

impl Spender {
    pub(crate) fn new(pressure: Arc<Notify>) -> Spender {
        let book = BudgetBook::new(Millis(0), fastrand::u64(1..));
        let state = State { book, waiting: 0.0, first: 0.0, closed: false };
        Spender { state: Mutex::new(state), turn: tokio::sync::Mutex::default(), changed: Notify::new(), pressure }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest lease. Returns whether the client should ask again at once.
    pub(crate) fn take(&self, now: Millis, lease: &Lease) -> bool {
        let asks = self.lock().book.take(now, lease, || fastrand::u64(1..));
        self.changed.notify_waiters();
        asks
    }

    pub(crate) fn wants(&self, now: Millis) -> (f64, BudgetUse) {
        let mut state = self.lock();
        let (waiting, first) = (state.waiting, state.first);
        state.book.set_waiting(waiting, first);
        state.book.wants(now)
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.lock().waiting > 0.0
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.book.close();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Spends an amount if the allowance covers it and no caller waits. `waits`: the caller waits if it is refused.
    pub(crate) fn try_spend(&self, now: Millis, amount: Amount, waits: bool) -> Result<SpendingPeriod, SpendError> {
        let Ok(_turn) = self.turn.try_lock() else { return Err(SpendError::Behind) };
        self.take_from_book(now, amount, waits)
    }

    /// Waits until the allowance covers an amount, and spends it.
    pub(crate) async fn spend(&self, amount: Amount, now: impl Fn() -> Millis) -> Result<SpendingPeriod, SpendError> {
        let mut waiting = None;
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                waiting = Some(Waiting::new(self, amount.get()));
                self.turn.lock().await
            }
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.take_from_book(now(), amount, true) {
                Err(SpendError::NotCovered { .. }) => {}
                done => return done,
            }
            waiting.get_or_insert_with(|| Waiting::new(self, amount.get())).comes_first();
            self.pressure.notify_one();
            // A lease may be renewed unchanged, so look again now and then.
            let _ = tokio::time::timeout(Duration::from_secs(1), changed).await;
        }
    }

    /// Spends an amount that was used already.
    pub(crate) fn charge(&self, now: Millis, amount: Amount) -> Result<(), Closed> {
        self.update(now, |book| book.charge(now, amount))
    }

    /// Of an amount that was spent in advance, `used` was used. Fails if more was used and nobody can charge it.
    pub(crate) fn settle(
        &self,
        now: Millis,
        reserved: Amount,
        used: Amount,
        spent_in: SpendingPeriod,
    ) -> Result<(), Closed> {
        let settled = self.update(now, |book| book.settle(now, reserved, used, spent_in));
        self.changed.notify_waiters();
        settled.or_else(|closed| if used > reserved { Err(closed) } else { Ok(()) })
    }

    /// Takes back an amount, and keeps it in the demand, because its caller will try again.
    pub(crate) fn give_back_and_want(&self, now: Millis, amount: Amount, spent_in: SpendingPeriod) {
        // After the close it stays spent.
        let _ = self.update(now, |book| {
            book.settle(now, amount, Amount::ZERO, spent_in);
            book.refuse(now, amount);
        });
        self.changed.notify_waiters();
    }

    /// Changes the book, unless it was closed: then its last report does not change any more.
    fn update(&self, now: Millis, change: impl FnOnce(&mut BudgetBook)) -> Result<(), Closed> {
        let mut state = self.lock();
        if state.closed {
            return Err(Closed);
        }
        change(&mut state.book);
        let is_short = state.book.is_short(now);
        drop(state);
        if is_short {
            self.pressure.notify_one();
        }
        Ok(())
    }

    pub(crate) fn spends_in(&self) -> SpendingPeriod {
        self.lock().book.spends_in()
    }

    pub(crate) fn owed(&self) -> Amount {
        self.lock().book.owed()
    }

    pub(crate) fn left(&self, now: Millis) -> Amount {
        self.lock().book.left(now)
    }

    pub(crate) fn spent(&self) -> Amount {
        self.lock().book.spent()
    }

    pub(crate) fn period(&self) -> Option<Span> {
        self.lock().book.period()
    }

    fn take_from_book(&self, now: Millis, amount: Amount, waits: bool) -> Result<SpendingPeriod, SpendError> {
        let mut state = self.lock();
        if state.closed {
            return Err(Closed.into());
        }
        let spent = state.book.spend(now, amount);
        if !spent && !waits {
            state.book.refuse(now, amount);
        }
        let (left, is_short) = (state.book.left(now).get(), state.book.is_short(now));
        let spent_in = state.book.spends_in();
        drop(state);
        if !spent || is_short {
            self.pressure.notify_one();
        }
        if spent { Ok(spent_in) } else { Err(SpendError::NotCovered { left }) }
    }
}

/// Counts a waiting caller while it lives.
struct Waiting<'a> {
    spender: &'a Spender,
    amount: f64,
    is_first: bool,
}

impl<'a> Waiting<'a> {
    fn new(spender: &'a Spender, amount: f64) -> Waiting<'a> {
        spender.lock().waiting += amount;
        Waiting { spender, amount, is_first: false }
    }

    fn comes_first(&mut self) {
        self.is_first = true;
        self.spender.lock().first = self.amount;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.spender.lock();
        state.waiting = (state.waiting - self.amount).max(0.0);
        if self.is_first {
            state.first = 0.0;
        }
    }
}
