//! The inputs and outputs of an engine.

use crate::{
    lease::promises::Changes,
    policy::overrides::Load,
    pool::{Assigned, PoolEvent, PoolNotes},
    resource::{Answer, LoadError, Notes, Request, RoundScratch, budget::thresholds::BudgetEvent, watch_list::Hint},
    types::{HolderKind, Millis, Now},
};

/// The environment of a resource at the moment of an input.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    pub now: Now,
    /// Whether this node may decide: it is the master, and its master lease is valid.
    pub may_decide: bool,
    pub max_holders: usize,
    pub environment: &'a dyn Environment,
}

/// The facts about the node that an engine may query. They do not change while an input is processed.
pub trait Environment {
    /// Whether a holder has an open stream of hints.
    fn is_watched(&self, kind: HolderKind, id: &str) -> bool;
    fn assignments(&self) -> Vec<(HolderKind, std::sync::Arc<str>, Assigned)>;
    /// The stored notes of a pool, if an earlier master or incarnation wrote any.
    fn notes(&self, now: Millis) -> Option<PoolNotes>;
    /// The reported load, if there is a report.
    fn reported_load(&self) -> Option<Load>;
}

/// The node is not the master, or its master lease has expired, so the engine decided nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostMastership;

/// Requests for a round, each with a ticket that returns with its answer. A batch is empty after a round, so one
/// instance serves all resources of a thread and stays in the caches.
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
    pub fn push(&mut self, request: Request, ticket: T) {
        self.requests.push(request);
        self.tickets.push(ticket);
    }

    /// Moves requests in, with their tickets in the same order. Swapping the buffers instead would spread the large
    /// buffers of one busy resource to all others.
    pub fn append(&mut self, requests: &mut Vec<Request>, tickets: &mut Vec<T>) {
        debug_assert_eq!(requests.len(), tickets.len(), "each request has a ticket");
        self.requests.append(requests);
        self.tickets.append(tickets);
    }

    /// The requests, to be completed before the round.
    pub fn requests_mut(&mut self) -> &mut [Request] {
        &mut self.requests
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.tickets.is_empty() && self.answers.is_empty()
    }
}

/// The effects of an input, in the order in which to carry them out.
pub struct Effects<T> {
    /// Propose these to the quorum after all earlier changes. Then call [`committed`](super::ResourceEngine::committed)
    /// with their number, or [`commit_lost`](super::ResourceEngine::commit_lost).
    pub changes: Option<Changes>,
    /// Notes for the quorum, and their number. No answer waits for them. Then call
    /// [`notes_stored`](super::ResourceEngine::notes_stored) or [`notes_lost`](super::ResourceEngine::notes_lost).
    pub notes: Option<(u64, Notes)>,
    pub replies: Vec<(T, Result<Answer, LostMastership>)>,
    /// Hints for watched holders. [Unwatch](super::ResourceEngine::unwatch) a holder that cannot be reached.
    pub hints: Vec<Hint>,
    pub pool_events: Vec<PoolEvent>,
    pub budget_events: Vec<BudgetEvent>,
    /// The uplink should report this resource to the parent now and [`summarize`](super::ResourceEngine::summarize) it.
    pub asks_parent: bool,
    /// It has notes to write and requests a turn with one of its next ticks.
    pub wants_note_turn: bool,
    /// [Wake](super::ResourceEngine::wake) the engine at this time, in addition to earlier requests.
    pub wake_at: Option<Millis>,
    /// An earlier load report does not fit the current settings.
    pub bad_load: Option<LoadError>,
    /// This incarnation has ended and must not be used any more.
    pub ended: Option<Ended>,
}

/// Why an incarnation of a resource has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has no holders. The quorum may forget its promises.
    Retired,
    /// Its promises may not be stored, so none of its decisions since can count.
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
            budget_events: Vec::new(),
            asks_parent: false,
            wants_note_turn: false,
            wake_at: None,
            bad_load: None,
            ended: None,
        }
    }
}

impl<T> Effects<T> {
    /// Whether there are no effects.
    pub fn is_empty(&self) -> bool {
        self.changes.is_none()
            && self.notes.is_none()
            && self.replies.is_empty()
            && self.hints.is_empty()
            && self.pool_events.is_empty()
            && self.budget_events.is_empty()
            && !self.asks_parent
            && !self.wants_note_turn
            && self.wake_at.is_none()
            && self.bad_load.is_none()
            && self.ended.is_none()
    }
}
