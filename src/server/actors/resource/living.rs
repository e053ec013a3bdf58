//! The living part of a resource: the core's state machine, who waits for it, and what it has to tell others.
//!
//! It is worked on by one thread at a time ([`super::desk`]): by those of the connections for rounds, by the actor's
//! for all else. What needs a task of its own it leaves to the actor ([`Duties`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
};

use leaseway_core::{Counters, Epoch, Millis, Resource};
use leaseway_quorum::Reign;

use super::{
    super::{
        hinting::Hinting,
        node::{ConfigInForce, settings_for},
        scribe::Scribe,
    },
    PARENT, Start, Status,
    desk::Laid,
    handle::Command,
    lent::Upward,
    managed::Managed,
    outbox::{Held, Lapsed, Memory, Outbox},
    round::{Asking, Round},
    worth_telling,
};
use crate::{clock::Clock, limits::Limits, metrics::ResourceMeters};

/// What is left to the actor, which has a context to run it in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duties {
    /// Wait for writings to be held, see [`Living::await_writings`].
    pub(super) remember: bool,
    /// Look again after so long: somebody is parked until then.
    pub(super) look_after: Option<Millis>,
}

impl Duties {
    pub(super) fn is_empty(&self) -> bool {
        *self == Duties::default()
    }
}

pub(super) struct Living {
    pub(super) id: Arc<str>,
    pub(super) core: Resource,
    template: Option<String>,
    config_version: u64,
    pub(super) clock: Clock,
    limits: Arc<Limits>,
    /// Requests that have no answer yet.
    pub(super) queued: Arc<AtomicUsize>,
    epoch: Epoch,
    pub(super) reign: Option<Reign>,
    writing: Option<Writing>,
    /// What metrics have been told.
    told: Counters,
    meters: ResourceMeters,
    share: HoldersShare,
    pub(super) hinting: Hinting,
    pub(super) upward: Option<Upward>,
    pub(super) managed: Managed,
    idle_since: Option<Millis>,
    pub(super) duties: Duties,
    /// This life is over: it has retired, or what it has written is lost.
    over: bool,
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

impl Drop for Living {
    fn drop(&mut self) {
        self.tell_metrics();
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

impl Living {
    pub(super) fn new(start: Start, queued: Arc<AtomicUsize>, retired: Arc<AtomicBool>) -> Living {
        let now = start.clock.at();
        let mut actor = Living {
            queued,
            epoch: start.birth.epoch,
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
            told: Counters::default(),
            meters: ResourceMeters::new(),
            share: HoldersShare { all: start.holders, mine: 0 },
            hinting: start.hinting,
            upward: start.upward,
            managed: start.managed,
            idle_since: None,
            duties: Duties::default(),
            over: false,
            end: End { retired, tell: Some(start.on_end) },
        };
        actor.remember_what_was_said(now);
        actor
    }

    /// Whether it may decide.
    pub(super) fn reigns(&self, now: Millis) -> bool {
        self.reign.as_ref().is_none_or(|reign| reign.holds(now))
    }

    /// Takes up what is laid down.
    pub(super) fn take_up(&self, laid: &mut Laid, round: &mut Round) {
        laid.hand_over(round);
        for (request, from) in round.requests.iter_mut().zip(laid.origins.drain(..)) {
            self.managed.note_origin(&self.core, request, from);
        }
    }

    /// Takes up a request that was not laid down.
    pub(super) fn take_up_alone(&self, asking: Asking, round: &mut Round) {
        let Asking { mut request, from, reply } = asking;
        self.managed.note_origin(&self.core, &mut request, from);
        round.requests.push(request);
        round.replies.push(reply);
    }

    /// Everything but requests.
    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Tick { now, config } => self.tick(now, &config),
            Command::Look { now } => {
                self.answer_parked(now);
                if self.reigns(now) {
                    self.hinting.after_tick(&mut self.core, now);
                }
            }
            Command::Supply { supply, settings } => self.supplied(supply, *settings),
            Command::Condense { reply } => self.condense(reply),
            Command::Manage { work } => self.manage(work),
            Command::Part { reply } => {
                // Whoever asked may have given up.
                let _ = reply.send(self.part(self.clock.at()));
            }
            Command::Report { from, limit, reply } => {
                // Whoever asked may have gone away meanwhile.
                let _ = reply.send(self.status(from, limit));
            }
            Command::Attend => {}
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn duties(&mut self) -> &mut Duties {
        &mut self.duties
    }

    /// Lets out what is held by now; `task` is woken when more is. Returns whether more is to come.
    pub(super) fn await_writings(&mut self, task: &Waker) -> bool {
        if let Some(writing) = &self.writing {
            writing.memory.wake(task);
        }
        let more = self.remember();
        if let Some(writing) = &mut self.writing {
            writing.remembering = more;
        }
        more
    }

    /// Decides, and answers.
    pub(super) fn round(&mut self, round: &mut Round) {
        if round.requests.is_empty() {
            return;
        }
        let now = self.clock.now();
        if !self.reigns(now.at) {
            self.refuse(round);
            return;
        }
        self.remember();
        self.core.set_max_holders(self.holders_allowed());
        // Nothing can be granted before the parent has lent anything; but what is wanted has to be known for that.
        let parked = if self.core.awaits_supply() { round.requests.clone() } else { Vec::new() };
        self.core.round(now, &mut round.requests, &mut round.answers, &mut round.workspace);
        self.share.set(self.core.places());
        if self.write(now.at).is_some() {
            self.hold_back(round);
        }
        if !parked.is_empty() {
            self.park(parked, now.at, round);
        }
        self.answer(round);
        self.tell_subscribers();
        self.hinting.after_round(&mut self.core, now.at);
        self.ask_early();
    }

    fn answer(&self, round: &mut Round) {
        self.queued.fetch_sub(round.replies.len(), Ordering::Relaxed);
        for (reply, answer) in round.replies.drain(..).zip(round.answers.drain(..)) {
            // Whoever asked may have gone away meanwhile; the lease counts until it ends.
            let _ = reply.send(Ok(answer));
        }
    }

    /// Keeps in the answers that must wait; the others are left to go. Their order means nothing: each has its own way
    /// out.
    fn hold_back(&mut self, round: &mut Round) {
        let Some(writing) = &mut self.writing else { return };
        let mut awaited: Vec<(usize, u64)> = self.core.held_back().collect();
        awaited.sort_unstable();
        let latest = awaited.iter().map(|(_, number)| *number).max().unwrap_or_default();
        // From the last on, so that taking one out does not move those that are still to come.
        let held = awaited
            .iter()
            .rev()
            .map(|(place, _)| (round.replies.swap_remove(*place), round.answers.swap_remove(*place)));
        writing.outbox.hold(latest, held.collect());
    }

    /// Nobody may decide now; perhaps somebody else may, or this one again in a moment.
    fn refuse(&mut self, round: &mut Round) {
        round.requests.clear();
        self.queued.fetch_sub(round.replies.len(), Ordering::Relaxed);
        for reply in round.replies.drain(..) {
            let _ = reply.send(Err(Lapsed));
        }
        self.refuse_parked();
    }

    /// Writes down what has changed about promises. Returns the writing that answers must wait for.
    pub(super) fn write(&mut self, now: Millis) -> Option<u64> {
        let (writing, reign) = (self.writing.as_mut()?, self.reign.as_ref()?);
        let pending = self.core.take_changes(now);
        if let Some(changes) = pending.changes {
            writing.newest = changes.number;
            let receipt = writing.memory.expect(changes.number);
            writing.scribe.promise(reign, &self.id, changes, receipt);
            if !std::mem::replace(&mut writing.remembering, true) {
                self.duties.remember = true;
            }
        }
        pending.awaits
    }

    /// Lets out the answers that have waited for what is held by now. Returns whether more writings are under way.
    pub(super) fn remember(&mut self) -> bool {
        let Some(writing) = &mut self.writing else { return false };
        match writing.memory.held() {
            Held::UpTo(number) => {
                self.core.acknowledge(number);
                self.queued.fetch_sub(writing.outbox.release(number), Ordering::Relaxed);
                number < writing.newest
            }
            Held::Lost => {
                self.over = true;
                false
            }
        }
    }

    /// Its own limit, and what all resources together leave.
    fn holders_allowed(&self) -> usize {
        let left = self.limits.clients.saturating_sub(self.share.all.load(Ordering::Relaxed));
        self.limits.clients_per_resource.min(self.share.mine + left)
    }

    fn tick(&mut self, now: Millis, config: &ConfigInForce) {
        self.answer_parked(now);
        if config.version != self.config_version && self.upward.is_none() {
            self.config_version = config.version;
            self.template = config.template_of(&self.id);
            self.core.configure(settings_for(config, &self.id));
            self.remember_what_was_said(now);
        }
        if !self.reigns(now) {
            return;
        }
        self.remember();
        let empty = self.core.tick(now);
        self.share.set(self.core.places());
        // Nobody waits for what a tick changes.
        let _ = self.write(now);
        self.tell_subscribers();
        self.tell_metrics();
        self.hinting.after_tick(&mut self.core, now);
        self.ask_early();
        let is_idle = empty && !self.core.is_learning(now);
        let is_noted = self.note(now, is_idle);
        if !is_idle {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        // The next life begins with what this one has said.
        if is_noted && now.since(since) >= Millis::from_secs(self.limits.idle_secs) {
            self.end.retired.store(true, Ordering::Release);
            if let (Some(writing), Some(reign)) = (&self.writing, &self.reign) {
                writing.scribe.forget(reign, &self.id, self.epoch);
            }
            self.over = true;
        }
    }

    /// Tells what has happened since it was last told: with every tick, and when somebody looks. Not with every round:
    /// threads that count in the same place wait for each other.
    fn tell_metrics(&mut self) {
        let now = self.core.counters();
        let before = std::mem::replace(&mut self.told, now);
        self.meters.counted(&before, &now);
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

    fn status(&mut self, from: usize, limit: usize) -> Status {
        self.tell_metrics();
        let at = self.clock.at();
        let (holders, next) = if limit == 0 { (Vec::new(), None) } else { self.core.report_holders(at, from, limit) };
        let (id, template) = (Arc::clone(&self.id), self.template.clone());
        let (report, pool) = (self.core.report(at), self.core.pool());
        Status { id, template, report, pool, promises: self.core.promises(), holders, next, at }
    }
}
