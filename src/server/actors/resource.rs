//! The actor of one resource: absorbs what is waiting, runs a round of the core's state machine, answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use actix::{
    Actor, ActorFutureExt as _, Addr, ArbiterHandle, AsyncContext as _, Context, Handler, Message,
    dev::{SendError, channel::channel},
};
use leaseway_core::{Answer, Birth, Counters, HolderReport, Millis, Request, Resource, ResourceReport};
use tokio::sync::oneshot;

use super::{
    hinting::Hinting,
    node::{ConfigInForce, settings_for},
};
use crate::{clock::Clock, limits::Limits, metrics};

/// So many requests are answered in one round at the most: a mailbox that never empties cannot put a round off for ever.
const ROUND_MOST: usize = 512;

/// What a resource says about itself.
#[derive(Debug, Clone)]
pub struct Status {
    /// Which.
    pub id: Arc<str>,
    /// The pattern or name of its template; `None` when it matches none.
    pub template: Option<String>,
    /// The whole.
    pub report: ResourceReport,
    /// A page of holders, if asked for, and where the next begins.
    pub holders: Vec<HolderReport>,
    /// Where the next page begins.
    pub next: Option<usize>,
    /// When this was true.
    pub at: Millis,
}

/// Everything that enters the mailbox.
pub(super) enum Command {
    Submit {
        request: Request,
        reply: oneshot::Sender<Answer>,
    },
    Tick {
        now: Millis,
        config: Arc<ConfigInForce>,
    },
    /// It wanted to be reminded of hints.
    Look {
        now: Millis,
    },
    Report {
        from: usize,
        limit: usize,
        reply: oneshot::Sender<Status>,
    },
    #[cfg(test)]
    Panic,
}

impl Message for Command {
    type Result = ();
}

/// Why a request did not get into the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubmitError {
    /// It is full.
    Busy,
    /// The actor is no more.
    Gone,
}

/// Talks to one life of a resource.
///
/// actix lets every clone of an address put one message into a full mailbox, so its bound means little where requests come
/// from many tasks. The queue is counted here instead, and the address is shared, not cloned.
#[derive(Clone)]
pub(super) struct ResourceHandle(Arc<Life>);

struct Life {
    addr: Addr<ResourceActor>,
    generation: u64,
    /// Requests in the mailbox, and how many may be.
    queued: Arc<AtomicUsize>,
    most: usize,
    /// Set before it stops of its own will. A life that ends without has failed.
    retired: Arc<AtomicBool>,
}

/// Room in the mailbox for messages that are not requests.
const OTHER_MESSAGES: usize = 64;

impl ResourceHandle {
    /// Tells this life from the ones before.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Whether it stopped of its own will, with nobody holding anything.
    pub(super) fn retired(&self) -> bool {
        self.0.retired.load(Ordering::Acquire)
    }

    /// As a resource looks in the instant after it has retired.
    #[cfg(test)]
    pub(super) fn pretend_to_have_retired(&self) {
        self.0.retired.store(true, Ordering::Release);
    }

    /// Puts a request into the queue.
    pub(super) fn submit(&self, request: Request) -> Result<oneshot::Receiver<Answer>, SubmitError> {
        if self.0.queued.fetch_add(1, Ordering::Relaxed) >= self.0.most {
            self.0.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(SubmitError::Busy);
        }
        let (reply, answer) = oneshot::channel();
        let sent = self.send(Command::Submit { request, reply });
        if sent.is_err() {
            self.0.queued.fetch_sub(1, Ordering::Relaxed);
        }
        sent.map(|()| answer)
    }

    /// Sends what is not a request.
    pub(super) fn send(&self, command: Command) -> Result<(), SubmitError> {
        self.0.addr.try_send(command).map_err(|error| match error {
            SendError::Full(_) => SubmitError::Busy,
            SendError::Closed(_) => SubmitError::Gone,
        })
    }
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
    /// Requests in the mailbox.
    queued: Arc<AtomicUsize>,
    /// What has been absorbed since the last round.
    waiting: Vec<Request>,
    /// Who waits, in the same order.
    replies: Vec<oneshot::Sender<Answer>>,
    answers: Vec<Answer>,
    told: Counters,
    share: HoldersShare,
    hinting: Hinting,
    idle_since: Option<Millis>,
    end: End,
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
                self.queued.fetch_sub(1, Ordering::Relaxed);
                self.waiting.push(request);
                self.replies.push(reply);
                if self.waiting.len() >= ROUND_MOST {
                    self.round();
                } else if self.waiting.len() == 1 {
                    // Runs when the mailbox has been drained: an idle resource answers at once, a busy one batches by itself.
                    ctx.spawn(actix::fut::ready(()).map(|(), actor: &mut Self, _| actor.round()));
                }
            }
            Command::Tick { now, config } => self.tick(now, &config, ctx),
            Command::Look { now } => self.hinting.after_tick(&mut self.core, now),
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
            template: start.config.template_of(&start.id),
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
            idle_since: None,
            end: End { retired, tell: Some(start.on_end) },
        }
    }

    fn round(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.core.set_max_holders(self.holders_allowed());
        let now = self.clock.now();
        self.core.round(now, &mut self.waiting, &mut self.answers);
        self.share.set(self.core.places());
        for (reply, answer) in self.replies.drain(..).zip(self.answers.drain(..)) {
            // Whoever asked may have gone away meanwhile; the lease counts until it ends.
            let _ = reply.send(answer);
        }
        self.after();
        self.hinting.after_round(&mut self.core, now.at);
    }

    /// Its own limit, and what all resources together leave.
    fn holders_allowed(&self) -> usize {
        let left = self.limits.clients.saturating_sub(self.share.all.load(Ordering::Relaxed));
        self.limits.clients_per_resource.min(self.share.mine + left)
    }

    fn tick(&mut self, now: Millis, config: &ConfigInForce, ctx: &mut Context<Self>) {
        if config.version != self.config_version {
            self.config_version = config.version;
            self.template = config.template_of(&self.id);
            self.core.configure(settings_for(config, &self.id));
        }
        let empty = self.core.tick(now);
        self.share.set(self.core.places());
        self.after();
        self.hinting.after_tick(&mut self.core, now);
        if !empty || self.core.is_learning(now) || !self.waiting.is_empty() {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.since(since) >= Millis::from_secs(self.limits.idle_secs) {
            self.end.retired.store(true, Ordering::Release);
            actix::ActorContext::stop(ctx);
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
        Status { id, template, report: self.core.report(at), holders, next, at }
    }
}
