//! The uplink of a child node, as a machine without clock, I/O, task or lock: when the parent is asked and about which
//! resources, which of its answers counts, and what is given back.
//!
//! It owns the [`Session`] with the parent, whose demand is what the holders of the node want together. A report must
//! fit the lease that the request confirms: what is outstanding below is only true under the supply that the resource
//! had when it was summarized. So resources are summarized right before a request, in two runs. The first names them
//! ([`UplinkEffects::summarize`]), the second takes their summaries ([`UplinkInput::Summaries`]) and sends. A resource
//! that does not answer is asked about later. If a resource has forgotten its supply, because it is a new incarnation,
//! the uplink forgets the lease, too (rule 7).
//!
//! An uplink belongs to one term of one master. The next begins anew.

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
    messages::{Granted, Lent, Notice, ParentReply, UplinkEffects, UplinkInput},
};

#[derive(Debug)]
pub struct UplinkEngine {
    session: Session<DemandSummary>,
    /// The version of the newest supply of each resource.
    supplied: BTreeMap<Arc<str>, u64>,
    versions: u64,
    /// Pools: the usage reported to the parent.
    spent: BTreeMap<Arc<str>, Spent>,
}

/// Units of a resource that holders below have used since it was created.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// As the last request said.
    told: f64,
    /// As the request said whose answer brought the newest lease. It need not be told again.
    counted: f64,
}

/// A resource that did not answer is asked about this much later.
const RETRY_DELAY: Millis = Millis(100);
/// The default limit of servers.
const RESOURCES_PER_REQUEST: usize = 1000;

impl UplinkEngine {
    /// How a node asks its parent, at one of `endpoints`. Promptly, because those below live by its leases.
    pub fn settings(endpoints: Vec<Arc<str>>, seed: u64) -> Settings {
        // Resources that are due within a second are asked for together, so that those with the same refresh interval
        // stay together.
        let pace = Pace { backoff_max: Millis::from_secs(5), ahead: Millis::from_secs(1), ..Pace::default() };
        Settings { endpoints, pace, resources_per_request: RESOURCES_PER_REQUEST, seed }
    }

    /// An uplink that asks for nothing yet.
    pub fn new(settings: Settings) -> UplinkEngine {
        let session = Session::new(settings);
        UplinkEngine { session, supplied: BTreeMap::new(), versions: 0, spent: BTreeMap::new() }
    }

    /// Applies what has happened since the last run, in this order, and returns what to do.
    pub fn run(&mut self, now: Millis, inputs: impl IntoIterator<Item = UplinkInput>) -> UplinkEffects {
        let (mut lent, mut send, mut summarized) = (Vec::new(), None, false);
        for input in inputs {
            match input {
                UplinkInput::Notice(Notice::Asks(id)) => self.want(now, &id),
                UplinkInput::Notice(Notice::Retired(id)) => self.release(&id),
                UplinkInput::Hinted(Some(ids)) => ids.iter().for_each(|id| self.session.hint(now, id)),
                UplinkInput::Hinted(None) => self.session.hint_all(now),
                UplinkInput::Ended { number, reply } => lent.extend(self.ended(now, number, reply)),
                UplinkInput::Summaries(says) => {
                    send = self.send(now, says);
                    summarized = true;
                }
            }
        }
        let due = self.due(now);
        UplinkEffects {
            lent,
            summarize: due.filter(|_| !summarized),
            send,
            under_way: self.session.in_flight(),
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
        self.supplied.remove(id);
        self.spent.remove(id);
        self.session.release(id);
    }

    /// The resources to summarize, if something is to be sent now; empty if something is given back.
    fn due(&mut self, now: Millis) -> Option<Vec<Arc<str>>> {
        self.session.expire_request(now);
        self.session.is_due(now).then(|| self.session.due_resources(now))
    }

    /// The request to send, if one is due.
    fn send(&mut self, now: Millis, says: Vec<(Arc<str>, DemandSummary)>) -> Option<Outgoing<Aggregate>> {
        let due = self.due(now).unwrap_or_default();
        let mut said = BTreeSet::new();
        for (id, mut summary) in says {
            if due.binary_search(&id).is_err() {
                continue;
            }
            if summary.version != self.supplied.get(&id).copied().unwrap_or_default() {
                self.supplied.remove(&id);
                self.spent.remove(&id);
                self.session.forget(&id);
            }
            if let Some(usage) = &mut summary.usage {
                let spent = self.spent.entry(Arc::clone(&id)).or_default();
                spent.told = usage.spent;
                usage.spent = (usage.spent - spent.counted).max(0.0);
            }
            self.session.want(now, &id, summary, Mode::Pessimistic);
            said.insert(id);
        }
        self.put_off_all_but(&said, now);
        self.session.poll(now).map(aggregate::outgoing)
    }

    /// Puts off resources that did not answer, and those that would be asked for in their stead.
    fn put_off_all_but(&mut self, said: &BTreeSet<Arc<str>>, now: Millis) {
        loop {
            let mut silent = self.session.due_resources(now);
            silent.retain(|id| !said.contains(id));
            if silent.is_empty() {
                return;
            }
            for id in silent {
                self.session.postpone(&id, now.plus(RETRY_DELAY));
            }
        }
    }

    /// Applies the end of a request.
    fn ended(&mut self, now: Millis, number: u64, reply: ParentReply) -> Vec<Lent> {
        match reply {
            ParentReply::Granted(granted) => return self.answered(now, number, granted),
            ParentReply::Elsewhere(master) => _ = self.session.redirected(now, number, master.as_deref()),
            ParentReply::Failed => _ = self.session.failed(now, number),
        }
        Vec::new()
    }

    /// The parent's master has answered.
    fn answered(&mut self, now: Millis, number: u64, granted: Vec<Granted>) -> Vec<Lent> {
        let given = granted.iter().map(|granted| granted.given.clone()).collect();
        if !self.session.answered(now, number, given) {
            return Vec::new();
        }
        granted.into_iter().filter_map(|granted| self.lend(now, granted)).collect()
    }

    /// The supply of a resource, if the session accepted this lease.
    fn lend(&mut self, now: Millis, Granted { given, terms, settings }: Granted) -> Option<Lent> {
        let id = given.id;
        let lease = self.session.lease(now, &id)?;
        if lease.wire != given.wire || lease.token != given.token {
            return None;
        }
        self.versions += 1;
        self.supplied.insert(Arc::clone(&id), self.versions);
        if let Some(spent) = self.spent.get_mut(&id) {
            spent.counted = spent.told;
        }
        let (capacity, until) = (Amount::clamped(lease.capacity.get()), lease.end);
        let supply = Supply { capacity, until, terms, version: self.versions };
        Some(Lent { id, supply, settings: settings.of_child() })
    }

    /// What a planted fault keeps of the uplink of an earlier term: what it was lent is used again by the next (rule
    /// 7).
    #[cfg(feature = "planted")]
    pub fn remembered(&self, now: Millis) -> Vec<(Arc<str>, Supply)> {
        use leaseway_core::planted::{Fault, is};
        let leases = self.supplied.keys().filter_map(|id| Some((id, self.session.lease(now, id)?)));
        let supply = |(id, lease): (&Arc<str>, leaseway_client::session::Lease)| {
            let capacity = Amount::clamped(lease.capacity.get());
            (Arc::clone(id), Supply { capacity, until: lease.end, ..Supply::default() })
        };
        leases.filter(|_| is(Fault::RemembersLease)).map(supply).collect()
    }
}
