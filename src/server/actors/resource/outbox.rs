//! Answers that must not leave before the peers hold what they promise.
//!
//! A resource goes on with its rounds while a writing is under way. Each writing has a number; the scribe tells up to
//! which they are held ([`Memory`]), and the actor lets out what has waited for that. The scribe tells by an atomic
//! number and a wake-up, not by a message: a full mailbox must not keep answers in.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use futures_util::task::AtomicWaker;
use leaseway_core::Answer;
use tokio::sync::oneshot;

/// The reign does not hold at the moment: nothing was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Lapsed;

/// Where an answer goes.
pub(in super::super) type Reply = oneshot::Sender<Result<Answer, Lapsed>>;

/// Up to where the peers hold what one life of a resource has written.
#[derive(Debug, Default)]
pub(in super::super) struct Memory {
    held: AtomicU64,
    lost: AtomicBool,
    waker: AtomicWaker,
}

/// How the writings of one life go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// All up to this number are held by a quorum.
    UpTo(u64),
    /// One of them is not, or nobody knows: nothing that this life decides can count any more.
    Lost,
}

impl Memory {
    pub(super) fn held(&self) -> Held {
        if self.lost.load(Ordering::Acquire) { Held::Lost } else { Held::UpTo(self.held.load(Ordering::Acquire)) }
    }

    /// Wakes this task when [`held`](Self::held) changes.
    pub(super) fn wake(&self, task: &Waker) {
        self.waker.register(task);
    }

    /// To be told of the writing `number`.
    pub(super) fn expect(self: &Arc<Self>, number: u64) -> Receipt {
        Receipt { memory: Arc::clone(self), number, held: false }
    }
}

/// Travels with a writing. One that is dropped says that the writing is lost.
#[derive(Debug)]
pub(in super::super) struct Receipt {
    memory: Arc<Memory>,
    number: u64,
    held: bool,
}

impl Receipt {
    /// A quorum holds it.
    pub(in super::super) fn confirm(mut self) {
        self.held = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.held {
            self.memory.held.fetch_max(self.number, Ordering::AcqRel);
        } else {
            self.memory.lost.store(true, Ordering::Release);
        }
        self.memory.waker.wake();
    }
}

/// What waits, in the order of the numbers it waits for.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<(u64, Vec<(Reply, Answer)>)>);

impl Outbox {
    /// These leave once `number` is held.
    pub(super) fn hold(&mut self, number: u64, answers: Vec<(Reply, Answer)>) {
        self.0.push_back((number, answers));
    }

    /// Lets out whatever has waited for `held` or one before it; returns how many answers that was.
    pub(super) fn release(&mut self, held: u64) -> usize {
        let mut released = 0;
        while self.0.front().is_some_and(|(number, _)| *number <= held) {
            let (_, answers) = self.0.pop_front().unwrap_or_default();
            released += answers.len();
            for (reply, answer) in answers {
                // Whoever asked may have gone away meanwhile; the lease counts until it ends.
                let _ = reply.send(Ok(answer));
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_when_what_they_wait_for_is_held_and_not_before() {
        let (memory, mut outbox) = (Arc::<Memory>::default(), Outbox::default());
        let mut waiting = Vec::new();
        for number in [1, 2, 2, 3] {
            let (reply, answer) = oneshot::channel();
            outbox.hold(number, vec![(reply, Answer::Released)]);
            waiting.push(answer);
        }
        let left = |waiting: &mut Vec<oneshot::Receiver<_>>| {
            waiting.iter_mut().map(|answer| answer.try_recv().is_ok()).collect::<Vec<bool>>()
        };
        let (first, second) = (memory.expect(1), memory.expect(2));
        assert_eq!(memory.held(), Held::UpTo(0));
        assert_eq!(outbox.release(0), 0);
        first.confirm();
        assert_eq!(memory.held(), Held::UpTo(1));
        assert_eq!(outbox.release(1), 1);
        assert_eq!(left(&mut waiting), [true, false, false, false]);
        second.confirm();
        assert_eq!(outbox.release(2), 2);
        assert_eq!(left(&mut waiting), [false, true, true, false]);
    }

    #[test]
    fn a_receipt_that_is_dropped_means_that_the_writing_is_lost() {
        let memory = Arc::<Memory>::default();
        drop(memory.expect(1));
        assert_eq!(memory.held(), Held::Lost);
        memory.expect(2).confirm();
        assert_eq!(memory.held(), Held::Lost, "what came after it stands on nothing");
    }
}
