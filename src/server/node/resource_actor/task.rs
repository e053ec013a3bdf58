//! The task of a resource, on one of the arbiters: it handles commands, and runs what no request's thread runs.

use std::sync::{Arc, Weak};

use super::{combiner::Combiner, wakeup::Wakeup};
use crate::runtime::clock::Clock;

/// Goes on until the resource is over, or no handle is left.
pub(super) async fn wake(resource: Weak<Combiner>, wakeup: Arc<Wakeup>, clock: Clock) {
    while resource.upgrade().is_some_and(|resource| resource.wake()) {
        wakeup.wait(clock).await;
    }
}
