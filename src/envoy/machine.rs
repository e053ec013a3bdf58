//! One Envoy as the gateway has it: reports, leases and time go in, assignments come out.
//!
//! It outlives the Envoy's stream: what was told is believed until its time is over, with the stream or without. So
//! long its lease is kept, and the server is told that so much of it may be in use, also when the lease has become
//! smaller since.
//!
//! An Envoy is one holder for the cluster, whichever gateway it reports to, and goes to another gateway when it loses
//! its stream. These rules keep what it believes within what is held for it:
//!
//! - For as long as an assignment lasts after an Envoy has come, this gateway does not know what another has told it.
//!   It says that all that is held for the Envoy may be in use, so that nothing of it is given to others. A bucket that
//!   the Envoy has just made is exempt ([`Usage::is_first`]).
//! - An Envoy opens a stream with a regular report only. So for [`STAYS`] after each it is certainly here, and for as
//!   long this gateway may ask under the Envoy's name; a lease that comes later does not count ([`stays`]).
//! - Each stream begins without a lease, so that what is assigned over it comes from a lease that is newer than all
//!   that gateways before have named.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::{
    Millis,
    planted::{self, Fault},
};

use crate::{
    beliefs::{Beliefs, TRANSIT},
    offered::{Offered, REPORTS, Usage},
    quota::Quota,
};

/// How an Envoy is served.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvoySettings {
    /// The time of an assignment, in whole seconds: an Envoy that is not heard of keeps what it has for so long.
    pub assignment_secs: u32,
    /// A bucket in which nothing happens for so long is given up.
    pub idle: Millis,
    /// What a bucket wants before there is a second report of it.
    pub first_wants: f64,
    /// No more buckets of one Envoy.
    pub buckets: usize,
}

/// The leases of one Envoy.
pub trait Leases {
    /// Wants so much of a resource; it may be new.
    fn want(&mut self, resource: &Arc<str>, wants: f64);

    /// So much may be in use, until something else is said; infinity stands for all that the cluster holds for this
    /// Envoy. Returns the lease that the server will be told of together with this, if there is one.
    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease>;

    /// Wants nothing of a resource any more, of which nothing is in use.
    fn give_back(&mut self, resource: &Arc<str>);
}

/// What there is of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    pub capacity: f64,
    pub end: Millis,
}

/// A bucket, and the resource that it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket<Id> {
    /// As the Envoy names it.
    pub id: Id,
    /// As the cluster does.
    pub resource: Arc<str>,
}

/// What an Envoy is told of one of its buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<Id> {
    pub bucket: Id,
    /// What it may let through, and for how many seconds; `None`: it is to forget the bucket.
    pub assignment: Option<(Quota, u32)>,
}

/// See the module.
#[derive(Debug)]
pub struct Envoy<Id> {
    settings: EnvoySettings,
    buckets: BTreeMap<Arc<str>, State<Id>>,
    /// Since when it has its stream, or had its last.
    since: Millis,
    /// When it last had a stream, if it has none now.
    left: Option<Millis>,
    /// It is not waited for when it has no stream.
    is_done: bool,
}

/// What is known of a bucket.
#[derive(Debug)]
struct State<Id> {
    id: Id,
    offered: Offered,
    beliefs: Beliefs,
    /// What was last told over this stream, and for how long it holds.
    told: Option<(Quota, Millis)>,
    /// Reported over this stream, and not given up since.
    subscribed: bool,
    /// It is to be told that the bucket was given up.
    abandoned: bool,
    /// Until then the Envoy may go by what another gateway has told it.
    elsewhere: Millis,
    heard: Millis,
    active: Millis,
}

/// A bucket that is not reported for so long is gone.
const SILENCE: Millis = Millis(REPORTS.0 * 3);

/// After a regular report an Envoy has no other stream for so long: the report was on its way for no longer than
/// [`TRANSIT`], and the Envoy opens streams with its next one.
pub const STAYS: Millis = Millis(REPORTS.0 - TRANSIT.0);

/// For how long after this report its Envoy is certainly here. One that only says that there is a new bucket may come
/// right before a regular one; it shows that the stream works, so the Envoy does not give that up at once.
pub fn stays<'u>(begins_stream: bool, mut usages: impl ExactSizeIterator<Item = &'u Usage>) -> Millis {
    let is_lone = usages.len() == 1 && usages.all(Usage::is_first);
    if begins_stream || !is_lone { STAYS } else { TRANSIT }
}

/// An Envoy that has lost its stream comes back with its next report.
const RETURN: Millis = Millis(REPORTS.0 + 2_000);

/// When a lease is too short for an assignment, how soon to look whether it has been renewed.
const RETRY_INTERVAL: Millis = Millis(500);

impl<Id: Clone> Envoy<Id> {
    /// One that has never been heard of.
    pub fn new(settings: EnvoySettings, now: Millis) -> Envoy<Id> {
        Envoy { settings, buckets: BTreeMap::new(), since: now, left: Some(now), is_done: false }
    }

    /// It has a stream, which knows of nothing that was told over another.
    pub fn connected(&mut self, now: Millis) {
        self.disconnected(now);
        (self.since, self.left) = (now, None);
    }

    /// Its stream was ended for good: nothing is kept for it any more when it believes in nothing.
    pub fn stopped(&mut self, now: Millis) {
        self.disconnected(now);
        self.is_done = true;
    }

    /// Its stream is gone.
    pub fn disconnected(&mut self, now: Millis) {
        self.left = Some(now);
        for state in self.buckets.values_mut() {
            (state.told, state.subscribed, state.abandoned) = (None, false, false);
            state.heard = now;
        }
    }

    /// It reports. Returns whether there was room for the bucket.
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
            // One that was given up has been forgotten; one of a new stream may have been.
            (state.subscribed, state.abandoned, state.told, state.active) = (true, false, None, now);
            // A bucket that the Envoy has just made goes by nothing.
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

    /// What it is to be told now, if its stream takes something: what is told must leave at once, for it counts from
    /// now. To be called when anything has happened, and at [`wake`](Self::wake).
    pub fn poll(&mut self, now: Millis, leases: &mut impl Leases, takes: bool) -> Vec<Action<Id>> {
        let (settings, is_done, takes) = (&self.settings, self.is_done, takes && self.left.is_none());
        let mut actions = Vec::new();
        self.buckets.retain(|resource, state| {
            state.give_up(now, settings, resource, leases);
            if takes {
                actions.extend(state.tell(now, settings, resource, leases));
            }
            let keeps = state.subscribed || now < state.leaves(is_done);
            if keeps {
                leases.hold(resource, state.in_use(now));
            } else {
                leases.give_back(resource);
            }
            keeps
        });
        actions
    }

    /// When to [`poll`](Self::poll) next at the latest.
    pub fn wake(&self, now: Millis) -> Option<Millis> {
        let next = self.buckets.values().map(|state| state.wake(now, &self.settings, self.is_done)).min();
        next.map(|at| at.max(now.plus(Millis(1))))
    }

    /// Whether it has no stream, and nothing is kept for it.
    pub fn is_gone(&self) -> bool {
        self.left.is_some() && self.buckets.is_empty()
    }

    /// Whether it has this bucket.
    pub fn knows(&self, resource: &str) -> bool {
        self.buckets.contains_key(resource)
    }

    /// Whether it may have another bucket.
    pub fn has_room(&self) -> bool {
        self.buckets.len() < self.settings.buckets
    }

    /// How many buckets it has.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// When nothing is believed any more that it was told.
    pub fn believes_until(&self) -> Millis {
        self.buckets.values().map(|state| state.beliefs.end()).max().unwrap_or_default()
    }
}

impl<Id: Clone> State<Id> {
    fn give_up(&mut self, now: Millis, settings: &EnvoySettings, resource: &Arc<str>, leases: &mut impl Leases) {
        if self.subscribed && (now >= self.active.plus(settings.idle) || now >= self.heard.plus(SILENCE)) {
            (self.subscribed, self.abandoned, self.told) = (false, true, None);
            leases.want(resource, 0.0);
        }
    }

    fn tell(
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
                // A smaller lease that came just now may be confirmed with what was said to be in use before.
                lease = self.hold(now, resource, leases)?;
            }
            if quota == Quota::Nothing || (lease.capacity >= quota.rate() && lease.end >= until.plus(TRANSIT)) {
                self.told = Some((quota, until));
                return Some(Action { bucket: self.id.clone(), assignment: Some((quota, secs)) });
            }
        }
    }

    /// What the cluster must assume in use. What another gateway has told the Envoy is not known here, but the cluster
    /// holds at least that for it.
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

    /// What it should be told because of a lease, if that is not what it was told.
    fn due(&self, now: Millis, settings: &EnvoySettings, lease: Lease) -> Option<(Quota, u32)> {
        let quota = Quota::of(lease.capacity);
        if quota == Quota::Nothing && now < self.elsewhere {
            // What another gateway has assigned counts for this Envoy anyway: it may use it up.
            return None;
        }
        let lasts = lease.end.since(now.plus(TRANSIT)).0 / 1000;
        let secs = match quota {
            // Nothing needs no lease.
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

    /// When it is given back at the earliest, once it is not subscribed.
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
        // What there was nothing or not enough of: a lease that is only renewed is no news to the caller.
        let extends = self.told.map_or(now, |(_, end)| settings.extends(end));
        let extends = if extends <= now { now.plus(RETRY_INTERVAL) } else { extends };
        falls.min(extends).min(self.active.plus(settings.idle)).min(self.heard.plus(SILENCE))
    }
}

impl EnvoySettings {
    /// When an assignment that ends then is made longer.
    fn extends(&self, end: Millis) -> Millis {
        Millis(end.0.saturating_sub(u64::from(self.assignment_secs) * 500))
    }

    /// For how long after it was told something may be believed.
    pub fn longest_belief(&self) -> Millis {
        Millis::from_secs(self.assignment_secs.into()).plus(TRANSIT)
    }
}
