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
//! rounds the holder leaves the rest to the [scheduler](super::scheduler), because its thread has connections to serve.
//! If the actor panics or stops, it is dropped with all pending requests and messages ([`Incarnation::work`]). The
//! [queue](super::request_queue) bounds the number of requests.

use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
};

use actix::{ActorContext, ActorState as ActixState, Handler, Message, MessageResult};
use leaseway_core::engine::{Batch, Effects, Ended, LostMastership};
use leaseway_core::resource::{Answer, Counters, Renewal, Renewed, Request};
use tokio::sync::oneshot;

use super::{
    PackedActor, ResourceActor, Round, Wake,
    context::ResourceContext,
    request_queue::{Full, RequestQueue, Ticket},
    scheduler::{Schedule, Scheduled, Scheduler},
};
use crate::{
    listen::accounts::{RequestOrigin, ResourceCharge},
    observe::metrics,
};

/// Maximum number of rounds that one thread runs in a row.
const ROUNDS_IN_A_ROW: usize = 8;
/// Maximum number of requests in one round.
const MAX_ROUND: usize = 512;
/// Maximum number of pending messages.
const MAX_MESSAGES: usize = 64;
/// Maximum number of spare batches of a thread.
const MAX_SPARE: usize = 64;
/// The values of [`Incarnation::ended`].
const NOT_ENDED: u8 = 0;
const RETIRED: u8 = 1;
const COMMIT_LOST: u8 = 2;
/// Number of reports that are added up before they are added to the metrics, because threads contend for these.
const REPORTS: usize = 256;
/// Why the locks are never poisoned.
const CAUGHT: &str = "panics are caught while a resource is locked";

/// Sends to one incarnation of a resource, which ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct ResourceHandle(pub(super) Arc<Incarnation>);

/// Runs resources that have something to do by themselves.
pub(crate) type ResourceScheduler = Scheduler<Incarnation>;

/// One incarnation of a resource. There may be a million, so it is a single block of memory, and its actor is packed
/// between rounds if it can be.
pub(crate) struct Incarnation {
    pub(super) id: Arc<str>,
    pub(super) generation: u64,
    pub(super) context: Arc<ResourceContext>,
    pub(super) schedule: Schedule<Incarnation>,
    queue: RequestQueue,
    pending: Mutex<Pending>,
    state: Mutex<ActorState>,
    /// Why the actor has stopped by itself. If an incarnation ends and this is [`NOT_ENDED`], it has failed.
    ended: AtomicU8,
    /// The number of its holders, as counted in the number of all holders.
    pub(super) holders: AtomicU32,
    /// Whether a holder waits for more capacity.
    waits: AtomicBool,
    keeps_notes: AtomicBool,
    /// Whether the limit of the resource may have changed since its last round.
    limit_changed: AtomicBool,
    /// The principal that the resource is charged to.
    charge: Option<ResourceCharge>,
}

/// Reaches an incarnation without keeping it alive, for streams of renewals.
#[derive(Clone)]
pub(crate) struct WeakResourceHandle(Weak<Incarnation>);

impl WeakResourceHandle {
    /// Answers a client that echoes a lease and has nothing else to say, if that is possible without a round.
    pub(crate) fn renew(&self, renewal: &Renewal<'_>) -> Option<Renewed> {
        self.0.upgrade()?.renew(renewal)
    }
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

    /// The id of the resource.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.0.id
    }

    pub(crate) fn downgrade(&self) -> WeakResourceHandle {
        WeakResourceHandle(Arc::downgrade(&self.0))
    }

    /// Charges the next incarnation to the principal of this one.
    pub(crate) fn charge(&self) -> Option<ResourceCharge> {
        self.0.charge.as_ref().map(ResourceCharge::another)
    }

    /// Whether it is a pool or a budget.
    pub(crate) fn keeps_notes(&self) -> bool {
        self.0.keeps_notes.load(Ordering::Relaxed)
    }

    /// Whether a holder waits for more capacity.
    pub(crate) fn waits(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Wakes the resource, which then applies what has changed in its environment.
    pub(crate) fn wake(&self) {
        Schedule::wake(&self.0);
    }

    /// Makes the resource read its limit again.
    pub(crate) fn limit_changed(&self) {
        self.0.limit_changed.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the incarnation stopped because it had no holders.
    pub(crate) fn retired(&self) -> bool {
        self.0.ended.load(Ordering::Acquire) == RETIRED
    }

    /// Whether the incarnation stopped because its promises were not committed, as when mastership is lost.
    pub(crate) fn lost_commit(&self) -> bool {
        self.0.ended.load(Ordering::Acquire) == COMMIT_LOST
    }

    pub(crate) fn submit(&self, request: Request, from: Option<RequestOrigin>) -> Result<PendingAnswer, Full> {
        let (reply_tx, answer) = oneshot::channel();
        let limits = &self.0.context.limits;
        let ticket = self.0.queue.enter(limits.queue, limits.share(), from, reply_tx)?;
        let leads = self.0.submit(request, from, ticket) == Submitted::Leads;
        Ok(PendingAnswer { resource: Arc::clone(&self.0), leads, others: YieldOnce::default(), answer })
    }

    /// Sends a message without waiting for its result.
    pub(crate) fn send<M: Message + Send + 'static>(&self, message: M) -> Result<(), SendError>
    where
        ResourceActor: Handler<M>,
    {
        self.0.send(Box::new(move |actor, scratch| drop(actor.handle(message, scratch))))
    }

    /// Sends a message. The result arrives unless the actor fails.
    pub(crate) fn ask<M>(&self, message: M) -> Result<oneshot::Receiver<M::Result>, SendError>
    where
        M: Message<Result: Send> + Send + 'static,
        ResourceActor: Handler<M, Result = MessageResult<M>>,
    {
        let (result_tx, result) = oneshot::channel();
        self.0.send(Box::new(move |actor, scratch| {
            // The caller may be gone.
            let _ = result_tx.send(actor.handle(message, scratch).0);
        }))?;
        Ok(result)
    }

    /// Puts the incarnation into the state between its retirement and its removal from the directory.
    #[cfg(test)]
    pub(crate) fn pretend_to_have_retired(&self) {
        self.0.end(Ended::Retired);
    }

    /// Makes a round panic.
    #[cfg(test)]
    pub(crate) fn plant_panic(&self) {
        self.0.work(&mut self.0.state.lock().expect(CAUGHT), |_, _| panic!("a planted fault"));
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
            self.resource.run();
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
    /// This is the first request of a batch. The caller must call [`run`](Incarnation::run) once others have joined it.
    Leads,
    /// The round was run, or the actor has ended.
    Ran,
}

/// Handles a message of any type.
type Envelope = Box<dyn FnOnce(&mut ResourceActor, &mut RoundScratch) + Send>;

/// Pending requests, as three parallel lists, and messages.
#[derive(Default)]
struct PendingBatch {
    requests: Vec<Request>,
    origins: Vec<Option<RequestOrigin>>,
    tickets: Vec<Ticket>,
    messages: Vec<Envelope>,
}

#[derive(Default)]
enum Pending {
    #[default]
    Nothing,
    Batch(Box<PendingBatch>),
    /// The actor has ended; new requests and messages are refused.
    Closed,
}

thread_local! {
    /// Empty batches of this thread. Boxed, because a resource takes one by its pointer.
    #[expect(clippy::vec_box, reason = "boxes are moved to resources and back")]
    static SPARE: RefCell<Vec<Box<PendingBatch>>> = const { RefCell::new(Vec::new()) };
}

impl PendingBatch {
    fn take_spare() -> Box<PendingBatch> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Keeps an empty batch for later, unless a burst has made it large.
    fn put_back(self: Box<PendingBatch>) {
        if self.requests.capacity() <= 8 && self.messages.capacity() <= 8 {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < MAX_SPARE {
                    spare.push(self);
                }
            });
        }
    }
}

impl Pending {
    /// The batch to add to. `None` if the actor has ended.
    fn open(&mut self) -> Option<&mut PendingBatch> {
        if let Pending::Nothing = self {
            *self = Pending::Batch(PendingBatch::take_spare());
        }
        self.batch()
    }

    /// The batch, if anything is pending.
    fn batch(&mut self) -> Option<&mut PendingBatch> {
        if let Pending::Batch(batch) = self { Some(batch) } else { None }
    }
}

pub(super) enum ActorState {
    /// Not started yet. The first thread that needs the actor starts it, and not the one that creates it, because this
    /// takes long if the resource inherits many leases.
    Starting(Box<dyn FnOnce(&mut RoundScratch) -> ResourceActor + Send>),
    Running(Box<ResourceActor>),
    /// Between rounds, with few holders.
    Packed(PackedActor),
    Over,
}

impl Incarnation {
    /// `begin` creates the actor.
    pub(super) fn new(
        id: Arc<str>,
        generation: u64,
        context: Arc<ResourceContext>,
        scheduler: Weak<ResourceScheduler>,
        charge: Option<ResourceCharge>,
        begin: impl FnOnce(&mut RoundScratch) -> ResourceActor + Send + 'static,
    ) -> Arc<Incarnation> {
        Arc::new(Incarnation {
            id,
            generation,
            context,
            schedule: Schedule::new(scheduler),
            queue: RequestQueue::default(),
            pending: Mutex::default(),
            state: Mutex::new(ActorState::Starting(Box::new(begin))),
            ended: AtomicU8::new(NOT_ENDED),
            holders: AtomicU32::new(0),
            waits: AtomicBool::new(false),
            keeps_notes: AtomicBool::new(false),
            limit_changed: AtomicBool::new(false),
            charge,
        })
    }

    /// Records why the actor stops.
    pub(super) fn end(&self, ended: Ended) {
        let ended = match ended {
            Ended::Retired => RETIRED,
            Ended::CommitLost => COMMIT_LOST,
        };
        self.ended.store(ended, Ordering::Release);
    }

    /// Whether a limit was changed that the next round applies.
    pub(super) fn is_limit_changed(&self) -> bool {
        self.limit_changed.load(Ordering::Relaxed)
    }

    /// Whether the limit may have changed since the last call.
    pub(super) fn take_limit_changed(&self) -> bool {
        self.limit_changed.load(Ordering::Relaxed) && self.limit_changed.swap(false, Ordering::Acquire)
    }

    pub(super) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    fn submit(self: &Arc<Self>, request: Request, from: Option<RequestOrigin>, ticket: Ticket) -> Submitted {
        let mut pending = self.pending();
        // Without a batch, the ticket is dropped, which tells the caller.
        let Some(batch) = pending.open() else { return Submitted::Ran };
        batch.requests.push(request);
        batch.origins.push(from);
        batch.tickets.push(ticket);
        match batch.requests.len() {
            1 => Submitted::Leads,
            MAX_ROUND.. => {
                drop(pending);
                self.run();
                Submitted::Ran
            }
            _ => Submitted::Queued,
        }
    }

    /// Enqueues a message for the scheduler's task.
    fn send(self: &Arc<Self>, message: Envelope) -> Result<(), SendError> {
        let mut pending = self.pending();
        let Some(PendingBatch { messages, .. }) = pending.open() else { return Err(SendError::Gone) };
        if messages.len() >= MAX_MESSAGES {
            return Err(SendError::Busy);
        }
        messages.push(message);
        drop(pending);
        Schedule::wake(self);
        Ok(())
    }

    /// Runs rounds until nothing is pending, unless another thread holds the lock.
    fn run(self: &Arc<Self>) {
        for _ in 0..ROUNDS_IN_A_ROW {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => unreachable!("{CAUGHT}"),
            };
            self.work(&mut state, |actor, scratch| {
                self.take_requests(scratch);
                actor.handle(Round, scratch);
            });
            drop(state);
            if !self.has_requests() {
                return;
            }
        }
        Schedule::wake(self);
    }

    /// Renews a lease without a round, unless another thread holds the lock or the actor must do more than that.
    fn renew(self: &Arc<Self>, renewal: &Renewal<'_>) -> Option<Renewed> {
        let mut state = self.state.try_lock().ok()?;
        let renewed = match &mut *state {
            ActorState::Packed(actor) => actor.renew(self, renewal),
            _ => None,
        };
        drop(state);
        // A leader that found the lock held relies on its holder.
        if self.has_requests() {
            self.run();
        }
        renewed
    }

    /// Moves all pending requests into the buffers of the round.
    fn take_requests(&self, scratch: &mut RoundScratch) {
        let mut pending = self.pending();
        let Some(PendingBatch { requests, origins, tickets, messages }) = pending.batch() else { return };
        // Appended instead of swapped, so that large buffers stay with the thread.
        scratch.batch.append(requests, tickets);
        scratch.origins.append(origins);
        if messages.is_empty()
            && let Pending::Batch(empty) = std::mem::take(&mut *pending)
        {
            empty.put_back();
        }
    }

    /// Runs `work` on the actor. If it panics or stops, the actor and everything pending are dropped.
    fn work(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, ActorState>,
        work: impl FnOnce(&mut ResourceActor, &mut RoundScratch),
    ) {
        // If `work` panics, the inconsistent state is dropped, and `Over` remains.
        let before = std::mem::replace(&mut **state, ActorState::Over);
        let was_over = matches!(before, ActorState::Over);
        let worked = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut after = ActorState::Over;
            RoundScratch::lend(self, |scratch| {
                let mut actor = match before {
                    ActorState::Starting(begin) => Box::new(begin(scratch)),
                    ActorState::Running(actor) => actor,
                    ActorState::Packed(packed) => Box::new(packed.unpack(self)),
                    ActorState::Over => return,
                };
                work(&mut actor, scratch);
                if scratch.is_stopped() {
                    return actor.report(scratch);
                }
                self.waits.store(actor.has_waiting(), Ordering::Relaxed);
                self.keeps_notes.store(actor.engine.keeps_notes(), Ordering::Relaxed);
                let (state, wake_at) = actor.rest(scratch);
                Schedule::wake_at(self, wake_at);
                after = state;
            });
            after
        }));
        match worked {
            Ok(ActorState::Over) | Err(_) => {
                let pending = std::mem::replace(&mut *self.pending(), Pending::Closed);
                // Dropped outside the lock, because the owner of a dropped request may immediately submit it again.
                drop(pending);
                if !was_over {
                    self.set_holders(0);
                    (self.context.on_end)(&self.id, self.generation);
                }
            }
            Ok(after) => **state = after,
        }
    }

    fn has_requests(&self) -> bool {
        self.pending().batch().is_some_and(|batch| !batch.requests.is_empty())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no panic while the pending requests are locked")
    }
}

impl Scheduled for Incarnation {
    fn schedule(&self) -> &Schedule<Incarnation> {
        &self.schedule
    }

    /// Handles messages, then runs pending requests.
    fn run_scheduled(self: &Arc<Self>) {
        let mut state = self.state.lock().expect(CAUGHT);
        let messages = self.pending().batch().map(|batch| std::mem::take(&mut batch.messages));
        self.work(&mut state, |actor, scratch| {
            actor.handle(Wake, scratch);
            for message in messages.into_iter().flatten() {
                if !scratch.is_stopped() {
                    message(actor, scratch);
                }
            }
        });
        drop(state);
        if self.has_requests() {
            self.run();
        }
    }

    fn idle() {
        RoundScratch::flush();
    }
}

impl Drop for Incarnation {
    fn drop(&mut self) {
        if let Ok(ActorState::Running(actor)) = self.state.get_mut() {
            metrics::resources_counted(&actor.unreported());
        }
        self.set_holders(0);
    }
}

/// The context of the actor: the buffers of one round. Their contents do not outlive a message, so each thread reuses
/// one set for all resources that it works for. That set stays in the CPU caches; buffers per resource would be cold.
#[derive(Default)]
pub(crate) struct RoundScratch {
    pub(super) batch: Batch<Ticket>,
    /// The origin of each request of the batch.
    pub(super) origins: Vec<Option<RequestOrigin>>,
    pub(super) effects: Effects<Ticket>,
    /// Counters of resources that are not in the metrics yet, and the number of reports in them.
    counters: (Counters, usize),
    /// The resource that the round is for.
    resource: Option<Arc<Incarnation>>,
    is_stopped: bool,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<RoundScratch>>> = const { Cell::new(None) };
}

impl RoundScratch {
    /// Lends the buffers of this thread to `work`. If `work` panics, the buffers and the requests in them are dropped.
    fn lend(resource: &Arc<Incarnation>, work: impl FnOnce(&mut RoundScratch)) {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.resource = Some(Arc::clone(resource));
        work(&mut scratch);
        scratch.resource = None;
        debug_assert!(scratch.batch.is_empty() && scratch.effects.is_empty(), "leftovers would go to another resource");
        scratch.is_stopped = false;
        SCRATCH.set(Some(scratch));
    }

    /// The resource that the round is for.
    pub(super) fn resource(&self) -> Arc<Incarnation> {
        Arc::clone(self.resource.as_ref().expect("it is set while an actor handles a message"))
    }

    /// Adds an increase of a resource's counters to the metrics, soon.
    pub(super) fn count(&mut self, more: &Counters) {
        let (counters, reports) = &mut self.counters;
        counters.add(more);
        *reports += 1;
        if *reports >= REPORTS {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let (counters, reports) = std::mem::take(&mut self.counters);
        if reports > 0 {
            metrics::resources_counted(&counters);
        }
    }

    /// Adds the counters of this thread to the metrics now.
    pub(super) fn flush() {
        if let Some(mut scratch) = SCRATCH.take() {
            scratch.publish();
            SCRATCH.set(Some(scratch));
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

impl ActorContext for RoundScratch {
    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn terminate(&mut self) {
        self.stop();
    }

    fn state(&self) -> ActixState {
        if self.is_stopped { ActixState::Stopped } else { ActixState::Running }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::AtomicUsize,
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
    fn failing() -> Arc<Incarnation> {
        let begin = |_: &mut RoundScratch| panic!("a planted fault");
        Incarnation::new("r".into(), 1, Arc::new(ResourceContext::for_tests()), Weak::new(), None, begin)
    }

    fn submit(combiner: &Arc<Incarnation>) -> Answered {
        let (sender, answer) = oneshot::channel();
        let ticket = RequestQueue::default().enter(2, PrincipalShare::ALL, None, sender).expect("there is a permit");
        let release = Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None, spent: None };
        combiner.submit(Request::Release(release), None, ticket);
        answer
    }

    /// Immediately submits a request again when it is dropped, up to `left` times.
    struct Again {
        combiner: Weak<Incarnation>,
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

    /// With the reference counts of its `Arc` it fills a block of the allocator.
    #[test]
    fn an_incarnation_is_small() {
        assert_eq!(size_of::<Incarnation>() + 2 * size_of::<usize>(), 320);
    }

    #[test]
    fn a_request_that_arrives_while_the_actor_fails_is_dropped() {
        let combiner = failing();
        let held = combiner.state.lock().expect(CAUGHT);
        let mut answer = submit(&combiner);
        combiner.run();
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "the lock is held");
        drop(held);
        combiner.run_scheduled();
        assert!(matches!(*combiner.pending(), Pending::Closed));
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
