//! The threads that run actors and serve connections.

use actix::{Arbiter, ArbiterHandle, System};
use tokio::task::JoinHandle;

use super::resource_actor::reply_queue::ReplyQueue;

/// Runs the main future of a process on this thread.
pub fn block_on<T>(main: impl Future<Output = T>) -> T {
    System::new().block_on(main)
}

/// Spawns a task on this thread.
pub(crate) fn spawn<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    actix_rt::spawn(task)
}

/// The threads of the process, except the main one.
pub(crate) struct Threads(Vec<Arbiter>);

impl Threads {
    pub(crate) fn start(count: usize) -> Threads {
        let threads = Threads((0..count).map(|_| Arbiter::new()).collect());
        // Spawned on tokio instead of actix, because actix has a task queue of its own.
        threads.on_each(|| async { drop(tokio::spawn(ReplyQueue::deliver())) });
        threads
    }

    pub(crate) fn handles(&self) -> Vec<ArbiterHandle> {
        self.0.iter().map(Arbiter::handle).collect()
    }

    /// Runs a task on each thread.
    pub(crate) fn on_each<F: Future<Output = ()> + Send + 'static>(&self, mut task: impl FnMut() -> F) {
        for arbiter in &self.0 {
            arbiter.spawn(task());
        }
    }

    /// Waits until all have ended.
    pub(crate) fn stop(self) {
        for arbiter in self.0 {
            arbiter.stop();
            // A panic was logged already.
            let _ = arbiter.join();
        }
    }
}
