//! The context of the resource actor: the buffers of one round.
//!
//! Their contents do not outlive a message, so each thread reuses one set for all resources that it works for. That set
//! stays in the CPU caches; buffers per resource would be cold.

use std::{cell::Cell, sync::Arc};

use actix::{ActorContext, ActorState};
use leaseway_core::{
    engine::{Batch, Effects},
    resource::Counters,
};

use super::{combiner::Incarnation, request_queue::Ticket};
use crate::{listen::accounts::RequestOrigin, observe::metrics};

/// Number of reports that are added up before they are added to the metrics, because threads contend for these.
const REPORTS: usize = 256;

#[derive(Default)]
pub(crate) struct RoundScratch {
    pub(super) batch: Batch<Ticket>,
    /// The origin of each request of the batch.
    pub(super) origins: Vec<Option<RequestOrigin>>,
    pub(super) effects: Effects<Ticket>,
    /// Counters of resources that are not in the metrics yet, and the number of reports in them.
    counters: (Counters, usize),
    /// The resource that the round is for.
    resource: Option<Arc<Incarnation>>,
    is_stopped: bool,
}

thread_local! {
    static SPARE: Cell<Option<Box<RoundScratch>>> = const { Cell::new(None) };
}

impl RoundScratch {
    /// Lends the buffers of this thread to `work`. Returns whether the actor continues. If `work` panics, the buffers
    /// and the requests in them are dropped.
    pub(super) fn lend(resource: &Arc<Incarnation>, work: impl FnOnce(&mut RoundScratch)) -> bool {
        let mut scratch = SPARE.take().unwrap_or_default();
        scratch.resource = Some(Arc::clone(resource));
        work(&mut scratch);
        scratch.resource = None;
        debug_assert!(scratch.batch.is_empty() && scratch.effects.is_empty(), "leftovers would go to another resource");
        let goes_on = !std::mem::take(&mut scratch.is_stopped);
        SPARE.set(Some(scratch));
        goes_on
    }

    /// The resource that the round is for.
    pub(super) fn resource(&self) -> Arc<Incarnation> {
        Arc::clone(self.resource.as_ref().expect("it is set while an actor handles a message"))
    }

    /// Adds an increase of a resource's counters to the metrics, soon.
    pub(super) fn count(&mut self, more: &Counters) {
        let (counters, reports) = &mut self.counters;
        counters.add(more);
        *reports += 1;
        if *reports >= REPORTS {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let (counters, reports) = std::mem::take(&mut self.counters);
        if reports > 0 {
            metrics::resources_counted(&counters);
        }
    }

    /// Adds the counters of this thread to the metrics now.
    pub(super) fn flush() {
        if let Some(mut scratch) = SPARE.take() {
            scratch.publish();
            SPARE.set(Some(scratch));
        }
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
