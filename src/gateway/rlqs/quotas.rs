//! The quotas of one Envoy: turns its usage reports and the leases held for it into quota assignments.
//!
//! Pure: time, reports and leases are arguments, and bucket ids are generic. The simulator runs the same code. Streams,
//! messages and tasks are in [`rlqs`](crate::rlqs).
//!
//! The state outlives the stream, because an Envoy applies an assignment until it expires, with or without a stream.
//! Until then the gateway keeps the lease, and reports the assigned rate to the server as in use, even if the lease has
//! shrunk.
//!
//! To the cluster an Envoy is one holder, whichever gateway it reports to. It may move to another gateway when its
//! stream breaks. Three rules ensure that an Envoy never applies more than the cluster holds for it:
//!
//! - A newly connected Envoy may have assignments of another gateway, which this gateway does not know. For the length
//!   of an assignment the gateway therefore reports everything that the cluster holds for the Envoy as in use, so that
//!   the cluster gives none of it to others. A bucket that the Envoy has just created is exempt ([`Usage::is_first`]).
//! - An Envoy opens a stream only with a regular report. So it stays with this gateway for [`STAY_AFTER_REPORT`] after
//!   each regular report. The gateway requests leases in the Envoy's name only during that time, and ignores leases
//!   that arrive later ([`stay_after_report`]).
//! - Each stream begins without a lease. So every assignment on it comes from a lease that is newer than those that
//!   earlier gateways have named.

mod demand;
mod live_assignments;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::{
    planted::{self, Fault},
    types::Millis,
};

use self::{demand::BucketDemand, live_assignments::LiveAssignments};
pub use self::{
    demand::{REPORT_INTERVAL, Usage},
    live_assignments::TRANSIT,
};

/// Settings for all Envoys of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaSettings {
    /// The length of an assignment in seconds. An Envoy that loses its gateway applies its assignments this long.
    pub assignment_secs: u32,
    /// Time without requests after which a bucket is abandoned.
    pub idle: Millis,
    /// The wants of a bucket until its second report.
    pub first_wants: f64,
    /// The maximum number of buckets of one Envoy.
    pub max_buckets: usize,
}

/// The leases of one Envoy.
pub trait Leases {
    /// Sets the wants of a resource, which may be new.
    fn want(&mut self, resource: &Arc<str>, wants: f64);

    /// Reports `in_use` to the server until the next call. Infinity stands for everything that the cluster holds for
    /// this Envoy. Returns the lease, if any, that the next request will confirm.
    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease>;

    /// Releases a resource that is not in use.
    fn release(&mut self, resource: &Arc<str>);
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    pub capacity: f64,
    pub end: Millis,
}

/// A bucket of an Envoy, and its resource in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket<Id> {
    pub id: Id,
    pub resource: Arc<str>,
}

/// A message to an Envoy about one of its buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<Id> {
    pub bucket: Id,
    /// The quota and its duration in seconds; `None` tells the Envoy to drop the bucket.
    pub assignment: Option<(Quota, u32)>,
}

#[derive(Debug)]
pub struct EnvoyQuotas<Id> {
    settings: QuotaSettings,
    buckets: BTreeMap<Arc<str>, BucketState<Id>>,
    /// When the current or last stream began.
    since: Millis,
    /// When the last stream ended; `None` while there is a stream.
    disconnected_at: Option<Millis>,
    /// The Envoy is not expected to reconnect.
    is_done: bool,
}

#[derive(Debug)]
struct BucketState<Id> {
    id: Id,
    demand: BucketDemand,
    live: LiveAssignments,
    /// The last assignment on this stream, and its end.
    assigned: Option<(Quota, Millis)>,
    /// The bucket was reported on this stream and not abandoned since.
    subscribed: bool,
    /// The message that abandons the bucket has not been sent yet.
    abandoned: bool,
    /// Until this time an assignment of another gateway may be in force.
    foreign_until: Millis,
    /// The time of the last report.
    reported_at: Millis,
    /// The time of the last report with requests.
    active_at: Millis,
}

/// Time without a report after which a bucket is abandoned.
const REPORT_TIMEOUT: Millis = Millis(REPORT_INTERVAL.0 * 3);

/// The time for which an Envoy stays with this gateway after a regular report: the report took at most [`TRANSIT`], and
/// the Envoy opens a stream only with its next report.
pub const STAY_AFTER_REPORT: Millis = Millis(REPORT_INTERVAL.0 - TRANSIT.0);

/// How long an Envoy stays with this gateway after a report. A report of a single new bucket may come right before a
/// regular one: it only shows that the stream works.
pub fn stay_after_report<'u>(begins_stream: bool, mut usages: impl ExactSizeIterator<Item = &'u Usage>) -> Millis {
    let is_lone = usages.len() == 1 && usages.all(Usage::is_first);
    if begins_stream || !is_lone { STAY_AFTER_REPORT } else { TRANSIT }
}

/// The time within which an Envoy without a stream reconnects: with its next report.
const RECONNECT_TIMEOUT: Millis = Millis(REPORT_INTERVAL.0 + 2_000);

/// Poll interval for the renewal of a lease that is too short for an assignment.
const RETRY_INTERVAL: Millis = Millis(500);

impl<Id: Clone> EnvoyQuotas<Id> {
    pub fn new(settings: QuotaSettings, now: Millis) -> EnvoyQuotas<Id> {
        EnvoyQuotas { settings, buckets: BTreeMap::new(), since: now, disconnected_at: Some(now), is_done: false }
    }

    /// The Envoy has opened a stream. Assignments are sent again.
    pub fn connected(&mut self, now: Millis) {
        self.disconnected(now);
        (self.since, self.disconnected_at) = (now, None);
    }

    /// The gateway has closed the stream for good. Leases are released as soon as all assignments have expired.
    pub fn stopped(&mut self, now: Millis) {
        self.disconnected(now);
        self.is_done = true;
    }

    pub fn disconnected(&mut self, now: Millis) {
        self.disconnected_at = Some(now);
        for state in self.buckets.values_mut() {
            (state.assigned, state.subscribed, state.abandoned) = (None, false, false);
            state.reported_at = now;
        }
    }

    /// Applies a report. Returns false if the Envoy has too many buckets.
    pub fn reported(&mut self, now: Millis, bucket: Bucket<Id>, usage: &Usage, leases: &mut impl Leases) -> bool {
        if !self.has_bucket(&bucket.resource) && !self.has_room() {
            return false;
        }
        let state = self.buckets.entry(Arc::clone(&bucket.resource)).or_insert_with(|| BucketState {
            id: bucket.id,
            demand: BucketDemand::new(self.settings.first_wants),
            live: LiveAssignments::default(),
            assigned: None,
            subscribed: false,
            abandoned: false,
            foreign_until: now,
            reported_at: now,
            active_at: now,
        });
        if !state.subscribed {
            // The Envoy has dropped an abandoned bucket, and may have dropped a bucket of an earlier stream.
            (state.subscribed, state.abandoned, state.assigned, state.active_at) = (true, false, None, now);
            // A bucket that the Envoy has just created has no assignment.
            state.foreign_until =
                if usage.is_first() { now } else { self.since.plus(self.settings.max_assignment_span()) };
        }
        let quota = state.live.max_rate(now);
        state.demand.reported(now, usage, quota);
        state.reported_at = now;
        if usage.allowed > 0 || usage.denied > 0 {
            state.active_at = now;
        }
        leases.want(&bucket.resource, state.demand.wants());
        true
    }

    /// Returns the messages to send now; none unless the stream `has_room` for a message, because assignments count
    /// from now. Call it after every event, and at [`wake`](Self::wake).
    pub fn poll(&mut self, now: Millis, leases: &mut impl Leases, has_room: bool) -> Vec<Action<Id>> {
        let (settings, is_done, has_room) = (&self.settings, self.is_done, has_room && self.disconnected_at.is_none());
        let mut actions = Vec::new();
        self.buckets.retain(|resource, state| {
            state.abandon_if_idle(now, settings, resource, leases);
            if has_room {
                actions.extend(state.message(now, settings, resource, leases));
            }
            let keeps = state.subscribed || now < state.release_at(is_done);
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

    /// Whether there is neither a stream nor a lease.
    pub fn is_finished(&self) -> bool {
        self.disconnected_at.is_some() && self.buckets.is_empty()
    }

    pub fn has_bucket(&self, resource: &str) -> bool {
        self.buckets.contains_key(resource)
    }

    /// Whether another bucket may be added.
    pub fn has_room(&self) -> bool {
        self.buckets.len() < self.settings.max_buckets
    }

    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// When the last assignment expires.
    pub fn assigned_until(&self) -> Millis {
        self.buckets.values().map(|state| state.live.end()).max().unwrap_or_default()
    }
}

impl<Id: Clone> BucketState<Id> {
    fn abandon_if_idle(
        &mut self,
        now: Millis,
        settings: &QuotaSettings,
        resource: &Arc<str>,
        leases: &mut impl Leases,
    ) {
        if self.subscribed
            && (now >= self.active_at.plus(settings.idle) || now >= self.reported_at.plus(REPORT_TIMEOUT))
        {
            (self.subscribed, self.abandoned, self.assigned) = (false, true, None);
            leases.want(resource, 0.0);
        }
    }

    fn message(
        &mut self,
        now: Millis,
        settings: &QuotaSettings,
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
                self.live.add(now, quota.rate(), until.plus(TRANSIT));
                // Read again, because the next request confirms the newest lease, which may just have become smaller.
                lease = self.hold(now, resource, leases)?;
            }
            if quota == Quota::Nothing || (lease.capacity >= quota.rate() && lease.end >= until.plus(TRANSIT)) {
                self.assigned = Some((quota, until));
                return Some(Action { bucket: self.id.clone(), assignment: Some((quota, secs)) });
            }
        }
    }

    /// The rate that the cluster has to count as in use. Assignments of another gateway are unknown, but the cluster
    /// holds at least as much for the Envoy.
    fn in_use(&self, now: Millis) -> f64 {
        let counts = now < self.foreign_until && !planted::is(Fault::ForgetsOtherGateways);
        if counts { f64::INFINITY } else { self.live.max_rate(now) }
    }

    fn hold(&self, now: Millis, resource: &Arc<str>, leases: &mut impl Leases) -> Option<Lease> {
        let mut lease = leases.hold(resource, self.in_use(now))?;
        if planted::is(Fault::AssignmentOutlastsLease) {
            lease.end = Millis(u64::MAX);
        }
        Some(lease)
    }

    /// The assignment for a lease, if it has to be sent.
    fn due(&self, now: Millis, settings: &QuotaSettings, lease: Lease) -> Option<(Quota, u32)> {
        let quota = Quota::of(lease.capacity);
        if quota == Quota::Nothing && now < self.foreign_until {
            // The cluster counts an assignment of another gateway until it expires, so denying it would free nothing.
            return None;
        }
        let lasts = lease.end.since(now.plus(TRANSIT)).0 / 1000;
        let secs = match quota {
            // Denying everything needs no lease.
            Quota::Nothing => settings.assignment_secs,
            _ => settings.assignment_secs.min(u32::try_from(lasts).unwrap_or(u32::MAX)),
        };
        let until = now.plus(Millis::from_secs(secs.into()));
        let is_new = match self.assigned {
            None => true,
            Some((assigned, _)) if assigned != quota => true,
            Some((_, end)) => now >= settings.extend_at(end) && until >= end.plus(Millis(500)),
        };
        (secs >= 1 && is_new).then_some((quota, secs))
    }

    /// The earliest time to release an unsubscribed bucket.
    fn release_at(&self, is_done: bool) -> Millis {
        let reconnects_by = if is_done { Millis(0) } else { self.reported_at.plus(RECONNECT_TIMEOUT) };
        self.live.end().max(self.foreign_until).max(reconnects_by)
    }

    fn wake(&self, now: Millis, settings: &QuotaSettings, is_done: bool) -> Millis {
        let falls = self.live.next_fall(now).unwrap_or(Millis(u64::MAX));
        let falls = if now < self.foreign_until { falls.min(self.foreign_until) } else { falls };
        if !self.subscribed {
            return falls.min(self.release_at(is_done));
        }
        // The renewal of a lease that was too short does not wake the caller.
        let extend_at = self.assigned.map_or(now, |(_, end)| settings.extend_at(end));
        let extend_at = if extend_at <= now { now.plus(RETRY_INTERVAL) } else { extend_at };
        falls.min(extend_at).min(self.active_at.plus(settings.idle)).min(self.reported_at.plus(REPORT_TIMEOUT))
    }
}

impl QuotaSettings {
    /// When to extend an assignment that ends at `end`.
    fn extend_at(&self, end: Millis) -> Millis {
        Millis(end.0.saturating_sub(u64::from(self.assignment_secs) * 500))
    }

    /// The maximum time for which an Envoy applies an assignment, counted from when it is sent.
    pub fn max_assignment_span(&self) -> Millis {
        Millis::from_secs(self.assignment_secs.into()).plus(TRANSIT)
    }
}

/// A rate in whole requests, rounded down from a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    Nothing,
    /// One request in this many seconds, at least two.
    OneIn(u32),
    PerSecond(u32),
    Everything,
}

/// Lower rates than one request in this many seconds count as nothing.
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
