//! Budgets: amounts that may be spent in each period, and never more.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leaseway_core::types::{Amount, Millis};
use tokio::sync::Notify;

use crate::{
    error::OpenError,
    handles::{open_resource::Limiter, resource::Resource},
    limiter::{BudgetBook, Closed},
    session::{BudgetUse, Lease},
};

/// A handle of a budget, a resource of kind BUDGET. All handles of a resource of one client share one book.
///
/// What was spent cannot be returned. The client gets allowances in advance, so spending needs no request most of the
/// time.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tokens = client.budget("team-a/tokens")?;
/// tokens.spend(1200.0).await?;
/// // … the call that uses up to 1,200 tokens …
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    resource: Resource,
    spender: Arc<Spender>,
}

/// Why an amount was not spent.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpendError {
    /// The allowance does not cover it now. More may be left of the budget.
    #[error("the allowance of this client, {left}, does not cover it now")]
    NotCovered {
        /// What is left of the allowance.
        left: f64,
    },
    /// Another caller waits, and was first.
    #[error("another caller waits for an allowance")]
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
    pub(crate) fn take(&self, lease: &Lease) -> bool {
        let asks = self.lock().book.take(lease, || fastrand::u64(1..));
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

    fn try_spend(&self, now: Millis, amount: Amount) -> Result<(), SpendError> {
        let mut state = self.lock();
        if state.closed {
            return Err(Closed.into());
        }
        let spent = state.book.spend(now, amount);
        let (left, is_short) = (state.book.left(now).get(), state.book.is_short(now));
        drop(state);
        if !spent || is_short {
            self.pressure.notify_one();
        }
        if spent { Ok(()) } else { Err(SpendError::NotCovered { left }) }
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

impl Budget {
    pub(crate) fn new(resource: Resource) -> Result<Budget, OpenError> {
        match &resource.opened().limiter {
            Limiter::Budget(spender) => Ok(Budget { spender: Arc::clone(spender), resource }),
            other => Err(OpenError::OtherKind { id: resource.id().to_owned(), is: other.kind(), asked: "budget" }),
        }
    }

    /// Spends an amount if the allowance covers it now. Asks for more in the background if it does not.
    pub fn try_spend(&self, amount: f64) -> Result<(), SpendError> {
        let amount = Amount::new(amount).map_err(|_| SpendError::Invalid)?;
        let Ok(_turn) = self.spender.turn.try_lock() else { return Err(SpendError::Behind) };
        self.spender.try_spend(self.resource.now(), amount)
    }

    /// Waits until the allowance covers an amount, and spends it. First come, first served. If the budget is spent, this
    /// waits for the next period; to stop waiting, drop the future: nothing is spent.
    pub async fn spend(&self, amount: f64) -> Result<(), SpendError> {
        let amount = Amount::new(amount).map_err(|_| SpendError::Invalid)?;
        let mut waiting = None;
        let _turn = match self.spender.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                waiting = Some(Waiting::new(&self.spender, amount.get()));
                self.spender.turn.lock().await
            }
        };
        loop {
            let changed = self.spender.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.spender.try_spend(self.resource.now(), amount) {
                Err(SpendError::NotCovered { .. }) => {}
                done => return done,
            }
            waiting.get_or_insert_with(|| Waiting::new(&self.spender, amount.get())).comes_first();
            self.spender.pressure.notify_one();
            // A lease may be renewed unchanged, so look again now and then.
            let _ = tokio::time::timeout(Duration::from_secs(1), changed).await;
        }
    }

    /// What may be spent now, without asking.
    pub fn left(&self) -> f64 {
        self.spender.lock().book.left(self.resource.now()).get()
    }

    /// What this client has spent in the current period, since the handle was opened.
    pub fn spent(&self) -> f64 {
        self.spender.lock().book.spent().get()
    }

    /// The start and the end of the current period in Unix seconds; absent before the first lease, and at the end of a
    /// budget that is spent once.
    pub fn period(&self) -> Option<(i64, i64)> {
        self.spender.lock().book.period().filter(|span| !span.is_unending()).map(|span| (span.start, span.end))
    }

    /// The resource: its lease.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}
