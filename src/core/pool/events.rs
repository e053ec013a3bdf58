//! Events for the manager of a pool. The queue is bounded: if events are not taken, one of them says that some are
//! missing.

use std::{collections::VecDeque, sync::Arc};

use crate::types::{Amount, HolderKind, Millis, Sum};

/// The maximum number of events that wait to be taken.
const MAX_WAITING_EVENTS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolEventKind {
    /// A client got capacity and had none before.
    Connected,
    /// A client has lost its capacity.
    Disconnected,
    /// A client's capacity has changed, or its cost has grown by the configured step.
    Update,
    /// The total has moved by more than a thousandth.
    Total,
    /// The total is less than what connected priority clients have. Until the deadline assignments may be lowered; then
    /// the least important lose theirs.
    Underrun,
    /// The underrun is over.
    Relieved,
    /// A client without an assignment has more than a free client may: an assignment may have been lost.
    Downgraded,
    /// A client has cost more than the mark that was set for it.
    Alarm,
    /// Events are missing before this one.
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

/// Why something happened to a client, or why it has no more than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    Asked,
    Unasked,
    /// It gave back what it had.
    Released,
    /// Its lease has ended.
    Expired,
    /// All places are taken.
    Full,
    /// A client that was served less lately has its place.
    Displaced,
    /// A priority client needs its place, or the total has fallen.
    Crowded,
    /// More was used than can be served.
    Overload,
    /// The total has fallen below what priority clients have.
    Underrun,
    /// Its assignment has changed.
    Assigned,
    /// Its cost has grown by the configured step.
    Used,
    /// This master is leaving; the event has what the client has cost so far.
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
            Cause::Displaced => "a client that was served less lately has its place",
            Cause::Crowded => "priority clients need the place, or the total has fallen",
            Cause::Overload => "more was used than can be served",
            Cause::Underrun => "the total is less than what priority clients had",
            Cause::Assigned => "its assignment has changed",
            Cause::Used => "it has used so much more",
            Cause::Parting => "this server is going; what it has cost so far",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolClient {
    pub kind: HolderKind,
    pub id: Arc<str>,
    pub capacity: Amount,
    pub is_priority: bool,
    /// Capacity times seconds since it was connected.
    pub time_cost: f64,
    /// Reported usage since then.
    pub request_cost: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolEvent {
    /// Rises by one with each event of this incarnation of the resource.
    pub seq: u64,
    pub at: Millis,
    pub kind: PoolEventKind,
    /// Maximum capacity of connected clients.
    pub total: Amount,
    /// Capacity held by connected clients.
    pub connected: Sum,
    /// The part of it that priority clients have.
    pub priority_connected: Sum,
    /// The client, if the event is about one.
    pub client: Option<PoolClient>,
    pub cause: Option<Cause>,
    /// [`PoolEventKind::Underrun`], and [`PoolEventKind::Gap`] while that is so: when the pool will choose itself.
    pub deadline: Option<Millis>,
}

/// Which events a subscriber wants. By default: all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolEventFilter {
    /// None about free clients.
    pub priority_only: bool,
    /// Only underruns and their ends.
    pub only_underrun: bool,
    /// Only of these kinds; empty: of all.
    pub kinds: Vec<PoolEventKind>,
}

impl PoolEventFilter {
    /// Whether it lets an event pass. A gap passes every filter.
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
    /// `deadline` is the one in force after this event, for one that may be missing if this is one too many.
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
