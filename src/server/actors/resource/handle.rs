//! How others talk to one life of a resource.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use actix::{Addr, Message, dev::SendError};
use leaseway_core::{Answer, Condensed, Millis, Request, Settings, Supply};
use tokio::sync::oneshot;

use super::{
    super::node::ConfigInForce,
    ResourceActor, Status,
    outbox::{Lapsed, Reply},
};

/// Everything that enters the mailbox.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all commands are requests; a box would be one allocation for each"
)]
pub(in super::super) enum Command {
    Submit {
        request: Request,
        reply: Reply,
    },
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
        settings: Settings,
    },
    /// The parent is about to be asked.
    Condense {
        reply: oneshot::Sender<Condensed>,
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
pub(in super::super) enum SubmitError {
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
pub(in super::super) struct ResourceHandle(pub(super) Arc<Life>);

pub(super) struct Life {
    pub(super) addr: Addr<ResourceActor>,
    pub(super) generation: u64,
    /// Requests that have no answer yet, and how many there may be.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) most: usize,
    /// Set before it stops of its own will. A life that ends without has failed.
    pub(super) retired: Arc<AtomicBool>,
}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceHandle").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

/// Room in the mailbox for messages that are not requests.
pub(super) const OTHER_MESSAGES: usize = 64;

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

    /// Puts a request into the queue.
    pub(in super::super) fn submit(
        &self,
        request: Request,
    ) -> Result<oneshot::Receiver<Result<Answer, Lapsed>>, SubmitError> {
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
    pub(in super::super) fn send(&self, command: Command) -> Result<(), SubmitError> {
        self.0.addr.try_send(command).map_err(|error| match error {
            SendError::Full(_) => SubmitError::Busy,
            SendError::Closed(_) => SubmitError::Gone,
        })
    }
}
