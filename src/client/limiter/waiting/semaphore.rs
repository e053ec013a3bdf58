//! A fair semaphore over a [`Meter`]. Both limiters are one of these.
//!
//! Callers are served first come, first served. The semaphore keeps the queue of waiters; the meter decides when the
//! waiter at the head can be admitted.
//!
//! **Locking.** One mutex guards everything. No foreign code runs under it: wakers are woken and dropped after the
//! mutex is released, see [`Deferred`].
//!
//! **Lost wake-ups.** There is no task behind a semaphore. The waiter at the head of the queue arms a timer when its
//! future is polled, for the time at which the meter can admit it. Any event that changes this time (a new capacity, a
//! waiter ahead that left, a returned permit) admits the waiters it can and wakes the new head, which arms its timer
//! anew. A waiter is admitted by marking its entry. A future that is dropped checks its entry, and returns permits that
//! were granted since its last poll.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    limiter::{
        Closed, Meter, Nanos, Promise, TryError,
        waiting::linked_list::{Key, LinkedList},
    },
    session::Capacity,
};

/// If the head of the queue has not run this long after it was due, the next caller admits it.
const OVERDUE: Nanos = 10_000_000;

/// The longest timer; when it fires, the head polls the meter again. At very small rates a permit may be due later than
/// the timers of the runtime can reach.
const MAX_SLEEP: Nanos = 3_600_000_000_000;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Semaphore<M> {
    state: Mutex<SemaphoreState<M>>,
    /// Time zero of the meter.
    origin: Instant,
    on_pressure: Option<Arc<Notify>>,
}

#[derive(Debug)]
pub(super) struct SemaphoreState<M> {
    pub(super) meter: M,
    queue: LinkedList<Waiter>,
    /// The sum of permits that queued waiters want.
    pub(super) waiting: u64,
    /// Permits requested so far.
    pub(super) arrived: u64,
    /// Permits requested so far while the queue was empty.
    pub(super) arrived_freely: u64,
    /// Permits returned unused so far.
    pub(super) refunded: u64,
    /// When the head of the queue can be admitted, if that depends on time alone.
    due: Option<Nanos>,
    pressure: Pressure,
    /// The peak of permits in use and wanted since it was last read.
    peak: u64,
    /// Total time with a non-empty queue, up to the moment it was last empty.
    queued: Nanos,
    /// Since when the queue has been non-empty.
    queued_since: Option<Nanos>,
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    n: u32,
    state: WaiterState,
    /// Absent while the future is polled, and between a wake-up and the poll that follows it.
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    Queued,
    /// It was granted its permits, but its future has not been polled since.
    Admitted(Promise),
    /// The limiter was closed first.
    Refused,
}

/// Work that is put off until the mutex is released.
#[derive(Default)]
pub(super) struct Deferred {
    wake: Vec<Waker>,
    /// A waker to drop. That may drop a task, and with it a future of this semaphore.
    forget: Option<Waker>,
    pressure: bool,
}

/// The outcome of a poll.
enum Progress {
    Done(Result<(), Closed>),
    /// At the head of the queue: wake it at this time, or only on an event.
    Head(Option<Nanos>),
    /// Behind the head of the queue.
    Behind,
}

impl<M: Meter> Semaphore<M> {
    pub(super) fn new(meter: M, on_pressure: Option<Arc<Notify>>) -> Semaphore<M> {
        let state = SemaphoreState {
            meter,
            queue: LinkedList::new(),
            waiting: 0,
            arrived: 0,
            arrived_freely: 0,
            refunded: 0,
            due: None,
            pressure: Pressure::default(),
            peak: 0,
            queued: 0,
            queued_since: None,
            closed: false,
        };
        Semaphore { state: Mutex::new(state), origin: Instant::now(), on_pressure }
    }

    /// Waits for `n` permits.
    pub(super) fn acquire(&self, n: u32) -> Acquire<'_, M> {
        Acquire { semaphore: self, n, key: None, timer: None }
    }

    pub(super) fn try_acquire(&self, n: u32) -> Result<(), TryError> {
        self.with(|state, now, deferred| state.try_acquire(now, n, deferred))
    }

    pub(super) fn set_capacity(&self, capacity: Capacity) {
        self.change(|meter, now| meter.set_capacity(now, capacity));
    }

    /// Changes the meter, then admits the waiters that it allows.
    pub(super) fn change(&self, change: impl FnOnce(&mut M, Nanos)) {
        self.with(|state, now, deferred| {
            change(&mut state.meter, now);
            state.admit_and_wake(now, deferred);
        });
    }

    pub(super) fn close(&self) {
        self.with(|state, now, deferred| state.close(now, deferred));
    }

    pub(super) fn waiting(&self) -> u64 {
        self.lock().waiting
    }

    pub(super) fn arrived(&self) -> u64 {
        self.lock().arrived
    }

    /// The peak of permits in use and wanted since the last call.
    pub(super) fn take_peak(&self) -> u64 {
        let mut state = self.lock();
        let now = state.demanded();
        mem::replace(&mut state.peak, now)
    }

    /// Permits taken and not returned so far.
    pub(super) fn taken(&self) -> u64 {
        self.meter(Meter::taken)
    }

    /// Reads from the meter.
    pub(super) fn meter<R>(&self, read: impl FnOnce(&M) -> R) -> R {
        read(&self.lock().meter)
    }

    pub(super) fn now(&self) -> Nanos {
        match M::TIMED {
            true => u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            false => 0,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SemaphoreState<M>> {
        // A panic in a waker happens outside of the mutex and leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut SemaphoreState<M>, Nanos, &mut Deferred) -> R) -> R {
        let now = self.now();
        let mut deferred = Deferred::default();
        let result = {
            let mut state = self.lock();
            let result = act(&mut state, now, &mut deferred);
            state.track_queued_time(now);
            result
        };
        if deferred.pressure
            && let Some(notify) = &self.on_pressure
        {
            notify.notify_one();
        }
        for waker in deferred.wake {
            waker.wake();
        }
        drop(deferred.forget);
        result
    }
}

impl<M: Meter> SemaphoreState<M> {
    pub(super) fn has_waiters(&self) -> bool {
        self.queue.front().is_some()
    }

    /// Total time with a non-empty queue.
    pub(super) fn queued(&self, now: Nanos) -> Duration {
        let since = self.queued_since.map_or(0, |since| now.saturating_sub(since));
        Duration::from_nanos(self.queued.saturating_add(since))
    }

    pub(super) fn try_acquire(&mut self, now: Nanos, n: u32, deferred: &mut Deferred) -> Result<(), TryError> {
        if self.closed {
            return Err(TryError::Closed);
        }
        if let Some(burst) = self.meter.max_at_once().filter(|&most| most < f64::from(n)) {
            return Err(TryError::TooMany { burst });
        }
        self.arrive(now, u64::from(n), deferred);
        if self.take_unqueued(now, n) {
            return Ok(());
        }
        let ready_in = self.meter.ready_in(now, self.waiting.saturating_add(u64::from(n)));
        Err(TryError::NotNow { retry_after: ready_in.map(Duration::from_nanos) })
    }

    fn track_queued_time(&mut self, now: Nanos) {
        match (self.queue.front(), self.queued_since) {
            (Some(_), None) => self.queued_since = Some(now),
            (None, Some(since)) => {
                self.queued = self.queued.saturating_add(now.saturating_sub(since));
                self.queued_since = None;
            }
            _ => {}
        }
    }

    /// Counts a request, and admits an overdue head first.
    pub(super) fn arrive(&mut self, now: Nanos, n: u64, deferred: &mut Deferred) {
        self.arrived = self.arrived.saturating_add(n);
        self.admit_overdue(now, deferred);
        if self.queue.front().is_none() {
            self.arrived_freely = self.arrived_freely.saturating_add(n);
        }
    }

    /// Permits that are waited for or owed.
    pub(super) fn pending(&mut self, now: Nanos) -> u64 {
        self.waiting.saturating_add(self.meter.owed(now))
    }

    /// Called when more permits are pending than before.
    pub(super) fn raise_pressure(&mut self, now: Nanos, before: u64, deferred: &mut Deferred) {
        if before == 0 {
            self.pressure.reset();
        }
        let pending = self.pending(now);
        deferred.pressure = self.pressure.update(pending);
    }

    /// Takes permits without queueing, if the queue is empty.
    fn take_unqueued(&mut self, now: Nanos, n: u32) -> bool {
        let taken = n == 0 || (self.queue.front().is_none() && self.meter.take(now, n).is_ok());
        // A refused caller is demand, too.
        let refused = if taken { 0 } else { u64::from(n) };
        self.peak = self.peak.max(self.demanded().saturating_add(refused));
        taken
    }

    fn demanded(&self) -> u64 {
        self.meter.in_use().saturating_add(self.waiting)
    }

    /// The first poll of a future.
    fn poll_first(
        &mut self,
        now: Nanos,
        n: u32,
        waker: &Waker,
        key: &mut Option<Key>,
        deferred: &mut Deferred,
    ) -> Progress {
        if self.closed {
            return Progress::Done(Err(Closed));
        }
        self.arrive(now, u64::from(n), deferred);
        if self.take_unqueued(now, n) {
            return Progress::Done(Ok(()));
        }
        let before = self.pending(now);
        let joined = self.queue.push_back(Waiter { n, state: WaiterState::Queued, waker: Some(waker.clone()) });
        *key = Some(joined);
        self.waiting = self.waiting.saturating_add(u64::from(n));
        self.raise_pressure(now, before, deferred);
        if self.queue.front() != Some(joined) {
            return Progress::Behind;
        }
        // The queue was empty and the meter has just refused: this only records the due time.
        self.admit(now, deferred);
        Progress::Head(self.due)
    }

    /// A later poll of a future that has joined the queue.
    fn poll_queued(&mut self, now: Nanos, key: Key, waker: &Waker, deferred: &mut Deferred) -> Progress {
        let known = self.queue.value(key).waker.take(); // not to be woken if it admits itself
        if self.queue.front() == Some(key) {
            self.admit(now, deferred);
            if self.queue.front() != Some(key) {
                self.wake_head(deferred);
            }
        }
        let waiter = self.queue.value(key);
        if waiter.state == WaiterState::Queued {
            let (keep, forget) = match known {
                Some(known) if known.will_wake(waker) => (known, None),
                known => (waker.clone(), known),
            };
            waiter.waker = Some(keep);
            deferred.forget = forget;
            return if self.queue.front() == Some(key) { Progress::Head(self.due) } else { Progress::Behind };
        }
        deferred.forget = known;
        let waiter = self.queue.remove(key);
        let WaiterState::Admitted(promise) = waiter.state else { return Progress::Done(Err(Closed)) };
        self.meter.claim(promise);
        Progress::Done(Ok(()))
    }

    /// A future is dropped before it completed.
    fn leave(&mut self, now: Nanos, key: Key, deferred: &mut Deferred) {
        let was_head = self.queue.front() == Some(key);
        if self.queue.value(key).state == WaiterState::Queued {
            self.queue.unlink(key);
        }
        let Waiter { n, state, waker } = self.queue.remove(key);
        deferred.forget = waker;
        match state {
            WaiterState::Queued => {
                self.waiting = self.waiting.saturating_sub(u64::from(n));
                if was_head {
                    self.meter.stop_saving(now);
                    self.admit_and_wake(now, deferred);
                }
            }
            WaiterState::Admitted(promise) => {
                self.meter.hand_back(now, promise);
                self.admit_and_wake(now, deferred);
            }
            WaiterState::Refused => {}
        }
    }

    /// Admits waiters from the head of the queue while the meter allows it, and records when the next can be admitted.
    pub(super) fn admit(&mut self, now: Nanos, deferred: &mut Deferred) {
        while let Some(head) = self.queue.front() {
            let n = self.queue.value(head).n;
            if let Err(short) = self.meter.take(now, n) {
                self.meter.save_for(now, n);
                self.due = short.ready_in.map(|wait| now.saturating_add(wait));
                return;
            }
            self.waiting = self.waiting.saturating_sub(u64::from(n));
            let promise = self.meter.promise(n);
            self.resolve(head, WaiterState::Admitted(promise), deferred);
        }
        self.due = None;
    }

    /// As `admit`, for events other than a poll of the head: the head has to arm its timer anew.
    pub(super) fn admit_and_wake(&mut self, now: Nanos, deferred: &mut Deferred) {
        self.admit(now, deferred);
        self.wake_head(deferred);
    }

    /// Admits a head whose future was not polled in time.
    fn admit_overdue(&mut self, now: Nanos, deferred: &mut Deferred) {
        if self.due.is_some_and(|due| now > due.saturating_add(OVERDUE)) {
            self.admit_and_wake(now, deferred);
        }
    }

    fn close(&mut self, now: Nanos, deferred: &mut Deferred) {
        self.closed = true;
        while let Some(head) = self.queue.front() {
            self.resolve(head, WaiterState::Refused, deferred);
        }
        self.waiting = 0;
        self.due = None;
        self.meter.stop_saving(now);
    }

    fn resolve(&mut self, head: Key, state: WaiterState, deferred: &mut Deferred) {
        self.queue.unlink(head);
        let waiter = self.queue.value(head);
        waiter.state = state;
        deferred.wake.extend(waiter.waker.take());
    }

    /// Wakes the head to arm its timer anew. Without a waker it was woken already, or is being polled.
    fn wake_head(&mut self, deferred: &mut Deferred) {
        if M::TIMED
            && let Some(head) = self.queue.front()
        {
            deferred.wake.extend(self.queue.value(head).waker.take());
        }
    }
}

/// Notifies when permits become pending (waited for or owed), and again each time their number has doubled.
#[derive(Debug, Default)]
struct Pressure {
    /// The number pending at the last notification; 0 if none have been pending since.
    notified_at: u64,
}

impl Pressure {
    /// The number of pending permits has risen to `pending`. Returns whether to notify.
    fn update(&mut self, pending: u64) -> bool {
        let notify = pending >= self.notified_at.saturating_mul(2).max(1);
        if notify {
            self.notified_at = pending;
        }
        notify
    }

    fn reset(&mut self) {
        self.notified_at = 0;
    }
}

/// The future of [`Semaphore::acquire`]. Dropping it leaves the queue, and returns permits granted since the last poll.
pub(super) struct Acquire<'a, M: Meter> {
    semaphore: &'a Semaphore<M>,
    n: u32,
    /// Its entry in the queue, if it had to join.
    key: Option<Key>,
    /// Created when it first gets to the head of the queue.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<M: Meter> Future for Acquire<'_, M> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Acquire { semaphore, n, key, timer } = &mut *self;
        loop {
            let progress = semaphore.with(|state, now, deferred| match *key {
                None => state.poll_first(now, *n, cx.waker(), key, deferred),
                Some(key) => state.poll_queued(now, key, cx.waker(), deferred),
            });
            match progress {
                Progress::Done(result) => {
                    *key = None;
                    return Poll::Ready(result);
                }
                Progress::Head(Some(due)) => ready!(arm(timer, semaphore.origin, due).poll(cx)),
                Progress::Head(None) | Progress::Behind => return Poll::Pending,
            }
        }
    }
}

/// Sets the timer to `due`.
fn arm(timer: &mut Option<Pin<Box<Sleep>>>, origin: Instant, due: Nanos) -> Pin<&mut Sleep> {
    let due = origin + Duration::from_nanos(due);
    let due = due.min(Instant::now() + Duration::from_nanos(MAX_SLEEP));
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
    if timer.deadline() != due {
        timer.as_mut().reset(due);
    }
    timer.as_mut()
}

impl<M: Meter> Drop for Acquire<'_, M> {
    fn drop(&mut self) {
        if let Some(key) = mem::take(&mut self.key) {
            self.semaphore.with(|state, now, deferred| state.leave(now, key, deferred));
        }
    }
}

#[cfg(test)]
mod tests;
