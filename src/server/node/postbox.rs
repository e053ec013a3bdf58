//! Answers on their way to the threads that their requests came in on, from rounds that other threads have run.
//!
//! Each task of another thread that is woken costs a system call, and is run there by itself: its connection would
//! write each answer alone. So a round leaves all that it has for another thread there, wakes one task of it, and that
//! wakes the others.

use std::{
    cell::Cell,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use leaseway_core::Answer;
use leaseway_engine::LostMastership;
use tokio::sync::{Notify, oneshot};

pub(super) type Replied = Result<Answer, LostMastership>;
pub(super) type Addressee = oneshot::Sender<Replied>;

/// What waits for the tasks of one thread.
#[derive(Debug, Default)]
pub(super) struct Postbox {
    replies: Mutex<Vec<(Addressee, Replied)>>,
    arrived: Notify,
}

thread_local! {
    static OWN: Cell<Option<&'static Postbox>> = const { Cell::new(None) };
}

impl Postbox {
    /// Delivers what arrives for the tasks of this thread. Never ends by itself.
    pub(super) async fn deliver() {
        // There are as many as threads that serve clients, and those live as long as the process.
        let own: &'static Postbox = OWN.get().unwrap_or_else(|| Box::leak(Box::default()));
        OWN.set(Some(own));
        let mut arrived = Vec::new();
        loop {
            own.arrived.notified().await;
            std::mem::swap(&mut *own.replies(), &mut arrived);
            for (addressee, reply) in arrived.drain(..) {
                // It may have gone away meanwhile.
                let _ = addressee.send(reply);
            }
        }
    }

    /// That of this thread. Without one its tasks are woken by the threads that answer them.
    pub(super) fn own() -> Option<&'static Postbox> {
        OWN.get()
    }

    fn replies(&self) -> MutexGuard<'_, Vec<(Addressee, Replied)>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a round has to send. Others are woken when this is dropped.
#[derive(Default)]
pub(super) struct Outgoing {
    own: Option<&'static Postbox>,
    /// Those in which something was left.
    left_in: Vec<&'static Postbox>,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing { own: Postbox::own(), left_in: Vec::new() }
    }

    /// `to`: where the addressee is.
    pub(super) fn send(&mut self, to: Option<&'static Postbox>, addressee: Addressee, reply: Replied) {
        let is = |other: Option<&'static Postbox>| other.zip(to).is_some_and(|(other, to)| ptr::eq(other, to));
        match to {
            Some(to) if !is(self.own) => {
                to.replies().push((addressee, reply));
                if !is(self.left_in.last().copied()) {
                    self.left_in.push(to);
                }
            }
            // It may have gone away meanwhile; the lease counts until it ends.
            _ => drop(addressee.send(reply)),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.left_in.iter().for_each(|postbox| postbox.arrived.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::{runtime::Builder, sync::mpsc};

    use super::*;

    #[test]
    fn answers_for_another_thread_arrive_there_and_those_for_this_one_at_once() {
        let (postboxes, mut opened) = mpsc::channel(1);
        let (addressees, mut asked) = mpsc::unbounded_channel();
        let other = thread::spawn(move || {
            Builder::new_current_thread().build().expect("a runtime").block_on(async move {
                let delivering = tokio::spawn(Postbox::deliver());
                tokio::task::yield_now().await;
                postboxes.send(Postbox::own()).await.expect("it is waited for");
                for _ in 0..100 {
                    let (addressee, reply) = oneshot::channel();
                    addressees.send(addressee).expect("it is waited for");
                    assert_eq!(reply.await.expect("it is answered"), Err(LostMastership));
                }
                delivering.abort();
            });
        });
        let postbox = opened.blocking_recv().flatten().expect("it has one");
        while let Some(addressee) = asked.blocking_recv() {
            let (here, mut reply) = oneshot::channel();
            let mut outgoing = Outgoing::new();
            outgoing.send(Some(postbox), addressee, Err(LostMastership));
            outgoing.send(None, here, Err(LostMastership));
            assert_eq!(reply.try_recv(), Ok(Err(LostMastership)));
        }
        other.join().expect("all were answered");
        assert_eq!(postbox.replies().len(), 0);
    }
}
