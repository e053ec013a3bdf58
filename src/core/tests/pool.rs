//! PRIORITY_POOL, one sentence each. What it is like to live with is told by the transcripts `pool_l01` to `pool_l12`; that it is
//! safe whatever happens, by [`histories`].

mod admission;
mod api;
mod events;
mod faults_of_old;
mod histories;
mod nodes;
mod overload;

use std::{collections::BTreeMap, sync::Arc};

use super::world::{ask, birth, has, now_at, one};
use crate::{
    Amount, Ask, AssignError, Assigned, Birth, Cause, Claim, Claims, HolderKind, Kind, Lease, Load, LoadError,
    LoadReport, Millis, NamedParameter, News, PoolEvent, PoolEventFilter, PoolEventKind, PoolFilter, PoolReport,
    PoolStanding, Release, Request, Resource, Settings, Source, Supply, Usage, invariant,
};

/// A pool, and its clients' own books.
struct Pond {
    resource: Resource,
    now: Millis,
    leases: BTreeMap<String, Lease>,
}

/// Settings of a pool, with parameters as they are written.
fn settings(capacity: f64, parameters: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::new(Kind::PriorityPool, Amount::clamped(capacity));
    settings.refresh = Millis::from_secs(5);
    settings.min_request_interval = Millis(0);
    for (name, value) in parameters {
        let parameter = NamedParameter { name: (*name).into(), value: Some((*value).into()) };
        settings.apply(&parameter).expect("a valid parameter");
    }
    settings.check().expect("parameters that go together");
    settings
}

impl Pond {
    fn new(capacity: f64, parameters: &[(&str, &str)]) -> Pond {
        Pond::born(birth(settings(capacity, parameters)))
    }

    fn born(birth: Birth) -> Pond {
        Pond { resource: Resource::new(birth), now: Millis(0), leases: BTreeMap::new() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus(Millis::from_secs(seconds));
    }

    fn request(&self, id: &str, wants: f64) -> Ask {
        ask(id, wants, self.leases.get(id).map(has))
    }

    fn send(&mut self, ask: Ask) -> f64 {
        let before = self.resource.sums().held;
        let id = ask.id.to_string();
        let answer = one(&mut self.resource, now_at(self.now), Request::Ask(ask));
        invariant::held_within_capacity(&self.resource, before).expect("never over");
        let lease = *answer.lease().expect("a lease");
        self.leases.insert(id, lease);
        lease.capacity.get()
    }

    fn asks(&mut self, id: &str, wants: f64) -> f64 {
        self.send(self.request(id, wants))
    }

    /// The same with a report: this part of its capacity was in use, and this is what it has cost.
    fn reports(&mut self, id: &str, wants: f64, recharging: f64, cost: f64) -> f64 {
        let usage = Usage { recharging, request_cost: Amount::clamped(cost), interval: None };
        let news = Some(Box::new(News { key: None, usage: Some(usage) }));
        self.send(Ask { news, ..self.request(id, wants) })
    }

    fn release(&mut self, id: &str) {
        let release = Release { kind: HolderKind::Client, id: id.into(), token: None };
        one(&mut self.resource, now_at(self.now), Request::Release(release));
        self.leases.remove(id);
    }

    fn assign(&mut self, id: &str, capacity: f64) -> Result<Option<Assigned>, AssignError> {
        self.assign_as(id, Assigned::Capacity(Amount::clamped(capacity)))
    }

    fn assign_as(&mut self, id: &str, assigned: Assigned) -> Result<Option<Assigned>, AssignError> {
        self.resource.assign(self.now, HolderKind::Client, &id.into(), Some(assigned))
    }

    fn tick(&mut self) {
        self.resource.tick(self.now);
    }

    fn capacity(&mut self, capacity: f64) {
        let mut settings = self.resource.settings().clone();
        settings.capacity = Amount::clamped(capacity);
        self.resource.configure(settings);
        self.tick();
    }

    fn pool(&self) -> PoolReport {
        self.resource.pool().expect("a pool")
    }

    fn due(&self, id: &str) -> f64 {
        let holders = self.resource.report_holders(self.now, 0, usize::MAX).0;
        holders.iter().find(|holder| *holder.id == *id).expect("a known holder").due.get()
    }

    fn events(&mut self) -> Vec<PoolEvent> {
        self.resource.take_pool_events()
    }

    /// The kinds of what has happened since the last call.
    fn happened(&mut self) -> Vec<PoolEventKind> {
        self.events().iter().map(|event| event.kind).collect()
    }

    fn list(&self, filter: PoolFilter) -> Vec<(String, f64)> {
        let page = self.resource.pool_members(filter, None, usize::MAX);
        page.members.iter().map(|member| (member.id.to_string(), member.capacity.get())).collect()
    }
}
