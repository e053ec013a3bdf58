//! The context of the resource actor: the buffers of one round.
//!
//! Their contents do not outlive a message, so each thread reuses one set for all resources that it works for. That set
//! stays in the CPU caches; buffers per resource would be cold.

use std::cell::Cell;

use actix::{ActorContext, ActorState};
use leaseway_core::engine::{Batch, Effects};

use super::request_queue::Ticket;
use crate::listen::accounts::RequestOrigin;

#[derive(Default)]
pub(crate) struct RoundScratch {
    pub(super) batch: Batch<Ticket>,
    /// The origin of each request of the batch.
    pub(super) origins: Vec<Option<RequestOrigin>>,
    pub(super) effects: Effects<Ticket>,
    is_stopped: bool,
}

thread_local! {
    static SPARE: Cell<Option<Box<RoundScratch>>> = const { Cell::new(None) };
}

impl RoundScratch {
    /// Lends the buffers of this thread to `work`. Returns whether the actor continues. If `work` panics, the buffers
    /// and the requests in them are dropped.
    pub(super) fn lend(work: impl FnOnce(&mut RoundScratch)) -> bool {
        let mut scratch = SPARE.take().unwrap_or_default();
        work(&mut scratch);
        debug_assert!(scratch.batch.is_empty() && scratch.effects.is_empty(), "leftovers would go to another resource");
        let goes_on = !std::mem::take(&mut scratch.is_stopped);
        SPARE.set(Some(scratch));
        goes_on
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

impl ActorContext for RoundScratch {
    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn terminate(&mut self) {
        self.stop();
    }

    fn state(&self) -> ActorState {
        if self.is_stopped { ActorState::Stopped } else { ActorState::Running }
    }
}
