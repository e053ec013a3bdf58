//! Library clients that record their usable capacity. Their sum must never exceed the resource's capacity, even during
//! server and network faults.

use std::{collections::HashMap, thread, time::Duration};

use leaseway_client::{Basis, Client, LeaseChange, LeaseTrace, Resource};

use super::wait::{eventually, runtime};

pub(crate) struct Crowd {
    book: LeaseTrace,
    clients: Vec<(Client, Resource)>,
    random: fastrand::Rng,
}

impl Crowd {
    /// All clients ask the same node.
    pub(crate) fn of(number: usize, endpoints: impl IntoIterator<Item = String>) -> Crowd {
        Crowd::among(number, &[endpoints.into_iter().collect()])
    }

    /// The clients ask these nodes in turn.
    pub(crate) fn among(number: usize, nodes: &[Vec<String>]) -> Crowd {
        let _inside = runtime().enter();
        let book = LeaseTrace::new();
        let mut random = fastrand::Rng::with_seed(1);
        let clients = (0..number).zip(nodes.iter().cycle()).map(|(n, endpoints)| {
            let builder = Client::builder().endpoints(endpoints.clone()).id(format!("client {n}")).lease_trace(&book);
            let patience = (Duration::from_millis(500), Duration::from_millis(300));
            let client = builder.deadline(patience.0).backoff_max(patience.1).build().unwrap();
            let resource = client.resource("r").wants(random.f64() * 20.0).open().unwrap();
            (client, resource)
        });
        Crowd { clients: clients.collect(), book, random: fastrand::Rng::with_seed(2) }
    }

    /// All clients keep changing their wants for a while.
    pub(crate) fn stir(&mut self, times: usize) {
        for _ in 0..times {
            let (_, resource) = self.random.choice(&self.clients).unwrap();
            resource.set_wants(self.random.f64() * 30.0).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_until_all_is_out(&self, capacity: f64) {
        eventually("all of it is out", || {
            let leases = self.clients.iter().map(|(_, resource)| resource.usable());
            let leases = leases.filter(|usable| usable.basis == Basis::Lease);
            let sum: f64 = leases.map(|usable| usable.capacity.get()).sum();
            (sum > capacity * 0.99).then_some(())
        });
    }

    pub(crate) fn assert_never_too_much(self, capacity: f64) {
        let entries = self.book.take();
        assert!(entries.len() > self.clients.len() * 3, "{} entries show little", entries.len());
        let peak = peak(entries);
        assert!(peak <= capacity * (1.0 + 1e-9), "{peak} of {capacity} could be used at once");
        assert!(peak > capacity * 0.9, "only {peak} of {capacity} was ever used");
    }
}

/// The largest sum at any time.
fn peak(mut entries: Vec<LeaseChange>) -> f64 {
    entries.sort_by_key(|entry| entry.at);
    let (mut usable, mut peak) = (HashMap::new(), 0.0f64);
    for entry in &entries {
        usable.insert(&entry.client, entry.capacity);
        peak = peak.max(usable.values().sum());
    }
    peak
}
