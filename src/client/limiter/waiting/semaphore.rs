//! A fair semaphore over a [`Meter`]. Both limiters are one of these.
//!
//! Callers are served first come, first served. The semaphore keeps the queue of waiters; the meter decides when the
//! waiter at the head can be admitted.
//!
//! **Requests for permits of several limiters** wait in the queues of all of them, see
//! [`joint`](super::joint). When such a request gets to the head of a queue and its permits are available, they are
//! *reserved*: it keeps its place, and waiters behind it are admitted from the rest. The *frontier* is the first waiter
//! whose permits are neither granted nor reserved. Without such requests it is the head of the queue.
//!
//! **Locking.** One mutex guards everything. No foreign code runs under it: wakers are woken and dropped after the
//! mutex is released, see [`Deferred`].
//!
//! **Lost wake-ups.** There is no task behind a semaphore. The waiter at the frontier arms a timer when its future is
//! polled, for the time at which the meter can admit it. Any event that changes this time (a new capacity, a waiter
//! ahead that left, a returned permit) admits the waiters it can and wakes the new frontier, which arms its timer anew. A waiter is admitted by marking its entry. A future that is dropped checks its entry, and returns permits that
//! were granted since its last poll.

use std::{
    collections::VecDeque,
    fmt, mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
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

/// If the waiter at the frontier has not run this long after it was due, the next caller admits it.
const OVERDUE: Nanos = 10_000_000;

/// The longest timer; when it fires, the head polls the meter again. At very small rates a permit may be due later than
/// the timers of the runtime can reach.
const MAX_SLEEP: Nanos = 3_600_000_000_000;

/// The number of semaphores created so far.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Semaphore<M> {
    /// The order in which several semaphores are locked.
    rank: u64,
    state: Mutex<SemaphoreState<M>>,
    /// Time zero of the meter.
    origin: Instant,
    on_pressure: Option<Arc<Notify>>,
}

#[derive(Debug)]
pub(super) struct SemaphoreState<M> {
    pub(super) meter: M,
    queue: LinkedList<Waiter>,
    /// The first waiter whose permits are neither granted nor reserved.
    frontier: Option<Key>,
    /// Permits reserved for the waiters ahead of the frontier.
    pub(super) reserved: u64,
    /// The number of waiters that have joined so far.
    joined: u64,
    /// The sum of permits wanted by the waiters from the frontier on.
    pub(super) waiting: u64,
    /// Permits requested so far.
    pub(super) arrived: u64,
    /// Permits requested so far while no caller waited.
    pub(super) arrived_freely: u64,
    /// Permits returned unused so far.
    pub(super) refunded: u64,
    /// When the frontier can be admitted, if that depends on time alone.
    due: Option<Nanos>,
    pressure: Pressure,
    /// The peak of permits in use and wanted since it was last read.
    peak: u64,
    /// Total time with waiting callers, up to the last moment without any.
    queued: Nanos,
    /// Since when callers have been waiting.
    queued_since: Option<Nanos>,
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    n: u32,
    /// The number of waiters that had joined before.
    place: u64,
    /// If it waits in queues of other semaphores, too.
    joint: Option<Arc<dyn JointWaiter>>,
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

/// A caller that waits in the queues of several semaphores.
pub(super) trait JointWaiter: fmt::Debug + Send + Sync {
    /// Admits the caller if its permits are reserved at all semaphores, and refuses it if one was closed. Returns the
    /// callers to advance next. No semaphore may be locked.
    fn advance(&self) -> Vec<Arc<dyn JointWaiter>>;
}

/// Work that is put off until the mutex is released.
#[derive(Default)]
pub(super) struct Deferred {
    wake: Vec<Waker>,
    /// A waker to drop. That may drop a task, and with it a future of this semaphore.
    forget: Option<Waker>,
    /// Callers whose permits are reserved now, or that were refused.
    advance: Vec<Arc<dyn JointWaiter>>,
    pressure: bool,
}

/// The outcome of a poll.
pub(super) enum Progress {
    Done(Result<(), Closed>),
    /// At the frontier: wake it at this time, or only on an event.
    Frontier(Option<Nanos>),
    /// Behind the frontier.
    Behind,
}

/// A locked semaphore.
pub(super) struct Locked<'a, M> {
    semaphore: &'a Semaphore<M>,
    pub(super) state: MutexGuard<'a, SemaphoreState<M>>,
    pub(super) now: Nanos,
    pub(super) deferred: Deferred,
}

/// What is left to do after a semaphore was unlocked.
#[must_use]
pub(super) struct Unlocked<'a> {
    on_pressure: Option<&'a Notify>,
    deferred: Deferred,
}

impl<'a, M: Meter> Locked<'a, M> {
    pub(super) fn unlock(mut self) -> Unlocked<'a> {
        self.state.track_queued_time(self.now);
        Unlocked { on_pressure: self.semaphore.on_pressure.as_deref(), deferred: self.deferred }
    }

    /// The time of the meter as an instant.
    pub(super) fn instant(&self, at: Nanos) -> Instant {
        self.semaphore.origin + Duration::from_nanos(at)
    }
}

impl Unlocked<'_> {
    /// Wakes and drops wakers. Returns the callers to advance. No semaphore may be locked.
    pub(super) fn finish(self) -> Vec<Arc<dyn JointWaiter>> {
        if self.deferred.pressure
            && let Some(notify) = self.on_pressure
        {
            notify.notify_one();
        }
        for waker in self.deferred.wake {
            waker.wake();
        }
        drop(self.deferred.forget);
        self.deferred.advance
    }
}

/// Advances callers, and those behind them, in order. A loop, because a recursion may be as deep as a queue is long.
pub(super) fn advance_all(waiters: Vec<Arc<dyn JointWaiter>>) {
    let mut waiters = VecDeque::from(waiters);
    while let Some(waiter) = waiters.pop_front() {
        waiters.extend(waiter.advance());
    }
}

impl<M: Meter> Semaphore<M> {
    pub(super) fn new(meter: M, on_pressure: Option<Arc<Notify>>) -> Semaphore<M> {
        let state = SemaphoreState {
            meter,
            queue: LinkedList::new(),
            frontier: None,
            reserved: 0,
            joined: 0,
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
        let rank = CREATED.fetch_add(1, Ordering::Relaxed);
        Semaphore { rank, state: Mutex::new(state), origin: Instant::now(), on_pressure }
    }

    /// The place of this semaphore in the order in which several are locked.
    pub(super) fn rank(&self) -> u64 {
        self.rank
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
        let mut locked = self.locked();
        let result = act(&mut locked.state, locked.now, &mut locked.deferred);
        advance_all(locked.unlock().finish());
        result
    }

    pub(super) fn locked(&self) -> Locked<'_, M> {
        // Read before the mutex is locked, which may take a while. Meters ignore time that has passed already.
        let now = self.now();
        Locked { semaphore: self, state: self.lock(), now, deferred: Deferred::default() }
    }
}

impl<M: Meter> SemaphoreState<M> {
    /// Whether callers wait for permits of this semaphore.
    pub(super) fn has_waiters(&self) -> bool {
        self.frontier.is_some()
    }

    /// Total time with waiting callers.
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
        Err(self.not_now(now, n.into()))
    }

    fn not_now(&mut self, now: Nanos, n: u64) -> TryError {
        let before = self.waiting.saturating_add(self.reserved);
        let ready_in = self.meter.ready_in(now, before.saturating_add(n));
        TryError::NotNow { retry_after: ready_in.map(Duration::from_nanos) }
    }

    fn track_queued_time(&mut self, now: Nanos) {
        match (self.frontier, self.queued_since) {
            (Some(_), None) => self.queued_since = Some(now),
            (None, Some(since)) => {
                self.queued = self.queued.saturating_add(now.saturating_sub(since));
                self.queued_since = None;
            }
            _ => {}
        }
    }

    /// Counts a request, and admits an overdue waiter first.
    pub(super) fn arrive(&mut self, now: Nanos, n: u64, deferred: &mut Deferred) {
        self.arrived = self.arrived.saturating_add(n);
        self.admit_overdue(now, deferred);
        if self.frontier.is_none() {
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

    /// Whether `n` permits can be taken beyond `claimed` ones without overtaking a waiter.
    fn are_free(&mut self, now: Nanos, claimed: u64, n: u64) -> bool {
        self.frontier.is_none() && self.meter.check(now, self.reserved.saturating_add(claimed), n).is_ok()
    }

    /// Takes permits without queueing, if no caller waits.
    fn take_unqueued(&mut self, now: Nanos, n: u32) -> bool {
        let is_free = |state: &mut Self| match state.reserved {
            0 => state.frontier.is_none(),
            _ => state.are_free(now, 0, n.into()),
        };
        let taken = n == 0 || (is_free(self) && self.meter.take(now, n).is_ok());
        if taken && self.reserved > 0 {
            self.save_for_front(now);
        }
        // A refused caller is demand, too.
        let refused = if taken { 0 } else { u64::from(n) };
        self.peak = self.peak.max(self.demanded().saturating_add(refused));
        taken
    }

    fn demanded(&self) -> u64 {
        self.meter.in_use().saturating_add(self.waiting).saturating_add(self.reserved)
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
        let joined = self.push(n, None, Some(waker.clone()));
        *key = Some(joined);
        self.raise_pressure(now, before, deferred);
        if self.frontier != Some(joined) {
            return Progress::Behind;
        }
        // Nobody waited and the meter has just refused: this only records the due time.
        self.admit(now, deferred);
        Progress::Frontier(self.due)
    }

    fn push(&mut self, n: u32, joint: Option<Arc<dyn JointWaiter>>, waker: Option<Waker>) -> Key {
        let place = self.joined;
        self.joined += 1;
        let key = self.queue.push_back(Waiter { n, place, joint, state: WaiterState::Queued, waker });
        self.frontier.get_or_insert(key);
        self.waiting = self.waiting.saturating_add(u64::from(n));
        key
    }

    /// A later poll of a future that has joined the queue.
    fn poll_queued(&mut self, now: Nanos, key: Key, waker: &Waker, deferred: &mut Deferred) -> Progress {
        let known = self.queue.value(key).waker.take(); // not to be woken if it admits itself
        if self.frontier == Some(key) {
            self.admit(now, deferred);
            if self.frontier != Some(key) {
                self.wake_frontier(deferred);
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
            return self.place_in_queue(key);
        }
        deferred.forget = known;
        let waiter = self.queue.remove(key);
        let WaiterState::Admitted(promise) = waiter.state else { return Progress::Done(Err(Closed)) };
        self.meter.claim(promise);
        Progress::Done(Ok(()))
    }

    fn place_in_queue(&self, key: Key) -> Progress {
        if self.frontier == Some(key) { Progress::Frontier(self.due) } else { Progress::Behind }
    }

    /// A future is dropped before it completed.
    pub(super) fn leave(&mut self, now: Nanos, key: Key, deferred: &mut Deferred) {
        let state = self.queue.value(key).state;
        let changes_queue = state == WaiterState::Queued && self.unlink(now, key);
        deferred.forget = self.queue.remove(key).waker;
        if let WaiterState::Admitted(promise) = state {
            self.meter.hand_back(now, promise);
            self.admit_and_wake(now, deferred);
        } else if changes_queue {
            self.admit_and_wake(now, deferred);
        }
    }

    /// Takes a waiter out of the queue. Returns whether others may be admitted now.
    fn unlink(&mut self, now: Nanos, key: Key) -> bool {
        let n = u64::from(self.queue.value(key).n);
        let (is_front, is_ahead) = (self.queue.front() == Some(key), self.is_ahead(key));
        let is_frontier = self.frontier == Some(key);
        match is_ahead {
            true => self.reserved = self.reserved.saturating_sub(n),
            false => self.waiting = self.waiting.saturating_sub(n),
        }
        if is_frontier {
            self.frontier = self.queue.after(key);
        }
        self.queue.unlink(key);
        if is_front {
            self.meter.stop_saving(now);
        }
        is_ahead || is_frontier
    }

    /// Whether a queued waiter is ahead of the frontier, so that its permits are reserved.
    fn is_ahead(&mut self, key: Key) -> bool {
        let place = self.queue.value(key).place;
        self.frontier.is_none_or(|frontier| place < self.queue.value(frontier).place)
    }

    /// Admits waiters from the frontier on while the meter allows it, and records when the next can be admitted.
    pub(super) fn admit(&mut self, now: Nanos, deferred: &mut Deferred) {
        if self.reserved > 0 && self.meter.check(now, self.reserved, 0).is_err() {
            // The capacity was cut, or permits were charged.
            self.waiting = self.waiting.saturating_add(mem::take(&mut self.reserved));
            self.frontier = self.queue.front();
        }
        self.due = self.advance(now, deferred);
        self.save_for_front(now);
    }

    /// Saves up for the waiter at the front, also if its permits are reserved. Taking permits ends that.
    fn save_for_front(&mut self, now: Nanos) {
        if let Some(front) = self.queue.front() {
            let n = self.queue.value(front).n;
            self.meter.save_for(now, n);
        }
    }

    /// Moves the frontier. Returns when it can be moved again.
    fn advance(&mut self, now: Nanos, deferred: &mut Deferred) -> Option<Nanos> {
        while let Some(at) = self.frontier {
            let n = self.queue.value(at).n;
            if let Err(short) = self.meter.check(now, self.reserved, n.into()) {
                return short.ready_in.map(|wait| now.saturating_add(wait));
            }
            self.frontier = self.queue.after(at);
            self.waiting = self.waiting.saturating_sub(n.into());
            let waiter = self.queue.value(at);
            if let Some(joint) = &waiter.joint {
                deferred.advance.push(Arc::clone(joint));
                self.reserved = self.reserved.saturating_add(n.into());
            } else {
                let taken = self.meter.take(now, n);
                debug_assert!(taken.is_ok(), "checked above");
                let promise = self.meter.promise(n);
                self.resolve(at, WaiterState::Admitted(promise), deferred);
            }
        }
        None
    }

    /// As `admit`, for events other than a poll of the frontier: the frontier has to arm its timer anew.
    pub(super) fn admit_and_wake(&mut self, now: Nanos, deferred: &mut Deferred) {
        self.admit(now, deferred);
        self.wake_frontier(deferred);
    }

    /// Admits a waiter whose future was not polled in time.
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
        (self.frontier, self.waiting, self.reserved) = (None, 0, 0);
        self.due = None;
        self.meter.stop_saving(now);
    }

    fn resolve(&mut self, head: Key, state: WaiterState, deferred: &mut Deferred) {
        self.queue.unlink(head);
        let waiter = self.queue.value(head);
        waiter.state = state;
        match &waiter.joint {
            Some(joint) => deferred.advance.push(Arc::clone(joint)),
            None => deferred.wake.extend(waiter.waker.take()),
        }
    }

    /// Wakes the frontier to arm its timer anew. Without a waker it was woken already, or is being polled.
    fn wake_frontier(&mut self, deferred: &mut Deferred) {
        if M::TIMED
            && let Some(frontier) = self.frontier
        {
            deferred.wake.extend(self.queue.value(frontier).waker.take());
        }
    }
}

/// Requests for permits of several semaphores, all of which are locked.
impl<M: Meter> SemaphoreState<M> {
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether `n` permits can be taken beyond `claimed` ones. Takes nothing.
    pub(super) fn check(&mut self, now: Nanos, claimed: u64, n: u64, deferred: &mut Deferred) -> Result<(), TryError> {
        if self.closed {
            return Err(TryError::Closed);
        }
        let all = claimed.saturating_add(n);
        if let Some(burst) = self.meter.max_at_once().filter(|&most| most < all as f64) {
            return Err(TryError::TooMany { burst });
        }
        self.admit_overdue(now, deferred);
        if self.are_free(now, claimed, n) { Ok(()) } else { Err(self.not_now(now, all)) }
    }

    /// Takes permits that are free.
    pub(super) fn take_checked(&mut self, now: Nanos, n: u32, deferred: &mut Deferred) {
        self.arrive(now, n.into(), deferred);
        let taken = self.take_unqueued(now, n);
        debug_assert!(taken, "checked before");
    }

    /// Counts refused permits as demand.
    pub(super) fn refuse(&mut self, now: Nanos, n: u32, deferred: &mut Deferred) {
        self.arrive(now, n.into(), deferred);
        self.peak = self.peak.max(self.demanded().saturating_add(n.into()));
    }

    /// Joins the queue.
    pub(super) fn join(&mut self, now: Nanos, n: u32, joint: Arc<dyn JointWaiter>, deferred: &mut Deferred) -> Key {
        self.arrive(now, n.into(), deferred);
        let before = self.pending(now);
        let key = self.push(n, Some(joint), None);
        self.admit(now, deferred);
        if !self.is_ahead(key) {
            self.raise_pressure(now, before, deferred);
        }
        self.peak = self.peak.max(self.demanded());
        key
    }

    /// Looks how far a caller that has joined is. `Done(Ok)`: its permits are reserved.
    pub(super) fn look(&mut self, now: Nanos, key: Key, deferred: &mut Deferred) -> Progress {
        if self.queue.value(key).state == WaiterState::Refused {
            return Progress::Done(Err(Closed));
        }
        let before = self.frontier;
        self.admit(now, deferred);
        if self.frontier != before {
            self.wake_frontier(deferred);
        }
        if self.is_ahead(key) { Progress::Done(Ok(())) } else { self.place_in_queue(key) }
    }

    /// Sets the waker of a caller that goes on waiting, or removes it.
    pub(super) fn set_waker(&mut self, _: Nanos, key: Key, waker: Option<Waker>, deferred: &mut Deferred) {
        deferred.forget = mem::replace(&mut self.queue.value(key).waker, waker).or(deferred.forget.take());
    }

    /// Takes the reserved permits of a caller, and wakes it.
    pub(super) fn take_reserved(&mut self, now: Nanos, key: Key, deferred: &mut Deferred) -> Promise {
        let n = self.queue.value(key).n;
        // Taken before it leaves the queue, because then the meter stops saving up for it.
        let taken = self.meter.take(now, n);
        debug_assert!(taken.is_ok(), "permits were reserved");
        let promise = self.meter.promise(n);
        self.unlink(now, key);
        deferred.wake.extend(self.queue.remove(key).waker);
        self.admit_and_wake(now, deferred);
        promise
    }

    /// Leaves the queue, and wakes the caller.
    pub(super) fn remove(&mut self, now: Nanos, key: Key, deferred: &mut Deferred) {
        if self.queue.value(key).state == WaiterState::Queued && self.unlink(now, key) {
            self.admit_and_wake(now, deferred);
        }
        deferred.wake.extend(self.queue.remove(key).waker);
    }

    /// Ends a promise whose permits are used.
    pub(super) fn claim(&mut self, _: Nanos, promise: Promise, _: &mut Deferred) {
        self.meter.claim(promise);
    }

    /// Ends a promise whose permits are not used.
    pub(super) fn hand_back(&mut self, now: Nanos, promise: Promise, deferred: &mut Deferred) {
        self.meter.hand_back(now, promise);
        self.admit_and_wake(now, deferred);
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
    /// Created when it first gets to the frontier.
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
                Progress::Frontier(Some(due)) => {
                    ready!(arm(timer, semaphore.origin + Duration::from_nanos(due)).poll(cx));
                }
                Progress::Frontier(None) | Progress::Behind => return Poll::Pending,
            }
        }
    }
}

/// Sets the timer to `due`.
pub(super) fn arm(timer: &mut Option<Pin<Box<Sleep>>>, due: Instant) -> Pin<&mut Sleep> {
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
