//! Bounds on the unanswered requests of one resource, in total and per principal.
//!
//! Half of the permits are open to all principals, and one counter is enough for them. In the other half, which fills
//! only when a resource cannot keep up, each principal has at most its share. So no principal can fill the queue, and
//! requests pay for the accounting by principal only when the queue is long.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use leaseway_core::types::{Principal, PrincipalShare};

use super::reply_queue::{Outgoing, Reply, ReplyQueue, ReplyTx};
use crate::listen::accounts::{RequestOrigin, SlotsTaken};

/// Why there is no permit for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue of the resource is full.
    InAll,
    /// The principal has used up its share of the queue.
    OfPrincipal,
}

/// Counts unanswered requests.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    /// Requests in the half that is open to all.
    count: AtomicUsize,
    /// The other half, once it was needed.
    shared: OnceLock<Arc<SharedHalf>>,
}

type SharedHalf = Mutex<SlotsTaken>;

/// A permit of the half of the queue in which each principal is limited to its share. Dropping it returns the permit.
#[derive(Debug)]
pub(super) struct SharedQueuePermit {
    half: Arc<SharedHalf>,
    principal: Principal,
}

/// The permit of a request in the queue, and the destination of its answer.
pub(super) struct Ticket {
    reply_tx: ReplyTx,
    /// The reply queue of the thread that received the request.
    reply_queue: Option<&'static ReplyQueue>,
    permit: Option<Box<SharedQueuePermit>>,
}

impl RequestQueue {
    /// Takes one of `most` permits for a request. `share`: the share of a principal in the second half.
    #[inline]
    pub(super) fn enter(
        &self,
        most: usize,
        share: PrincipalShare,
        from: Option<RequestOrigin>,
        reply_tx: ReplyTx,
    ) -> Result<Ticket, Full> {
        let reply_queue = ReplyQueue::own();
        let most_shared = most / 2;
        if self.count.fetch_add(1, Ordering::Relaxed) < most - most_shared {
            return Ok(Ticket { reply_tx, reply_queue, permit: None });
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        let permit =
            Some(self.enter_shared(most_shared, share, from.map_or(Principal::NONE, |from| from.principal))?);
        Ok(Ticket { reply_tx, reply_queue, permit })
    }

    #[cold]
    fn enter_shared(
        &self,
        most: usize,
        share: PrincipalShare,
        principal: Principal,
    ) -> Result<Box<SharedQueuePermit>, Full> {
        let half = self.shared.get_or_init(Arc::default);
        let mut taken = lock(half);
        if taken.in_all() >= most {
            return Err(Full::InAll);
        }
        let share = if principal == Principal::NONE { PrincipalShare::ALL } else { share };
        if !taken.take(principal, most, share) {
            return Err(Full::OfPrincipal);
        }
        Ok(Box::new(SharedQueuePermit { half: Arc::clone(half), principal }))
    }

    /// Sends answers. Returns their permits first, because a client may send its next request immediately.
    pub(super) fn answer(&self, replies: &mut Vec<(Ticket, Reply)>) {
        let shared = replies.iter().filter(|(ticket, _)| ticket.permit.is_some()).count();
        self.count.fetch_sub(replies.len() - shared, Ordering::Relaxed);
        let mut outgoing = Outgoing::new();
        for (Ticket { reply_tx, reply_queue, permit }, reply) in replies.drain(..) {
            drop(permit);
            outgoing.send(reply_queue, reply_tx, reply);
        }
    }
}

impl Drop for SharedQueuePermit {
    fn drop(&mut self) {
        lock(&self.half).give_back(self.principal);
    }
}

fn lock(half: &SharedHalf) -> MutexGuard<'_, SlotsTaken> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use leaseway_core::engine::LostMastership;
    use tokio::sync::oneshot;

    use super::*;

    fn enter(queue: &RequestQueue, most: usize, share: PrincipalShare, principal: u32) -> Result<Ticket, Full> {
        let from = RequestOrigin { address: [10, 0, 0, 1].into(), principal: Principal(principal) };
        queue.enter(most, share, Some(from), oneshot::channel().0)
    }

    fn answer(queue: &RequestQueue, tickets: impl IntoIterator<Item = Ticket>) {
        queue.answer(&mut tickets.into_iter().map(|ticket| (ticket, Err(LostMastership))).collect());
    }

    #[test]
    fn one_principal_does_not_fill_the_queue() {
        let queue = RequestQueue::default();
        let enter = |principal| enter(&queue, 100, PrincipalShare::default(), principal);
        let taken: Vec<Ticket> = std::iter::from_fn(|| enter(1).ok()).collect();
        assert_eq!(taken.len(), 50 + 38);
        assert_eq!(enter(1).err(), Some(Full::OfPrincipal));
        let others: Vec<Ticket> = std::iter::from_fn(|| enter(2).ok()).collect();
        assert_eq!(others.len(), 10);
        assert!(enter(3).is_ok(), "there is room for a newcomer");
        answer(&queue, taken);
        assert!(enter(1).is_ok());
        answer(&queue, others);
        assert_eq!(queue.shared.get().map(|half| lock(half).in_all()), Some(0));
    }

    #[test]
    fn an_answer_makes_room_in_a_full_queue() {
        for most in [1, 2, 7] {
            let queue = RequestQueue::default();
            let enter = |principal| enter(&queue, most, PrincipalShare::ALL, principal);
            let taken: Vec<Ticket> = std::iter::from_fn(|| enter(1).ok()).collect();
            assert_eq!((taken.len(), enter(2).err()), (most, Some(Full::InAll)));
            answer(&queue, taken);
            let again: Vec<Ticket> = std::iter::from_fn(|| enter(1).ok()).collect();
            assert_eq!(again.len(), most);
        }
    }
}
