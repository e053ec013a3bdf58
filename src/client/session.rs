//! The client side of the lease protocol, as a state machine without clock and I/O.
//!
//! A [`Session`] keeps the leases of one client (or of the uplink of one child node) with the master of a node. It
//! decides when to send a request and what is in it, which answer still counts, and what may be used once a lease has
//! expired. Time and randomness are arguments, so the same code runs in the client library, in a child node's uplink
//! and in the simulator.
//!
//! # Driving a session
//!
//! [`want`](Session::want) adds a resource, with a [`Demand`]. [`poll`](Session::poll) returns the next request, if one
//! is due. The owner sends it and reports the outcome with [`answered`](Session::answered),
//! [`redirected`](Session::redirected) or [`failed`](Session::failed), and then collects what changed with
//! [`changes`](Session::changes). [`wake`](Session::wake) says when to come back at the latest.
//!
//! ```text
//!  want, release, hint ──► ┌─────────┐ ──► poll: GetCapacity or ReleaseCapacity
//!                          │ Session │
//!  answered, failed,   ──► └─────────┘ ──► changes: what may be used now
//!  redirected
//! ```
//!
//! # The life of a lease
//!
//! 1. **Get.** A new resource is due at once. The request carries the demand; the answer brings a lease: an amount that
//!    may be used until the expiry, and a refresh interval.
//! 2. **Refresh.** The resource is due again shortly before its refresh interval has passed. The request echoes the
//!    lease, which confirms it, and carries the current demand. The lease in the answer replaces the one before, so the
//!    expiry moves on with each refresh.
//! 3. **Lose.** If a request fails, the next endpoint is tried after a pause, and so on. The lease may be used until it
//!    expires. Then the [`Mode`] decides what to use, and requests name the lease as expired, until there is a new one.
//! 4. **Release.** When the resource is no longer wanted, the lease is released, so that the server can grant its
//!    capacity to others at once.
//!
//! A client wants 100 searches per second. It gets 40, refreshes once, and then no server answers:
//!
//! ```
//! use std::sync::Arc;
//!
//! use leaseway_client::session::{Basis, GrantedLease, Mode, Pace, Session, Settings, Wants, Wire};
//! use leaseway_core::types::Millis;
//!
//! let endpoints = vec!["a:5100".into(), "b:5100".into()];
//! let mut session = Session::new(Settings { endpoints, pace: Pace::default(), resources_per_request: 1000, seed: 1 });
//! let searches: Arc<str> = "searches".into();
//!
//! // Get: the first request is sent at 0 ms, and the answer arrives after 20 ms.
//! session.want(Millis(0), &searches, Wants { amount: 100.0, ..Wants::default() }, Mode::Safe);
//! let request = session.poll(Millis(0)).expect("a new resource is due");
//! let lease = GrantedLease {
//!     id: Arc::clone(&searches),
//!     length: Millis(60_000),
//!     refresh: Millis(5_000),
//!     token: Some(1),
//!     wire: Wire { expiry_time: 60, refresh_interval: 5, capacity: 40.0 },
//!     safe: Some(10.0),
//!     budget: None,
//! };
//! session.answered(Millis(20), request.number, vec![lease.clone()]);
//! let usable = session.usable(Millis(20), "searches").expect("it is wanted");
//! assert_eq!((usable.capacity.get(), usable.basis), (40.0, Basis::Lease));
//!
//! // Refresh: five seconds later, or a little less due to jitter.
//! let refreshed = session.wake(Millis(20)).expect("a refresh");
//! assert!((4_500..=5_020).contains(&refreshed.0));
//! let request = session.poll(refreshed).expect("it is due");
//! session.answered(refreshed, request.number, vec![GrantedLease { token: Some(2), ..lease }]);
//!
//! // Lose: all requests fail. The lease expires 60 s after the refresh was sent; then the safe capacity may be used.
//! let (mut now, expiry) = (refreshed, refreshed.plus(Millis(60_000)));
//! while now < expiry {
//!     assert_eq!(session.usable(now, "searches").expect("it is wanted").capacity.get(), 40.0);
//!     if let Some(request) = session.poll(now) {
//!         session.failed(now, request.number);
//!     }
//!     now = session.wake(now).expect("another attempt, or the expiry");
//! }
//! let usable = session.usable(expiry, "searches").expect("it is wanted");
//! assert_eq!((usable.capacity.get(), usable.basis), (10.0, Basis::Fallback));
//! ```
//!
//! # Rules
//!
//! The numbers are those of src/core/lease/protocol.md.
//!
//! - **One request in flight** (rules 6 and E9). Only the answer to the latest request counts, and releases are
//!   requests, too. A lease starts when its request was *sent*, so the client never uses it for longer than the server
//!   counts it.
//! - **Late answers** (rule 6). A request names the lease that the client has. If that lease expires before the answer
//!   arrives, the answer is dropped and the resource is asked for again at once, because a new master may have given
//!   part of that lease to others. Requests announce this with `drops_late`. An expired lease is named as such (`had`)
//!   until there is a new one.
//! - **Batching.** When the first resource is due, one request asks for all of them.
//! - **Confirmation** (rule 10). A lease is confirmed by echoing it with the next request. If a lease shrinks, that
//!   request follows after 100 ms, because another client may be waiting for the difference.
//! - **Back-off.** Pauses after failures grow until every endpoint is tried once per refresh interval. Redirects are
//!   followed at once, up to five in a row.
//! - **Releases.** A release names the newest lease and never overtakes a request in flight. Without a lease to name,
//!   nothing is released: an unnamed release that arrives late could free a newer lease. The unanswered grant expires.

mod lease;
mod messages;
mod pace;
pub mod pool;
mod resource_state;
mod route;
mod schedule;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

pub use self::{
    lease::{Capacity, Lease, Mode, Wire},
    messages::{
        Ask, Basis, Body, BudgetUse, Demand, GrantedLease, Outgoing, Release, StreamReply, StreamRequest, Usable, Wants,
    },
    pace::Pace,
};

use self::{
    pace::MIN_REQUEST_GAP, resource_state::ResourceState, route::Route, schedule::CachedMin, stream::RenewalStream,
};

/// The settings of a [`Session`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// Servers of the node, as `host:port`; at least one.
    pub endpoints: Vec<Arc<str>>,
    /// Timeouts and intervals.
    pub pace: Pace,
    /// Maximum number of resources in one request. Others follow in the next request.
    pub resources_per_request: usize,
    /// Seed of jitter.
    pub seed: u64,
}

/// The state machine of one client; see the [module documentation](self).
#[derive(Debug)]
pub struct Session<D> {
    pace: Pace,
    resources_per_request: usize,
    rng: fastrand::Rng,
    route: Route,
    entries: BTreeMap<Arc<str>, ResourceState<D>>,
    /// Resources whose usable capacity may differ from the last report. Expired leases are found separately.
    unreported: BTreeSet<Arc<str>>,
    /// The earliest due time and the earliest expiry of a live lease. Cached, because a session may have a hundred
    /// thousand resources.
    first_due: CachedMin,
    first_end: CachedMin,
    /// Resources that are no longer wanted and not yet released.
    leaving: BTreeMap<Arc<str>, ResourceState<D>>,
    in_flight: Option<InFlight>,
    number: u64,
    failures: u32,
    /// The last request was a release and failed: due resources are asked for before the next release.
    release_failed: bool,
    /// End of the back-off.
    pause_until: Millis,
    /// See [`Session::ask_until`].
    asks_until: Millis,
    last_sent: Option<Millis>,
    stream: RenewalStream,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    sent: Millis,
    deadline: Millis,
    ids: Vec<Arc<str>>,
    kind: RequestKind,
}

impl InFlight {
    fn concerns(&self, id: &Arc<str>) -> bool {
        self.ids.binary_search(id).is_ok()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Ask,
    Release,
    /// A message on a stream of renewals. It also concerns the resources that it renews.
    Stream,
}

/// The due time of a resource whose request is in flight.
const NOT_BEFORE_ANSWER: Millis = NEVER;

const NEVER: Millis = Millis(u64::MAX);

/// A lease that shrinks by more than this fraction is confirmed early.
const SHRINK_THRESHOLD: f64 = 0.005;

impl<D: Demand> Session<D> {
    /// A session without resources.
    pub fn new(settings: Settings) -> Session<D> {
        let mut rng = fastrand::Rng::with_seed(settings.seed);
        let first = rng.usize(..);
        Session {
            pace: settings.pace,
            resources_per_request: settings.resources_per_request.max(1),
            rng,
            route: Route::new(settings.endpoints, first),
            entries: BTreeMap::new(),
            unreported: BTreeSet::new(),
            first_due: CachedMin::default(),
            first_end: CachedMin::default(),
            leaving: BTreeMap::new(),
            in_flight: None,
            number: 0,
            failures: 0,
            release_failed: false,
            pause_until: Millis(0),
            asks_until: NEVER,
            last_sent: None,
            stream: RenewalStream::default(),
        }
    }

    /// Sets the demand for a resource. A new resource is asked for at once, a known one if its demand has changed
    /// enough, else with the next refresh. Returns whether it will be asked for early.
    pub fn want(&mut self, now: Millis, id: &Arc<str>, demand: D, mode: Mode) -> bool {
        let soon = self.earliest_request(now);
        self.unreported.insert(Arc::clone(id));
        if let Some(mut returning) = self.leaving.remove(id) {
            returning.due = soon.max(returning.not_before);
            // It may have been opened anew, by a handle that does not know of the lease yet.
            returning.reported = None;
            // The allowance of a budget belongs to the incarnation that was closed.
            if returning.given_back || demand.spent().is_some() {
                // The server may have processed the release.
                returning = ResourceState { safe: returning.safe, ..ResourceState::new(demand.clone(), mode, now) };
            }
            self.first_due.insert(returning.due);
            returning.lease.iter().for_each(|lease| self.first_end.insert(lease.end));
            self.entries.insert(Arc::clone(id), returning);
        }
        let Some(entry) = self.entries.get_mut(id) else {
            self.first_due.insert(now);
            self.entries.insert(Arc::clone(id), ResourceState::new(demand, mode, now));
            return true;
        };
        // A budget may be closed and opened again at the same moment.
        let is_other = incarnation(&entry.demand) != incarnation(&demand);
        let other = entry.lease.take_if(|lease| is_other && lease.budget.is_none_or(|budget| !budget.starts_over));
        other.iter().for_each(|lease| self.first_end.remove(lease.end));
        let urgent = entry.asked.as_ref().is_none_or(|asked| demand.is_urgent(asked));
        if urgent {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
        entry.demand = demand;
        entry.mode = mode;
        urgent
    }

    /// Drops the demand for a resource; its lease is released.
    pub fn release(&mut self, id: &str) {
        if let Some((id, entry)) = self.entries.remove_entry(id) {
            self.first_due.remove(entry.due);
            entry.lease.iter().for_each(|lease| self.first_end.remove(lease.end));
            if entry.asked.is_some() {
                self.leaving.insert(id, entry);
            }
        }
    }

    /// Drops the demand for a resource without releasing its lease, which counts until it ends: what was taken of it is
    /// still in use.
    pub fn leave(&mut self, id: &str) {
        self.release(id);
        self.leaving.remove(id);
    }

    /// Ends a back-off, so that releases are sent at once.
    pub fn end_backoff(&mut self) {
        (self.failures, self.pause_until) = (0, Millis(0));
    }

    /// Reports a hint of the server: asking for this resource now would change its lease.
    pub fn hint(&mut self, now: Millis, id: &str) {
        let soon = self.earliest_request(now);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
    }

    /// Like [`hint`](Self::hint), for all resources.
    pub fn hint_all(&mut self, now: Millis) {
        let soon = self.earliest_request(now);
        for entry in self.entries.values_mut() {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
    }

    /// Forgets the lease of a resource, as if there had never been one.
    pub fn forget(&mut self, id: &str) {
        self.mark_unreported(id);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.lease.take().iter().for_each(|lease| self.first_end.remove(lease.end));
        }
    }

    /// Asks for a resource no earlier than `at`, not even together with others.
    pub fn postpone(&mut self, id: &str, at: Millis) {
        if let Some(entry) = self.entries.get_mut(id) {
            self.first_due.remove(entry.due);
            entry.due = entry.due.max(at);
            entry.not_before = at;
        }
    }

    /// Abandons the request in flight if its deadline has passed.
    pub fn expire_request(&mut self, now: Millis) {
        if let Some(late) = self.in_flight.take_if(|in_flight| in_flight.deadline <= now) {
            self.request_failed(now, &late, self.pace.backoff_max);
        }
    }

    /// The request to send now, if any. A request whose deadline has passed is abandoned first.
    pub fn poll(&mut self, now: Millis) -> Option<Outgoing<D>> {
        self.expire_request(now);
        if self.in_flight.is_some() || now < self.pause_until {
            return None;
        }
        // Releases that always fail must not let all other leases expire.
        let asks_first = self.release_failed && self.may_ask(now) && self.first_due() <= now;
        self.release_failed = false;
        let releases = if asks_first { None } else { self.releases(now) };
        let (kind, ids, body) = match releases {
            Some(releases) => {
                let ids = releases.iter().map(|release| Arc::clone(&release.id)).collect();
                (RequestKind::Release, ids, Body::Release(releases))
            }
            None if self.uses_stream(now) => {
                let (message, ids) = self.stream_request(now, self.number + 1)?;
                (RequestKind::Stream, ids, Body::Stream(message))
            }
            None => {
                // On another stream everything has to be stated again.
                self.stream.give_up();
                let asks = self.asks(now)?;
                (RequestKind::Ask, asks.iter().map(|ask| Arc::clone(&ask.id)).collect(), Body::Ask(asks))
            }
        };
        self.number += 1;
        let (number, deadline) = (self.number, now.plus(self.pace.deadline));
        self.in_flight = Some(InFlight { number, sent: now, deadline, ids, kind });
        self.last_sent = Some(now);
        Some(Outgoing { number, target: Arc::clone(self.route.target()), deadline, body })
    }

    /// Whether nothing is wanted and everything has been released.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.leaving.is_empty() && self.in_flight.is_none()
    }

    /// Reports the answer of the master to request `number`. Returns whether it still counts.
    pub fn answered(&mut self, now: Millis, number: u64, given: Vec<GrantedLease>) -> bool {
        let Some(in_flight) = self.take_in_flight(number).or_else(|| self.accept_late_answer(number)) else {
            return false;
        };
        self.failures = 0;
        self.route.succeeded();
        if in_flight.kind == RequestKind::Release {
            self.leaving.retain(|id, _| !in_flight.concerns(id));
            return true;
        }
        if !self.may_ask(now) {
            self.retry_now(&in_flight, now);
            return false;
        }
        for given in given {
            // Leases that this request did not ask for are ignored.
            if in_flight.concerns(&given.id) {
                self.store_lease(now, in_flight.sent, &given);
            }
        }
        for id in &in_flight.ids {
            // Left out of the answer: too soon, or refused.
            self.keep_lease(now, id);
        }
        true
    }

    /// Reports a redirect: the server is not the master. `master` is the address of the master, if the server knows it.
    /// Returns whether the reply still counts.
    pub fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) -> bool {
        let Some(in_flight) = self.take_in_flight(number) else { return false };
        if master.is_some_and(|master| self.route.redirected(master)) {
            self.retry_stream(&in_flight, now);
        } else {
            // It has answered on the stream, so it accepts streams.
            self.stream.give_up();
            // A node that is up and has no master will elect one soon.
            let longest = if master.is_none() { self.pace.masterless_max } else { self.pace.backoff_max };
            self.request_failed(now, &in_flight, longest);
        }
        true
    }

    /// Reports that request `number` has failed. Returns whether the failure still counts.
    pub fn failed(&mut self, now: Millis, number: u64) -> bool {
        let Some(in_flight) = self.take_in_flight(number) else { return false };
        self.request_failed(now, &in_flight, self.pace.backoff_max);
        true
    }

    /// Calls `report` for each resource whose usable capacity differs from what was last reported.
    pub fn changes(&mut self, now: Millis, mut report: impl FnMut(&Arc<str>, Usable)) {
        let mut check = |id: &Arc<str>, entry: &mut ResourceState<D>| {
            let usable = entry.usable(now);
            if entry.reported != Some(usable) {
                entry.reported = Some(usable);
                report(id, usable);
            }
        };
        let unreported = std::mem::take(&mut self.unreported);
        if self.first_end.is_after(now) {
            for id in unreported {
                if let Some(entry) = self.entries.get_mut(&id) {
                    check(&id, entry);
                }
            }
        } else {
            self.entries.iter_mut().for_each(|(id, entry)| check(id, entry));
        }
    }

    /// Reports this resource again, with the next [`changes`](Self::changes): it has a new handle.
    pub fn report_again(&mut self, id: &str) {
        self.mark_unreported(id);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.reported = None;
        }
    }

    fn mark_unreported(&mut self, id: &str) {
        if let Some((id, _)) = self.entries.get_key_value(id) {
            self.unreported.insert(Arc::clone(id));
        }
    }

    /// What may be used of a resource now.
    pub fn usable(&self, now: Millis, id: &str) -> Option<Usable> {
        self.entries.get(id).map(|entry| entry.usable(now))
    }

    /// The live lease of a resource.
    pub fn lease(&self, now: Millis, id: &str) -> Option<Lease> {
        self.entries.get(id)?.lease.filter(|lease| lease.is_live(now))
    }

    /// Learns the peers of the node from its master. They are tried after the configured endpoints, and replace the
    /// peers learnt before.
    pub fn learn(&mut self, peers: impl IntoIterator<Item = Arc<str>>) {
        self.route.learn(peers);
    }

    /// All endpoints that are tried in turn while none answers.
    pub fn endpoints(&self) -> &[Arc<str>] {
        self.route.endpoints()
    }

    /// The endpoint that requests go to at present.
    pub fn target(&self) -> &Arc<str> {
        self.route.target()
    }

    /// The number of the request in flight.
    pub fn in_flight(&self) -> Option<u64> {
        self.in_flight.as_ref().map(|in_flight| in_flight.number)
    }

    /// The number of failures since the last answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the last request was a release that has failed.
    pub fn release_failed(&self) -> bool {
        self.release_failed
    }

    /// The number of wanted resources.
    pub fn resources(&self) -> usize {
        self.entries.len()
    }

    /// Now, or a little later if a request has just been sent.
    fn earliest_request(&self, now: Millis) -> Millis {
        self.last_sent.map_or(now, |sent| now.max(sent.plus(MIN_REQUEST_GAP)))
    }

    /// Takes the request in flight if it is `number`. Answers to earlier requests do not count.
    fn take_in_flight(&mut self, number: u64) -> Option<InFlight> {
        self.in_flight.take_if(|in_flight| in_flight.number == number)
    }

    /// A planted fault: an answer that does not count is taken for the answer to the latest request.
    fn accept_late_answer(&mut self, number: u64) -> Option<InFlight> {
        let sent = self.last_sent.filter(|_| planted::is(Fault::TakesLateAnswers))?;
        let ids = self.entries.keys().cloned().collect();
        self.in_flight.take().or(Some(InFlight { number, sent, deadline: sent, ids, kind: RequestKind::Ask }))
    }

    fn request_failed(&mut self, now: Millis, in_flight: &InFlight, longest: Millis) {
        self.failures = self.failures.saturating_add(1);
        self.route.failed();
        let (longest, took) = (longest.min(self.longest_retry()), now.since(in_flight.sent));
        self.pause_until = now.plus(self.pace.backoff(self.failures, longest, took, &mut self.rng));
        self.stream_failed(now, in_flight);
        match in_flight.kind {
            RequestKind::Ask | RequestKind::Stream => {
                for id in &in_flight.ids {
                    if let Some(entry) = self.entries.get_mut(id) {
                        entry.failed = true;
                        entry.schedule(now);
                        self.first_due.insert(entry.due);
                        self.unreported.insert(Arc::clone(id));
                    }
                }
            }
            // Retried until the leases expire.
            RequestKind::Release => self.release_failed = true,
        }
    }

    /// The leases to release. Those that have expired meanwhile are dropped.
    fn releases(&mut self, now: Millis) -> Option<Vec<Release>> {
        self.leaving.retain(|_, entry| entry.lease.is_some_and(|lease| lease.is_live(now)));
        let releases = self.leaving.iter_mut().take(self.resources_per_request).map(|(id, entry)| {
            entry.given_back = true;
            let token = entry.lease.and_then(|lease| lease.token);
            Release { id: Arc::clone(id), token, spent: entry.demand.spent() }
        });
        Some(releases.collect()).filter(|releases: &Vec<_>| !releases.is_empty())
    }

    fn asks(&mut self, now: Millis) -> Option<Vec<Ask<D>>> {
        let asks: Vec<_> = self.due_resources(now);
        if asks.is_empty() {
            return None;
        }
        Some(asks.into_iter().filter_map(|id| self.ask(&id, now)).collect())
    }

    /// Asks for one resource: it is due again with the answer.
    fn ask(&mut self, id: &Arc<str>, now: Millis) -> Option<Ask<D>> {
        let entry = self.entries.get_mut(id)?;
        entry.asked = Some(entry.demand.clone());
        self.first_due.remove(entry.due);
        entry.due = NOT_BEFORE_ANSWER;
        let has = entry.lease.filter(|lease| lease.is_live(now));
        let had = entry.lease.filter(|lease| has.is_none() && lease.token.is_some());
        entry.named_until = has.map(|lease| lease.end);
        Some(Ask { id: Arc::clone(id), demand: entry.demand.clone(), has, had })
    }

    /// Returns whether the lease was taken.
    fn store_lease(&mut self, now: Millis, sent: Millis, given: &GrantedLease) -> bool {
        let soon = self.earliest_request(now);
        let is_wanted = self.entries.contains_key(&given.id);
        let Some(entry) = self.entries.get_mut(&given.id).or_else(|| self.leaving.get_mut(&given.id)) else {
            return false;
        };
        if incarnation(&entry.demand) != entry.asked.as_ref().and_then(incarnation) {
            // It answers another incarnation of this client of a budget, whose allowance is not this one's.
            entry.schedule(soon);
            if is_wanted {
                self.first_due.insert(entry.due);
            }
            return false;
        }
        if entry.named_until.is_some_and(|end| end <= now) && !planted::is(Fault::AnswerAfterEnd) {
            // A new master may have counted the named lease as live although its capacity already belongs to another
            // client. The next request names the lease as expired, so its answer counts whenever it arrives.
            entry.schedule(soon);
            if is_wanted {
                self.first_due.insert(entry.due);
            }
            return false;
        }
        let capacity = Capacity::of(given.wire.capacity);
        let end = sent.plus(usable_length(given.length, entry.demand.tail()));
        let before = entry.lease.filter(|lease| lease.is_live(now)).map_or(0.0, |lease| lease.capacity.get());
        let shrank = capacity.get() < before * (1.0 - SHRINK_THRESHOLD);
        let refresh = now.plus(self.pace.refresh(given.refresh, end.since(now), &mut self.rng));
        let scheduled = if shrank && given.token.is_some() { now.plus(MIN_REQUEST_GAP) } else { refresh };
        // If a hint or a change of demand came while the request was in flight, the due time is set already, and the
        // next request follows at once.
        entry.schedule(scheduled);
        if is_wanted {
            self.first_due.insert(entry.due);
            entry.lease.iter().for_each(|lease| self.first_end.remove(lease.end));
            self.first_end.insert(end);
            self.unreported.insert(Arc::clone(&given.id));
        }
        let GrantedLease { refresh, token, wire, budget, .. } = *given;
        entry.lease = Some(Lease { capacity, end, refresh, token, wire, budget });
        entry.length = given.length;
        entry.safe = given.safe.or(entry.safe);
        entry.failed = false;
        true
    }
}

/// Budgets: the incarnation of the client.
fn incarnation<D: Demand>(demand: &D) -> Option<u64> {
    demand.spent().map(|spent| spent.incarnation)
}

/// How long a lease may be used. A lease shorter than twice the tail is used to its end, because little would be left of
/// it.
fn usable_length(length: Millis, tail: Millis) -> Millis {
    if tail.0.saturating_mul(2) > length.0 { length } else { Millis(length.0 - tail.0) }
}
