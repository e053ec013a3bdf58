//! The uplink of a child node as a pure state machine: when to ask the parent, about which resources, and what its
//! answers lend.
//!
//! It is the [`Session`] of a client whose demand is what a node's holders want together. What a node tells has to fit
//! the lease it confirms: what is outstanding below is the truth for as long as the supply is the one that the resource
//! had when it was condensed. So resources are condensed right before a request, in two steps: [`Uplink::due`] names
//! them, and [`Uplink::poll`] takes what they say; one that could not say anything is left for later, and one that has
//! forgotten its supply (a new life of a resource) makes the uplink forget the lease too (rule 7).
//!
//! Deliberately absent: the wire, the clock, resources. An uplink belongs to one reign of one master; the next begins
//! anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leaseway_core::{Amount, Condensed, Millis, Supply, Terms};

use crate::{
    Mode,
    session::{Demand, Given, Outgoing, Session, Settings},
};

/// One resource of a parent's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    /// The lease.
    pub given: Given,
    /// What the parent divided by, for each priority; empty if it does not say.
    pub terms: Vec<(i16, Terms)>,
}

/// The state machine.
#[derive(Debug)]
pub struct Uplink {
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
    /// As the one said it whose answer brought the newest lease: it need not be told again.
    counted: f64,
}

/// A resource that could not be condensed is asked about so much later.
const LATER: Millis = Millis(100);

impl Demand for Condensed {
    /// Resources say themselves when their parent should hear of them early.
    fn is_urgent(&self, _: &Condensed) -> bool {
        false
    }

    fn amount(&self) -> f64 {
        self.claims.iter().map(|claim| claim.wants.get()).sum()
    }
}

impl Uplink {
    /// One that asks for nothing yet.
    pub fn new(settings: Settings) -> Uplink {
        Uplink { session: Session::new(settings), supplied: BTreeMap::new(), editions: 0, spent: BTreeMap::new() }
    }

    /// This resource has come to life, perhaps again: it is asked for at once.
    pub fn want(&mut self, now: Millis, id: &Arc<str>) {
        if !self.session.want(now, id, Condensed::default(), Mode::Pessimistic) {
            self.session.hint(now, id);
        }
    }

    /// It is needed no more.
    pub fn release(&mut self, id: &str) {
        self.supplied.remove(id);
        self.spent.remove(id);
        self.session.release(id);
    }

    /// Everything is given back.
    pub fn release_all(&mut self) {
        self.supplied.clear();
        self.spent.clear();
        self.session.release_all();
    }

    /// Asking for this now would change something: the parent says so, or the resource does.
    pub fn hint(&mut self, now: Millis, id: &str) {
        self.session.hint(now, id);
    }

    /// As [`hint`](Self::hint), for all of them.
    pub fn hint_all(&mut self, now: Millis) {
        self.session.hint_all(now);
    }

    /// What would be asked for now: to be condensed, and given to [`poll`](Self::poll).
    pub fn due(&mut self, now: Millis) -> Vec<Arc<str>> {
        self.session.give_up_late(now);
        if self.session.is_due(now) { self.session.chosen(now) } else { Vec::new() }
    }

    /// What to send now, if anything. `condensed` is what those that are [`due`](Self::due) say of themselves at this
    /// moment.
    pub fn poll(
        &mut self,
        now: Millis,
        condensed: impl IntoIterator<Item = (Arc<str>, Condensed)>,
    ) -> Option<Outgoing<Condensed>> {
        let due = self.due(now);
        let mut said = BTreeSet::new();
        for (id, mut condensed) in condensed {
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
        self.session.poll(now)
    }

    /// Whoever has said nothing is left for later, and so is whoever would be asked for in its stead.
    fn put_off_all_but(&mut self, said: &BTreeSet<Arc<str>>, now: Millis) {
        loop {
            let mut silent = self.session.chosen(now);
            silent.retain(|id| !said.contains(id));
            if silent.is_empty() {
                return;
            }
            for id in silent {
                self.session.put_off(&id, now.plus(LATER));
            }
        }
    }

    /// When [`due`](Self::due) should be called at the latest.
    pub fn wake(&self, now: Millis) -> Option<Millis> {
        self.session.wake(now)
    }

    /// The parent's master has answered request `number`. `None` if nobody waits for that any more; else what it has
    /// lent, to be given to the resources before they are condensed again.
    pub fn answered(&mut self, now: Millis, number: u64, granted: Vec<Granted>) -> Option<Vec<(Arc<str>, Supply)>> {
        let given = granted.iter().map(|granted| granted.given.clone()).collect();
        if !self.session.answered(now, number, given) {
            return None;
        }
        let supplies = granted.into_iter().filter_map(|granted| {
            let lease = self.session.lease(now, &granted.given.id)?;
            if lease.wire != granted.given.wire || lease.token != granted.given.token {
                return None;
            }
            self.editions += 1;
            let id = granted.given.id;
            self.supplied.insert(Arc::clone(&id), self.editions);
            if let Some(spent) = self.spent.get_mut(&id) {
                spent.counted = spent.told;
            }
            let (capacity, until) = (Amount::clamped(lease.capacity.get()), lease.end);
            Some((id, Supply { capacity, until, terms: granted.terms, edition: self.editions }))
        });
        Some(supplies.collect())
    }

    /// See [`Session::redirected`].
    pub fn redirected(&mut self, now: Millis, number: u64, master: Option<&str>) -> bool {
        self.session.redirected(now, number, master)
    }

    /// See [`Session::failed`].
    pub fn failed(&mut self, now: Millis, number: u64) -> bool {
        self.session.failed(now, number)
    }

    /// What a fault makes of the uplink of a former reign: what it was lent is used again by the next (rule 7).
    #[cfg(feature = "planted")]
    pub fn remembered(&self, now: Millis) -> Vec<(Arc<str>, Supply)> {
        use leaseway_core::planted::{Fault, is};
        let leases = self.supplied.keys().filter_map(|id| Some((id, self.session.lease(now, id)?)));
        let supply = |(id, lease): (&Arc<str>, crate::session::Lease)| {
            let capacity = Amount::clamped(lease.capacity.get());
            (Arc::clone(id), Supply { capacity, until: lease.end, ..Supply::default() })
        };
        leases.filter(|_| is(Fault::RemembersLease)).map(supply).collect()
    }

    /// The session with the parent, to look at.
    pub fn session(&self) -> &Session<Condensed> {
        &self.session
    }
}

#[cfg(test)]
mod tests;
