//! The actor of one resource, and what rounds of the core's state machine are run on.
//!
//! Requests are laid down ([`desk`]) and answered by whoever comes first, on the threads of the connections; the actor
//! does what nobody waits for, and what needs a task of its own.
//!
//! Among peers it decides only while its master's reign holds, writes down what it promises, and keeps in what may not
//! leave before that is held by a quorum ([`outbox`]). A life whose writings are lost is over: the next begins with
//! what the peers hold.

mod desk;
mod handle;
mod lent;
mod living;
mod managed;
mod noting;
mod outbox;
mod round;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
    task::{self, Poll},
};

use actix::{
    Actor, ActorContext as _, ActorFuture, Addr, ArbiterHandle, AsyncContext as _, Context, Handler,
    dev::channel::channel,
};
use leaseway_core::{Birth, HolderReport, Millis, PoolReport, PromiseReport, ResourceReport};
use leaseway_quorum::Reign;

use self::{
    desk::{Desk, Left},
    handle::{Life, MAILBOX},
    living::Living,
};
pub(super) use self::{
    handle::{Asked, BehindOthers, Command, Full, ResourceHandle, SubmitError},
    lent::{Listens, Upward},
    managed::Managed,
    noting::{Noting, Turns},
    outbox::{Lapsed, Receipt},
};
use super::{hinting::Hinting, node::ConfigInForce, scribe::Scribe};
use crate::{clock::Clock, limits::Limits};

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
    /// The pool, if it is one.
    pub pool: Option<PoolReport>,
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
    /// What it has to do with operators.
    pub(super) managed: Managed,
    /// Told when this life ends.
    pub(super) on_end: Box<dyn FnOnce() + Send>,
}

pub(super) fn start(start: Start, arbiter: &ArbiterHandle) -> ResourceHandle {
    let (generation, most, clock) = (start.generation, start.limits.queue, start.clock);
    let queued = Arc::new(AtomicUsize::new(0));
    let retired = Arc::new(AtomicBool::new(false));
    let (counted, end) = (Arc::clone(&queued), Arc::clone(&retired));
    let desk = Arc::new(Desk::new(move || Living::new(start, counted, end)));
    let actor = ResourceActor { desk: Arc::clone(&desk), clock };
    // As `Actor::start_in_arbiter` does it, but with room in the mailbox from the start and not only once the actor
    // runs.
    let (sender, receiver) = channel(MAILBOX);
    arbiter.spawn_fn(move || {
        let ctx = Context::with_receiver(receiver);
        actix_rt::spawn(ctx.into_future(actor));
    });
    ResourceHandle(Arc::new(Life { addr: Addr::new(sender), desk, generation, queued, most, retired }))
}

/// What holds the context: rounds are run by whoever asks, see [`desk`].
pub(super) struct ResourceActor {
    desk: Arc<Desk>,
    clock: Clock,
}

impl Actor for ResourceActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // It begins now, if nobody was faster.
        self.desk.with(|_| ());
        self.attend(ctx);
    }
}

impl Handler<Command> for ResourceActor {
    type Result = ();

    fn handle(&mut self, command: Command, ctx: &mut Context<Self>) {
        self.desk.with(|living| living.handle(command));
        self.attend(ctx);
    }
}

impl ResourceActor {
    /// Whatever is left to the actor, by itself or by those who have run rounds.
    fn attend(&mut self, ctx: &mut Context<Self>) {
        let left = self.desk.serve();
        let Some(duties) = self.desk.take_duties() else {
            ctx.stop();
            return;
        };
        // Whoever came while duties were taken found somebody at work.
        if left == Left::More || self.desk.is_waited_for() {
            // Behind whatever else this thread has to do.
            ctx.notify(Command::Attend);
        }
        if duties.remember {
            ctx.spawn(Remembering);
        }
        if let Some(after) = duties.look_after {
            lent::remind(after, ctx, self.clock);
        }
    }
}

/// Whether a count has doubled: whoever makes something happen a million times gets twenty lines of log, not a million.
pub(super) fn worth_telling(before: u64, now: u64) -> bool {
    now.checked_ilog2() != before.checked_ilog2()
}

/// Waits for the peers to hold what is under way. It ends when nothing is, for an actor with something to wait for is
/// never over.
struct Remembering;

impl ActorFuture<ResourceActor> for Remembering {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut ResourceActor,
        ctx: &mut Context<ResourceActor>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        let more = actor.desk.with(|living| living.await_writings(task.waker()));
        actor.attend(ctx);
        if more == Some(true) { Poll::Pending } else { Poll::Ready(()) }
    }
}
