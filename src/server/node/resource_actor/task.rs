//! The task of a resource, on one of the arbiters: it handles commands, and runs what no request's thread runs.

use std::sync::{Arc, Weak};

use super::{attention::Attention, combiner::Combiner};
use crate::runtime::clock::Clock;

/// Goes on until the resource is over, or no handle is left.
pub(super) async fn attend(resource: Weak<Combiner>, attention: Arc<Attention>, clock: Clock) {
    while resource.upgrade().is_some_and(|resource| resource.attend()) {
        attention.wait(clock).await;
    }
}
