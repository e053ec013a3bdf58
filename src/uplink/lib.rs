//! The uplink of a child node: a state machine without clock, I/O, tasks or locks. It decides when to ask the parent
//! and for which resources, which answers count, and which leases to release.
//!
//! The uplink owns the [`Session`] with the parent. Its demand for a resource is the sum of the demands of the holders
//! below. A request reports this sum together with the lease that it confirms, and the two must match: capacity that is
//! outstanding below counts under the supply that the resource had when it was summarized. So resources are summarized
//! right before a request, in two runs. The first run names the resources ([`UplinkEffects::summarize`]). The second
//! run gets their summaries ([`UplinkInput::Summaries`]) and returns the request. A resource that does not answer is
//! left for a later request. A new incarnation of a resource does not know its supply; then the uplink drops the lease,
//! too (rule 7 of src/core/lease/protocol.md).
//!
//! An uplink belongs to one term of one master. The next term begins with a new uplink.

mod aggregate;
mod messages;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leaseway_client::session::{Mode, Outgoing, Pace, Session, Settings};
use leaseway_core::{
    resource::supply::{DemandSummary, Supply},
    types::{Amount, Millis},
};

pub use self::{
    aggregate::Aggregate,
    messages::{Granted, NewSupply, Notice, ParentReply, UplinkEffects, UplinkInput},
};

#[derive(Debug)]
pub struct UplinkEngine {
    session: Session<DemandSummary>,
    /// The version of the newest supply of each resource.
    supply_versions: BTreeMap<Arc<str>, u64>,
    last_version: u64,
    /// The usage of pools that was reported to the parent.
    reported: BTreeMap<Arc<str>, ReportedUsage>,
}

/// The units that holders below have used since the resource was created.
#[derive(Debug, Clone, Copy, Default)]
struct ReportedUsage {
    /// Usage in the last request.
    sent: f64,
    /// Usage in the request that obtained the newest lease. Later reports count from here.
    acknowledged: f64,
}

/// The delay until a resource that did not answer is summarized again.
const RETRY_DELAY: Millis = Millis(100);
/// The servers' default limit.
const RESOURCES_PER_REQUEST: usize = 1000;
/// The maximum number of slices in groups of clients in a request, over all resources but the first: less than 1 MB,
/// which is within the limits of a server for messages.
const GROUP_SLICES_PER_REQUEST: usize = 8_000;

impl UplinkEngine {
    /// The session settings of a node whose parent has these endpoints. Retries are fast, because all holders below
    /// depend on the leases of the node.
    pub fn settings(endpoints: Vec<Arc<str>>, seed: u64) -> Settings {
        // Resources that are due within a second share a request. So those with the same refresh interval stay in step.
        let pace = Pace { backoff_max: Millis::from_secs(5), ahead: Millis::from_secs(1), ..Pace::default() };
        Settings { endpoints, pace, resources_per_request: RESOURCES_PER_REQUEST, seed }
    }

    /// An uplink without resources.
    pub fn new(settings: Settings) -> UplinkEngine {
        let session = Session::new(settings);
        UplinkEngine { session, supply_versions: BTreeMap::new(), last_version: 0, reported: BTreeMap::new() }
    }

    /// Applies the inputs since the last run, in this order, and returns the actions.
    pub fn run(&mut self, now: Millis, inputs: impl IntoIterator<Item = UplinkInput>) -> UplinkEffects {
        let (mut supplies, mut send, mut summarized) = (Vec::new(), None, false);
        for input in inputs {
            match input {
                UplinkInput::Notice(Notice::AskSoon(id)) => self.want(now, &id),
                UplinkInput::Notice(Notice::Retired(id)) => self.release(&id),
                UplinkInput::Hinted(Some(ids)) => ids.iter().for_each(|id| self.session.hint(now, id)),
                UplinkInput::Hinted(None) => self.session.hint_all(now),
                UplinkInput::RequestEnded { number, reply } => supplies.extend(self.end_request(now, number, reply)),
                UplinkInput::Summaries(summaries) => {
                    send = self.send(now, summaries);
                    summarized = true;
                }
            }
        }
        let due = self.due(now);
        UplinkEffects {
            supplies,
            summarize: due.filter(|_| !summarized),
            send,
            in_flight: self.session.in_flight(),
            wake: self.session.wake(now),
            parent: Arc::clone(self.session.target()),
            failures: self.session.failures(),
            resources: self.session.resources(),
        }
    }

    fn want(&mut self, now: Millis, id: &Arc<str>) {
        if !self.session.want(now, id, DemandSummary::default(), Mode::Pessimistic) {
            self.session.hint(now, id);
        }
    }

    fn release(&mut self, id: &str) {
        self.supply_versions.remove(id);
        self.reported.remove(id);
        self.session.release(id);
    }

    /// The resources to summarize if a request is due. The list is empty if the request only releases leases.
    fn due(&mut self, now: Millis) -> Option<Vec<Arc<str>>> {
        self.session.expire_request(now);
        self.session.is_due(now).then(|| self.session.due_resources(now))
    }

    /// The request to send, if one is due.
    fn send(&mut self, now: Millis, summaries: Vec<(Arc<str>, DemandSummary)>) -> Option<Outgoing<Aggregate>> {
        let due = self.due(now).unwrap_or_default();
        let (mut answered, mut slices) = (BTreeSet::new(), 0);
        for (id, mut summary) in summaries {
            if due.binary_search(&id).is_err() {
                continue;
            }
            slices += summary.groups.iter().map(|group| 1 + group.claims.len()).sum::<usize>();
            if slices > GROUP_SLICES_PER_REQUEST && !answered.is_empty() {
                // Left for the next request.
                continue;
            }
            if summary.version != self.supply_versions.get(&id).copied().unwrap_or_default() {
                self.supply_versions.remove(&id);
                self.reported.remove(&id);
                self.session.forget(&id);
            }
            if let Some(usage) = &mut summary.usage {
                let reported = self.reported.entry(Arc::clone(&id)).or_default();
                reported.sent = usage.spent;
                usage.spent = (usage.spent - reported.acknowledged).max(0.0);
            }
            self.session.want(now, &id, summary, Mode::Pessimistic);
            answered.insert(id);
        }
        self.postpone_others(&answered, now);
        self.session.poll(now).map(aggregate::outgoing)
    }

    /// Postpones the due resources without a summary, and those that become due in their place.
    fn postpone_others(&mut self, answered: &BTreeSet<Arc<str>>, now: Millis) {
        loop {
            let mut others = self.session.due_resources(now);
            others.retain(|id| !answered.contains(id));
            if others.is_empty() {
                return;
            }
            for id in others {
                self.session.postpone(&id, now.plus(RETRY_DELAY));
            }
        }
    }

    fn end_request(&mut self, now: Millis, number: u64, reply: ParentReply) -> Vec<NewSupply> {
        match reply {
            ParentReply::Granted(granted) => return self.apply_answer(now, number, granted),
            ParentReply::Redirected(master) => _ = self.session.redirected(now, number, master.as_deref()),
            ParentReply::Failed => _ = self.session.failed(now, number),
        }
        Vec::new()
    }

    fn apply_answer(&mut self, now: Millis, number: u64, granted: Vec<Granted>) -> Vec<NewSupply> {
        let given = granted.iter().map(|granted| granted.given.clone()).collect();
        if !self.session.answered(now, number, given) {
            return Vec::new();
        }
        granted.into_iter().filter_map(|granted| self.new_supply(now, granted)).collect()
    }

    /// The supply of a resource, if the session accepted this lease.
    fn new_supply(&mut self, now: Millis, Granted { given, terms, groups, settings }: Granted) -> Option<NewSupply> {
        let id = given.id;
        let lease = self.session.lease(now, &id)?;
        if lease.wire != given.wire || lease.token != given.token {
            return None;
        }
        self.last_version += 1;
        self.supply_versions.insert(Arc::clone(&id), self.last_version);
        if let Some(reported) = self.reported.get_mut(&id) {
            reported.acknowledged = reported.sent;
        }
        let (capacity, until) = (Amount::clamped(lease.capacity.get()), lease.end);
        let period = lease.budget.map(|budget| budget.period);
        let supply = Supply { capacity, until, terms, groups, version: self.last_version, period };
        Some(NewSupply { id, supply, settings: settings.of_child() })
    }

    /// The supplies that a planted fault carries over to the next term, which breaks rule 7.
    #[cfg(feature = "planted")]
    pub fn carried_over(&self, now: Millis) -> Vec<(Arc<str>, Supply)> {
        use leaseway_core::planted::{Fault, is};
        let leases = self.supply_versions.keys().filter_map(|id| Some((id, self.session.lease(now, id)?)));
        let supply = |(id, lease): (&Arc<str>, leaseway_client::session::Lease)| {
            let capacity = Amount::clamped(lease.capacity.get());
            (Arc::clone(id), Supply { capacity, until: lease.end, ..Supply::default() })
        };
        leases.filter(|_| is(Fault::RemembersLease)).map(supply).collect()
    }
}
