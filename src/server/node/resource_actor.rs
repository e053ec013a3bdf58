//! The actor of one resource.
//!
//! [`ResourceActor`] owns the engine, and with it everything known about the holders. Its mailbox is the [`combiner`]:
//! requests are handled on the threads of their connections, and one of these threads runs a round for all pending
//! requests. Commands are handled on the resource's own [`task`].
//!
//! Each message makes the engine decide; the actor then carries out the effects ([`ResourceActor::carry_out`]). An
//! incarnation always ends the same way, whether by a panic, a lost commit or because it has no holders: the actor is
//! dropped, pending requests are dropped, and the node is notified.

mod combiner;
mod environment;
mod handle;
mod message;
mod metering;
mod queue;
mod round_scratch;
mod task;
mod wakeup;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use actix::{Actor, ActorContext as _, ArbiterHandle, Handler, Message};
use leaseway_core::engine::{Effects, Ended, ResourceEngine, Setup};
use leaseway_core::{
    Epoch, FreeKey, HolderKind, HolderReport, Millis, Overrides, PoolReport, PromiseReport, Request, ResourceReport,
};
use leaseway_raft::RaftHandle;
use leaseway_uplink::Notice;

use self::{
    combiner::Combiner,
    handle::{CallsWhenDropped, Incarnation},
    message::NotesUnderWay,
    metering::Metering,
    queue::{RequestQueue, Ticket},
    round_scratch::RoundScratch,
    wakeup::Wakeup,
};
pub(super) use self::{
    combiner::SendError,
    environment::{HoldersShare, ResourceEnvironment},
    handle::{PendingAnswer, ResourceHandle, YieldOnce},
    message::ResourceMessage,
    queue::Full,
};
use super::{
    commit::{Commit, CommitProgress},
    config_in_force::ConfigInForce,
    note_turns::NoteTurn,
    notices::Notices,
    on_end::OnEnd,
};
use crate::node::subscribers::Subscribers;

/// In place of a template, where the parent says how a resource is run.
const PARENT: &str = "(parent)";

/// What a resource says about itself.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) id: Arc<str>,
    /// The pattern or name of its template, or that the parent says how it is run; `None` when it matches none.
    pub(crate) template: Option<String>,
    pub(crate) report: ResourceReport,
    /// The pool, if it is one.
    pub(crate) pool: Option<PoolReport>,
    /// What the peers keep as promised, if promises are kept.
    pub(crate) promises: Option<PromiseReport>,
    /// A page of holders, if asked for.
    pub(crate) holders: Vec<HolderReport>,
    /// Where the next page begins.
    pub(crate) next: Option<usize>,
    /// When this was true.
    pub(crate) at: Millis,
}

/// What an incarnation of a resource begins with.
pub(super) struct Start {
    pub(super) generation: u64,
    pub(super) setup: Setup,
    pub(super) config: Arc<ConfigInForce>,
    pub(super) environment: ResourceEnvironment,
    /// Where it writes what it promises, if promises are kept.
    pub(super) promises: Option<RaftHandle>,
    /// Where a pool writes what is to be remembered, if that is kept.
    pub(super) notes: Option<(RaftHandle, NoteTurn)>,
    /// Where the uplink is told of it, if the node has a parent.
    pub(super) notices: Option<Arc<Notices>>,
    pub(super) subscribers: Arc<Subscribers>,
    /// Told when it ends.
    pub(super) on_end: OnEnd,
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
    let resource = Arc::downgrade(&combiner);
    let task = Arc::clone(&wakeup);
    arbiter.spawn_fn(move || {
        actix_rt::spawn(task::wake(resource, task, clock));
    });
    ResourceHandle(Arc::new(Incarnation { combiner, _last: CallsWhenDropped(wakeup), generation, queue, ended }))
}

/// What an incarnation shares with its handles.
struct IncarnationShared {
    /// Requests that have no answer yet.
    queue: Arc<RequestQueue>,
    wakeup: Arc<Wakeup>,
    /// Set before it stops of its own will.
    ended: Arc<OnceLock<Ended>>,
}

pub(super) struct ResourceActor {
    engine: ResourceEngine<Ticket>,
    environment: ResourceEnvironment,
    epoch: Epoch,
    promises: Option<(RaftHandle, Arc<CommitProgress>)>,
    notes: Option<Notes>,
    notices: Option<Arc<Notices>>,
    subscribers: Arc<Subscribers>,
    template: Option<String>,
    config_version: u64,
    overrides: Arc<Overrides>,
    /// How much of the log of new watchers it has read.
    heard: u64,
    metering: Metering,
    shared: IncarnationShared,
    _on_end: OnEnd,
}

/// Where a pool writes what is to be remembered.
struct Notes {
    quorum: RaftHandle,
    turn: NoteTurn,
    progress: Arc<CommitProgress>,
    /// The number of the newest.
    newest: u64,
}

/// Runs the engine's algorithm over the batch in the turn.
pub(super) struct Round;

/// Looks after what has happened meanwhile.
pub(super) struct Wake;

impl Message for Round {
    type Result = ();
}

impl Message for Wake {
    type Result = ();
}

impl Actor for ResourceActor {
    type Context = RoundScratch;
}

impl Handler<Round> for ResourceActor {
    type Result = ();

    /// The one place where rounds are run: on the thread of a connection whose request came first, or of the request
    /// that found the resource free; on the resource's own task after many rounds in a row. The combiner's lock is
    /// held.
    fn handle(&mut self, _: Round, scratch: &mut RoundScratch) {
        self.note_origins(scratch);
        self.catch_up(scratch);
        let RoundScratch { batch, effects, .. } = scratch;
        self.engine.run_round(self.environment.moment(), batch, effects);
        self.carry_out(scratch);
    }
}

impl Handler<Wake> for ResourceActor {
    type Result = ();

    fn handle(&mut self, _: Wake, scratch: &mut RoundScratch) {
        self.catch_up(scratch);
        if self.shared.wakeup.is_woken(self.environment.clock.at()) {
            self.engine.wake(self.environment.moment(), &mut scratch.effects);
        }
        self.carry_out(scratch);
    }
}

impl Handler<ResourceMessage> for ResourceActor {
    type Result = ();

    fn handle(&mut self, message: ResourceMessage, scratch: &mut RoundScratch) {
        self.catch_up(scratch);
        let moment = self.environment.moment();
        let RoundScratch { batch, effects, .. } = scratch;
        match message {
            ResourceMessage::Tick { config } => {
                self.follow(&config, effects);
                self.follow_overrides(&config, effects);
                self.tick(effects);
            }
            ResourceMessage::Supply { supply, settings } => {
                self.engine.supply(moment, supply, *settings, batch, effects)
            }
            ResourceMessage::Condense { reply } => {
                if let Some(summary) = self.engine.summarize(moment) {
                    // If it comes too late the next request tells it.
                    let _ = reply.send(summary);
                }
            }
            ResourceMessage::Operate { work } => {
                // If this node may not decide, the operator is told so by its closure being dropped.
                self.engine.operate(moment, work, effects);
            }
            ResourceMessage::Part { reply } => {
                let last = self.part(effects);
                self.carry_out(scratch);
                // The server may wait no longer.
                let _ = reply.send(last);
            }
            ResourceMessage::Report { from, limit, reply } => {
                // The caller may have gone away meanwhile.
                let _ = reply.send(self.status(from, limit));
            }
        }
        self.carry_out(scratch);
    }
}

impl ResourceActor {
    fn begin(start: Start, shared: IncarnationShared, scratch: &mut RoundScratch) -> ResourceActor {
        let Start { setup, config, environment, promises, notes, notices, subscribers, on_end, .. } = start;
        let progress = |quorum| (quorum, Arc::new(CommitProgress::notifying(shared.wakeup.called())));
        let promises = promises.map(progress);
        let epoch = setup.birth.epoch;
        let mut actor = ResourceActor {
            template: if notices.is_some() { Some(PARENT.into()) } else { config.template_of(&environment.id) },
            config_version: config.version,
            overrides: Arc::default(),
            epoch,
            engine: ResourceEngine::new(setup, environment.moment(), &mut scratch.effects),
            promises,
            notes: notes.map(|(quorum, turn)| Notes { quorum, turn, progress: Arc::default(), newest: 0 }),
            notices,
            subscribers,
            // A new resource has no holder whose watch it could have missed.
            heard: environment.watchers.started(),
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

    /// A request says to whom a new record is to be counted; and in a pool that keeps the balances of strangers by
    /// where they come from, where that is. Child nodes have no balances: their capacity is for their clients.
    fn note_origins(&self, scratch: &mut RoundScratch) {
        let by_address = self.engine.is_pool() && self.engine.resource().settings().pool.free_key == FreeKey::PeerIp;
        let shares_bind = self.environment.shares_bind();
        let RoundScratch { batch, origins, .. } = scratch;
        for (request, from) in batch.requests_mut().iter_mut().zip(origins.drain(..)) {
            let (Some(from), Request::Ask(ask) | Request::Renew(ask)) = (from, request) else { continue };
            ask.charged_to.principal = from.principal;
            ask.charged_to.is_full = shares_bind && self.environment.has_its_share(from.principal);
            if by_address && ask.kind == HolderKind::Client {
                let news = ask.news.get_or_insert_default();
                news.key = Some(key(from.address));
            }
        }
    }

    /// Takes what has happened since the last message: commits, and streams that have started.
    fn catch_up(&mut self, scratch: &mut RoundScratch) {
        if let Some((_, progress)) = &self.promises {
            match progress.now() {
                Commit::UpTo(number) => self.engine.committed(number, &mut scratch.effects),
                Commit::Lost => self.engine.commit_lost(&mut scratch.effects),
            }
        }
        for (kind, id) in self.environment.watchers.started_since(&mut self.heard) {
            self.engine.watch(kind, &id);
        }
    }

    /// A new configuration is followed, unless the parent says how the resource is run.
    fn follow(&mut self, config: &ConfigInForce, effects: &mut Effects<Ticket>) {
        if config.version != self.config_version && self.notices.is_none() {
            self.config_version = config.version;
            self.template = config.template_of(&self.environment.id);
            self.engine.configure(self.environment.moment(), config.settings_for(&self.environment.id), effects);
        }
    }

    /// What an operator has set in place of the template's capacity, also where the parent says how it is run.
    fn follow_overrides(&mut self, config: &ConfigInForce, effects: &mut Effects<Ticket>) {
        if Arc::ptr_eq(&self.overrides, &config.overrides) {
            return;
        }
        self.overrides = Arc::clone(&config.overrides);
        let set = self.overrides.find(&self.environment.id).cloned();
        self.engine.operate(self.environment.moment(), |resource, now| resource.set_override(now, set), effects);
    }

    fn tick(&mut self, effects: &mut Effects<Ticket>) {
        self.write_due_notes();
        let may_note = self.notes.as_ref().is_some_and(|notes| notes.turn.has_come());
        self.engine.tick(self.environment.moment(), may_note, effects);
        self.metering.tell(&self.environment.id, self.engine.resource());
    }

    fn write_due_notes(&mut self) {
        let Some(notes) = &mut self.notes else { return };
        match notes.progress.now() {
            Commit::UpTo(number) => self.engine.notes_stored(number),
            Commit::Lost => {
                notes.progress = Arc::default();
                self.engine.notes_lost();
            }
        }
    }

    fn part(&mut self, effects: &mut Effects<Ticket>) -> Option<NotesUnderWay> {
        self.write_due_notes();
        self.engine.part(self.environment.moment(), effects);
        let notes = self.notes.as_ref().filter(|_| self.engine.is_pool())?;
        let newest = effects.notes.as_ref().map_or(notes.newest, |(number, _)| *number);
        Some(NotesUnderWay { progress: Arc::clone(&notes.progress), newest })
    }

    /// Carries out everything that the engine wants done. This is all that a resource does to others.
    fn carry_out(&mut self, scratch: &mut RoundScratch) {
        let RoundScratch { effects, .. } = scratch;
        self.environment.holders.set(self.engine.resource().places());
        for delta in self.engine.drain_slot_deltas() {
            self.environment.holders.pass(delta);
        }
        let resource = &self.environment.id;
        if let (Some(changes), Some((quorum, progress)), Some(reign)) =
            (effects.changes.take(), &self.promises, &self.environment.reign)
        {
            let number = changes.number;
            progress.propose(
                number,
                leaseway_raft::Command::Promises { resource: Arc::clone(resource), changes },
                quorum,
                reign,
            );
        }
        if let (Some((number, notes)), Some(to), Some(reign)) =
            (effects.notes.take(), &mut self.notes, &self.environment.reign)
        {
            to.newest = number;
            to.turn.use_up();
            let command = leaseway_raft::Command::Pool { resource: Arc::clone(resource), notes: Box::new(notes) };
            to.progress.propose(number, command, &to.quorum, reign);
        }
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
            notices.post(Notice::Asks(Arc::clone(&self.environment.id)));
        }
        if let (true, Some(notes)) = (std::mem::take(&mut effects.wants_note_turn), &mut self.notes) {
            notes.turn.ask();
        }
        if let Some(at) = effects.wake_at.take() {
            self.shared.wakeup.notify_at(at);
        }
        if let Some(error) = effects.bad_load.take() {
            tracing::warn!(resource = %self.environment.id, %error, "a reported load does not count any more");
        }
        if let Some(ended) = effects.ended.take() {
            self.end(ended);
            scratch.stop();
        }
    }

    fn end(&self, ended: Ended) {
        // It ends once.
        let _ = self.shared.ended.set(ended);
        if ended == Ended::Retired
            && let (Some((quorum, _)), Some(reign)) = (&self.promises, &self.environment.reign)
        {
            let command = leaseway_raft::Command::ForgetPromises {
                resource: Arc::clone(&self.environment.id),
                epoch: self.epoch,
            };
            // Should that get lost, a sweep finds it.
            quorum.submit(reign, vec![command], drop);
        }
    }

    fn status(&mut self, from: usize, limit: usize) -> Status {
        let resource = self.engine.resource();
        self.metering.tell(&self.environment.id, resource);
        let at = self.environment.clock.at();
        let (holders, next) = if limit == 0 { (Vec::new(), None) } else { resource.report_holders(at, from, limit) };
        let (id, template) = (Arc::clone(&self.environment.id), self.template.clone());
        let (report, pool) = (resource.report(at), resource.pool());
        Status { id, template, report, pool, promises: resource.promises(), holders, next, at }
    }
}

impl Drop for ResourceActor {
    fn drop(&mut self) {
        self.metering.tell(&self.environment.id, self.engine.resource());
    }
}

/// What a balance is kept by.
fn key(from: IpAddr) -> Arc<str> {
    from.to_canonical().to_string().into()
}
