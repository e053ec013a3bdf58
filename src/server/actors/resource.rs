//! The actor of one resource: absorbs what is waiting, runs a round of the core's state machine, answers.
//!
//! Among peers it decides only while its master's reign holds, writes down what it promises, and keeps in what may not leave
//! before that is held by a quorum ([`outbox`]). A life whose writings are lost is over: the next begins with what the peers
//! hold.

mod handle;
mod lent;
mod outbox;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{self, Poll},
};

use actix::{
    Actor, ActorContext as _, ActorFuture, ActorFutureExt as _, Addr, ArbiterHandle, AsyncContext as _, Context,
    Handler, dev::channel::channel,
};
use leaseway_core::{
    Answer, Birth, Counters, HolderReport, Millis, PromiseReport, Request, Resource, ResourceReport, Term,
};
use leaseway_quorum::Reign;

pub(super) use self::{
    handle::{Command, ResourceHandle, SubmitError},
    lent::{Listens, Upward},
    outbox::{Lapsed, Receipt},
};
use self::{
    handle::{Life, OTHER_MESSAGES},
    outbox::{Held, Memory, Outbox, Reply},
};
use super::{
    hinting::Hinting,
    node::{ConfigInForce, settings_for},
    scribe::Scribe,
};
use crate::{clock::Clock, limits::Limits, metrics};

/// So many requests are answered in one round at the most: a mailbox that never empties cannot put a round off for ever.
const ROUND_MOST: usize = 512;

/// In place of a template, where the parent says how a resource is run.
const PARENT: &str = "(parent)";

/// What a resource says about itself.
#[derive(Debug, Clone)]
pub struct Status {
    /// Which.
    pub id: Arc<str>,
    /// The pattern or name of its template, or that the parent says how it is run; `None` when it matches none.
    pub template: Option<String>,
    /// The whole.
    pub report: ResourceReport,
    /// What the peers keep as promised, if promises are kept.
    pub promises: Option<PromiseReport>,
    /// A page of holders, if asked for, and where the next begins.
    pub holders: Vec<HolderReport>,
    /// Where the next page begins.
    pub next: Option<usize>,
    /// When this was true.
    pub at: Millis,
}

/// What a resource needs to come to life.
pub(super) struct Start {
    pub(super) id: Arc<str>,
    pub(super) generation: u64,
    pub(super) birth: Birth,
    pub(super) config: Arc<ConfigInForce>,
    pub(super) clock: Clock,
    pub(super) limits: Arc<Limits>,
    /// Holders of all resources.
    pub(super) holders: Arc<AtomicUsize>,
    /// Its part in hints.
    pub(super) hinting: Hinting,
    /// Among peers: under whose reign it lives.
    pub(super) reign: Option<Reign>,
    /// Where it writes down what it promises, if it does.
    pub(super) scribe: Option<Scribe>,
    /// What it has to do with the parent, if the node has one.
    pub(super) upward: Option<Upward>,
    /// Told when this life ends.
    pub(super) on_end: Box<dyn FnOnce() + Send>,
}

pub(super) fn start(start: Start, arbiter: &ArbiterHandle) -> ResourceHandle {
    let (generation, most) = (start.generation, start.limits.queue);
    let queued = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&queued);
    let retired = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&retired);
    // As `Actor::start_in_arbiter` does it, but with room in the mailbox from the start and not only once the actor runs.
    let (sender, receiver) = channel(most.saturating_add(OTHER_MESSAGES));
    arbiter.spawn_fn(move || {
        let ctx = Context::with_receiver(receiver);
        actix_rt::spawn(ctx.into_future(ResourceActor::new(start, counted, end)));
    });
    ResourceHandle(Arc::new(Life { addr: Addr::new(sender), generation, queued, most, retired }))
}

pub(super) struct ResourceActor {
    id: Arc<str>,
    core: Resource,
    template: Option<String>,
    config_version: u64,
    clock: Clock,
    limits: Arc<Limits>,
    /// Requests that have no answer yet.
    queued: Arc<AtomicUsize>,
    term: Term,
    reign: Option<Reign>,
    writing: Option<Writing>,
    /// What has been absorbed since the last round.
    waiting: Vec<Request>,
    /// Who waits, in the same order.
    replies: Vec<Reply>,
    answers: Vec<Answer>,
    told: Counters,
    share: HoldersShare,
    hinting: Hinting,
    upward: Option<Upward>,
    idle_since: Option<Millis>,
    end: End,
}

/// What is written down, and what waits for that.
struct Writing {
    scribe: Scribe,
    memory: Arc<Memory>,
    /// The number of the newest writing.
    newest: u64,
    outbox: Outbox,
    /// Somebody waits for the memory to change.
    remembering: bool,
}

/// This resource's part of the holders of all resources.
struct HoldersShare {
    all: Arc<AtomicUsize>,
    mine: usize,
}

impl HoldersShare {
    fn set(&mut self, mine: usize) {
        if mine >= self.mine {
            self.all.fetch_add(mine - self.mine, Ordering::Relaxed);
        } else {
            self.all.fetch_sub(self.mine - mine, Ordering::Relaxed);
        }
        self.mine = mine;
    }
}

impl Drop for HoldersShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Tells the node that this life is over, however it ended.
struct End {
    retired: Arc<AtomicBool>,
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell();
        }
    }
}

impl Actor for ResourceActor {
    type Context = Context<Self>;
}

impl Handler<Command> for ResourceActor {
    type Result = ();

    fn handle(&mut self, command: Command, ctx: &mut Context<Self>) {
        match command {
            Command::Submit { request, reply } => {
                self.waiting.push(request);
                self.replies.push(reply);
                if self.waiting.len() >= ROUND_MOST {
                    self.round(ctx);
                } else if self.waiting.len() == 1 {
                    // Runs when the mailbox has been drained: an idle resource answers at once, a busy one batches by itself.
                    ctx.spawn(actix::fut::ready(()).map(|(), actor: &mut Self, ctx| actor.round(ctx)));
                }
            }
            Command::Tick { now, config } => self.tick(now, &config, ctx),
            Command::Look { now } => {
                self.answer_parked(now, ctx);
                if self.reigns(now) {
                    self.hinting.after_tick(&mut self.core, now);
                }
            }
            Command::Supply { supply, settings } => self.supplied(supply, settings, ctx),
            Command::Condense { reply } => self.condense(reply),
            Command::Report { from, limit, reply } => {
                // Whoever asked may have gone away meanwhile.
                let _ = reply.send(self.status(from, limit));
            }
            #[cfg(test)]
            Command::Panic => panic!("a planted fault"),
        }
    }
}

/// Whether a count has doubled: whoever makes something happen a million times gets twenty lines of log, not a million.
pub(super) fn worth_telling(before: u64, now: u64) -> bool {
    now.checked_ilog2() != before.checked_ilog2()
}

impl ResourceActor {
    fn new(start: Start, queued: Arc<AtomicUsize>, retired: Arc<AtomicBool>) -> ResourceActor {
        ResourceActor {
            queued,
            term: start.birth.term,
            reign: start.reign,
            writing: start.scribe.map(|scribe| Writing {
                scribe,
                memory: Arc::default(),
                newest: 0,
                outbox: Outbox::default(),
                remembering: false,
            }),
            template: if start.upward.is_some() { Some(PARENT.into()) } else { start.config.template_of(&start.id) },
            config_version: start.config.version,
            core: Resource::new(start.birth),
            id: start.id,
            clock: start.clock,
            limits: start.limits,
            waiting: Vec::new(),
            replies: Vec::new(),
            answers: Vec::new(),
            told: Counters::default(),
            share: HoldersShare { all: start.holders, mine: 0 },
            hinting: start.hinting,
            upward: start.upward,
            idle_since: None,
            end: End { retired, tell: Some(start.on_end) },
        }
    }

    /// Whether it may decide.
    fn reigns(&self, now: Millis) -> bool {
        self.reign.as_ref().is_none_or(|reign| reign.holds(now))
    }

    fn round(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.clock.now();
        if !self.reigns(now.at) {
            self.refuse();
            return;
        }
        self.remember(ctx);
        self.core.set_max_holders(self.holders_allowed());
        // Nothing can be granted before the parent has lent anything; but what is wanted has to be known for that.
        let parked = if self.core.awaits_supply() { self.waiting.clone() } else { Vec::new() };
        self.core.round(now, &mut self.waiting, &mut self.answers);
        self.share.set(self.core.places());
        if self.write(now.at, ctx).is_some() {
            self.hold_back();
        }
        if !parked.is_empty() {
            self.park(parked, now.at, ctx);
        }
        self.answer();
        self.after();
        self.hinting.after_round(&mut self.core, now.at);
        self.ask_early();
    }

    fn answer(&mut self) {
        self.queued.fetch_sub(self.replies.len(), Ordering::Relaxed);
        for (reply, answer) in self.replies.drain(..).zip(self.answers.drain(..)) {
            // Whoever asked may have gone away meanwhile; the lease counts until it ends.
            let _ = reply.send(Ok(answer));
        }
    }

    /// Keeps in the answers that must wait; the others are left to go. Their order means nothing: each has its own way out.
    fn hold_back(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let mut awaited: Vec<(usize, u64)> = self.core.held_back().collect();
        awaited.sort_unstable();
        let latest = awaited.iter().map(|(_, number)| *number).max().unwrap_or_default();
        // From the last on, so that taking one out does not move those that are still to come.
        let held =
            awaited.iter().rev().map(|(place, _)| (self.replies.swap_remove(*place), self.answers.swap_remove(*place)));
        writing.outbox.hold(latest, held.collect());
    }

    /// Nobody may decide now; perhaps somebody else may, or this one again in a moment.
    fn refuse(&mut self) {
        self.waiting.clear();
        self.queued.fetch_sub(self.replies.len(), Ordering::Relaxed);
        for reply in self.replies.drain(..) {
            let _ = reply.send(Err(Lapsed));
        }
        self.refuse_parked();
    }

    /// Writes down what has changed about promises. Returns the writing that answers must wait for.
    fn write(&mut self, now: Millis, ctx: &mut Context<Self>) -> Option<u64> {
        let (writing, reign) = (self.writing.as_mut()?, self.reign.as_ref()?);
        let pending = self.core.take_changes(now);
        if let Some(changes) = pending.changes {
            writing.newest = changes.number;
            let receipt = writing.memory.expect(changes.number);
            writing.scribe.promise(reign, &self.id, changes, receipt);
            if !std::mem::replace(&mut writing.remembering, true) {
                ctx.spawn(Remembering);
            }
        }
        pending.awaits
    }

    /// Lets out the answers that have waited for what is held by now. Returns whether more writings are under way.
    fn remember(&mut self, ctx: &mut Context<Self>) -> bool {
        let Some(writing) = &mut self.writing else { return false };
        match writing.memory.held() {
            Held::UpTo(number) => {
                self.core.acknowledge(number);
                self.queued.fetch_sub(writing.outbox.release(number), Ordering::Relaxed);
                number < writing.newest
            }
            Held::Lost => {
                ctx.stop();
                false
            }
        }
    }

    /// Its own limit, and what all resources together leave.
    fn holders_allowed(&self) -> usize {
        let left = self.limits.clients.saturating_sub(self.share.all.load(Ordering::Relaxed));
        self.limits.clients_per_resource.min(self.share.mine + left)
    }

    fn tick(&mut self, now: Millis, config: &ConfigInForce, ctx: &mut Context<Self>) {
        self.answer_parked(now, ctx);
        if config.version != self.config_version && self.upward.is_none() {
            self.config_version = config.version;
            self.template = config.template_of(&self.id);
            self.core.configure(settings_for(config, &self.id));
        }
        if !self.reigns(now) {
            return;
        }
        self.remember(ctx);
        let empty = self.core.tick(now);
        self.share.set(self.core.places());
        // Nobody waits for what a tick changes.
        let _ = self.write(now, ctx);
        self.after();
        self.hinting.after_tick(&mut self.core, now);
        self.ask_early();
        if !empty || self.core.is_learning(now) || !self.waiting.is_empty() {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.since(since) >= Millis::from_secs(self.limits.idle_secs) {
            self.end.retired.store(true, Ordering::Release);
            if let (Some(writing), Some(reign)) = (&self.writing, &self.reign) {
                writing.scribe.forget(reign, &self.id, self.term);
            }
            ctx.stop();
        }
    }

    /// Tells what has happened since it was last told.
    fn after(&mut self) {
        let now = self.core.counters();
        let before = std::mem::replace(&mut self.told, now);
        metrics::resource_counted(&before, &now);
        if worth_telling(before.learning_excess, now.learning_excess) {
            let times = now.learning_excess;
            tracing::warn!(resource = %self.id, times, "learning mode: holders say they have more than the capacity; they were given what is left");
        }
        if worth_telling(before.unaccounted, now.unaccounted) {
            let times = now.unaccounted;
            tracing::warn!(resource = %self.id, times, "a request came with a lease that nobody here knows of");
        }
        if worth_telling(before.full, now.full) {
            let (times, holders) = (now.full, self.core.holders());
            tracing::warn!(resource = %self.id, times, holders, "too many holders: new ones are refused");
        }
    }

    fn status(&self, from: usize, limit: usize) -> Status {
        let at = self.clock.at();
        let (holders, next) = if limit == 0 { (Vec::new(), None) } else { self.core.report_holders(at, from, limit) };
        let (id, template) = (Arc::clone(&self.id), self.template.clone());
        Status { id, template, report: self.core.report(at), promises: self.core.promises(), holders, next, at }
    }
}

/// Waits for the peers to hold what is under way. It ends when nothing is, for an actor with something to wait for is never
/// over.
struct Remembering;

impl ActorFuture<ResourceActor> for Remembering {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut ResourceActor,
        ctx: &mut Context<ResourceActor>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        if let Some(writing) = &actor.writing {
            writing.memory.wake(task.waker());
        }
        if actor.remember(ctx) {
            return Poll::Pending;
        }
        if let Some(writing) = &mut actor.writing {
            writing.remembering = false;
        }
        Poll::Ready(())
    }
}
