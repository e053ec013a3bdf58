//! What a round of a resource is about: requests, who waits for them, and their answers.
//!
//! Nothing of it outlives the round: all are answered, refused, written down or parked. So each thread has one for all
//! the resources that it serves. That keeps it in the caches: with a thousand resources, room of their own would be as
//! cold as they are.

use std::{cell::Cell, net::IpAddr};

use leaseway_core::{Answer, Request, Workspace};

use super::outbox::Reply;

/// A request, where it came from if that is known, and who waits for its answer.
pub(super) struct Asking {
    pub(super) request: Request,
    pub(super) from: Option<IpAddr>,
    pub(super) reply: Reply,
}

#[derive(Default)]
pub(super) struct Round {
    pub(super) requests: Vec<Request>,
    /// Who waits, in the same order.
    pub(super) replies: Vec<Reply>,
    pub(super) answers: Vec<Answer>,
    /// What the core needs besides.
    pub(super) workspace: Workspace,
}

thread_local! {
    static SPARE: Cell<Option<Box<Round>>> = const { Cell::new(None) };
}

impl Round {
    /// Lends what this thread has. Should the work panic it is dropped, and with it whoever waits is let go.
    pub(super) fn lend<T>(work: impl FnOnce(&mut Round) -> T) -> T {
        let mut round = SPARE.take().unwrap_or_default();
        let done = work(&mut round);
        debug_assert!(round.is_over(), "what is left would go to another resource");
        SPARE.set(Some(round));
        done
    }

    fn is_over(&self) -> bool {
        self.requests.is_empty() && self.replies.is_empty() && self.answers.is_empty()
    }
}
