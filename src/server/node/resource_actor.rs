//! The actor of one resource.
//!
//! [`ResourceActor`] owns the engine, and with it everything known about the holders. Its mailbox is the [`combiner`]:
//! one [`Round`] handles all pending requests, on the thread of one of them. The [`scheduler`] handles other messages
//! and lets time pass. Between rounds the actor is [packed](PackedActor), unless it has much state.
//!
//! The engine handles each message, and the actor then carries out the effects ([`ResourceActor::carry_out`]). An
//! incarnation ends by a panic, a lost commit, or because it has no holders, and always in the same way: the actor and
//! all pending requests are dropped, and the node is notified.

mod combiner;
mod commit_progress;
mod context;
mod engine_environment;
mod metering;
pub(super) mod note_rate_limit;
pub(super) mod reply_queue;
mod request_queue;
pub(super) mod scheduler;
pub(super) mod uplink_notices;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, UNIX_EPOCH},
};

use actix::{Actor, ActorContext as _, Handler, Message, MessageResult};
use leaseway_core::{
    engine::{Effects, Ended, PackedEngine, ResourceEngine, Setup},
    resource::report::{holder_reports, resource_report},
};
use leaseway_core::{
    lease::proposer::PromiseReport,
    policy::settings::{FreeKey, Settings},
    pool::PoolReport,
    resource::{
        Counters, HolderReport, Notes, Renewal, Renewed, Request, Resource, ResourceReport,
        supply::{DemandSummary, Supply},
    },
    types::{HolderKind, Millis, escaped, readable},
};
use leaseway_raft::{Command, Limit};
use leaseway_uplink::Notice;

pub(crate) use self::combiner::WeakResourceHandle;
use self::{
    combiner::{ActorState, Incarnation, RoundScratch},
    commit_progress::{Commit, CommitProgress},
    context::Charges,
    metering::Metering,
    note_rate_limit::NotePermit,
    request_queue::Ticket,
    scheduler::Schedule,
};
pub(super) use self::{
    combiner::{PendingAnswer, ResourceHandle, ResourceScheduler, SendError, YieldOnce},
    context::ResourceContext,
    request_queue::Full,
};
use crate::{listen::accounts::ResourceCharge, node::config_in_force::limit_of};

/// The template name of a resource whose settings come from the parent.
const PARENT: &str = "(parent)";

/// How often a resource that cannot be packed is ticked.
const TICK_INTERVAL: Millis = Millis::from_secs(1);
/// A resource with shorter pauses between rounds is not packed, because packing would cost more than the memory is
/// worth.
const BUSY: Millis = Millis(10);
/// Minimum time between two ticks of a packed resource.
const MIN_TICK_INTERVAL: Millis = Millis(100);

pub(super) struct ResourceActor {
    engine: ResourceEngine<Ticket>,
    charges: Charges,
    /// Absent if promises are not kept.
    promises: Option<Arc<CommitProgress>>,
    /// Absent if it has never had notes.
    notes: Option<Box<PendingNotes>>,
    /// The revision of the configuration that it follows.
    revision: u32,
    /// When its last round ended: the lowest 32 bits of the clock in milliseconds.
    last_round: u32,
    /// Its position in the log of new watchers.
    watchers_seen: u64,
    metering: Metering,
    /// When the engine asked to be woken.
    wake_at: Option<Millis>,
    next_tick: Millis,
}

/// A [`ResourceActor`] between rounds, in few bytes.
pub(super) struct PackedActor {
    engine: PackedEngine,
    charges: Charges,
    promises: Option<Arc<CommitProgress>>,
    revision: u32,
    last_round: u32,
    watchers_seen: u64,
}

/// Notes on their way to the peers.
struct PendingNotes {
    permit: NotePermit,
    progress: Arc<CommitProgress>,
    /// The number of the newest proposal.
    newest: u64,
}

impl Actor for ResourceActor {
    type Context = RoundScratch;
}

/// Handles the requests of the batch in the context.
struct Round;

impl Message for Round {
    type Result = ();
}

impl Handler<Round> for ResourceActor {
    type Result = ();

    /// Runs on the thread of one of the requests, or of the scheduler after many rounds in a row.
    fn handle(&mut self, _: Round, scratch: &mut RoundScratch) {
        let resource = scratch.resource();
        self.note_origins(&resource, scratch);
        self.catch_up(&resource, &mut scratch.effects);
        let RoundScratch { batch, effects, .. } = scratch;
        self.engine.run_round(resource.moment(), batch, effects);
        self.carry_out(&resource, scratch);
    }
}

/// The resource was woken, or its time has come.
struct Wake;

impl Message for Wake {
    type Result = ();
}

impl Handler<Wake> for ResourceActor {
    type Result = ();

    fn handle(&mut self, _: Wake, scratch: &mut RoundScratch) {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        let now = resource.context.clock.at();
        if self.wake_at.take_if(|at| *at <= now).is_some() {
            self.engine.wake(resource.moment(), &mut scratch.effects);
        }
        if self.next_tick <= now {
            self.tick(&resource, now, scratch);
        }
        self.carry_out(&resource, scratch);
    }
}

/// A lease from the parent, and the settings to divide it by.
pub(super) struct Supplied {
    pub(super) supply: Supply,
    pub(super) settings: Settings,
}

impl Message for Supplied {
    type Result = ();
}

impl Handler<Supplied> for ResourceActor {
    type Result = ();

    fn handle(&mut self, message: Supplied, scratch: &mut RoundScratch) {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        let RoundScratch { batch, effects, .. } = scratch;
        self.engine.supply(resource.moment(), message.supply, message.settings, batch, effects);
        self.carry_out(&resource, scratch);
    }
}

/// Asks for the demand to report to the parent. `None` if this node may not decide.
pub(super) struct Summarize;

impl Message for Summarize {
    type Result = Option<DemandSummary>;
}

impl Handler<Summarize> for ResourceActor {
    type Result = MessageResult<Summarize>;

    fn handle(&mut self, _: Summarize, scratch: &mut RoundScratch) -> MessageResult<Summarize> {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        let summary = self.engine.summarize(resource.moment());
        self.carry_out(&resource, scratch);
        MessageResult(summary)
    }
}

/// Runs a function on the resource. `None` if this node may not decide.
pub(super) struct Operate<F>(pub(super) F);

impl<T: 'static, F: FnOnce(&mut Resource, Millis) -> T> Message for Operate<F> {
    type Result = Option<T>;
}

impl<T: 'static, F: FnOnce(&mut Resource, Millis) -> T> Handler<Operate<F>> for ResourceActor {
    type Result = MessageResult<Operate<F>>;

    fn handle(&mut self, Operate(work): Operate<F>, scratch: &mut RoundScratch) -> MessageResult<Operate<F>> {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        let done = self.engine.operate(resource.moment(), work, &mut scratch.effects);
        self.carry_out(&resource, scratch);
        MessageResult(done)
    }
}

/// The server is about to stop: a pool or budget proposes its last notes.
pub(super) struct Part;

impl Message for Part {
    type Result = Option<NotesUnderWay>;
}

/// Notes that may not be committed yet.
pub(super) struct NotesUnderWay {
    progress: Arc<CommitProgress>,
    newest: u64,
}

impl NotesUnderWay {
    /// Whether the notes are stored or lost.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.progress.now(), Commit::Lost) || self.progress.now() == Commit::UpTo(self.newest)
    }
}

impl Handler<Part> for ResourceActor {
    type Result = MessageResult<Part>;

    fn handle(&mut self, _: Part, scratch: &mut RoundScratch) -> MessageResult<Part> {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        self.update_notes();
        self.engine.part(resource.moment(), &mut scratch.effects);
        self.carry_out(&resource, scratch);
        let notes = self.notes.as_ref();
        let under_way = notes.map(|notes| (Arc::clone(&notes.progress), notes.newest));
        MessageResult(under_way.map(|(progress, newest)| NotesUnderWay { progress, newest }))
    }
}

/// Asks for the state of the resource, with up to `limit` of its holders from position `from` on.
pub(super) struct Report {
    pub(super) from: usize,
    pub(super) limit: usize,
}

impl Message for Report {
    type Result = Status;
}

/// The state of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) id: Arc<str>,
    /// The pattern or name of its template, or [`PARENT`]. `None` if no template matches.
    pub(crate) template: Option<String>,
    /// The name of the declaration that the template comes from; `None` if the configuration has it.
    pub(crate) declaration: Option<Arc<str>>,
    /// The limit of this resource, in place of the template's capacity.
    pub(crate) limit: Option<Limit>,
    pub(crate) report: ResourceReport,
    /// `None` unless it is a pool.
    pub(crate) pool: Option<PoolReport>,
    /// The promises that the peers keep, if they keep any.
    pub(crate) promises: Option<PromiseReport>,
    pub(crate) holders: Vec<HolderReport>,
    /// Where the next page of holders begins.
    pub(crate) next: Option<usize>,
    /// The time of this report.
    pub(crate) at: Millis,
}

impl Status {
    /// Says that the template comes from a declaration, if it does.
    pub(crate) fn declaration_sentence(&self) -> Option<String> {
        let name = escaped(self.declaration.as_ref()?);
        Some(format!(
            "Its template comes from the declaration `{name}`: `leaseway declarations show {name}` prints it."
        ))
    }

    /// Says who has set the limit of this resource, if it has one.
    pub(crate) fn limit_sentence(&self) -> Option<String> {
        let Limit { capacity, at_unix, by } = self.limit.as_ref()?;
        let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(*at_unix).unwrap_or_default());
        let at = humantime::format_rfc3339_seconds(at);
        let template = self
            .template
            .as_ref()
            .map_or(String::new(), |template| format!(" in place of the capacity of template `{}`", escaped(template)));
        Some(format!(
            "It has a limit of its own, {}{template}: {} set it at {at}.",
            readable(capacity.get()),
            escaped(by)
        ))
    }
}

impl Handler<Report> for ResourceActor {
    type Result = MessageResult<Report>;

    fn handle(&mut self, Report { from, limit }: Report, scratch: &mut RoundScratch) -> MessageResult<Report> {
        let resource = scratch.resource();
        self.catch_up(&resource, &mut scratch.effects);
        let at = resource.context.clock.at();
        let of = self.engine.resource();
        self.metering.report(&resource.id, of, scratch);
        let (holders, next) = if limit == 0 { (Vec::new(), None) } else { holder_reports(of, at, from, limit) };
        let status = Status {
            id: Arc::clone(&resource.id),
            template: template(&resource),
            declaration: declaration(&resource),
            limit: own_limit(&resource),
            report: resource_report(of, at),
            pool: of.pool(),
            promises: of.promises(),
            holders,
            next,
            at,
        };
        self.carry_out(&resource, scratch);
        MessageResult(status)
    }
}

/// The initial state of an incarnation.
pub(super) struct Start {
    pub(super) id: Arc<str>,
    pub(super) generation: u64,
    pub(super) setup: Setup,
    pub(super) context: Arc<ResourceContext>,
    /// The principal that the resource is charged to.
    pub(super) charge: Option<ResourceCharge>,
}

/// Starts an incarnation that is run by `scheduler`.
pub(super) fn start(start: Start, scheduler: &Arc<ResourceScheduler>) -> ResourceHandle {
    let Start { id, generation, setup, context, charge } = start;
    let begin = move |scratch: &mut RoundScratch| ResourceActor::begin(setup, scratch);
    ResourceHandle(Incarnation::new(id, generation, context, Arc::downgrade(scheduler), charge, begin))
}

impl ResourceActor {
    fn begin(setup: Setup, scratch: &mut RoundScratch) -> ResourceActor {
        let resource = scratch.resource();
        let context = &*resource.context;
        let keeps_promises = setup.options.inherited.is_some();
        let mut actor = ResourceActor {
            // The overrides are still to be applied.
            revision: 0,
            last_round: 0,
            engine: ResourceEngine::new(setup, resource.moment(), &mut scratch.effects),
            charges: Charges::default(),
            promises: keeps_promises.then(|| Arc::new(CommitProgress::waking(Arc::downgrade(&resource)))),
            notes: None,
            // A new resource has no holders, so it has missed no watcher.
            watchers_seen: context.watchers.started(),
            metering: Metering::default(),
            wake_at: None,
            next_tick: context.clock.at().plus(TICK_INTERVAL),
        };
        actor.engine.set_place_share(context.limits.share());
        actor.catch_up(&resource, &mut scratch.effects);
        actor.carry_out(&resource, scratch);
        actor
    }

    /// Whether a holder waits for more capacity.
    fn has_waiting(&self) -> bool {
        self.engine.resource().has_waiting()
    }

    /// Ends a round. Returns the state in which the actor waits for its next message, packed if possible, and when it
    /// has something to do by itself.
    fn rest(mut self: Box<Self>, scratch: &mut RoundScratch) -> (ActorState, Millis) {
        let resource = scratch.resource();
        let now = resource.context.clock.at();
        let since_last = (now.0 as u32).wrapping_sub(std::mem::replace(&mut self.last_round, now.0 as u32));
        let is_busy = u64::from(since_last) < BUSY.0;
        if is_busy || self.notes.is_some() || self.wake_at.is_some() || !self.engine.can_pack(now) {
            self.next_tick = self.next_tick.min(now.plus(TICK_INTERVAL));
            let wake_at = self.wake_at.map_or(self.next_tick, |at| at.min(self.next_tick));
            return (ActorState::Running(self), wake_at);
        }
        self.report(scratch);
        let next_tick = self.engine.next_tick(now).max(now.plus(MIN_TICK_INTERVAL));
        let ResourceActor { engine, charges, promises, revision, last_round, watchers_seen, .. } = *self;
        let engine = engine.pack();
        let packed = PackedActor { engine, charges, promises, revision, last_round, watchers_seen };
        (ActorState::Packed(packed), next_tick)
    }

    /// Adds the counters to the metrics, before the actor is dropped or packed.
    fn report(&mut self, scratch: &mut RoundScratch) {
        let resource = scratch.resource();
        self.metering.report(&resource.id, self.engine.resource(), scratch);
    }

    /// The increase of the counters since the last report.
    fn unreported(&self) -> Counters {
        self.metering.unreported(self.engine.resource())
    }

    /// Lets time pass. The next tick is due in a second, or when the next lease ends if the actor is then packed.
    fn tick(&mut self, resource: &Incarnation, now: Millis, scratch: &mut RoundScratch) {
        self.update_notes();
        let may_note = self.notes.as_ref().is_some_and(|notes| notes.permit.is_granted());
        self.engine.tick(resource.moment(), may_note, &mut scratch.effects);
        self.metering.report(&resource.id, self.engine.resource(), scratch);
        self.next_tick = now.plus(TICK_INTERVAL);
    }

    /// Adds to each request the principal that new records are charged to, and the address in a pool that keeps
    /// balances of non-priority clients by address. Child nodes have no balances, because their capacity is for their
    /// clients.
    fn note_origins(&self, resource: &Incarnation, scratch: &mut RoundScratch) {
        let by_address = self.engine.is_pool() && self.engine.resource().settings().pool.free_key == FreeKey::PeerIp;
        let shares_bind = resource.shares_bind();
        let RoundScratch { batch, origins, .. } = scratch;
        for (request, from) in batch.requests_mut().iter_mut().zip(origins.drain(..)) {
            let (Some(from), Request::Ask(ask) | Request::Renew(ask)) = (from, request) else { continue };
            ask.charged_to.principal = from.principal;
            ask.charged_to.is_full = shares_bind && resource.is_at_share(from.principal);
            if by_address && ask.kind == HolderKind::Client {
                let pool_fields = ask.pool_fields.get_or_insert_default();
                pool_fields.key = Some(from.address.to_canonical().to_string().into());
            }
        }
    }

    /// Applies what has happened since the last message: commits, a new configuration, and new watchers.
    fn catch_up(&mut self, resource: &Incarnation, effects: &mut Effects<Ticket>) {
        if let Some(progress) = &self.promises {
            match progress.now() {
                Commit::UpTo(number) => self.engine.committed(number, effects),
                Commit::Lost => self.engine.commit_lost(effects),
            }
        }
        self.follow_config(resource, effects);
        let watchers = &resource.context.watchers;
        let (seen, started) = (self.watchers_seen, watchers.started());
        if seen != started && self.engine.watch_few(|kind, id| watchers.is_watched(kind, id)) {
            self.watchers_seen = started;
            return;
        }
        for (kind, id) in watchers.started_since(&mut self.watchers_seen) {
            self.engine.watch(kind, &id);
        }
    }

    /// Applies a new configuration or limit, unless the settings come from the parent, and new overrides.
    fn follow_config(&mut self, resource: &Incarnation, effects: &mut Effects<Ticket>) {
        let context = &*resource.context;
        let revision = context.revision.load(Ordering::Acquire);
        if resource.take_limit_changed() {
            self.revision = 0;
        }
        if self.revision == revision {
            return;
        }
        let config = context.config.borrow().clone();
        if context.notices.is_none() {
            let limit = limit_of(context.raft.as_ref(), &resource.id);
            self.engine.configure(resource.moment(), config.settings_for(&resource.id, limit), effects);
        }
        let set = config.overrides.find(&resource.id);
        let set = self.engine.operate(resource.moment(), |resource, now| resource.set_overrides(now, set), effects);
        // Without a valid master lease nothing was set, and the next round tries again.
        if set.is_some() {
            self.revision = revision;
        }
    }

    /// Tells the engine which notes are stored.
    fn update_notes(&mut self) {
        let Some(notes) = &mut self.notes else { return };
        match notes.progress.now() {
            Commit::UpTo(number) => self.engine.notes_stored(number),
            Commit::Lost => {
                notes.progress = Arc::default();
                self.engine.notes_lost();
            }
        }
    }

    /// Carries out the effects of a message. Nothing else in this actor affects other actors or streams.
    fn carry_out(&mut self, resource: &Incarnation, scratch: &mut RoundScratch) {
        let RoundScratch { effects, .. } = scratch;
        resource.set_holders(self.engine.resource().charged_slots());
        for delta in self.engine.drain_slot_deltas() {
            self.charges.charge(delta, &resource.context.accounts);
        }
        self.propose(resource, effects);
        if !effects.replies.is_empty() {
            resource.queue().answer(&mut effects.replies);
        }
        if !effects.hints.is_empty() {
            resource.context.watchers.hint(&resource.id, &mut effects.hints);
            for gone in effects.hints.drain(..) {
                self.engine.unwatch(gone.kind, &gone.id);
            }
        }
        if !effects.pool_events.is_empty() {
            resource.context.subscribers.tell(&resource.id, &effects.pool_events);
            effects.pool_events.clear();
        }
        if !effects.budget_events.is_empty() {
            resource.context.audit.record_budget_events(&resource.id, &effects.budget_events);
            effects.budget_events.clear();
        }
        if let (true, Some(notices)) = (std::mem::take(&mut effects.asks_parent), &resource.context.notices) {
            notices.post(Notice::AskSoon(Arc::clone(&resource.id)));
        }
        if std::mem::take(&mut effects.wants_note_turn) {
            self.notes(resource).permit.request();
        }
        if let Some(at) = effects.wake_at.take() {
            self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
        }
        if let Some(error) = effects.bad_load.take() {
            tracing::warn!(resource = %resource.id, %error, "ignored a stored load report: the current settings do not allow it");
        }
        if let Some(ended) = effects.ended.take() {
            resource.end(ended);
            scratch.stop();
        }
    }

    /// Proposes new promises and notes, and the removal of all promises if the resource has retired. If the removal is
    /// lost, a sweep repeats it.
    fn propose(&mut self, resource: &Incarnation, effects: &mut Effects<Ticket>) {
        let (changes, notes) = (effects.changes.take(), effects.notes.take());
        let context = &*resource.context;
        let (Some(master_lease), Some(raft)) = (&context.master_lease, &context.raft) else { return };
        let id = || Arc::clone(&resource.id);
        if let (Some(changes), Some(progress)) = (changes, &self.promises) {
            let number = changes.number;
            progress.propose(number, Command::Promises { resource: id(), changes }, raft, master_lease);
        }
        if let Some((number, notes)) = notes {
            let to = self.notes(resource);
            to.newest = number;
            to.permit.consume();
            let command = match notes {
                Notes::Pool(notes) => Command::Pool { resource: id(), notes: Box::new(notes) },
                Notes::Usage(rows) => Command::Usage { resource: id(), rows },
            };
            to.progress.propose(number, command, raft, master_lease);
        }
        if let (Some(Ended::Retired), true) = (effects.ended, self.promises.is_some()) {
            let command = Command::ForgetPromises { resource: id(), epoch: self.engine.resource().epoch() };
            raft.submit(master_lease, vec![command], drop);
        }
    }

    fn notes(&mut self, resource: &Incarnation) -> &mut PendingNotes {
        let limiter = &resource.context.note_rate_limiter;
        self.notes.get_or_insert_with(|| {
            let permit = NotePermit::new(limiter.clone());
            Box::new(PendingNotes { permit, progress: Arc::default(), newest: 0 })
        })
    }
}

impl PackedActor {
    /// Renews a lease without a round. `None`, without effect, if there is more to do, such as a new configuration.
    fn renew(&mut self, resource: &Arc<Incarnation>, renewal: &Renewal<'_>) -> Option<Renewed> {
        let context = &*resource.context;
        if self.revision != context.revision.load(Ordering::Acquire) || resource.is_limit_changed() {
            return None;
        }
        // Read under the lock, so that time never goes back for a resource.
        let now = context.clock.now();
        let may_decide = context.master_lease.as_ref().is_none_or(|master_lease| master_lease.holds(now.at));
        let renewed = self.engine.renew(renewal, now, may_decide)?;
        Schedule::wake_at(resource, self.engine.next_tick(now.at).max(now.at.plus(MIN_TICK_INTERVAL)));
        Some(renewed)
    }

    fn unpack(self, resource: &Incarnation) -> ResourceActor {
        let PackedActor { engine, charges, promises, revision, last_round, watchers_seen } = self;
        let context = &*resource.context;
        let engine = ResourceEngine::unpack(engine, context.packed(), context.raft.is_some(), context.idle_after());
        ResourceActor {
            metering: Metering::of(engine.resource()),
            engine,
            charges,
            promises,
            notes: None,
            revision,
            last_round,
            watchers_seen,
            wake_at: None,
            next_tick: resource.schedule.due(),
        }
    }
}

/// The pattern or name of the template of a resource, or [`PARENT`].
fn template(resource: &Incarnation) -> Option<String> {
    let context = &*resource.context;
    if context.notices.is_some() { Some(PARENT.into()) } else { context.config.borrow().template_of(&resource.id) }
}

/// The name of the declaration that the template of a resource comes from, if it does.
fn declaration(resource: &Incarnation) -> Option<Arc<str>> {
    resource.context.config.borrow().declaration_of(&resource.id).filter(|_| resource.context.notices.is_none())
}

/// The limit of the resource, if it has one.
fn own_limit(resource: &Incarnation) -> Option<Limit> {
    let raft = resource.context.raft.as_ref().filter(|_| resource.context.notices.is_none())?;
    raft.read(|state| state.limits().get(&resource.id).cloned())
}
