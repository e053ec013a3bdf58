//! Subscribers to the events of pools, each with a queue.
//!
//! Pools publish events, and streams send them at their own pace. Each stream has a bounded queue. If it overflows, its
//! events are replaced by one gap event with the present totals ([`PoolEventKind::Gap`]): a pool never waits for a
//! subscriber.
//!
//! Subscriptions belong to the name of a resource rather than to its actor: they may begin before the first request,
//! and survive the end of the actor. They end when another peer becomes master.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::{
    pool::{PoolEvent, PoolEventFilter, PoolEventKind},
    types::Millis,
};
use tokio::sync::Notify;

use crate::observe::{changes::Changes, metrics};

/// Maximum number of queued events per stream.
const QUEUE: usize = 1024;
/// Maximum number of streams of all pools.
const MAX_SUBSCRIBERS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    listening: Mutex<HashMap<Arc<str>, Vec<Arc<Subscriber>>>>,
    /// Read without the lock, because there is usually no subscriber.
    count: AtomicUsize,
    /// Records some of the events for the pages.
    changes: Arc<Changes>,
}

#[derive(Debug)]
struct Subscriber {
    filter: PoolEventFilter,
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<QueuedEvent>,
    /// When priority clients will be cut off. `None` if they have no more than the total.
    deadline: Option<Millis>,
    ended: bool,
}

/// An event in a subscriber's queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuedEvent {
    pub(crate) event: PoolEvent,
    /// When priority clients will be cut off, as far as known after this event.
    pub(crate) deadline: Option<Millis>,
}

/// The limit of subscribers is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many subscribers on this server (limit {MAX_SUBSCRIBERS}): close one first")]
pub(crate) struct TooManySubscribers;

/// This server has lost mastership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dismissed;

impl Subscribers {
    pub(crate) fn with_changes(changes: Arc<Changes>) -> Subscribers {
        Subscribers { changes, ..Subscribers::default() }
    }

    fn listening(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Arc<Subscriber>>>> {
        self.listening.lock().expect("no panic while the list of subscribers is locked")
    }

    /// Subscribes until the result is dropped.
    pub(crate) fn start(
        self: &Arc<Self>,
        resource: &Arc<str>,
        filter: PoolEventFilter,
    ) -> Result<Subscription, TooManySubscribers> {
        let mut listening = self.listening();
        if self.count() >= MAX_SUBSCRIBERS {
            return Err(TooManySubscribers);
        }
        let subscriber = Arc::new(Subscriber { filter, queue: Mutex::default(), wake: Notify::new() });
        listening.entry(Arc::clone(resource)).or_default().push(Arc::clone(&subscriber));
        self.count.fetch_add(1, Ordering::Release);
        Ok(Subscription { all: Arc::clone(self), resource: Arc::clone(resource), subscriber })
    }

    /// The number of subscribers.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The number of subscribers of one resource.
    pub(crate) fn count_of(&self, resource: &str) -> usize {
        self.listening().get(resource).map_or(0, Vec::len)
    }

    /// Queues events of a pool for its subscribers, and records some for the pages.
    pub(crate) fn tell(&self, resource: &str, events: &[PoolEvent]) {
        self.changes.record_pool_events(resource, events);
        if events.is_empty() || self.count() == 0 {
            return;
        }
        if let Some(subscribers) = self.listening().get(resource) {
            subscribers.iter().for_each(|subscriber| subscriber.tell(events));
        }
    }

    /// Ends every stream after its queued events: another peer is master.
    pub(crate) fn dismiss(&self) {
        for subscriber in self.listening().values().flatten() {
            subscriber.queue().ended = true;
            subscriber.wake.notify_one();
        }
    }
}

impl Subscriber {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while a queue of events is locked")
    }

    fn tell(&self, events: &[PoolEvent]) {
        let mut queue = self.queue();
        for event in events {
            match event.kind {
                // A gap replaces unknown events.
                PoolEventKind::Underrun | PoolEventKind::Gap => queue.deadline = event.deadline,
                PoolEventKind::Relieved => queue.deadline = None,
                _ => {}
            }
            if self.filter.passes(event) {
                queue.push(event);
            }
        }
        drop(queue);
        self.wake.notify_one();
    }
}

impl Queue {
    fn push(&mut self, event: &PoolEvent) {
        let mut event = event.clone();
        if self.waiting.len() >= QUEUE {
            metrics::pool_events_dropped(self.waiting.len() + 1);
            self.waiting.clear();
            let deadline = self.deadline;
            event = PoolEvent { kind: PoolEventKind::Gap, client: None, cause: None, deadline, ..event };
        }
        self.waiting.push_back(QueuedEvent { event, deadline: self.deadline });
    }
}

/// A subscription; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    all: Arc<Subscribers>,
    resource: Arc<str>,
    subscriber: Arc<Subscriber>,
}

impl Subscription {
    /// Sets the deadline that was known when the subscription began. An event that is already queued takes precedence.
    pub(crate) fn expect(&self, deadline: Option<Millis>) {
        let mut queue = self.subscriber.queue();
        if queue.waiting.is_empty() && queue.deadline.is_none() {
            queue.deadline = deadline;
        }
    }

    /// Waits for the next event.
    pub(crate) async fn next(&self) -> Result<QueuedEvent, Dismissed> {
        loop {
            {
                let mut queue = self.subscriber.queue();
                if let Some(told) = queue.waiting.pop_front() {
                    return Ok(told);
                }
                if queue.ended {
                    return Err(Dismissed);
                }
            }
            // `Notify` stores a wake-up that precedes this.
            self.subscriber.wake.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut listening = self.all.listening();
        let Some(subscribers) = listening.get_mut(&self.resource) else { return };
        subscribers.retain(|other| !Arc::ptr_eq(other, &self.subscriber));
        if subscribers.is_empty() {
            listening.remove(&self.resource);
        }
        self.all.count.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
