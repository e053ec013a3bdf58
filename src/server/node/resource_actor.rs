//! The actor of one resource.
//!
//! [`ResourceActor`] owns the engine, and with it everything known about the holders. Its mailbox is the [`combiner`]:
//! one [`Round`] handles all pending requests, on the thread of one of them. Other messages are handled on the
//! resource's own task.
//!
//! The engine handles each message, and the actor then carries out the effects ([`ResourceActor::carry_out`]). An
//! incarnation ends by a panic, a lost commit, or because it has no holders, and always in the same way: the actor and
//! all pending requests are dropped, and the node is notified.

mod combiner;
mod commit_progress;
mod environment;
mod metering;
pub(super) mod note_rate_limit;
pub(super) mod reply_queue;
mod request_queue;
mod round_scratch;
pub(super) mod uplink_notices;
mod wakeup;

use std::sync::{Arc, OnceLock};

use actix::{Actor, ActorContext as _, ArbiterHandle, Handler, Message, MessageResult};
use leaseway_core::{
    engine::{Effects, Ended, ResourceEngine, Setup},
    resource::report::{holder_reports, resource_report},
};
use leaseway_core::{
    lease::proposer::PromiseReport,
    policy::{
        overrides::Overrides,
        settings::{FreeKey, Settings},
    },
    pool::PoolReport,
    resource::{
        HolderReport, Request, Resource, ResourceReport,
        supply::{DemandSummary, Supply},
    },
    types::{Epoch, HolderKind, Millis},
};
use leaseway_raft::{Command, RaftHandle};
use leaseway_uplink::Notice;

use self::{
    combiner::{Combiner, Incarnation},
    commit_progress::{Commit, CommitProgress},
    metering::Metering,
    note_rate_limit::NotePermit,
    request_queue::{RequestQueue, Ticket},
    round_scratch::RoundScratch,
    uplink_notices::UplinkNotices,
    wakeup::Wakeup,
};
pub(super) use self::{
    combiner::{PendingAnswer, ResourceHandle, SendError, YieldOnce},
    environment::{HoldersShare, ResourceEnvironment},
    request_queue::Full,
};
use super::{config_in_force::ConfigInForce, streams::pool_events::Subscribers};
use crate::runtime::drop_guard::DropGuard;

/// The template name of a resource whose settings come from the parent.
const PARENT: &str = "(parent)";

pub(super) struct ResourceActor {
    engine: ResourceEngine<Ticket>,
    environment: ResourceEnvironment,
    epoch: Epoch,
    promises: Option<(RaftHandle, Arc<CommitProgress>)>,
    notes: Option<Notes>,
    notices: Option<Arc<UplinkNotices>>,
    subscribers: Arc<Subscribers>,
    template: Option<String>,
    config_version: u64,
    overrides: Arc<Overrides>,
    /// Its position in the log of new watchers.
    watchers_seen: u64,
    metering: Metering,
    shared: IncarnationShared,
    _on_end: DropGuard,
}

/// The notes of a pool on their way to the peers.
struct Notes {
    raft: RaftHandle,
    permit: NotePermit,
    progress: Arc<CommitProgress>,
    /// The number of the newest proposal.
    newest: u64,
}

/// State shared by an incarnation and its handles.
struct IncarnationShared {
    queue: Arc<RequestQueue>,
    wakeup: Arc<Wakeup>,
    /// Set before the actor stops by itself. If an incarnation ends without setting it, it has failed.
    ended: Arc<OnceLock<Ended>>,
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

    /// Runs on the thread of one of the requests, or on the resource's own task after many rounds in a row.
    fn handle(&mut self, _: Round, scratch: &mut RoundScratch) {
        self.note_origins(scratch);
        self.catch_up(&mut scratch.effects);
        let RoundScratch { batch, effects, .. } = scratch;
        self.engine.run_round(self.environment.moment(), batch, effects);
        self.carry_out(scratch);
    }
}

/// The resource's task was woken.
struct Wake;

impl Message for Wake {
    type Result = ();
}

impl Handler<Wake> for ResourceActor {
    type Result = ();

    fn handle(&mut self, _: Wake, scratch: &mut RoundScratch) {
        self.catch_up(&mut scratch.effects);
        if self.shared.wakeup.is_woken(self.environment.clock.at()) {
            self.engine.wake(self.environment.moment(), &mut scratch.effects);
        }
        self.carry_out(scratch);
    }
}

/// Time has passed.
pub(super) struct Tick {
    pub(super) config: Arc<ConfigInForce>,
}

impl Message for Tick {
    type Result = ();
}

impl Handler<Tick> for ResourceActor {
    type Result = ();

    fn handle(&mut self, Tick { config }: Tick, scratch: &mut RoundScratch) {
        self.catch_up(&mut scratch.effects);
        self.follow(&config, &mut scratch.effects);
        self.follow_overrides(&config, &mut scratch.effects);
        self.update_notes();
        let may_note = self.notes.as_ref().is_some_and(|notes| notes.permit.is_granted());
        self.engine.tick(self.environment.moment(), may_note, &mut scratch.effects);
        self.metering.report(&self.environment.id, self.engine.resource());
        self.carry_out(scratch);
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
        self.catch_up(&mut scratch.effects);
        let RoundScratch { batch, effects, .. } = scratch;
        self.engine.supply(self.environment.moment(), message.supply, message.settings, batch, effects);
        self.carry_out(scratch);
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
        self.catch_up(&mut scratch.effects);
        let summary = self.engine.summarize(self.environment.moment());
        self.carry_out(scratch);
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
        self.catch_up(&mut scratch.effects);
        let done = self.engine.operate(self.environment.moment(), work, &mut scratch.effects);
        self.carry_out(scratch);
        MessageResult(done)
    }
}

/// The server is about to stop: a pool proposes its last notes.
pub(super) struct Part;

impl Message for Part {
    type Result = Option<NotesUnderWay>;
}

/// Notes of a pool that may not be committed yet.
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
        self.catch_up(&mut scratch.effects);
        self.update_notes();
        self.engine.part(self.environment.moment(), &mut scratch.effects);
        self.carry_out(scratch);
        let notes = self.notes.as_ref().filter(|_| self.engine.is_pool());
        let under_way = notes.map(|notes| (Arc::clone(&notes.progress), notes.newest));
        MessageResult(under_way.map(|(progress, newest)| NotesUnderWay { progress, newest }))
    }
}

/// Asks for the state of the resource, with up to `limit` of its holders from place `from` on.
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

impl Handler<Report> for ResourceActor {
    type Result = MessageResult<Report>;

    fn handle(&mut self, Report { from, limit }: Report, scratch: &mut RoundScratch) -> MessageResult<Report> {
        self.catch_up(&mut scratch.effects);
        let (resource, at) = (self.engine.resource(), self.environment.clock.at());
        self.metering.report(&self.environment.id, resource);
        let (holders, next) = if limit == 0 { (Vec::new(), None) } else { holder_reports(resource, at, from, limit) };
        let status = Status {
            id: Arc::clone(&self.environment.id),
            template: self.template.clone(),
            report: resource_report(resource, at),
            pool: resource.pool(),
            promises: resource.promises(),
            holders,
            next,
            at,
        };
        self.carry_out(scratch);
        MessageResult(status)
    }
}

/// The initial state of an incarnation.
pub(super) struct Start {
    pub(super) generation: u64,
    pub(super) setup: Setup,
    pub(super) config: Arc<ConfigInForce>,
    pub(super) environment: ResourceEnvironment,
    /// Where promises are written, if they are stored.
    pub(super) promises: Option<RaftHandle>,
    /// Where notes of pools are written, if they are stored.
    pub(super) notes: Option<(RaftHandle, NotePermit)>,
    /// Where the uplink reads notices, if the node has a parent.
    pub(super) notices: Option<Arc<UplinkNotices>>,
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) on_end: DropGuard,
}

/// Starts an incarnation, with its task on `arbiter`.
pub(super) fn start(start: Start, arbiter: &ArbiterHandle) -> ResourceHandle {
    let (generation, clock) = (start.generation, start.environment.clock);
    let queue = RequestQueue::new(start.environment.limits.queue, start.environment.limits.share());
    let ended = Arc::<OnceLock<Ended>>::default();
    let wakeup = Arc::<Wakeup>::default();
    let shared =
        IncarnationShared { queue: Arc::clone(&queue), wakeup: Arc::clone(&wakeup), ended: Arc::clone(&ended) };
    let begin = move |scratch: &mut RoundScratch| ResourceActor::begin(start, shared, scratch);
    let combiner = Arc::new(Combiner::new(begin, Arc::clone(&wakeup)));
    let (resource, task) = (Arc::downgrade(&combiner), Arc::clone(&wakeup));
    arbiter.spawn_fn(move || {
        actix_rt::spawn(async move {
            while resource.upgrade().is_some_and(|resource| resource.wake()) {
                task.wait(clock).await;
            }
        });
    });
    let end_task = DropGuard::new(move || wakeup.notify());
    ResourceHandle(Arc::new(Incarnation { combiner, _end_task: end_task, generation, queue, ended }))
}

impl ResourceActor {
    fn begin(start: Start, shared: IncarnationShared, scratch: &mut RoundScratch) -> ResourceActor {
        let Start { setup, config, environment, promises, notes, notices, subscribers, on_end, .. } = start;
        let progress = |raft| (raft, Arc::new(CommitProgress::notifying(shared.wakeup.called())));
        let promises = promises.map(progress);
        let epoch = setup.options.epoch;
        let mut actor = ResourceActor {
            template: if notices.is_some() { Some(PARENT.into()) } else { config.template_of(&environment.id) },
            config_version: config.version,
            overrides: Arc::default(),
            epoch,
            engine: ResourceEngine::new(setup, environment.moment(), &mut scratch.effects),
            promises,
            notes: notes.map(|(raft, permit)| Notes { raft, permit, progress: Arc::default(), newest: 0 }),
            notices,
            subscribers,
            // A new resource has no holders, so it has missed no watcher.
            watchers_seen: environment.watchers.started(),
            metering: Metering::new(),
            environment,
            shared,
            _on_end: on_end,
        };
        actor.engine.set_place_share(actor.environment.limits.share());
        actor.follow_overrides(&config, &mut scratch.effects);
        actor.carry_out(scratch);
        actor
    }

    /// Adds to each request the principal that new records are charged to, and the address in a pool that keeps
    /// balances of non-priority clients by address. Child nodes have no balances, because their capacity is for their
    /// clients.
    fn note_origins(&self, scratch: &mut RoundScratch) {
        let by_address = self.engine.is_pool() && self.engine.resource().settings().pool.free_key == FreeKey::PeerIp;
        let shares_bind = self.environment.shares_bind();
        let RoundScratch { batch, origins, .. } = scratch;
        for (request, from) in batch.requests_mut().iter_mut().zip(origins.drain(..)) {
            let (Some(from), Request::Ask(ask) | Request::Renew(ask)) = (from, request) else { continue };
            ask.charged_to.principal = from.principal;
            ask.charged_to.is_full = shares_bind && self.environment.is_at_share(from.principal);
            if by_address && ask.kind == HolderKind::Client {
                let news = ask.news.get_or_insert_default();
                news.key = Some(from.address.to_canonical().to_string().into());
            }
        }
    }

    /// Applies what has happened since the last message: commits, and new watchers.
    fn catch_up(&mut self, effects: &mut Effects<Ticket>) {
        if let Some((_, progress)) = &self.promises {
            match progress.now() {
                Commit::UpTo(number) => self.engine.committed(number, effects),
                Commit::Lost => self.engine.commit_lost(effects),
            }
        }
        for (kind, id) in self.environment.watchers.started_since(&mut self.watchers_seen) {
            self.engine.watch(kind, &id);
        }
    }

    /// Applies a new configuration, unless the settings come from the parent.
    fn follow(&mut self, config: &ConfigInForce, effects: &mut Effects<Ticket>) {
        if config.version != self.config_version && self.notices.is_none() {
            self.config_version = config.version;
            self.template = config.template_of(&self.environment.id);
            self.engine.configure(self.environment.moment(), config.settings_for(&self.environment.id), effects);
        }
    }

    /// Applies new overrides, also to settings of the parent.
    fn follow_overrides(&mut self, config: &ConfigInForce, effects: &mut Effects<Ticket>) {
        if Arc::ptr_eq(&self.overrides, &config.overrides) {
            return;
        }
        self.overrides = Arc::clone(&config.overrides);
        let set = self.overrides.find(&self.environment.id).cloned();
        self.engine.operate(self.environment.moment(), |resource, now| resource.set_override(now, set), effects);
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
    fn carry_out(&mut self, scratch: &mut RoundScratch) {
        let RoundScratch { effects, .. } = scratch;
        self.environment.holders.set(self.engine.resource().places());
        for delta in self.engine.drain_slot_deltas() {
            self.environment.holders.charge(delta);
        }
        self.propose(effects);
        if !effects.replies.is_empty() {
            self.shared.queue.answer(&mut effects.replies);
        }
        if !effects.hints.is_empty() {
            self.environment.watchers.hint(&self.environment.id, &mut effects.hints);
            for gone in effects.hints.drain(..) {
                self.engine.unwatch(gone.kind, &gone.id);
            }
        }
        if !effects.pool_events.is_empty() {
            self.subscribers.tell(&self.environment.id, &effects.pool_events);
            effects.pool_events.clear();
        }
        if let (true, Some(notices)) = (std::mem::take(&mut effects.asks_parent), &self.notices) {
            notices.post(Notice::AskSoon(Arc::clone(&self.environment.id)));
        }
        if let (true, Some(notes)) = (std::mem::take(&mut effects.wants_note_turn), &mut self.notes) {
            notes.permit.request();
        }
        if let Some(at) = effects.wake_at.take() {
            self.shared.wakeup.notify_at(at);
        }
        if let Some(error) = effects.bad_load.take() {
            tracing::warn!(resource = %self.environment.id, %error, "reported load dropped: it does not fit the current settings");
        }
        if let Some(ended) = effects.ended.take() {
            // Cannot be set already, because an incarnation ends once.
            let _ = self.shared.ended.set(ended);
            scratch.stop();
        }
    }

    /// Proposes new promises and notes, and the removal of all promises if the resource has retired. If the removal is
    /// lost, a sweep repeats it.
    fn propose(&mut self, effects: &mut Effects<Ticket>) {
        let (changes, notes) = (effects.changes.take(), effects.notes.take());
        let Some(master_lease) = &self.environment.master_lease else { return };
        let resource = || Arc::clone(&self.environment.id);
        if let (Some(changes), Some((raft, progress))) = (changes, &self.promises) {
            let number = changes.number;
            progress.propose(number, Command::Promises { resource: resource(), changes }, raft, master_lease);
        }
        if let (Some((number, notes)), Some(to)) = (notes, &mut self.notes) {
            to.newest = number;
            to.permit.consume();
            let command = Command::Pool { resource: resource(), notes: Box::new(notes) };
            to.progress.propose(number, command, &to.raft, master_lease);
        }
        if let (Some(Ended::Retired), Some((raft, _))) = (effects.ended, &self.promises) {
            let command = Command::ForgetPromises { resource: resource(), epoch: self.epoch };
            raft.submit(master_lease, vec![command], drop);
        }
    }
}

impl Drop for ResourceActor {
    fn drop(&mut self) {
        self.metering.report(&self.environment.id, self.engine.resource());
    }
}
