//! Subscribers to the events of pools, each with a queue.
//!
//! Pools publish events; streams send them, each at its own pace. Between them is a bounded queue for each stream. A
//! stream that is too slow gets a gap event with the present totals ([`PoolEventKind::Gap`]) and goes on from there: a
//! pool never waits for a subscriber.
//!
//! Subscriptions belong to a resource's name, not to its actor: they may begin before the first request, and go on when
//! the resource is retired and created again. They end when another peer is master.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use leaseway_core::{Millis, PoolEvent, PoolEventFilter, PoolEventKind};
use tokio::sync::Notify;

use crate::observe::{changes::Changes, metrics};

/// Events that wait for one stream, at most.
const QUEUE: usize = 1024;
/// Streams of all pools, at most.
const MAX_SUBSCRIBERS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    listening: Mutex<HashMap<Arc<str>, Vec<Arc<Subscriber>>>>,
    /// Read without the lock: mostly there is no subscriber.
    count: AtomicUsize,
    /// Is told of some of the events, too.
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
    /// When priority clients will be cut off, while they have more than the total.
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

/// There are as many as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this server has as many subscribers as it may ({MAX_SUBSCRIBERS})")]
pub(crate) struct TooManySubscribers;

/// This server is not master any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dismissed;

impl Subscribers {
    pub(crate) fn telling(changes: Arc<Changes>) -> Subscribers {
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

    /// Queues events of a pool for its subscribers.
    pub(crate) fn tell(&self, resource: &str, events: &[PoolEvent]) {
        self.changes.tell_of_pool(resource, events);
        if events.is_empty() || self.count() == 0 {
            return;
        }
        if let Some(subscribers) = self.listening().get(resource) {
            subscribers.iter().for_each(|subscriber| subscriber.tell(events));
        }
    }

    /// Another peer is master: every stream ends once its queue is empty.
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
                // Before a gap anything may have happened.
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
    /// Sets the deadline that is known when the subscription begins.
    pub(crate) fn expect(&self, deadline: Option<Millis>) {
        let mut queue = self.subscriber.queue();
        // A newer event may have come meanwhile.
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
            // `Notify` remembers a wake-up that comes before this.
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
