//! The line in front of a meter: what waits, in which order, and what wakes what. Both limiters are this and a
//! [`Meter`].
//!
//! One mutex around everything. Nothing is called from under it that could come back: wakers are woken and dropped
//! after it has been released ([`Aftermath`]).
//!
//! **No waiter is forgotten.** The waiter at the head of the line sets a timer, when its future is polled, for when it
//! can be paid. An event that moves that moment (a change of capacity, a waiter ahead that left, a permit that came
//! back) lets through the waiters it can and wakes the one that is at the head then. Waiters are let through by marking
//! their entry; a future that is dropped looks at its entry and hands back what it had been given.

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
        waiting::{
            pressure::Pressure,
            queue::{Key, Queue},
        },
    },
    session::Capacity,
};

mod debt;

/// When the head of the line is later than this, the next caller lets it through in its place.
const LATE: Nanos = 10_000_000;

/// No timer is set for longer; after that the head looks again. Timers do not reach as far as small rates do.
const LONGEST_SLEEP: Nanos = 3_600_000_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Gate<M> {
    line: Mutex<GateState<M>>,
    /// What time is counted from.
    origin: Instant,
    on_pressure: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct GateState<M> {
    meter: M,
    queue: Queue<Waiter>,
    /// Permits that those in the queue wait for.
    waiting: u64,
    /// Permits asked for, ever.
    arrived: u64,
    /// Those among them that found none waiting.
    arrived_freely: u64,
    /// Permits that came back unused, ever.
    refunded: u64,
    /// When the head of the line can be paid, as far as it depends on time.
    due: Option<Nanos>,
    pressure: Pressure,
    /// The most permits in use and wanted since this was last read.
    peak: u64,
    /// For how long there have been waiters, ever, up to when there last was none.
    queued: Nanos,
    /// Since when there have been waiters without a break.
    queued_since: Option<Nanos>,
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    n: u32,
    fate: Fate,
    /// None while it is being polled, and from when it was woken until it is polled.
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stands in the queue.
    Queued,
    /// It has its permits and does not know it yet.
    Admitted(Promise),
    /// The limiter was closed before its turn.
    Refused,
}

/// What there is to do once the mutex has been released.
#[derive(Default)]
struct Aftermath {
    wake: Vec<Waker>,
    /// A waker that is not needed any more. Dropping it may drop a task, and with it one of our futures.
    forget: Option<Waker>,
    pressure: bool,
}

/// Where a future stands after it was polled.
enum Place {
    Done(Result<(), Closed>),
    /// At the head of the line. To be woken at this time, if time helps.
    Head(Option<Nanos>),
    Behind,
}

impl<M: Meter> Gate<M> {
    pub(super) fn new(meter: M, on_pressure: Option<Arc<Notify>>) -> Gate<M> {
        let line = GateState {
            meter,
            queue: Queue::new(),
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
        Gate { line: Mutex::new(line), origin: Instant::now(), on_pressure }
    }

    /// Waits for `n` permits.
    pub(super) fn acquire(&self, n: u32) -> Acquire<'_, M> {
        Acquire { gate: self, n, key: None, timer: None }
    }

    pub(super) fn try_acquire(&self, n: u32) -> Result<(), TryError> {
        self.with(|line, now, after| line.try_acquire(now, n, after))
    }

    pub(super) fn set_capacity(&self, capacity: Capacity) {
        self.change(|meter, now| meter.set_capacity(now, capacity));
    }

    /// Changes what the meter allows, and lets through the waiters it now does.
    pub(super) fn change(&self, change: impl FnOnce(&mut M, Nanos)) {
        self.with(|line, now, after| {
            change(&mut line.meter, now);
            line.move_up(now, after);
        });
    }

    pub(super) fn close(&self) {
        self.with(|line, now, after| line.close(now, after));
    }

    pub(super) fn waiting(&self) -> u64 {
        self.lock().waiting
    }

    pub(super) fn arrived(&self) -> u64 {
        self.lock().arrived
    }

    pub(super) fn arrived_freely(&self) -> u64 {
        self.lock().arrived_freely
    }

    /// The most permits in use and wanted since the last call.
    pub(super) fn take_peak(&self) -> u64 {
        let mut line = self.lock();
        let now = line.demanded();
        mem::replace(&mut line.peak, now)
    }

    /// For how long there have been waiters, ever.
    pub(super) fn queued(&self) -> Duration {
        let now = self.now();
        let line = self.lock();
        let since = line.queued_since.map_or(0, |since| now.saturating_sub(since));
        Duration::from_nanos(line.queued.saturating_add(since))
    }

    /// Permits taken and not handed back, ever.
    pub(super) fn taken(&self) -> u64 {
        self.meter(Meter::taken)
    }

    /// Looks at the meter.
    pub(super) fn meter<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        look(&self.lock().meter)
    }

    fn now(&self) -> Nanos {
        match M::TIMED {
            true => u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            false => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, GateState<M>> {
        // A panic in a waker leaves the line as it was: what follows does not depend on it.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, act: impl FnOnce(&mut GateState<M>, Nanos, &mut Aftermath) -> R) -> R {
        let now = self.now();
        let mut after = Aftermath::default();
        let result = {
            let mut line = self.lock();
            let result = act(&mut line, now, &mut after);
            line.note_whether_queued(now);
            result
        };
        if after.pressure
            && let Some(notify) = &self.on_pressure
        {
            notify.notify_one();
        }
        for waker in after.wake {
            waker.wake();
        }
        drop(after.forget);
        result
    }
}

impl<M: Meter> GateState<M> {
    fn try_acquire(&mut self, now: Nanos, n: u32, after: &mut Aftermath) -> Result<(), TryError> {
        if self.closed {
            return Err(TryError::Closed);
        }
        if let Some(burst) = self.meter.most_at_once().filter(|&most| most < f64::from(n)) {
            return Err(TryError::TooMany { burst });
        }
        self.arrive(now, u64::from(n), after);
        if self.take_unqueued(now, n) {
            return Ok(());
        }
        let ready_in = self.meter.ready_in(now, self.waiting.saturating_add(u64::from(n)));
        Err(TryError::NotNow { retry_after: ready_in.map(Duration::from_nanos) })
    }

    fn note_whether_queued(&mut self, now: Nanos) {
        match (self.queue.front(), self.queued_since) {
            (Some(_), None) => self.queued_since = Some(now),
            (None, Some(since)) => {
                self.queued = self.queued.saturating_add(now.saturating_sub(since));
                self.queued_since = None;
            }
            _ => {}
        }
    }

    /// A caller asks for permits.
    fn arrive(&mut self, now: Nanos, n: u64, after: &mut Aftermath) {
        self.arrived = self.arrived.saturating_add(n);
        self.admit_late(now, after);
        if self.queue.front().is_none() {
            self.arrived_freely = self.arrived_freely.saturating_add(n);
        }
    }

    /// Permits that there was demand for, and that the meter has not allowed yet.
    fn pending(&mut self, now: Nanos) -> u64 {
        self.waiting.saturating_add(self.meter.owed(now))
    }

    /// There are more pending than before.
    fn press(&mut self, now: Nanos, before: u64, after: &mut Aftermath) {
        if before == 0 {
            self.pressure.is_over();
        }
        let pending = self.pending(now);
        after.pressure = self.pressure.rises_to(pending);
    }

    /// Takes permits for a caller that does not stand in the queue: only if none does.
    fn take_unqueued(&mut self, now: Nanos, n: u32) -> bool {
        let taken = n == 0 || (self.queue.front().is_none() && self.meter.take(now, n).is_ok());
        // One that is refused wanted them all the same.
        let refused = if taken { 0 } else { u64::from(n) };
        self.peak = self.peak.max(self.demanded().saturating_add(refused));
        taken
    }

    fn demanded(&self) -> u64 {
        self.meter.in_use().saturating_add(self.waiting)
    }

    /// A future is polled for the first time.
    fn join(&mut self, now: Nanos, n: u32, waker: &Waker, key: &mut Option<Key>, after: &mut Aftermath) -> Place {
        if self.closed {
            return Place::Done(Err(Closed));
        }
        self.arrive(now, u64::from(n), after);
        if self.take_unqueued(now, n) {
            return Place::Done(Ok(()));
        }
        let before = self.pending(now);
        let joined = self.queue.push_back(Waiter { n, fate: Fate::Queued, waker: Some(waker.clone()) });
        *key = Some(joined);
        self.waiting = self.waiting.saturating_add(u64::from(n));
        self.press(now, before, after);
        if self.queue.front() != Some(joined) {
            return Place::Behind;
        }
        // The queue was empty and the meter has just refused: this only notes what it waits for.
        self.admit(now, after);
        Place::Head(self.due)
    }

    /// A future is polled again.
    fn look(&mut self, now: Nanos, key: Key, waker: &Waker, after: &mut Aftermath) -> Place {
        let known = self.queue.value(key).waker.take(); // so that it is not woken if it lets itself through
        if self.queue.front() == Some(key) {
            self.admit(now, after);
            if self.queue.front() != Some(key) {
                self.wake_head(after);
            }
        }
        let waiter = self.queue.value(key);
        if waiter.fate == Fate::Queued {
            let (keep, forget) = match known {
                Some(known) if known.will_wake(waker) => (known, None),
                known => (waker.clone(), known),
            };
            waiter.waker = Some(keep);
            after.forget = forget;
            return if self.queue.front() == Some(key) { Place::Head(self.due) } else { Place::Behind };
        }
        after.forget = known;
        let waiter = self.queue.remove(key);
        let Fate::Admitted(promise) = waiter.fate else { return Place::Done(Err(Closed)) };
        self.meter.claim(promise);
        Place::Done(Ok(()))
    }

    /// A future is dropped before it knew that it has its permits, or before it had them.
    fn leave(&mut self, now: Nanos, key: Key, after: &mut Aftermath) {
        let was_head = self.queue.front() == Some(key);
        if self.queue.value(key).fate == Fate::Queued {
            self.queue.unlink(key);
        }
        let Waiter { n, fate, waker } = self.queue.remove(key);
        after.forget = waker;
        match fate {
            Fate::Queued => {
                self.waiting = self.waiting.saturating_sub(u64::from(n));
                if was_head {
                    self.meter.stop_saving(now);
                    self.move_up(now, after);
                }
            }
            Fate::Admitted(promise) => {
                self.meter.hand_back(now, promise);
                self.move_up(now, after);
            }
            Fate::Refused => {}
        }
    }

    /// Lets through the waiters that the meter lets through, from the head of the line, and notes when the next can be.
    fn admit(&mut self, now: Nanos, after: &mut Aftermath) {
        while let Some(head) = self.queue.front() {
            let n = self.queue.value(head).n;
            if let Err(short) = self.meter.take(now, n) {
                self.meter.save_for(now, n);
                self.due = short.ready_in.map(|wait| now.saturating_add(wait));
                return;
            }
            self.waiting = self.waiting.saturating_sub(u64::from(n));
            let promise = self.meter.promise(n);
            self.call(head, Fate::Admitted(promise), after);
        }
        self.due = None;
    }

    /// As `admit`, when it was not the head of the line that asked: it has to set its timer anew.
    fn move_up(&mut self, now: Nanos, after: &mut Aftermath) {
        self.admit(now, after);
        self.wake_head(after);
    }

    /// Makes up for a head of the line that does not come to see that it is its turn.
    fn admit_late(&mut self, now: Nanos, after: &mut Aftermath) {
        if self.due.is_some_and(|due| now > due.saturating_add(LATE)) {
            self.move_up(now, after);
        }
    }

    fn close(&mut self, now: Nanos, after: &mut Aftermath) {
        self.closed = true;
        while let Some(head) = self.queue.front() {
            self.call(head, Fate::Refused, after);
        }
        self.waiting = 0;
        self.due = None;
        self.meter.stop_saving(now);
    }

    fn call(&mut self, head: Key, fate: Fate, after: &mut Aftermath) {
        self.queue.unlink(head);
        let waiter = self.queue.value(head);
        waiter.fate = fate;
        after.wake.extend(waiter.waker.take());
    }

    /// So that it sets its timer anew. One that has no waker was woken and is on its way, or is here.
    fn wake_head(&mut self, after: &mut Aftermath) {
        if M::TIMED
            && let Some(head) = self.queue.front()
        {
            after.wake.extend(self.queue.value(head).waker.take());
        }
    }
}

/// Waits for permits. Dropping it gives up the place in the line, and permits that it has not seen yet.
pub(super) struct Acquire<'a, M: Meter> {
    gate: &'a Gate<M>,
    n: u32,
    /// Its entry in the queue, once it had to join.
    key: Option<Key>,
    /// Made when it first is at the head of the line.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<M: Meter> Future for Acquire<'_, M> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Acquire { gate, n, key, timer } = &mut *self;
        loop {
            let place = gate.with(|line, now, after| match *key {
                None => line.join(now, *n, cx.waker(), key, after),
                Some(key) => line.look(now, key, cx.waker(), after),
            });
            match place {
                Place::Done(result) => {
                    *key = None;
                    return Poll::Ready(result);
                }
                Place::Head(Some(due)) => ready!(arm(timer, gate.origin, due).poll(cx)),
                Place::Head(None) | Place::Behind => return Poll::Pending,
            }
        }
    }
}

/// The timer, set to `due`.
fn arm(timer: &mut Option<Pin<Box<Sleep>>>, origin: Instant, due: Nanos) -> Pin<&mut Sleep> {
    let due = origin + Duration::from_nanos(due);
    let due = due.min(Instant::now() + Duration::from_nanos(LONGEST_SLEEP));
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
    if timer.deadline() != due {
        timer.as_mut().reset(due);
    }
    timer.as_mut()
}

impl<M: Meter> Drop for Acquire<'_, M> {
    fn drop(&mut self) {
        if let Some(key) = mem::take(&mut self.key) {
            self.gate.with(|line, now, after| line.leave(now, key, after));
        }
    }
}

#[cfg(test)]
mod tests;
