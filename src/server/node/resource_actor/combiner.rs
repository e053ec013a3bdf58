//! The mailbox of a resource: flat combining instead of a queue with a consumer thread.
//!
//! With an ordinary mailbox a request moves to the actor's thread and its answer moves back: two context switches per
//! request. Here the actor is state behind a lock, and the threads that have requests take turns to run it:
//!
//! 1. A request is appended to the pending list. The first one of a batch leads ([`Submitted::Leads`]).
//! 2. The leader yields once, so that other connections of its thread append their requests, and tries the lock. If
//!    another thread holds it, the leader returns: the holder checks the list again after unlocking.
//! 3. The holder takes the whole list and runs one [`Round`] for it. Answers for other threads go through their [reply
//!    queues](super::reply_queue).
//!
//! So rounds grow with the load, and a request waits at most for the round before its own. After [`ROUNDS_IN_A_ROW`]
//! rounds the holder leaves the rest to the resource's task, because its thread has connections to serve. If the actor
//! panics or stops, it is dropped with all pending requests and messages ([`Combiner::work`]). The
//! [queue](super::request_queue) bounds the number of requests.

use std::{
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError},
    task::{Context, Poll, ready},
};

use actix::{Handler, Message, MessageResult};
use leaseway_core::engine::{Ended, LostMastership};
use leaseway_core::resource::{Answer, Request};
use tokio::sync::oneshot;

use super::{
    ResourceActor, Round, Wake,
    request_queue::{Full, RequestQueue, Ticket},
    round_scratch::RoundScratch,
    wakeup::Wakeup,
};
use crate::{listen::accounts::RequestOrigin, runtime::drop_guard::DropGuard};

/// Maximum number of rounds that one thread runs in a row.
const ROUNDS_IN_A_ROW: usize = 8;
/// Maximum number of requests in one round.
const MAX_ROUND: usize = 512;
/// Maximum number of pending messages.
const MAX_MESSAGES: usize = 64;
/// Why the locks are never poisoned.
const CAUGHT: &str = "panics are caught while a resource is locked";

/// Sends to one incarnation of a resource, which ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct ResourceHandle(pub(super) Arc<Incarnation>);

pub(super) struct Incarnation {
    pub(super) combiner: Arc<Combiner>,
    /// Wakes the resource's task when it is dropped. Dropped after the combiner, so that the task finds the combiner
    /// gone and ends.
    pub(super) _end_task: DropGuard,
    pub(super) generation: u64,
    pub(super) queue: Arc<RequestQueue>,
    /// Set before the actor stops by itself. If an incarnation ends without setting it, it has failed.
    pub(super) ended: Arc<OnceLock<Ended>>,
}

/// Why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The maximum number of messages is pending.
    Busy,
    /// The actor has ended.
    Gone,
}

impl ResourceHandle {
    /// The number of the incarnation.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Whether the incarnation stopped because it had no holders.
    pub(crate) fn retired(&self) -> bool {
        self.0.ended.get() == Some(&Ended::Retired)
    }

    /// Whether the incarnation stopped because its promises were not committed, as when mastership is lost.
    pub(crate) fn lost_commit(&self) -> bool {
        self.0.ended.get() == Some(&Ended::CommitLost)
    }

    /// Submits a request.
    pub(crate) fn submit(&self, request: Request, from: Option<RequestOrigin>) -> Result<PendingAnswer, Full> {
        let (reply_tx, answer) = oneshot::channel();
        let ticket = self.0.queue.enter(from, reply_tx)?;
        let leads = self.0.combiner.submit(request, from, ticket) == Submitted::Leads;
        Ok(PendingAnswer { resource: Arc::clone(&self.0), leads, others: YieldOnce::default(), answer })
    }

    /// Sends a message without waiting for its result.
    pub(crate) fn send<M: Message + Send + 'static>(&self, message: M) -> Result<(), SendError>
    where
        ResourceActor: Handler<M>,
    {
        self.0.combiner.send(Box::new(move |actor, scratch| drop(actor.handle(message, scratch))))
    }

    /// Sends a message. The result arrives unless the actor fails.
    pub(crate) fn ask<M>(&self, message: M) -> Result<oneshot::Receiver<M::Result>, SendError>
    where
        M: Message<Result: Send> + Send + 'static,
        ResourceActor: Handler<M, Result = MessageResult<M>>,
    {
        let (result_tx, result) = oneshot::channel();
        self.0.combiner.send(Box::new(move |actor, scratch| {
            // The caller may be gone.
            let _ = result_tx.send(actor.handle(message, scratch).0);
        }))?;
        Ok(result)
    }

    /// Puts the incarnation into the state between its retirement and its removal from the directory.
    #[cfg(test)]
    pub(crate) fn pretend_to_have_retired(&self) {
        let _ = self.0.ended.set(Ended::Retired);
    }

    /// Makes a round panic.
    #[cfg(test)]
    pub(crate) fn plant_panic(&self) {
        let combiner = &self.0.combiner;
        combiner.work(&mut combiner.state.lock().expect(CAUGHT), |_, _| panic!("a planted fault"));
    }
}

/// A submitted request. Resolves to its answer, or to `None` if this incarnation ends first.
///
/// It is a hand-written future because every request under way holds one: an `async fn` would be three times as large.
///
/// The leader of a batch runs the round even if it is dropped, because the others wait for it.
pub(crate) struct PendingAnswer {
    resource: Arc<Incarnation>,
    leads: bool,
    others: YieldOnce,
    answer: oneshot::Receiver<Result<Answer, LostMastership>>,
}

impl PendingAnswer {
    /// The number of the incarnation.
    pub(crate) fn generation(&self) -> u64 {
        self.resource.generation
    }

    /// Whether this request leads: it should run the round [after the others](YieldOnce) of its thread have joined.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Runs the round if it leads.
    pub(crate) fn run(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.resource.combiner.run();
        }
    }
}

impl Future for PendingAnswer {
    type Output = Option<Result<Answer, LostMastership>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if self.leads {
            ready!(Pin::new(&mut self.others).poll(task));
            self.run();
        }
        Pin::new(&mut self.answer).poll(task).map(Result::ok)
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.run();
    }
}

/// Lets all ready tasks of this thread run. Unlike tokio's `yield_now`, it does not poll for I/O first, which is a
/// system call.
#[derive(Default)]
pub(crate) struct YieldOnce {
    yielded: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The outcome of submitting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submitted {
    /// Another thread or request runs the round.
    Queued,
    /// This is the first request of a batch. The caller must call [`run`](Combiner::run) once others have joined it.
    Leads,
    /// The round was run, or the actor has ended.
    Ran,
}

/// Handles a message of any type.
type Envelope = Box<dyn FnOnce(&mut ResourceActor, &mut RoundScratch) + Send>;

/// Pending requests, as three parallel lists, and messages.
#[derive(Default)]
struct Pending {
    requests: Vec<Request>,
    origins: Vec<Option<RequestOrigin>>,
    tickets: Vec<Ticket>,
    messages: Vec<Envelope>,
    /// The actor has ended; new requests and messages are refused.
    is_closed: bool,
}

pub(super) struct Combiner {
    pending: Mutex<Pending>,
    state: Mutex<CombinerState>,
    wakeup: Arc<Wakeup>,
}

enum CombinerState {
    /// Not started yet. The first thread that needs the actor starts it, and not the one that creates it, because this
    /// takes long if the resource inherits many leases.
    Starting(Box<dyn FnOnce(&mut RoundScratch) -> ResourceActor + Send>),
    Running(Box<ResourceActor>),
    Over,
}

impl Combiner {
    pub(super) fn new(
        begin: impl FnOnce(&mut RoundScratch) -> ResourceActor + Send + 'static,
        wakeup: Arc<Wakeup>,
    ) -> Combiner {
        let state = Mutex::new(CombinerState::Starting(Box::new(begin)));
        Combiner { pending: Mutex::default(), state, wakeup }
    }

    fn submit(&self, request: Request, from: Option<RequestOrigin>, ticket: Ticket) -> Submitted {
        let mut pending = self.pending();
        if pending.is_closed {
            // The ticket is dropped, which tells the caller.
            return Submitted::Ran;
        }
        pending.requests.push(request);
        pending.origins.push(from);
        pending.tickets.push(ticket);
        match pending.requests.len() {
            1 => Submitted::Leads,
            MAX_ROUND.. => {
                drop(pending);
                self.run();
                Submitted::Ran
            }
            _ => Submitted::Queued,
        }
    }

    /// Enqueues a message for the resource's task.
    fn send(&self, message: Envelope) -> Result<(), SendError> {
        let mut pending = self.pending();
        if pending.is_closed {
            return Err(SendError::Gone);
        }
        if pending.messages.len() >= MAX_MESSAGES {
            return Err(SendError::Busy);
        }
        pending.messages.push(message);
        drop(pending);
        self.wakeup.notify();
        Ok(())
    }

    /// Handles messages, then runs pending requests, on the resource's task. Returns whether the actor continues.
    pub(super) fn wake(&self) -> bool {
        let mut state = self.state.lock().expect(CAUGHT);
        let messages = std::mem::take(&mut self.pending().messages);
        self.work(&mut state, |actor, scratch| {
            actor.handle(Wake, scratch);
            for message in messages {
                if !scratch.is_stopped() {
                    message(actor, scratch);
                }
            }
        });
        drop(state);
        if self.has_requests() {
            self.run();
        }
        !self.pending().is_closed
    }

    /// Runs rounds until nothing is pending, unless another thread holds the lock.
    fn run(&self) {
        for _ in 0..ROUNDS_IN_A_ROW {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => unreachable!("{CAUGHT}"),
            };
            self.work(&mut state, |actor, scratch| {
                let mut pending = self.pending();
                let Pending { requests, origins, tickets, .. } = &mut *pending;
                // Appended instead of swapped, so that large buffers stay with the thread.
                scratch.batch.append(requests, tickets);
                scratch.origins.append(origins);
                drop(pending);
                actor.handle(Round, scratch);
            });
            drop(state);
            if !self.has_requests() {
                return;
            }
        }
        self.wakeup.notify();
    }

    /// Runs `work` on the actor. If it panics or stops, the actor and everything pending are dropped.
    fn work(&self, state: &mut CombinerState, work: impl FnOnce(&mut ResourceActor, &mut RoundScratch)) {
        // If `work` panics, the inconsistent state is dropped, and `Over` remains.
        let before = std::mem::replace(state, CombinerState::Over);
        let worked = panic::catch_unwind(AssertUnwindSafe(move || {
            let mut actor = None;
            let goes_on = RoundScratch::lend(|scratch| {
                let actor = actor.insert(match before {
                    CombinerState::Starting(begin) => Box::new(begin(scratch)),
                    CombinerState::Running(actor) => actor,
                    CombinerState::Over => return,
                });
                work(actor, scratch);
            });
            actor.filter(|_| goes_on)
        }));
        match worked {
            Ok(Some(actor)) => *state = CombinerState::Running(actor),
            Ok(None) | Err(_) => {
                let closed = Pending { is_closed: true, ..Pending::default() };
                let pending = std::mem::replace(&mut *self.pending(), closed);
                // Dropped outside the lock, because the owner of a dropped request may immediately submit it again.
                drop(pending);
            }
        }
    }

    fn has_requests(&self) -> bool {
        !self.pending().requests.is_empty()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no panic while the pending requests are locked")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Weak,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Wake, Waker},
    };

    use leaseway_core::{
        resource::Release,
        types::{HolderKind, PrincipalShare},
    };
    use tokio::sync::oneshot::{Receiver, error::TryRecvError};

    use super::*;

    type Answered = Receiver<Result<Answer, LostMastership>>;

    /// Its actor panics when it starts.
    fn failing() -> Arc<Combiner> {
        Arc::new(Combiner::new(|_| panic!("a planted fault"), Arc::default()))
    }

    fn submit(combiner: &Combiner) -> Answered {
        let (sender, answer) = oneshot::channel();
        let ticket = RequestQueue::new(1, PrincipalShare::ALL).enter(None, sender).expect("there is a place");
        let release = Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None };
        combiner.submit(Request::Release(release), None, ticket);
        answer
    }

    /// Immediately submits a request again when it is dropped, up to `left` times.
    struct Again {
        combiner: Weak<Combiner>,
        left: AtomicUsize,
        answer: Mutex<Option<Answered>>,
    }

    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let Some(combiner) = self.combiner.upgrade() else { return };
            while self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let mut answer = submit(&combiner);
                let waker = Waker::from(Arc::clone(&self));
                if Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending() {
                    *self.answer.lock().expect("no test panics here") = Some(answer);
                    return;
                }
            }
        }
    }

    #[test]
    fn a_request_that_arrives_while_the_actor_fails_is_dropped() {
        let combiner = failing();
        let held = combiner.state.lock().expect(CAUGHT);
        let mut answer = submit(&combiner);
        combiner.run();
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "the lock is held");
        drop(held);
        assert!(!combiner.wake());
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Closed));
        assert_eq!(submit(&combiner).try_recv().err(), Some(TryRecvError::Closed), "refused immediately");
        assert_eq!(combiner.send(Box::new(|_, _| {})), Err(SendError::Gone));
    }

    #[test]
    fn messages_are_bounded() {
        let combiner = failing();
        let send = || combiner.send(Box::new(|_, _| {}));
        assert!((0..MAX_MESSAGES).all(|_| send().is_ok()));
        assert_eq!(send(), Err(SendError::Busy));
    }

    #[test]
    fn requests_resubmitted_while_the_actor_fails_are_dropped_again() {
        let combiner = failing();
        let left = AtomicUsize::new(5 * ROUNDS_IN_A_ROW);
        let again = Arc::new(Again { combiner: Arc::downgrade(&combiner), left, answer: Mutex::default() });
        Arc::clone(&again).wake();
        combiner.run();
        assert_eq!(again.left.load(Ordering::Relaxed), 0);
        assert!(!combiner.has_requests());
    }
}
