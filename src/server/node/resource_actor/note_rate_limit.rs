//! Limits the rate at which the resources of a node write notes to the Raft log.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::mpsc, time::Duration};

/// Minimum time between two permits: at most 1,280 entries and 320 KiB per second.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Grants permits in the order of the requests.
#[derive(Debug, Clone)]
pub(crate) struct NoteRateLimiter(mpsc::UnboundedSender<Arc<AtomicBool>>);

impl NoteRateLimiter {
    /// Starts the task of the limiter. Its queue is bounded by the number of pools, which have one pending request
    /// each.
    pub(crate) fn start() -> NoteRateLimiter {
        let (queue, mut requests) = mpsc::unbounded_channel::<Arc<AtomicBool>>();
        actix_rt::spawn(async move {
            while let Some(granted) = requests.recv().await {
                // If this is the only reference, the pool was dropped.
                if Arc::strong_count(&granted) > 1 {
                    granted.store(true, Ordering::Release);
                    tokio::time::sleep(MIN_INTERVAL).await;
                }
            }
        });
        NoteRateLimiter(queue)
    }
}

#[cfg(test)]
impl NoteRateLimiter {
    /// Never grants a permit.
    pub(crate) fn stopped() -> NoteRateLimiter {
        NoteRateLimiter(mpsc::unbounded_channel().0)
    }
}

/// The permit of one pool to write notes.
#[derive(Debug)]
pub(crate) struct NotePermit {
    limiter: NoteRateLimiter,
    /// The pending request. Becomes true when the limiter grants it.
    request: Option<Arc<AtomicBool>>,
}

impl NotePermit {
    pub(crate) fn new(limiter: NoteRateLimiter) -> NotePermit {
        NotePermit { limiter, request: None }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.request.as_ref().is_some_and(|granted| granted.load(Ordering::Acquire))
    }

    /// Requests a permit, unless a request is pending.
    pub(super) fn request(&mut self) {
        if self.request.is_none() {
            let granted = Arc::new(AtomicBool::new(false));
            // Fails only if the server is stopping.
            let _ = self.limiter.0.send(Arc::clone(&granted));
            self.request = Some(granted);
        }
    }

    /// Consumes the permit.
    pub(super) fn consume(&mut self) {
        self.request = None;
    }
}
