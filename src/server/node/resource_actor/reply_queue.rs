//! Answers for tasks of other threads.
//!
//! Waking a task of another thread costs a system call, and each answer would be written to its connection separately.
//! So a round appends all answers for a thread to the reply queue of that thread and wakes one task there, which
//! delivers them.

use std::{
    cell::Cell,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use leaseway_core::engine::LostMastership;
use leaseway_core::resource::Answer;
use tokio::sync::{Notify, oneshot};

pub(super) type Reply = Result<Answer, LostMastership>;
pub(super) type ReplyTx = oneshot::Sender<Reply>;

/// Answers for the tasks of one thread.
#[derive(Debug, Default)]
pub(crate) struct ReplyQueue {
    replies: Mutex<Vec<(ReplyTx, Reply)>>,
    arrived: Notify,
}

thread_local! {
    static OWN: Cell<Option<&'static ReplyQueue>> = const { Cell::new(None) };
}

impl ReplyQueue {
    /// Delivers the answers for tasks of this thread. Never returns.
    pub(crate) async fn deliver() {
        // Leaked: one per thread, and these threads live as long as the process.
        let own: &'static ReplyQueue = OWN.get().unwrap_or_else(|| Box::leak(Box::default()));
        OWN.set(Some(own));
        let mut arrived = Vec::new();
        loop {
            own.arrived.notified().await;
            std::mem::swap(&mut *own.replies(), &mut arrived);
            for (reply_tx, reply) in arrived.drain(..) {
                // The caller may be gone.
                let _ = reply_tx.send(reply);
            }
        }
    }

    /// The queue of this thread. If it has none, the answering threads wake its tasks directly.
    pub(super) fn own() -> Option<&'static ReplyQueue> {
        OWN.get()
    }

    fn replies(&self) -> MutexGuard<'_, Vec<(ReplyTx, Reply)>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of a round. Other threads are woken when this is dropped.
#[derive(Default)]
pub(super) struct Outgoing {
    own: Option<&'static ReplyQueue>,
    /// Queues of other threads with new answers.
    left_in: Vec<&'static ReplyQueue>,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing { own: ReplyQueue::own(), left_in: Vec::new() }
    }

    /// `to` is the queue of the receiver's thread.
    pub(super) fn send(&mut self, to: Option<&'static ReplyQueue>, reply_tx: ReplyTx, reply: Reply) {
        let is = |other: Option<&'static ReplyQueue>| other.zip(to).is_some_and(|(other, to)| ptr::eq(other, to));
        match to {
            Some(to) if !is(self.own) => {
                to.replies().push((reply_tx, reply));
                if !is(self.left_in.last().copied()) {
                    self.left_in.push(to);
                }
            }
            // The caller may be gone; its lease counts until it expires.
            _ => drop(reply_tx.send(reply)),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.left_in.iter().for_each(|reply_queue| reply_queue.arrived.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::{runtime::Builder, sync::mpsc};

    use super::*;

    #[test]
    fn answers_for_another_thread_are_delivered_there() {
        let (queues, mut opened) = mpsc::channel(1);
        let (reply_txs, mut asked) = mpsc::unbounded_channel();
        let other = thread::spawn(move || {
            Builder::new_current_thread().build().expect("a runtime").block_on(async move {
                let delivering = tokio::spawn(ReplyQueue::deliver());
                tokio::task::yield_now().await;
                queues.send(ReplyQueue::own()).await.expect("it is waited for");
                for _ in 0..100 {
                    let (reply_tx, reply) = oneshot::channel();
                    reply_txs.send(reply_tx).expect("it is waited for");
                    assert_eq!(reply.await.expect("it is answered"), Err(LostMastership));
                }
                delivering.abort();
            });
        });
        let reply_queue = opened.blocking_recv().flatten().expect("it has one");
        while let Some(reply_tx) = asked.blocking_recv() {
            let (here, mut reply) = oneshot::channel();
            let mut outgoing = Outgoing::new();
            outgoing.send(Some(reply_queue), reply_tx, Err(LostMastership));
            outgoing.send(None, here, Err(LostMastership));
            assert_eq!(reply.try_recv(), Ok(Err(LostMastership)));
        }
        other.join().expect("all were answered");
        assert_eq!(reply_queue.replies().len(), 0);
    }
}
