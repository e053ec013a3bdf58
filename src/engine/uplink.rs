//! The uplink of a child node, as a machine: when the parent is asked and about which resources, what it is told of
//! those below, which of its answers counts, and what is given back.
//!
//! It owns the [`Session`] with the parent, whose demand is what a node's holders want together. What a node tells has
//! to fit the lease it confirms: what is outstanding below is the truth for as long as the supply is the one that the
//! resource had when it was condensed. So resources are condensed right before a request, in two runs: the first names
//! them ([`UplinkEffects::condense`]), the second takes what they say ([`UplinkInput::Condensed`]) and sends. One that
//! says nothing is left for later, and one that has forgotten its supply (a new incarnation of a resource) makes the
//! uplink forget the lease too (rule 7).
//!
//! It belongs to one reign of one master; the next begins anew.

mod aggregate;
mod messages;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leaseway_client::session::{Mode, Outgoing, Pace, Session, Settings};
use leaseway_core::{Amount, Condensed, Millis, Supply};

pub use self::{
    aggregate::Aggregate,
    messages::{Granted, Lent, Notice, ParentReply, UplinkEffects, UplinkInput},
};

#[derive(Debug)]
pub struct UplinkEngine {
    session: Session<Condensed>,
    /// The newest supply of each resource.
    supplied: BTreeMap<Arc<str>, u64>,
    editions: u64,
    /// Pools: what the parent has been told of use.
    spent: BTreeMap<Arc<str>, Spent>,
}

/// Units that those below have used of a resource, since it came to life.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// As the last request said it.
    told: f64,
    /// As the request said it whose answer brought the newest lease: it need not be told again.
    counted: f64,
}

/// A resource that could not be condensed is asked about so much later.
const LATER: Millis = Millis(100);
/// As the servers have it.
const RESOURCES_PER_REQUEST: usize = 1000;

impl UplinkEngine {
    /// How a node asks its parent, at one of `endpoints`. It has no time to lose: those below it live by its leases.
    pub fn settings(endpoints: Vec<Arc<str>>, seed: u64) -> Settings {
        // What is due within a second is asked for together, so that resources of one refresh interval stay together.
        let pace = Pace { backoff_max: Millis::from_secs(5), ahead: Millis::from_secs(1), ..Pace::default() };
        Settings { endpoints, pace, resources_per_request: RESOURCES_PER_REQUEST, seed }
    }

    /// One that asks for nothing yet.
    pub fn new(settings: Settings) -> UplinkEngine {
        let session = Session::new(settings);
        UplinkEngine { session, supplied: BTreeMap::new(), editions: 0, spent: BTreeMap::new() }
    }

    /// Takes what has happened since the last run, in this order, and says what is to be done.
    pub fn run(&mut self, now: Millis, inputs: impl IntoIterator<Item = UplinkInput>) -> UplinkEffects {
        let (mut lent, mut send, mut condensed) = (Vec::new(), None, false);
        for input in inputs {
            match input {
                UplinkInput::Notice(Notice::Asks(id)) => self.want(now, &id),
                UplinkInput::Notice(Notice::Retired(id)) => self.release(&id),
                UplinkInput::Hinted(Some(ids)) => ids.iter().for_each(|id| self.session.hint(now, id)),
                UplinkInput::Hinted(None) => self.session.hint_all(now),
                UplinkInput::Ended { number, reply } => lent.extend(self.ended(now, number, reply)),
                UplinkInput::Condensed(says) => {
                    send = self.send(now, says);
                    condensed = true;
                }
            }
        }
        let due = self.due(now);
        UplinkEffects {
            lent,
            condense: due.filter(|_| !condensed),
            send,
            under_way: self.session.in_flight(),
            wake: self.session.wake(now),
            parent: Arc::clone(self.session.target()),
            failures: self.session.failures(),
            resources: self.session.resources(),
        }
    }

    fn want(&mut self, now: Millis, id: &Arc<str>) {
        if !self.session.want(now, id, Condensed::default(), Mode::Pessimistic) {
            self.session.hint(now, id);
        }
    }

    fn release(&mut self, id: &str) {
        self.supplied.remove(id);
        self.spent.remove(id);
        self.session.release(id);
    }

    /// What is to be condensed, if something is to be sent now; nothing, if something is given back.
    fn due(&mut self, now: Millis) -> Option<Vec<Arc<str>>> {
        self.session.expire_request(now);
        self.session.is_due(now).then(|| self.session.due_resources(now))
    }

    /// What to send, if anything.
    fn send(&mut self, now: Millis, says: Vec<(Arc<str>, Condensed)>) -> Option<Outgoing<Aggregate>> {
        let due = self.due(now).unwrap_or_default();
        let mut said = BTreeSet::new();
        for (id, mut condensed) in says {
            if due.binary_search(&id).is_err() {
                continue;
            }
            if condensed.edition != self.supplied.get(&id).copied().unwrap_or_default() {
                self.supplied.remove(&id);
                self.spent.remove(&id);
                self.session.forget(&id);
            }
            if let Some(usage) = &mut condensed.usage {
                let spent = self.spent.entry(Arc::clone(&id)).or_default();
                spent.told = usage.spent;
                usage.spent = (usage.spent - spent.counted).max(0.0);
            }
            self.session.want(now, &id, condensed, Mode::Pessimistic);
            said.insert(id);
        }
        self.put_off_all_but(&said, now);
        self.session.poll(now).map(aggregate::outgoing)
    }

    /// A resource that has said nothing is left for later, and so is one that would be asked for in its stead.
    fn put_off_all_but(&mut self, said: &BTreeSet<Arc<str>>, now: Millis) {
        loop {
            let mut silent = self.session.due_resources(now);
            silent.retain(|id| !said.contains(id));
            if silent.is_empty() {
                return;
            }
            for id in silent {
                self.session.postpone(&id, now.plus(LATER));
            }
        }
    }

    /// What a request has brought.
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

    /// What a resource may give out because of that, unless the session has not taken it.
    fn lend(&mut self, now: Millis, Granted { given, terms, settings }: Granted) -> Option<Lent> {
        let id = given.id;
        let lease = self.session.lease(now, &id)?;
        if lease.wire != given.wire || lease.token != given.token {
            return None;
        }
        self.editions += 1;
        self.supplied.insert(Arc::clone(&id), self.editions);
        if let Some(spent) = self.spent.get_mut(&id) {
            spent.counted = spent.told;
        }
        let (capacity, until) = (Amount::clamped(lease.capacity.get()), lease.end);
        let supply = Supply { capacity, until, terms, edition: self.editions };
        Some(Lent { id, supply, settings: settings.of_child() })
    }

    /// What a fault makes of the uplink of a former reign: what it was lent is used again by the next (rule 7).
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
