//! What goes into an engine and what comes out of it.

use crate::{
    lease::promises::Changes,
    policy::overrides::Load,
    pool::{Assigned, PoolEvent, PoolNotes},
    resource::{Answer, LoadError, Request, RoundScratch, watch_list::Hint},
    types::{
        claim::HolderKind,
        time::{Millis, Now},
    },
};

/// The world around a resource at the moment of an input.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    pub now: Now,
    /// Whether this node may decide: it is the master, and its reign holds.
    pub may_decide: bool,
    /// How many holders the resource may have.
    pub max_holders: usize,
    /// What else it may ask for.
    pub environment: &'a dyn Environment,
}

/// What a resource asks of the world around it. The same question has the same answer throughout an input.
pub trait Environment {
    /// Whether a holder listens for hints.
    fn is_watched(&self, kind: HolderKind, id: &str) -> bool;
    /// What is assigned to holders of a pool.
    fn assignments(&self) -> Vec<(HolderKind, std::sync::Arc<str>, Assigned)>;
    /// What is remembered of a pool under a master before this one, or before it retired.
    fn notes(&self, now: Millis) -> Option<PoolNotes>;
    /// How much the resource can serve, if that is not what its template says.
    fn reported_load(&self) -> Option<Load>;
}

/// The node may not decide at the moment: nothing was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostMastership;

/// Requests for a round. Each has a ticket: what its answer is sent back with.
///
/// Nothing of it outlives the round, so one serves all the resources of a thread and stays in the caches.
pub struct Batch<T> {
    pub(super) requests: Vec<Request>,
    pub(super) tickets: Vec<T>,
    pub(super) answers: Vec<Answer>,
    pub(super) scratch: RoundScratch,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { requests: Vec::new(), tickets: Vec::new(), answers: Vec::new(), scratch: RoundScratch::default() }
    }
}

impl<T> Batch<T> {
    /// Adds a request.
    pub fn push(&mut self, request: Request, ticket: T) {
        self.requests.push(request);
        self.tickets.push(ticket);
    }

    /// Moves requests in, with their tickets in the same order. Moved, not swapped: or the room that one busy resource
    /// needs would wander to all the others.
    pub fn append(&mut self, requests: &mut Vec<Request>, tickets: &mut Vec<T>) {
        debug_assert_eq!(requests.len(), tickets.len(), "each request has a ticket");
        self.requests.append(requests);
        self.tickets.append(tickets);
    }

    /// The requests, to be completed before the round.
    pub fn requests_mut(&mut self) -> &mut [Request] {
        &mut self.requests
    }

    /// How many requests it holds.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.tickets.is_empty() && self.answers.is_empty()
    }
}

/// Everything that an input causes, in the order in which it is to be carried out.
pub struct Effects<T> {
    /// To be proposed to the quorum after all that was proposed before. When it is stored,
    /// [`committed`](super::ResourceEngine::committed) is told its number; if it is lost,
    /// [`commit_lost`](super::ResourceEngine::commit_lost).
    pub changes: Option<Changes>,
    /// What the quorum should remember of the pool, and its number. No answer waits for it; told likewise by
    /// [`notes_stored`](super::ResourceEngine::notes_stored) and [`notes_lost`](super::ResourceEngine::notes_lost).
    pub notes: Option<(u64, PoolNotes)>,
    /// Answers, each to its ticket.
    pub replies: Vec<(T, Result<Answer, LostMastership>)>,
    /// Watched holders that should ask again now. One that cannot be reached any more is to be
    /// [unwatched](super::ResourceEngine::unwatch).
    pub hints: Vec<Hint>,
    /// What has happened in the pool.
    pub pool_events: Vec<PoolEvent>,
    /// The parent should be told of this resource now: the uplink is to [`condense`](super::ResourceEngine::condense).
    pub asks_parent: bool,
    /// The pool has something to be remembered: it wants a turn to note with one of its next ticks.
    pub wants_note_turn: bool,
    /// To be [woken](super::ResourceEngine::wake) then, besides what it has asked for before.
    pub wake_at: Option<Millis>,
    /// A load reported earlier does not fit the settings any more.
    pub bad_load: Option<LoadError>,
    /// This incarnation is over: nothing of it may be used any more.
    pub ended: Option<Ended>,
}

/// Why an incarnation of a resource is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is held and wanted by no one: the quorum may forget what it promised.
    Retired,
    /// What it promised is not stored, or may not be: nothing that it has decided since can count.
    CommitLost,
}

impl<T> Default for Effects<T> {
    fn default() -> Effects<T> {
        Effects {
            changes: None,
            notes: None,
            replies: Vec::new(),
            hints: Vec::new(),
            pool_events: Vec::new(),
            asks_parent: false,
            wants_note_turn: false,
            wake_at: None,
            bad_load: None,
            ended: None,
        }
    }
}

impl<T> Effects<T> {
    /// Whether all of them have been carried out.
    pub fn is_empty(&self) -> bool {
        self.changes.is_none()
            && self.notes.is_none()
            && self.replies.is_empty()
            && self.hints.is_empty()
            && self.pool_events.is_empty()
            && !self.asks_parent
            && !self.wants_note_turn
            && self.wake_at.is_none()
            && self.bad_load.is_none()
            && self.ended.is_none()
    }
}
