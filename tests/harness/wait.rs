//! Waiting for conditions instead of fixed times.

use std::{
    future::Future,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

/// The time limit of every wait. Only a hang exceeds it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until `probe` returns something. Fails with `what` after [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// One runtime for the requests of all tests. It has its own threads, so that connections make progress while a test
/// blocks.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    runtime().block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("timed out") })
}
