//! Waiting: for conditions, never for times.

use std::{
    future::Future,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

/// Only a hang takes so long. What it is exceeded by is a failure; nothing is asserted about what is faster.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Probes until there is something, and fails with `what` when there never is.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Tests are plain functions; what they ask over gRPC runs here. One runtime for all of them, on threads of its own, so
/// that connections are attended to (and notice that a server says goodbye) while a test does something else.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    runtime().block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("waited in vain for an answer") })
}
