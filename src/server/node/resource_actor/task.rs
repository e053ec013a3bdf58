//! The task of a resource, on one of the arbiter threads: handles commands, and runs rounds left over by request
//! threads.

use std::sync::{Arc, Weak};

use super::{combiner::Combiner, wakeup::Wakeup};
use crate::runtime::clock::Clock;

/// Runs until the resource has ended or its last handle is gone.
pub(super) async fn wake(resource: Weak<Combiner>, wakeup: Arc<Wakeup>, clock: Clock) {
    while resource.upgrade().is_some_and(|resource| resource.wake()) {
        wakeup.wait(clock).await;
    }
}
