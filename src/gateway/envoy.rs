//! The state that a gateway keeps for an Envoy: time, reports and leases go in, and assignments come out (RLQS).
//!
//! Time, reports and leases are arguments, and buckets have ids of any type. Streams, messages and tasks are in
//! `rlqs`. The simulator runs the same code.
//!
//! The state outlives the stream of the Envoy, because an assignment is believed until it expires, with or without a
//! stream. Until then the gateway keeps the lease, and reports the assigned amount to the server as in use, even if the
//! lease has become smaller.
//!
//! An Envoy is one holder in the cluster, whichever gateway it reports to, and it may move to another gateway when its
//! stream breaks. These rules keep what an Envoy believes within what the cluster holds for it:
//!
//! - After an Envoy has connected, this gateway does not know what another gateway has assigned to it. For the length
//!   of an assignment it therefore reports all that the cluster holds for the Envoy as in use, so that none of it is
//!   given to others. A bucket that the Envoy has just created is exempt ([`Usage::is_first`]).
//! - An Envoy opens a stream only with a regular report. So it stays with this gateway for [`STAYS`] after each regular
//!   report, and only that long may the gateway ask for leases under the Envoy's name. A lease that arrives later is
//!   ignored ([`stays`]).
//! - Each stream begins without a lease. So what is assigned over it comes from a lease that is newer than any lease
//!   that earlier gateways have named.

mod beliefs;
mod offered;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

use self::{beliefs::Beliefs, offered::Offered};
pub use self::{
    beliefs::TRANSIT,
    offered::{REPORTS, Usage},
};

/// How an Envoy is served.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvoySettings {
    /// The length of an assignment, in whole seconds. An Envoy that loses its gateway keeps its assignments this long.
    pub assignment_secs: u32,
    /// A bucket is abandoned after this long without requests.
    pub idle: Millis,
    /// The wants of a bucket until its second report.
    pub first_wants: f64,
    /// The maximum number of buckets of one Envoy.
    pub buckets: usize,
}

/// The leases of one Envoy.
pub trait Leases {
    /// Changes the wants of a resource, which may be new.
    fn want(&mut self, resource: &Arc<str>, wants: f64);

    /// Reports `in_use` to the server until the next call. Infinity stands for all that the cluster holds for this
    /// Envoy. Returns the lease that the next request will confirm, if there is one.
    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease>;

    /// Releases a resource. Nothing of it is in use.
    fn release(&mut self, resource: &Arc<str>);
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    pub capacity: f64,
    pub end: Millis,
}

/// A bucket, and the resource of the cluster for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket<Id> {
    pub id: Id,
    pub resource: Arc<str>,
}

/// A message to an Envoy about one of its buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<Id> {
    pub bucket: Id,
    /// The quota, and for how many seconds. None: the Envoy is to forget the bucket.
    pub assignment: Option<(Quota, u32)>,
}

#[derive(Debug)]
pub struct Envoy<Id> {
    settings: EnvoySettings,
    buckets: BTreeMap<Arc<str>, State<Id>>,
    /// When the current or last stream began.
    since: Millis,
    /// When the last stream ended, if there is no stream now.
    left: Option<Millis>,
    /// The Envoy is not expected to reconnect.
    is_done: bool,
}

#[derive(Debug)]
struct State<Id> {
    id: Id,
    offered: Offered,
    beliefs: Beliefs,
    /// The last assignment over this stream, and when it ends.
    told: Option<(Quota, Millis)>,
    /// The bucket was reported over this stream, and not abandoned since.
    subscribed: bool,
    /// The Envoy has yet to be told that the bucket was abandoned.
    abandoned: bool,
    /// Until then an assignment of another gateway may be in force.
    elsewhere: Millis,
    /// The times of the last report, and of the last report with requests.
    heard: Millis,
    active: Millis,
}

/// A bucket is abandoned after this long without a report.
const SILENCE: Millis = Millis(REPORTS.0 * 3);

/// After a regular report an Envoy opens no other stream for this long: the report took at most [`TRANSIT`], and the
/// Envoy opens streams only with its next report.
pub const STAYS: Millis = Millis(REPORTS.0 - TRANSIT.0);

/// How long an Envoy stays with this gateway after a report. A report of nothing but a new bucket may come right before a
/// regular one. It shows that the stream works, so the Envoy does not leave at once.
pub fn stays<'u>(begins_stream: bool, mut usages: impl ExactSizeIterator<Item = &'u Usage>) -> Millis {
    let is_lone = usages.len() == 1 && usages.all(Usage::is_first);
    if begins_stream || !is_lone { STAYS } else { TRANSIT }
}

/// An Envoy that has lost its stream reconnects within this time, with its next report.
const RETURN: Millis = Millis(REPORTS.0 + 2_000);

/// How often to check for renewal when a lease is too short for an assignment.
const RETRY_INTERVAL: Millis = Millis(500);

impl<Id: Clone> Envoy<Id> {
    pub fn new(settings: EnvoySettings, now: Millis) -> Envoy<Id> {
        Envoy { settings, buckets: BTreeMap::new(), since: now, left: Some(now), is_done: false }
    }

    /// The Envoy has opened a stream. Assignments over earlier streams are sent again.
    pub fn connected(&mut self, now: Millis) {
        self.disconnected(now);
        (self.since, self.left) = (now, None);
    }

    /// The gateway has ended the stream for good. Leases are released as soon as all assignments have expired.
    pub fn stopped(&mut self, now: Millis) {
        self.disconnected(now);
        self.is_done = true;
    }

    pub fn disconnected(&mut self, now: Millis) {
        self.left = Some(now);
        for state in self.buckets.values_mut() {
            (state.told, state.subscribed, state.abandoned) = (None, false, false);
            state.heard = now;
        }
    }

    /// Applies a report. Returns false if the Envoy has too many buckets.
    pub fn reported(&mut self, now: Millis, bucket: Bucket<Id>, usage: &Usage, leases: &mut impl Leases) -> bool {
        if !self.knows(&bucket.resource) && !self.has_room() {
            return false;
        }
        let state = self.buckets.entry(Arc::clone(&bucket.resource)).or_insert_with(|| State {
            id: bucket.id,
            offered: Offered::new(self.settings.first_wants),
            beliefs: Beliefs::default(),
            told: None,
            subscribed: false,
            abandoned: false,
            elsewhere: now,
            heard: now,
            active: now,
        });
        if !state.subscribed {
            // The Envoy has forgotten an abandoned bucket, and may have forgotten one of an earlier stream.
            (state.subscribed, state.abandoned, state.told, state.active) = (true, false, None, now);
            // A bucket that the Envoy has just created has no assignment.
            state.elsewhere = if usage.is_first() { now } else { self.since.plus(self.settings.longest_belief()) };
        }
        let quota = state.beliefs.most(now);
        state.offered.reported(now, usage, quota);
        state.heard = now;
        if usage.allowed > 0 || usage.denied > 0 {
            state.active = now;
        }
        leases.want(&bucket.resource, state.offered.wants());
        true
    }

    /// Returns the messages to send now. None are returned unless the stream `has_room` for one, because assignments count
    /// from now. Call it after every event, and at [`wake`](Self::wake).
    pub fn poll(&mut self, now: Millis, leases: &mut impl Leases, has_room: bool) -> Vec<Action<Id>> {
        let (settings, is_done, has_room) = (&self.settings, self.is_done, has_room && self.left.is_none());
        let mut actions = Vec::new();
        self.buckets.retain(|resource, state| {
            state.abandon_if_idle(now, settings, resource, leases);
            if has_room {
                actions.extend(state.message(now, settings, resource, leases));
            }
            let keeps = state.subscribed || now < state.leaves(is_done);
            if keeps {
                leases.hold(resource, state.in_use(now));
            } else {
                leases.release(resource);
            }
            keeps
        });
        actions
    }

    /// The latest time for the next call of [`poll`](Self::poll).
    pub fn wake(&self, now: Millis) -> Option<Millis> {
        let next = self.buckets.values().map(|state| state.wake(now, &self.settings, self.is_done)).min();
        next.map(|at| at.max(now.plus(Millis(1))))
    }

    /// Whether there is no stream, and no lease is kept.
    pub fn is_gone(&self) -> bool {
        self.left.is_some() && self.buckets.is_empty()
    }

    pub fn knows(&self, resource: &str) -> bool {
        self.buckets.contains_key(resource)
    }

    /// Whether another bucket is allowed.
    pub fn has_room(&self) -> bool {
        self.buckets.len() < self.settings.buckets
    }

    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// When the last assignment expires.
    pub fn believes_until(&self) -> Millis {
        self.buckets.values().map(|state| state.beliefs.end()).max().unwrap_or_default()
    }
}

impl<Id: Clone> State<Id> {
    fn abandon_if_idle(
        &mut self,
        now: Millis,
        settings: &EnvoySettings,
        resource: &Arc<str>,
        leases: &mut impl Leases,
    ) {
        if self.subscribed && (now >= self.active.plus(settings.idle) || now >= self.heard.plus(SILENCE)) {
            (self.subscribed, self.abandoned, self.told) = (false, true, None);
            leases.want(resource, 0.0);
        }
    }

    fn message(
        &mut self,
        now: Millis,
        settings: &EnvoySettings,
        resource: &Arc<str>,
        leases: &mut impl Leases,
    ) -> Option<Action<Id>> {
        if std::mem::take(&mut self.abandoned) {
            return Some(Action { bucket: self.id.clone(), assignment: None });
        }
        if !self.subscribed {
            return None;
        }
        let mut lease = self.hold(now, resource, leases)?;
        loop {
            let (quota, secs) = self.due(now, settings, lease)?;
            let until = now.plus(Millis::from_secs(secs.into()));
            if quota != Quota::Nothing {
                self.beliefs.add(now, quota.rate(), until.plus(TRANSIT));
                // A smaller lease may have arrived just now. Then the next request confirms that one.
                lease = self.hold(now, resource, leases)?;
            }
            if quota == Quota::Nothing || (lease.capacity >= quota.rate() && lease.end >= until.plus(TRANSIT)) {
                self.told = Some((quota, until));
                return Some(Action { bucket: self.id.clone(), assignment: Some((quota, secs)) });
            }
        }
    }

    /// What the cluster must assume in use. Assignments of another gateway are not known here, but the cluster holds at
    /// least as much for the Envoy.
    fn in_use(&self, now: Millis) -> f64 {
        let counts = now < self.elsewhere && !planted::is(Fault::ForgetsOtherGateways);
        if counts { f64::INFINITY } else { self.beliefs.most(now) }
    }

    fn hold(&self, now: Millis, resource: &Arc<str>, leases: &mut impl Leases) -> Option<Lease> {
        let mut lease = leases.hold(resource, self.in_use(now))?;
        if planted::is(Fault::AssignmentOutlastsLease) {
            lease.end = Millis(u64::MAX);
        }
        Some(lease)
    }

    /// The assignment for a lease, if it has to be sent.
    fn due(&self, now: Millis, settings: &EnvoySettings, lease: Lease) -> Option<(Quota, u32)> {
        let quota = Quota::of(lease.capacity);
        if quota == Quota::Nothing && now < self.elsewhere {
            // An assignment of another gateway counts for this Envoy anyway, so the Envoy may use it up.
            return None;
        }
        let lasts = lease.end.since(now.plus(TRANSIT)).0 / 1000;
        let secs = match quota {
            // Denying everything needs no lease.
            Quota::Nothing => settings.assignment_secs,
            _ => settings.assignment_secs.min(u32::try_from(lasts).unwrap_or(u32::MAX)),
        };
        let until = now.plus(Millis::from_secs(secs.into()));
        let news = match self.told {
            None => true,
            Some((told, _)) if told != quota => true,
            Some((_, end)) => now >= settings.extends(end) && until >= end.plus(Millis(500)),
        };
        (secs >= 1 && news).then_some((quota, secs))
    }

    /// The earliest time to release it, once it is not subscribed.
    fn leaves(&self, is_done: bool) -> Millis {
        let returns = if is_done { Millis(0) } else { self.heard.plus(RETURN) };
        self.beliefs.end().max(self.elsewhere).max(returns)
    }

    fn wake(&self, now: Millis, settings: &EnvoySettings, is_done: bool) -> Millis {
        let falls = self.beliefs.falls(now).unwrap_or(Millis(u64::MAX));
        let falls = if now < self.elsewhere { falls.min(self.elsewhere) } else { falls };
        if !self.subscribed {
            return falls.min(self.leaves(is_done));
        }
        // A lease that was too short may have been renewed, which does not wake the caller.
        let extends = self.told.map_or(now, |(_, end)| settings.extends(end));
        let extends = if extends <= now { now.plus(RETRY_INTERVAL) } else { extends };
        falls.min(extends).min(self.active.plus(settings.idle)).min(self.heard.plus(SILENCE))
    }
}

impl EnvoySettings {
    /// When to extend an assignment that ends at `end`.
    fn extends(&self, end: Millis) -> Millis {
        Millis(end.0.saturating_sub(u64::from(self.assignment_secs) * 500))
    }

    /// How long an assignment may be believed after it was sent.
    pub fn longest_belief(&self) -> Millis {
        Millis::from_secs(self.assignment_secs.into()).plus(TRANSIT)
    }
}

/// A rate in whole requests, which never exceeds the capacity that it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    Nothing,
    /// One request in this many seconds, at least two.
    OneIn(u32),
    PerSecond(u32),
    Everything,
}

/// A rate below one request in this many seconds counts as nothing.
const SLOWEST: f64 = 3600.0;

impl Quota {
    /// The largest quota within `capacity`.
    pub fn of(capacity: f64) -> Quota {
        let capacity = capacity.max(0.0);
        match capacity {
            capacity if capacity.is_infinite() => Quota::Everything,
            // The conversion truncates and saturates.
            capacity if capacity >= 1.0 => Quota::PerSecond(capacity as u32),
            capacity if capacity * SLOWEST < 1.0 => Quota::Nothing,
            capacity => Quota::OneIn((1.0 / capacity).ceil() as u32),
        }
    }

    /// In requests per second.
    pub fn rate(self) -> f64 {
        match self {
            Quota::Nothing => 0.0,
            Quota::OneIn(seconds) => 1.0 / f64::from(seconds),
            Quota::PerSecond(requests) => f64::from(requests),
            Quota::Everything => f64::INFINITY,
        }
    }
}
