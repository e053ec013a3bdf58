//! Cooperative scheduling: connections, request bodies and long lists are processed in chunks, yielding between them.
//!
//! Otherwise a client that sends as fast as it can would keep its thread busy as long as bytes are available, and all
//! other connections of that thread would wait. When all cores are busy, yielding also lets other processes run before
//! the thread's time slice ends.
//!
//! If a thread has several long requests, one at a time holds the [permit](ChunkPermit) to process a chunk. So other
//! tasks wait for one chunk instead of one chunk of each long request.

use std::{future::Future, pin::pin, sync::Arc, task::Context, thread};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::yield_now,
};

/// Bytes read before yielding: about a hundred usual requests.
const BYTES: usize = 32 << 10;

/// Entries of a request processed before yielding: less than 0.1 ms.
pub(crate) const ENTRIES: usize = 32;

/// Yields to other tasks and threads.
pub(crate) async fn pause() {
    thread::yield_now();
    yield_now().await;
}

thread_local! {
    static TURNS: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Permits a long request to process one chunk. It must not be held while waiting for anything else.
pub(crate) struct ChunkPermit(OwnedSemaphorePermit);

impl ChunkPermit {
    /// Yields, and waits for other long requests of this thread.
    pub(crate) async fn acquire() -> ChunkPermit {
        let permit = TURNS.with(Arc::clone).acquire_owned().await.expect("it is never closed");
        pause().await;
        ChunkPermit(permit)
    }

    /// Returns the permit after a chunk, and waits for the next one.
    pub(crate) async fn next(self) -> ChunkPermit {
        drop(self.0);
        ChunkPermit::acquire().await
    }
}

/// The number of bytes that a task has read since it last yielded.
#[derive(Debug, Default)]
pub(crate) struct CoopBudget {
    read: usize,
}

impl CoopBudget {
    /// Counts bytes that were read.
    pub(crate) fn takes(&mut self, bytes: usize) {
        self.read += bytes;
    }

    /// Resets the budget, because nothing is left to read and the task yields anyway.
    pub(crate) fn ends(&mut self) {
        self.read = 0;
    }

    /// Whether the budget is used up. If it is, the caller must return `Pending`; the task is woken after other ready
    /// tasks have run and the thread has polled for I/O.
    pub(crate) fn is_over(&mut self, task: &mut Context<'_>) -> bool {
        if self.read < BYTES {
            return false;
        }
        self.read = 0;
        // `pause` wakes the task when it is polled for the first time.
        pin!(pause()).poll(task).is_pending()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Poll,
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixStream,
    };

    use super::*;

    /// Reads endlessly, `bytes` at a time.
    async fn read_for_ever(read: Arc<AtomicUsize>, bytes: usize) {
        let mut coop = CoopBudget::default();
        poll_fn(|task| {
            while !coop.is_over(task) {
                coop.takes(bytes);
                read.fetch_add(bytes, Ordering::Relaxed);
            }
            Poll::<()>::Pending
        })
        .await;
    }

    /// The runtime polls for I/O as on the threads of a server: when it is idle, or after 61 tasks.
    #[test]
    fn endless_readers_let_other_tasks_and_io_proceed() {
        const READERS: usize = 4;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let read = Arc::<AtomicUsize>::default();
            for _ in 0..READERS {
                tokio::spawn(read_for_ever(Arc::clone(&read), 1000));
            }
            let (mut one, mut other) = UnixStream::pair().expect("two sockets");
            for _ in 0..10 {
                let before = read.load(Ordering::Relaxed);
                one.write_all(b"x").await.expect("there is room");
                other.read_exact(&mut [0]).await.expect("it has come");
                let meanwhile = read.load(Ordering::Relaxed) - before;
                assert!(meanwhile <= 4 * READERS * (BYTES + 1000), "{meanwhile} bytes were read first");
            }
        });
    }

    #[test]
    fn long_requests_process_one_chunk_before_other_tasks_proceed() {
        const LONG: usize = 16;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let parts = Arc::<AtomicUsize>::default();
            for _ in 0..LONG {
                let parts = Arc::clone(&parts);
                tokio::spawn(async move {
                    let mut permit = ChunkPermit::acquire().await;
                    loop {
                        parts.fetch_add(1, Ordering::Relaxed);
                        permit = permit.next().await;
                    }
                });
            }
            let (mut one, mut other) = UnixStream::pair().expect("two sockets");
            for _ in 0..100 {
                let before = parts.load(Ordering::Relaxed);
                let write = async {
                    // The reader waits already.
                    yield_now().await;
                    one.write_all(b"x").await.expect("there is room");
                };
                let mut byte = [0];
                let (read, ()) = tokio::join!(other.read_exact(&mut byte), write);
                read.expect("it has come");
                let meanwhile = parts.load(Ordering::Relaxed) - before;
                assert!(meanwhile < LONG / 2, "{meanwhile} parts were done first");
            }
            // All requests proceed.
            while parts.load(Ordering::Relaxed) <= LONG {
                yield_now().await;
            }
        });
    }
}
