//! Permits of several limiters: a caller takes all of them at the same moment, or nothing.
//!
//! [`joint`](crate::limiter::joint) decides whether a request passes now. This module locks the limiters meanwhile,
//! always in the order in which they were created, and lets refused callers wait.
//!
//! **Waiting.** A caller joins the queues of all its limiters while it has locked them, and takes nothing. In each
//! queue it is served first come, first served. When it gets to the head of a queue and its permits are available
//! there, they are reserved: callers behind it get only what is left over. When its permits are reserved at all
//! limiters, it takes them. So it holds no permit while it waits for another, and a rate admits it when it begins its
//! work, which keeps the bound of capacity · T + burst.
//!
//! **No deadlock, no starvation.** Because a caller joins all queues at once, one order of arrival holds in all of
//! them. The caller that arrived first is at the head of every queue it is in. There the limiter saves up for it, and
//! what is reserved for it is not given to others, so after a while all its permits are reserved, however many others
//! need how little. It takes them, and the next caller is first. This needs that each capacity suffices, that permits
//! of gauges come back, and that waiting futures are polled.
//!
//! **Cost.** Permits that are reserved at one limiter are idle until the caller is served at the others. A rate keeps
//! saving up to its burst meanwhile, and then loses capacity. A caller that needs more than the capacity of a gauge waits
//! until it grows, and callers behind it wait with it, as at a single gauge.
//!
//! **Lost wake-ups.** An event at a limiter that reserves the permits of a caller there also admits it, if they are
//! reserved at the other limiters, too: see [`Ticket`]. As with a single limiter, the permits are promised until the
//! future is polled. A caller that is due first at some limiter is woken to arm a timer; it has one for all of them.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use smallvec::SmallVec;
use tokio::{
    task::coop::consume_budget,
    time::{Instant, Sleep},
};

use crate::limiter::{
    Bucket, Closed, DebtExceeded, GaugeLimiter, GaugePermit, Promise, RateLimiter, RateReservation, TryError,
    joint::{self, Claim, JointLimit},
    waiting::{
        gauge::PermitCount,
        linked_list::Key,
        semaphore::{JointWaiter, Locked, Progress, Unlocked, advance_all, arm},
    },
};

/// The usual maximum number of limiters in a request. More are allocated on the heap.
const FEW: usize = 4;

/// A limiter of either kind. Clones share the limiter.
#[derive(Debug, Clone)]
pub enum AnyLimiter {
    /// Permits per second.
    Rate(RateLimiter),
    /// Permits in use at the same time.
    Gauge(GaugeLimiter),
}

/// A borrowed [`AnyLimiter`].
#[derive(Debug, Clone, Copy)]
pub enum LimiterRef<'a> {
    /// Permits per second.
    Rate(&'a RateLimiter),
    /// Permits in use at the same time.
    Gauge(&'a GaugeLimiter),
}

/// Several limiters with a number of permits of each, taken all at once or not at all. Callers are served first come,
/// first served, and hold no permit while they wait. Clones share the limiters.
///
/// A limiter may be named several times; the numbers add up, to at most [`u32::MAX`]. One with 0 permits is not waited
/// for.
#[derive(Debug, Clone)]
pub struct JointLimiter {
    parts: Vec<(AnyLimiter, u32)>,
    /// The indices of parts with permits, each with that of its slot.
    needed: Vec<(usize, usize)>,
    slots: Arc<[Slot]>,
}

/// A limiter and the sum of its parts. Slots are in the order of locking.
#[derive(Debug, Clone)]
struct Slot {
    limiter: AnyLimiter,
    n: u32,
}

/// Why permits of several limiters are not available now. Nothing was taken, and the caller was not queued.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("limiter {index}: {error}")]
pub struct JointRefusal {
    /// The index of the limiter that refuses; of several, the one that takes longest.
    pub index: usize,
    /// Why it refuses.
    pub error: TryError,
}

/// Permits of several limiters. Dropping the value returns those of gauges; permits of rates are used up.
#[derive(Debug)]
#[must_use = "a permit that is dropped is returned"]
pub struct JointPermit {
    _gauges: SmallVec<[GaugePermit; 1]>,
}

/// Permits of several limiters, of which unused ones can be returned. If it is dropped without being settled, all
/// permits of rates count as used. Permits of gauges are returned either way.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used in full: settle it"]
pub struct JointReservation {
    parts: Vec<Reserved>,
}

#[derive(Debug)]
enum Reserved {
    Rate(RateReservation),
    Gauge { n: u32, _permit: GaugePermit },
}

impl AnyLimiter {
    fn borrowed(&self) -> LimiterRef<'_> {
        match self {
            AnyLimiter::Rate(rate) => LimiterRef::Rate(rate),
            AnyLimiter::Gauge(gauge) => LimiterRef::Gauge(gauge),
        }
    }

    fn lock(&self) -> LockedLimiter<'_> {
        self.borrowed().lock()
    }
}

impl<'a> LimiterRef<'a> {
    fn rank(self) -> u64 {
        match self {
            LimiterRef::Rate(rate) => rate.semaphore.rank(),
            LimiterRef::Gauge(gauge) => gauge.semaphore.rank(),
        }
    }

    fn lock(self) -> LockedLimiter<'a> {
        match self {
            LimiterRef::Rate(rate) => LockedLimiter::Rate(rate.semaphore.locked()),
            LimiterRef::Gauge(gauge) => LockedLimiter::Gauge(gauge.semaphore.locked()),
        }
    }
}

/// Decides a request without waiting: takes the permits of all claims, or of none. `claims[i]` is for `limiters[i]`. A
/// request that is `vetoed` takes nothing. Returns whether it passes; the claims have the outcome of each.
///
/// Unlike with [`JointLimiter`], taken permits of gauges are not returned by a guard.
///
/// # Panics
///
/// Panics if the two slices differ in length.
pub fn try_acquire_all(limiters: &[LimiterRef<'_>], claims: &mut [Claim], vetoed: bool) -> bool {
    assert_eq!(limiters.len(), claims.len(), "a claim for each limiter");
    let mut order: SmallVec<[(u64, usize); FEW]> = limiters.iter().map(|limiter| limiter.rank()).zip(0..).collect();
    order.sort_unstable();
    let mut limit_of: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, limiters.len());
    let mut all = AllLocked::default();
    let mut last = None;
    for (rank, at) in order {
        if last != Some(rank) {
            last = Some(rank);
            all.0.push(limiters[at].lock());
        }
        limit_of[at] = all.0.len() - 1;
    }
    let passes = joint::decide(&mut all.0, &limit_of, claims, vetoed);
    all.unlock();
    passes
}

enum LockedLimiter<'a> {
    Rate(Locked<'a, Bucket>),
    Gauge(Locked<'a, PermitCount>),
}

/// Calls a method of the state of a locked limiter, whichever kind it is.
macro_rules! call {
    ($locked:expr, $method:ident($($argument:expr),*)) => {
        match $locked {
            LockedLimiter::Rate(Locked { state, now, deferred, .. }) => state.$method(*now, $($argument,)* deferred),
            LockedLimiter::Gauge(Locked { state, now, deferred, .. }) => state.$method(*now, $($argument,)* deferred),
        }
    };
}

impl<'a> LockedLimiter<'a> {
    fn is_closed(&self) -> bool {
        match self {
            LockedLimiter::Rate(locked) => locked.state.is_closed(),
            LockedLimiter::Gauge(locked) => locked.state.is_closed(),
        }
    }

    /// A time of its meter as an instant.
    fn instant(&self, at: u64) -> Instant {
        match self {
            LockedLimiter::Rate(locked) => locked.instant(at),
            LockedLimiter::Gauge(locked) => locked.instant(at),
        }
    }

    fn unlock(self) -> Unlocked<'a> {
        match self {
            LockedLimiter::Rate(locked) => locked.unlock(),
            LockedLimiter::Gauge(locked) => locked.unlock(),
        }
    }
}

impl JointLimit for LockedLimiter<'_> {
    fn check(&mut self, claimed: u64, n: u64) -> Result<(), TryError> {
        call!(self, check(claimed, n))
    }

    fn take(&mut self, n: u32) {
        call!(self, take_checked(n));
    }

    fn refuse(&mut self, n: u32) {
        call!(self, refuse(n));
    }
}

/// All limiters of a request, locked in order.
#[derive(Default)]
struct AllLocked<'a>(SmallVec<[LockedLimiter<'a>; FEW]>);

impl<'a> AllLocked<'a> {
    fn of(slots: &'a [Slot]) -> AllLocked<'a> {
        AllLocked(slots.iter().map(|slot| slot.limiter.lock()).collect())
    }

    /// Unlocks all limiters, before the first waker is woken. Returns the callers to advance.
    fn finish(self) -> Vec<Arc<dyn JointWaiter>> {
        let unlocked: SmallVec<[Unlocked<'_>; FEW]> = self.0.into_iter().map(LockedLimiter::unlock).collect();
        unlocked.into_iter().flat_map(Unlocked::finish).collect()
    }

    fn unlock(self) {
        advance_all(self.finish());
    }

    /// Takes the permits of all limiters, if they are available and no caller waits.
    fn take_free(&mut self, slots: &[Slot]) -> bool {
        let limit_of: SmallVec<[usize; FEW]> = (0..slots.len()).collect();
        let mut claims: SmallVec<[Claim; FEW]> = slots.iter().map(|slot| Claim::of(slot.n)).collect();
        let are_free = joint::check(&mut self.0, &limit_of, &mut claims);
        if are_free {
            self.0.iter_mut().zip(slots).for_each(|(locked, slot)| locked.take(slot.n));
        }
        are_free
    }

    fn set_wakers(&mut self, keys: &[Key], waker: Option<&Waker>) {
        self.0.iter_mut().zip(keys).for_each(|(locked, &key)| call!(locked, set_waker(key, waker.cloned())));
    }

    /// Where a caller that has joined stands.
    fn look(&mut self, keys: &[Key]) -> Position {
        let (mut position, mut is_closed) = (Position::Reserved, false);
        for (locked, &key) in self.0.iter_mut().zip(keys) {
            let due = match call!(locked, look(key)) {
                Progress::Done(reserved) => {
                    is_closed |= reserved.is_err();
                    continue;
                }
                Progress::Behind => None,
                Progress::Frontier(at) => at.map(|at| locked.instant(at)),
            };
            let before = if let Position::Waits(before) = position { before } else { None };
            position = Position::Waits(before.into_iter().chain(due).min());
        }
        if is_closed { Position::Closed } else { position }
    }
}

/// The places of a caller in the queues of its limiters.
type Keys = SmallVec<[Key; FEW]>;

/// Where a caller stands in the queues of its limiters.
enum Position {
    /// Its permits are reserved at all limiters.
    Reserved,
    /// Some are not. Look again at this time, or only on an event.
    Waits(Option<Instant>),
    /// A limiter was closed.
    Closed,
}

/// A caller that waits. It is in the queue of each of its limiters.
///
/// Its state is locked only while all its limiters are.
#[derive(Debug)]
struct Ticket {
    slots: Arc<[Slot]>,
    state: Mutex<TicketState>,
}

#[derive(Debug)]
enum TicketState {
    Queued(Keys),
    /// Its permits were taken, but its future has not been polled since.
    Admitted(SmallVec<[Promise; FEW]>),
    /// A limiter was closed.
    Refused,
    Ended,
}

impl Ticket {
    /// Joins the queues of all limiters.
    fn join(slots: &Arc<[Slot]>, all: &mut AllLocked<'_>) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket { slots: Arc::clone(slots), state: Mutex::new(TicketState::Ended) });
        let joined = all.0.iter_mut().zip(&**slots).map(|(locked, slot)| {
            let waiter: Arc<dyn JointWaiter> = Arc::<Ticket>::clone(&ticket);
            call!(locked, join(slot.n, waiter))
        });
        let keys = joined.collect();
        *ticket.lock() = TicketState::Queued(keys);
        ticket
    }

    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the permits if they are reserved at all limiters, and leaves all queues if one was closed. Returns the
    /// time of the next look, if that does not depend on an event.
    fn admit(&self, all: &mut AllLocked<'_>, state: &mut TicketState) -> Option<Instant> {
        let TicketState::Queued(keys) = state else { return None };
        *state = match all.look(keys) {
            Position::Waits(due) => return due,
            Position::Reserved => {
                let queued = all.0.iter_mut().zip(&*keys);
                TicketState::Admitted(queued.map(|(locked, &key)| call!(locked, take_reserved(key))).collect())
            }
            Position::Closed => {
                all.0.iter_mut().zip(&*keys).for_each(|(locked, &key)| call!(locked, remove(key)));
                TicketState::Refused
            }
        };
        None
    }

    /// A poll of its future.
    fn poll(&self, waker: &Waker) -> Outcome {
        let mut all = AllLocked::of(&self.slots);
        let mut state = self.lock();
        if let TicketState::Queued(keys) = &*state {
            // Not to be woken if it admits itself.
            all.set_wakers(keys, None);
        }
        let due = self.admit(&mut all, &mut state);
        let outcome = match std::mem::replace(&mut *state, TicketState::Ended) {
            TicketState::Queued(keys) => {
                all.set_wakers(&keys, Some(waker));
                *state = TicketState::Queued(keys);
                Outcome::Waits(due)
            }
            TicketState::Admitted(promises) => {
                all.0.iter_mut().zip(promises).for_each(|(locked, promise)| call!(locked, claim(promise)));
                Outcome::Done(Ok(()))
            }
            TicketState::Refused | TicketState::Ended => Outcome::Done(Err(Closed)),
        };
        drop(state);
        all.unlock();
        outcome
    }

    /// Its future is dropped before it completed: leaves all queues, and returns promised permits.
    fn cancel(&self) {
        let mut all = AllLocked::of(&self.slots);
        match std::mem::replace(&mut *self.lock(), TicketState::Ended) {
            TicketState::Queued(keys) => {
                all.set_wakers(&keys, None);
                all.0.iter_mut().zip(keys).for_each(|(locked, key)| call!(locked, remove(key)));
            }
            TicketState::Admitted(promises) => {
                all.0.iter_mut().zip(promises).for_each(|(locked, promise)| call!(locked, hand_back(promise)));
            }
            TicketState::Refused | TicketState::Ended => {}
        }
        all.unlock();
    }
}

impl JointWaiter for Ticket {
    fn advance(&self) -> Vec<Arc<dyn JointWaiter>> {
        let mut all = AllLocked::of(&self.slots);
        self.admit(&mut all, &mut self.lock());
        all.finish()
    }
}

/// The outcome of a poll.
enum Outcome {
    Done(Result<(), Closed>),
    /// Poll again at this time, or only on an event.
    Waits(Option<Instant>),
}

impl JointLimiter {
    /// Permits of these limiters.
    pub fn new(parts: impl IntoIterator<Item = (AnyLimiter, u32)>) -> JointLimiter {
        let mut parts: Vec<(AnyLimiter, u32)> = parts.into_iter().collect();
        let mut order: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].1 > 0).collect();
        order.sort_by_key(|&at| parts[at].0.borrowed().rank());
        let (mut slots, mut needed) = (Vec::<Slot>::new(), Vec::new());
        for at in order {
            let (limiter, n) = &mut parts[at];
            match slots.last_mut().filter(|slot| slot.limiter.borrowed().rank() == limiter.borrowed().rank()) {
                Some(slot) => {
                    *n = (*n).min(u32::MAX - slot.n);
                    slot.n += *n;
                }
                None => slots.push(Slot { limiter: limiter.clone(), n: *n }),
            }
            needed.push((at, slots.len() - 1));
        }
        // Of limiters that take equally long, the first part is named in a refusal.
        needed.sort_unstable();
        JointLimiter { parts, needed, slots: slots.into() }
    }

    /// Takes the permits of all limiters if they are available and no caller waits for them. Only limiters that refuse
    /// count the request as demand.
    pub fn try_acquire(&self) -> Result<JointPermit, JointRefusal> {
        self.try_take()?;
        Ok(self.permit())
    }

    /// As [`try_acquire`](Self::try_acquire), and reserves the permits of rates.
    pub fn try_reserve(&self) -> Result<JointReservation, JointRefusal> {
        self.try_take()?;
        Ok(self.reservation())
    }

    fn try_take(&self) -> Result<(), JointRefusal> {
        let mut claims: SmallVec<[Claim; FEW]> =
            self.needed.iter().map(|&(part, _)| Claim::of(self.parts[part].1)).collect();
        let limit_of: SmallVec<[usize; FEW]> = self.needed.iter().map(|&(_, slot)| slot).collect();
        let mut all = AllLocked::of(&self.slots);
        joint::decide(&mut all.0, &limit_of, &mut claims, false);
        all.unlock();
        match joint::refusal(&claims) {
            Some((claim, error)) => Err(JointRefusal { index: self.needed[claim].0, error }),
            None => Ok(()),
        }
    }

    /// Waits until the permits of all limiters are available, and takes them at the same moment. First come, first
    /// served at each limiter.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves all queues and takes nothing.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait for a rate outside of a tokio runtime with its timer enabled.
    pub async fn acquire(&self) -> Result<JointPermit, Closed> {
        consume_budget().await;
        JointAcquire { slots: &self.slots, ticket: None, timer: None }.await?;
        Ok(self.permit())
    }

    /// Waits as [`acquire`](Self::acquire) does, for work whose cost is known only at its end.
    pub async fn reserve(&self) -> Result<JointReservation, Closed> {
        consume_budget().await;
        JointAcquire { slots: &self.slots, ticket: None, timer: None }.await?;
        Ok(self.reservation())
    }

    /// A guard for permits that were just taken.
    fn permit(&self) -> JointPermit {
        let gauges = self.slots.iter().filter_map(|Slot { limiter, n }| match limiter {
            AnyLimiter::Gauge(gauge) => Some(gauge.permit(*n)),
            _ => None,
        });
        JointPermit { _gauges: gauges.collect() }
    }

    fn reservation(&self) -> JointReservation {
        let parts = self.parts.iter().map(|(limiter, n)| match limiter {
            AnyLimiter::Rate(rate) => Reserved::Rate(rate.reserve_taken(*n)),
            AnyLimiter::Gauge(gauge) => Reserved::Gauge { n: *n, _permit: gauge.permit(*n) },
        });
        JointReservation { parts: parts.collect() }
    }
}

impl JointReservation {
    /// The number of permits taken of each limiter.
    pub fn reserved(&self) -> impl ExactSizeIterator<Item = u32> {
        self.parts.iter().map(|part| match part {
            Reserved::Rate(rate) => rate.reserved(),
            Reserved::Gauge { n, .. } => *n,
        })
    }

    /// Ends the reservation: `used[i]` permits of limiter i were used. Each rate gets its unused permits back, or is
    /// charged for the excess, as with [`RateReservation::settle`]. The permits of gauges are returned, whatever the
    /// number says.
    ///
    /// # Errors
    ///
    /// Each element is an error if the rate's maximum debt was exceeded. The others are settled nevertheless.
    ///
    /// # Panics
    ///
    /// Panics if there is not one number for each limiter.
    pub fn settle(self, used: &[u64]) -> Vec<Result<(), DebtExceeded>> {
        assert_eq!(used.len(), self.parts.len(), "one number for each limiter");
        let settled = self.parts.into_iter().zip(used).map(|(part, &used)| match part {
            Reserved::Rate(rate) => rate.settle(used),
            Reserved::Gauge { .. } => Ok(()),
        });
        settled.collect()
    }
}

/// The future of [`JointLimiter::acquire`]. Dropping it leaves all queues.
struct JointAcquire<'a> {
    slots: &'a Arc<[Slot]>,
    /// Present if it had to join the queues.
    ticket: Option<Arc<Ticket>>,
    /// Created when it first has to wait for a rate.
    timer: Option<Pin<Box<Sleep>>>,
}

impl JointAcquire<'_> {
    /// Takes the permits if they are available now. If not, joins the queues.
    fn begin(&mut self) -> Option<Result<(), Closed>> {
        let mut all = AllLocked::of(self.slots);
        let outcome = match () {
            () if all.0.iter().any(LockedLimiter::is_closed) => Some(Err(Closed)),
            () if all.take_free(self.slots) => Some(Ok(())),
            () => {
                self.ticket = Some(Ticket::join(self.slots, &mut all));
                None
            }
        };
        all.unlock();
        outcome
    }
}

impl Future for JointAcquire<'_> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let outcome = match &self.ticket {
                Some(ticket) => ticket.poll(cx.waker()),
                None => match self.begin() {
                    Some(result) => Outcome::Done(result),
                    None => continue,
                },
            };
            match outcome {
                Outcome::Done(result) => {
                    self.ticket = None;
                    return Poll::Ready(result);
                }
                Outcome::Waits(Some(due)) => ready!(arm(&mut self.timer, due).poll(cx)),
                Outcome::Waits(None) => return Poll::Pending,
            }
        }
    }
}

impl Drop for JointAcquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            ticket.cancel();
        }
    }
}

#[cfg(test)]
mod tests;
