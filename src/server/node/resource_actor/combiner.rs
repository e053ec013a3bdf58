//! The mailbox of a resource: flat combining instead of a queue with a consumer thread.
//!
//! With an ordinary mailbox a request moves to the actor's thread, and its answer moves back: two context switches per
//! request. Here the actor has no thread. It is state behind a lock, and the threads that have requests take turns to
//! run it.
//!
//! 1. A request is appended to the pending list. The first one of a batch leads ([`Submitted::Leads`]).
//! 2. The leader yields once, so that the other connections of its thread append their requests too.
//! 3. It tries the lock. If another thread holds it, the leader returns: the holder checks the list again after
//!    unlocking, so nothing is left behind.
//! 4. The holder takes the whole list and runs one [`Round`] for it. Answers for tasks of other threads go through their
//!    [reply queues](super::super::reply_queue).
//!
//! Rounds therefore grow with the load, and a request waits at most for the round before its own. After
//! [`ROUNDS_IN_A_ROW`] rounds the holder leaves the rest to the resource's task, because its thread has connections to
//! serve. A panic or stop of the actor drops it and everything pending ([`Combiner::work`]). Requests are counted and
//! bounded before they get here ([`super::handle`]).

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, TryLockError},
};

use actix::Handler as _;
use leaseway_core::Request;

use super::{
    ResourceActor, Round, Wake, message::ResourceMessage, queue::Ticket, round_scratch::RoundScratch, wakeup::Wakeup,
};
use crate::listen::accounts::RequestOrigin;

/// Maximum number of rounds that one thread runs in a row.
const ROUNDS_IN_A_ROW: usize = 8;
/// Maximum number of requests in one round.
const MAX_ROUND: usize = 512;
/// Commands that may be pending.
const MAX_MESSAGES: usize = 64;
/// Why the locks are never poisoned.
const CAUGHT: &str = "panics are caught while a resource is held";

/// A request, where it came from if that is known, and where its answer goes.
pub(super) struct Submission {
    pub(super) request: Request,
    pub(super) from: Option<RequestOrigin>,
    pub(super) ticket: Ticket,
}

/// Pending requests, as three parallel lists, and messages.
#[derive(Default)]
struct Pending {
    requests: Vec<Request>,
    origins: Vec<Option<RequestOrigin>>,
    tickets: Vec<Ticket>,
    messages: Vec<ResourceMessage>,
    /// The actor has ended; everything is refused.
    is_closed: bool,
}

impl Pending {
    fn push(&mut self, submission: Submission) {
        self.requests.push(submission.request);
        self.origins.push(submission.from);
        self.tickets.push(submission.ticket);
    }

    fn hand_over(&mut self, scratch: &mut RoundScratch) {
        scratch.batch.append(&mut self.requests, &mut self.tickets);
        scratch.origins.append(&mut self.origins);
    }
}

/// The outcome of submitting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submitted {
    /// Another thread or request runs the round.
    Queued,
    /// It is the first of a batch: [`run`](Combiner::run) is to be called once the others have submitted theirs.
    Leads,
    /// The round has been run.
    Ran,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum SendError {
    /// Too many are pending.
    Busy,
    /// The actor is no more.
    Gone,
}

pub(super) struct Combiner {
    pending: Mutex<Pending>,
    state: Mutex<CombinerState>,
    wakeup: Arc<Wakeup>,
}

enum CombinerState {
    /// Starts on the first thread that needs it, not on the one that creates it, because a resource may inherit many
    /// leases.
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

    /// Enqueues a request.
    pub(super) fn submit(&self, submission: Submission) -> Submitted {
        let mut pending = self.pending();
        if pending.is_closed {
            // Dropping its ticket tells the caller.
            return Submitted::Ran;
        }
        pending.push(submission);
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
    pub(super) fn send(&self, message: ResourceMessage) -> Result<(), SendError> {
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

    /// Runs pending requests, unless another thread holds the lock.
    pub(super) fn run(&self) {
        if let Some(state) = self.try_lock() {
            self.run_rounds(state);
        }
    }

    /// Handles messages, then runs pending requests, on the resource's task. Returns whether the actor goes on.
    pub(super) fn wake(&self) -> bool {
        let mut state = self.state.lock().expect(CAUGHT);
        let messages = std::mem::take(&mut self.pending().messages);
        self.work(&mut state, |actor, scratch| {
            actor.handle(Wake, scratch);
            for message in messages {
                if !scratch.is_stopped() {
                    actor.handle(message, scratch);
                }
            }
        });
        drop(state);
        if self.has_requests() {
            self.run();
        }
        !self.pending().is_closed
    }

    /// Runs rounds until nothing is pending.
    fn run_rounds<'a>(&'a self, mut state: MutexGuard<'a, CombinerState>) {
        for _ in 0..ROUNDS_IN_A_ROW {
            self.work(&mut state, |actor, scratch| {
                self.pending().hand_over(scratch);
                actor.handle(Round, scratch);
            });
            drop(state);
            if !self.has_requests() {
                return;
            }
            let Some(next) = self.try_lock() else { return };
            state = next;
        }
        drop(state);
        self.wakeup.notify();
    }

    /// Runs `work` on the actor. If it panics or stops, the actor and everything pending are dropped.
    fn work(&self, state: &mut CombinerState, work: impl FnOnce(&mut ResourceActor, &mut RoundScratch)) {
        // State that a panic left inconsistent is dropped.
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
            Ok(None) | Err(_) => self.close(),
        }
    }

    fn close(&self) {
        let pending = std::mem::replace(&mut *self.pending(), Pending { is_closed: true, ..Pending::default() });
        // Outside the lock: a dropped request may be submitted again at once.
        drop(pending);
    }

    fn has_requests(&self) -> bool {
        !self.pending().requests.is_empty()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("what is pending is held for moments in which nothing panics")
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, CombinerState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("{CAUGHT}"),
        }
    }

    /// As if a round had failed just now.
    #[cfg(test)]
    pub(super) fn plant_panic(&self) {
        self.work(&mut self.state.lock().expect(CAUGHT), |_, _| panic!("a planted fault"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Weak,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Wake, Waker},
    };

    use leaseway_core::engine::LostMastership;
    use leaseway_core::{HolderKind, PrincipalShare, Release};
    use tokio::sync::oneshot::{self, Receiver, error::TryRecvError};

    use super::{super::queue::RequestQueue, *};

    type Answered = Receiver<Result<leaseway_core::Answer, LostMastership>>;

    /// One whose actor fails as soon as it begins.
    fn failing() -> Arc<Combiner> {
        Arc::new(Combiner::new(|_| panic!("a planted fault"), Arc::default()))
    }

    fn submission() -> (Submission, Answered) {
        let (sender, answer) = oneshot::channel();
        let ticket = RequestQueue::new(1, PrincipalShare::ALL).enter(None, sender).expect("there is a place");
        let release = Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None };
        (Submission { request: Request::Release(release), from: None, ticket }, answer)
    }

    fn submit(combiner: &Combiner) -> Answered {
        let (submission, answer) = submission();
        combiner.submit(submission);
        answer
    }

    /// A request that is let go is submitted again at once, so many times.
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
                if std::pin::Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending() {
                    *self.answer.lock().expect("no test panics here") = Some(answer);
                    return;
                }
            }
        }
    }

    #[test]
    fn a_request_that_comes_while_the_actor_fails_is_let_go() {
        let combiner = failing();
        let held = combiner.state.lock().expect(CAUGHT);
        let mut answer = submit(&combiner);
        combiner.run();
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "the lock is held");
        drop(held);
        assert!(!combiner.wake());
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Closed));
        assert_eq!(submit(&combiner).try_recv().err(), Some(TryRecvError::Closed), "from now on at once");
        assert_eq!(combiner.send(ResourceMessage::Tick { config: config() }), Err(SendError::Gone));
    }

    fn config() -> Arc<super::super::ConfigInForce> {
        Arc::new(super::super::ConfigInForce { version: 1, ..Default::default() })
    }

    #[test]
    fn messages_are_bounded() {
        let combiner = failing();
        let send = || combiner.send(ResourceMessage::Tick { config: config() });
        assert!((0..MAX_MESSAGES).all(|_| send().is_ok()));
        assert_eq!(send(), Err(SendError::Busy));
    }

    #[test]
    fn the_room_that_a_busy_resource_needs_is_not_left_at_others() {
        let (mut pending, mut scratch) = (Pending::default(), RoundScratch::default());
        for _ in 0..MAX_ROUND {
            scratch.batch.push(submission().0.request, submission().0.ticket);
        }
        pending.push(submission().0);
        pending.hand_over(&mut scratch);
        assert_eq!(scratch.batch.len(), MAX_ROUND + 1);
        assert!(pending.requests.capacity() < MAX_ROUND && pending.tickets.capacity() < MAX_ROUND);
    }

    #[test]
    fn requests_that_come_back_when_they_are_let_go_are_let_go_again() {
        let combiner = failing();
        let left = AtomicUsize::new(5 * ROUNDS_IN_A_ROW);
        let again = Arc::new(Again { combiner: Arc::downgrade(&combiner), left, answer: Mutex::default() });
        Arc::clone(&again).wake();
        combiner.run();
        assert_eq!(again.left.load(Ordering::Relaxed), 0);
        assert!(!combiner.has_requests());
    }
}
