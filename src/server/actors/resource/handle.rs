//! How others talk to one life of a resource.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use actix::{Addr, Message, dev::SendError};
use leaseway_core::{Answer, Condensed, Millis, Request, Settings, Supply};
use tokio::sync::oneshot;

use super::{
    super::node::ConfigInForce,
    ResourceActor, Status,
    desk::{Desk, Left, Turn},
    managed::Work,
    noting::UnderWay,
    outbox::Lapsed,
    round::Asking,
};

/// Everything that enters the mailbox.
pub(in super::super) enum Command {
    Tick {
        now: Millis,
        config: Arc<ConfigInForce>,
    },
    /// It wanted to be reminded of hints.
    Look {
        now: Millis,
    },
    /// The parent has lent this, to be divided so.
    Supply {
        supply: Supply,
        settings: Box<Settings>,
    },
    /// The parent is about to be asked.
    Condense {
        reply: oneshot::Sender<Condensed>,
    },
    /// An operator wants this done.
    Manage {
        work: Work,
    },
    /// This master goes.
    Part {
        reply: oneshot::Sender<Option<UnderWay>>,
    },
    Report {
        from: usize,
        limit: usize,
        reply: oneshot::Sender<Status>,
    },
    /// Somebody has run rounds, and has left something to the actor.
    Attend,
}

impl Message for Command {
    type Result = ();
}

/// As many requests are laid down as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Full;

/// Why a command did not get into the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum SubmitError {
    /// It is full.
    Busy,
    /// The actor is no more.
    Gone,
}

/// Talks to one life of a resource.
///
/// actix lets every clone of an address put one message into a full mailbox; the address is shared, not cloned.
/// Requests do not go through the mailbox: they are counted here, and laid down.
#[derive(Clone)]
pub(in super::super) struct ResourceHandle(pub(super) Arc<Life>);

pub(super) struct Life {
    pub(super) addr: Addr<ResourceActor>,
    pub(super) desk: Arc<Desk>,
    pub(super) generation: u64,
    /// Requests that have no answer yet, and how many there may be.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) most: usize,
    /// Set before it stops of its own will. A life that ends without has failed.
    pub(super) retired: Arc<AtomicBool>,
}

impl Life {
    fn serve(&self) {
        self.attend_to(self.desk.serve());
    }

    fn attend_to(&self, left: Left) {
        if left != Left::Nothing {
            // If its mailbox is full the actor attends to what is left with whatever comes next; if it is no more, this
            // life is over, and nothing is left.
            let _ = self.addr.try_send(Command::Attend);
        }
    }
}

/// A request that is laid down, or answered. It becomes its answer; none if this life of the resource is over.
///
/// Written by hand, as it is in the memory of every request under way: as an `async fn` it would be three times as
/// large.
///
/// Whoever was the first of a batch has to run the round: the others wait for that, also if it is not interested any
/// more.
pub(in super::super) struct Asked {
    life: Arc<Life>,
    leads: bool,
    others: BehindOthers,
    answer: oneshot::Receiver<Result<Answer, Lapsed>>,
}

impl Asked {
    /// Of the life that it is laid down for.
    pub(in super::super) fn generation(&self) -> u64 {
        self.life.generation
    }

    /// Whether it has to run the round, which it should do [behind the others](BehindOthers).
    pub(in super::super) fn leads(&self) -> bool {
        self.leads
    }

    /// Runs the round, if it has to.
    pub(in super::super) fn run(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.life.serve();
        }
    }
}

impl Future for Asked {
    type Output = Option<Result<Answer, Lapsed>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if self.leads {
            ready!(Pin::new(&mut self.others).poll(task));
            self.run();
        }
        Pin::new(&mut self.answer).poll(task).map(Result::ok)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.run();
    }
}

/// Lets everybody run who is ready on this thread. Not tokio's `yield_now`, which looks for I/O first: that is a system
/// call.
#[derive(Default)]
pub(in super::super) struct BehindOthers {
    waited: bool,
}

impl Future for BehindOthers {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.waited, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceHandle").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// Room in the mailbox.
pub(super) const MAILBOX: usize = 64;

impl ResourceHandle {
    /// Tells this life from the ones before.
    pub(in super::super) fn generation(&self) -> u64 {
        self.0.generation
    }

    /// Whether it stopped of its own will, with nobody holding anything.
    pub(in super::super) fn retired(&self) -> bool {
        self.0.retired.load(Ordering::Acquire)
    }

    /// As a resource looks in the instant after it has retired.
    #[cfg(test)]
    pub(in super::super) fn pretend_to_have_retired(&self) {
        self.0.retired.store(true, Ordering::Release);
    }

    /// As if a round had failed just now.
    #[cfg(test)]
    pub(in super::super) fn plant_panic(&self) {
        self.0.desk.with(|_| panic!("a planted fault"));
        self.0.serve();
    }

    /// Lays down a request, unless it can be answered at once.
    pub(in super::super) fn lay(&self, request: Request, from: Option<IpAddr>) -> Result<Asked, Full> {
        let life = &self.0;
        if life.queued.fetch_add(1, Ordering::Relaxed) >= life.most {
            life.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(Full);
        }
        let (reply, answer) = oneshot::channel();
        let turn = life.desk.bring(Asking { request, from, reply });
        if let Turn::Done(left) = turn {
            life.attend_to(left);
        }
        Ok(Asked { life: Arc::clone(life), leads: turn == Turn::Lead, others: BehindOthers::default(), answer })
    }

    /// Sends what is not a request.
    pub(in super::super) fn send(&self, command: Command) -> Result<(), SubmitError> {
        self.0.addr.try_send(command).map_err(|error| match error {
            SendError::Full(_) => SubmitError::Busy,
            SendError::Closed(_) => SubmitError::Gone,
        })
    }
}
