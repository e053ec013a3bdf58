//! Events for the manager of a pool. The queue is bounded. If the manager does not read events fast enough, a gap event
//! replaces those that were dropped.

use std::{collections::VecDeque, sync::Arc};

use crate::types::{Amount, HolderKind, Millis, Sum};

/// Maximum number of unread events.
const MAX_WAITING_EVENTS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolEventKind {
    /// A client has got capacity after having none.
    Connected,
    Disconnected,
    /// A client's capacity has changed, or its cost has grown by the configured step.
    Update,
    /// The total has moved by more than a thousandth.
    Total,
    /// The total has fallen below the capacity of connected priority clients. The manager may lower assignments until
    /// the deadline. Then the least important clients lose theirs.
    Underrun,
    Relieved,
    /// A client without an assignment has more capacity than a free client may have, so an assignment may have been
    /// lost.
    Downgraded,
    /// The cost of a client has reached its mark.
    Alarm,
    /// Events before this one were dropped.
    Gap,
}

impl PoolEventKind {
    pub fn name(self) -> &'static str {
        match self {
            PoolEventKind::Connected => "connected",
            PoolEventKind::Disconnected => "disconnected",
            PoolEventKind::Update => "update",
            PoolEventKind::Total => "total",
            PoolEventKind::Underrun => "UNDERRUN",
            PoolEventKind::Relieved => "relieved",
            PoolEventKind::Downgraded => "DOWNGRADED",
            PoolEventKind::Alarm => "alarm",
            PoolEventKind::Gap => "GAP",
        }
    }
}

/// The reason for an event, or for a client's lack of capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    Asked,
    Unasked,
    /// The client released its lease.
    Released,
    /// The lease has expired.
    Expired,
    /// All places are taken.
    Full,
    /// A client that was served less recently has taken the place.
    Displaced,
    /// A priority client needs the place, or the total has fallen.
    Crowded,
    /// Usage exceeds the base.
    Overload,
    /// The total has fallen below the capacity of priority clients.
    Underrun,
    /// The assignment has changed.
    Assigned,
    /// The cost has grown by the configured step.
    Used,
    /// This master leaves. The event contains the cost of the client so far.
    Parting,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Cause::Asked => "asked",
            Cause::Unasked => "wants nothing",
            Cause::Released => "released",
            Cause::Expired => "its lease has ended",
            Cause::Full => "all places are taken",
            Cause::Displaced => "a client that was served less recently has its place",
            Cause::Crowded => "priority clients need the place, or the total has fallen",
            Cause::Overload => "usage exceeds what the backends can serve",
            Cause::Underrun => "the total is less than what priority clients had",
            Cause::Assigned => "its assignment has changed",
            Cause::Used => "its cost has grown by the configured step",
            Cause::Parting => "this server is shutting down and reports the cost so far",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolClient {
    pub kind: HolderKind,
    pub id: Arc<str>,
    pub capacity: Amount,
    pub is_priority: bool,
    /// Capacity times seconds since the client connected.
    pub time_cost: f64,
    /// Reported usage since the client connected.
    pub request_cost: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolEvent {
    /// Incremented with each event of this incarnation of the resource.
    pub seq: u64,
    pub at: Millis,
    pub kind: PoolEventKind,
    /// Maximum capacity of connected clients.
    pub total: Amount,
    /// Capacity held by connected clients.
    pub connected: Sum,
    /// The part of `connected` held by priority clients.
    pub priority_connected: Sum,
    /// Present if the event is about a client.
    pub client: Option<PoolClient>,
    pub cause: Option<Cause>,
    /// For [`PoolEventKind::Underrun`], and for [`PoolEventKind::Gap`] during an underrun: when the pool lowers
    /// priority clients itself.
    pub deadline: Option<Millis>,
}

/// A subscriber's filter. By default all events pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolEventFilter {
    /// Excludes events about free clients.
    pub priority_only: bool,
    /// Includes only underruns and their ends.
    pub only_underrun: bool,
    /// Includes only events of these kinds; empty: all kinds.
    pub kinds: Vec<PoolEventKind>,
}

impl PoolEventFilter {
    /// A gap passes every filter.
    pub fn passes(&self, event: &PoolEvent) -> bool {
        let about_underrun = matches!(event.kind, PoolEventKind::Underrun | PoolEventKind::Relieved);
        let about_free = event.client.as_ref().is_some_and(|client| !client.is_priority);
        event.kind == PoolEventKind::Gap
            || (!self.only_underrun || about_underrun)
                && (!self.priority_only || !about_free || event.kind == PoolEventKind::Downgraded)
                && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: VecDeque<PoolEvent>,
    seq: u64,
}

impl Events {
    /// `deadline` is the one in force after this event. It is stored in a gap event, if the queue is full.
    pub(super) fn push(&mut self, event: PoolEvent, deadline: Option<Millis>) {
        self.seq += 1;
        let mut event = PoolEvent { seq: self.seq, ..event };
        if self.waiting.len() >= MAX_WAITING_EVENTS {
            self.waiting.clear();
            event = PoolEvent { kind: PoolEventKind::Gap, client: None, cause: None, deadline, ..event };
        }
        self.waiting.push_back(event);
    }

    pub(super) fn take(&mut self) -> Vec<PoolEvent> {
        self.waiting.drain(..).collect()
    }

    pub(super) fn newest(&self) -> u64 {
        self.seq
    }
}
