//! The session with the master of a node.
//!
//! The rules it keeps (numbers as in docs/internals/lease-protocol.md):
//!
//! - Rule 6: one request is under way at a time; only the answer to the latest one counts, and a release is a request,
//!   too; a lease is counted from when its request was *sent*. An answer does not count if the lease that its request
//!   named has ended before it comes: that resource is asked for again at once. Requests say that this is kept
//!   (`drops_late`). A lease that has ended is named as such, until there is another.
//! - All resources are asked for in one request, when the first of them is due.
//! - What was given is confirmed by echoing it with the next request. A holder that has been cut asks again after
//!   100 ms, only to confirm (rule 10): another may be waiting for what it gave up.
//! - A failure is followed by a pause, and by the next endpoint. The pause grows until all endpoints are tried once
//!   in a refresh interval. Redirects are followed at once, a few times.
//! - A release names the newest lease it gives back and never overtakes a request that is under way. What was asked for
//!   but never arrived is not given back: a release without a name that came late could free a newer lease. It ends by
//!   itself.
//!
//! Time and randomness come from outside, so that the same code runs under a driver, in the uplink of a child node and
//! in simulation. [`Session::poll`] says what to send, the caller sends it and reports what came back with
//! [`Session::answered`], [`Session::redirected`] or [`Session::failed`].

mod cached_min;
mod capacity;
mod lease;
mod messages;
mod pace;
pub mod pool;
mod presence;
mod resource_state;
mod route;
mod schedule;
#[cfg(test)]
mod tests;
mod wants;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leaseway_core::{
    Millis,
    planted::{self, Fault},
};

pub use self::{
    capacity::Capacity,
    lease::{Lease, Mode, Wire},
    messages::{Ask, Basis, Body, Demand, Given, Outgoing, Release, Usable},
    pace::Pace,
    wants::Wants,
};

use self::{cached_min::CachedMin, pace::MIN_REQUEST_GAP, resource_state::ResourceState, route::Route};

/// What a session is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Servers of the node, as `host:port`; at least one.
    pub endpoints: Vec<Arc<str>>,
    pub pace: Pace,
    /// So many resources in one request; what is left over goes into the next.
    pub resources_per_request: usize,
    pub seed: u64,
}

#[derive(Debug)]
pub struct Session<D> {
    pace: Pace,
    resources_per_request: usize,
    rng: fastrand::Rng,
    route: Route,
    entries: BTreeMap<Arc<str>, ResourceState<D>>,
    /// Those whose usable capacity may differ from what was told, besides those whose leases have ended.
    unreported: BTreeSet<Arc<str>>,
    /// The first of their dues, and the first end of a live lease: there may be a hundred thousand entries.
    first_due: CachedMin,
    first_end: CachedMin,
    /// Wanted no more, and not yet given back.
    leaving: BTreeMap<Arc<str>, ResourceState<D>>,
    in_flight: Option<InFlight>,
    number: u64,
    failures: u32,
    /// The last request was a release, and failed: what is due goes before the next one.
    release_failed: bool,
    /// Nothing is sent before.
    pause_until: Millis,
    /// Nothing is asked for after, and no answer counts.
    asks_until: Millis,
    last_sent: Option<Millis>,
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
}

/// Due again when the answer has come, or has failed to.
const NOT_BEFORE_ANSWER: Millis = NEVER;

/// The end of all time.
const NEVER: Millis = Millis(u64::MAX);

/// A lease that shrank by more than this part of itself is confirmed early.
const SHRINK_THRESHOLD: f64 = 0.005;

impl<D: Demand> Session<D> {
    /// A session that wants nothing yet.
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
        }
    }

    /// Wants `demand` of a resource from now on: a new one is asked for at once, a known one when its demand has
    /// changed enough, else with the next refresh. Returns whether it will be asked for early.
    pub fn want(&mut self, now: Millis, id: &Arc<str>, demand: D, mode: Mode) -> bool {
        let soon = self.earliest_request(now);
        self.unreported.insert(Arc::clone(id));
        if let Some(mut returning) = self.leaving.remove(id) {
            returning.due = soon.max(returning.not_before);
            // It may have been opened again, by a handle that has not been told of the lease yet.
            returning.reported = None;
            if returning.given_back {
                // The server may have heard it.
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
        let urgent = entry.asked.as_ref().is_none_or(|asked| demand.is_urgent(asked));
        if urgent {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
        entry.demand = demand;
        entry.mode = mode;
        urgent
    }

    /// Wants a resource no more: what was given is given back.
    pub fn release(&mut self, id: &str) {
        if let Some((id, entry)) = self.entries.remove_entry(id) {
            self.first_due.remove(entry.due);
            entry.lease.iter().for_each(|lease| self.first_end.remove(lease.end));
            if entry.asked.is_some() {
                self.leaving.insert(id, entry);
            }
        }
    }

    /// Gives everything back, without waiting for the end of a pause.
    pub fn release_all(&mut self) {
        (self.failures, self.pause_until) = (0, Millis(0));
        let ids: Vec<_> = self.entries.keys().cloned().collect();
        for id in ids {
            self.release(&id);
        }
    }

    /// The server says that asking for this now would change something.
    pub fn hint(&mut self, now: Millis, id: &str) {
        let soon = self.earliest_request(now);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
    }

    /// As [`hint`](Self::hint), for all of them.
    pub fn hint_all(&mut self, now: Millis) {
        let soon = self.earliest_request(now);
        for entry in self.entries.values_mut() {
            entry.schedule(soon);
            self.first_due.insert(entry.due);
        }
    }

    /// Forgets the lease of a resource, which is asked for as if there had never been one.
    pub fn forget(&mut self, id: &str) {
        self.mark_unreported(id);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.lease.take().iter().for_each(|lease| self.first_end.remove(lease.end));
        }
    }

    /// A resource is not asked for before `at`, not even together with others.
    pub fn postpone(&mut self, id: &str, at: Millis) {
        if let Some(entry) = self.entries.get_mut(id) {
            self.first_due.remove(entry.due);
            entry.due = entry.due.max(at);
            entry.not_before = at;
        }
    }

    /// Gives a request up whose deadline has passed.
    pub fn expire_request(&mut self, now: Millis) {
        if let Some(late) = self.in_flight.take_if(|in_flight| in_flight.deadline <= now) {
            self.request_failed(now, &late, self.pace.backoff_max);
        }
    }

    /// What to send now, if anything. A request whose deadline has passed is given up first.
    pub fn poll(&mut self, now: Millis) -> Option<Outgoing<D>> {
        self.expire_request(now);
        if self.in_flight.is_some() || now < self.pause_until {
            return None;
        }
        // Releases that always fail must not let the leases of everything else end.
        let asks_first = self.release_failed && self.may_ask(now) && self.first_due() <= now;
        self.release_failed = false;
        let releases = if asks_first { None } else { self.releases(now) };
        let (kind, ids, body) = match releases {
            Some(releases) => {
                let ids = releases.iter().map(|release| Arc::clone(&release.id)).collect();
                (RequestKind::Release, ids, Body::Release(releases))
            }
            None => {
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

    /// Whether nothing is wanted, and everything has been given back.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.leaving.is_empty() && self.in_flight.is_none()
    }

    /// The master has answered request `number`. Returns whether that still counts.
    pub fn answered(&mut self, now: Millis, number: u64, given: Vec<Given>) -> bool {
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
            // What was not asked for is not ours, even if the server thinks so.
            if in_flight.concerns(&given.id) {
                self.store_lease(now, in_flight.sent, &given);
            }
        }
        for id in &in_flight.ids {
            if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.due == NOT_BEFORE_ANSWER) {
                // Left out of the answer: too soon, or refused. The lease stays as it is.
                entry.schedule(now.plus(match entry.lease {
                    Some(lease) => self.pace.refresh(lease.refresh, lease.end.since(now), &mut self.rng),
                    None => self.pace.refresh_min.max(MIN_REQUEST_GAP),
                }));
                self.first_due.insert(entry.due);
            }
        }
        true
    }

    /// The server that was asked is not the master, and names it, if it knows. Returns whether that still counts.
    pub fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) -> bool {
        let Some(in_flight) = self.take_in_flight(number) else { return false };
        if master.is_some_and(|master| self.route.redirected(master)) {
            self.retry_now(&in_flight, now);
        } else {
            // Servers that are there and have no master will soon have one.
            let longest = if master.is_none() { self.pace.masterless_max } else { self.pace.backoff_max };
            self.request_failed(now, &in_flight, longest);
        }
        true
    }

    /// Request `number` has failed. Returns whether that still counts.
    pub fn failed(&mut self, now: Millis, number: u64) -> bool {
        let Some(in_flight) = self.take_in_flight(number) else { return false };
        self.request_failed(now, &in_flight, self.pace.backoff_max);
        true
    }

    /// Calls `tell` for each resource whose usable capacity is not what it was when it was last told.
    pub fn changes(&mut self, now: Millis, mut tell: impl FnMut(&Arc<str>, Usable)) {
        let mut look = |id: &Arc<str>, entry: &mut ResourceState<D>| {
            let usable = entry.usable(now);
            if entry.reported != Some(usable) {
                entry.reported = Some(usable);
                tell(id, usable);
            }
        };
        let unreported = std::mem::take(&mut self.unreported);
        if self.first_end.is_after(now) {
            for id in unreported {
                if let Some(entry) = self.entries.get_mut(&id) {
                    look(&id, entry);
                }
            }
        } else {
            self.entries.iter_mut().for_each(|(id, entry)| look(id, entry));
        }
    }

    /// Another has to be told of this resource now.
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

    /// What a resource may be used at now.
    pub fn usable(&self, now: Millis, id: &str) -> Option<Usable> {
        self.entries.get(id).map(|entry| entry.usable(now))
    }

    /// The newest lease of a resource, while it lives.
    pub fn lease(&self, now: Millis, id: &str) -> Option<Lease> {
        self.entries.get(id)?.lease.filter(|lease| lease.is_live(now))
    }

    /// The master names the peers of its node: they are tried, too, after the endpoints that were given. One that was
    /// learnt before and is not among them is forgotten.
    pub fn learn(&mut self, peers: impl IntoIterator<Item = Arc<str>>) {
        self.route.learn(peers);
    }

    /// All that are tried in turn when none answers.
    pub fn endpoints(&self) -> &[Arc<str>] {
        self.route.endpoints()
    }

    /// Where requests go at present.
    pub fn target(&self) -> &Arc<str> {
        self.route.target()
    }

    /// The request whose answer still counts.
    pub fn in_flight(&self) -> Option<u64> {
        self.in_flight.as_ref().map(|in_flight| in_flight.number)
    }

    /// Failures since the last answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How many resources are wanted.
    pub fn resources(&self) -> usize {
        self.entries.len()
    }

    /// Right away, unless a request has just been sent.
    fn earliest_request(&self, now: Millis) -> Millis {
        self.last_sent.map_or(now, |sent| now.max(sent.plus(MIN_REQUEST_GAP)))
    }

    /// The request under way, if it is `number`: only the latest counts.
    fn take_in_flight(&mut self, number: u64) -> Option<InFlight> {
        self.in_flight.take_if(|in_flight| in_flight.number == number)
    }

    /// What a fault makes of an answer that is no longer waited for: it is taken for the answer to the latest request.
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
        match in_flight.kind {
            RequestKind::Ask => {
                for id in &in_flight.ids {
                    if let Some(entry) = self.entries.get_mut(id) {
                        entry.failed = true;
                        entry.schedule(now);
                        self.first_due.insert(entry.due);
                        self.unreported.insert(Arc::clone(id));
                    }
                }
            }
            // Tried again while the leases live.
            RequestKind::Release => self.release_failed = true,
        }
    }

    /// What can be given back. What has ended meanwhile is gone anyway.
    fn releases(&mut self, now: Millis) -> Option<Vec<Release>> {
        self.leaving.retain(|_, entry| entry.lease.is_some_and(|lease| lease.is_live(now)));
        let releases = self.leaving.iter_mut().take(self.resources_per_request).map(|(id, entry)| {
            entry.given_back = true;
            Release { id: Arc::clone(id), token: entry.lease.and_then(|lease| lease.token) }
        });
        Some(releases.collect()).filter(|releases: &Vec<_>| !releases.is_empty())
    }

    fn asks(&mut self, now: Millis) -> Option<Vec<Ask<D>>> {
        let asks: Vec<_> = self.due_resources(now);
        if asks.is_empty() {
            return None;
        }
        let asks = asks.into_iter().filter_map(|id| {
            let entry = self.entries.get_mut(&id)?;
            entry.asked = Some(entry.demand.clone());
            self.first_due.remove(entry.due);
            entry.due = NOT_BEFORE_ANSWER;
            let has = entry.lease.filter(|lease| lease.is_live(now));
            let had = entry.lease.filter(|lease| has.is_none() && lease.token.is_some());
            entry.named_until = has.map(|lease| lease.end);
            Some(Ask { id, demand: entry.demand.clone(), has, had })
        });
        Some(asks.collect())
    }

    fn store_lease(&mut self, now: Millis, sent: Millis, given: &Given) {
        let soon = self.earliest_request(now);
        let is_wanted = self.entries.contains_key(&given.id);
        let Some(entry) = self.entries.get_mut(&given.id).or_else(|| self.leaving.get_mut(&given.id)) else {
            return;
        };
        if entry.named_until.is_some_and(|end| end <= now) && !planted::is(Fault::AnswerAfterEnd) {
            // A new master may have taken the request's word for a part of what is promised that is another's by now.
            // The next request names it as one that has ended, so the answer to that counts however late it comes.
            entry.schedule(soon);
            if is_wanted {
                self.first_due.insert(entry.due);
            }
            return;
        }
        let capacity = Capacity::of(given.wire.capacity);
        let end = sent.plus(given.length);
        let before = entry.lease.filter(|lease| lease.is_live(now)).map_or(0.0, |lease| lease.capacity.get());
        let shrank = capacity.get() < before * (1.0 - SHRINK_THRESHOLD);
        let refresh = now.plus(self.pace.refresh(given.refresh, end.since(now), &mut self.rng));
        let scheduled = if shrank && given.token.is_some() { now.plus(MIN_REQUEST_GAP) } else { refresh };
        // A hint or a change of demand while the request was under way has set it: then it is asked for again right
        // after.
        entry.schedule(scheduled);
        if is_wanted {
            self.first_due.insert(entry.due);
            entry.lease.iter().for_each(|lease| self.first_end.remove(lease.end));
            self.first_end.insert(end);
            self.unreported.insert(Arc::clone(&given.id));
        }
        entry.lease = Some(Lease { capacity, end, refresh: given.refresh, token: given.token, wire: given.wire });
        entry.safe = given.safe.or(entry.safe);
        entry.failed = false;
    }
}
