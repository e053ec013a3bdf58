//! The rules of the lease protocol, one test each.
//!
//! The random histories of [`super::histories`] check that all invariants hold. These tests show each rule alone, so a
//! broken rule fails with its name instead of a seed.

mod explain;
mod fairness;
mod forecast;
mod hints;
mod leases;
mod nodes;
pub(super) mod overrides;
mod rounds;

use std::collections::BTreeMap;

use super::harness::{ask, has, now_at, one, options};
use crate::{
    allocation::division::Terms,
    lease::holder::ShownLease,
    policy::settings::{AlgorithmKind, Priority, Reuse, SafeCapacity, Settings},
    resource::{
        Answer, Ask, Counters, HolderReport, Lease, Release, Request, Resource, ResourceOptions, RoundScratch,
        invariant,
        report::holder_reports,
        supply::{Source, Supply},
    },
    types::{Amount, Claim, Claims, HolderKind, Millis, Token},
};

/// A resource, and the newest lease that has reached each holder.
struct Server {
    resource: Resource,
    now: Millis,
    leases: BTreeMap<String, Lease>,
}

fn fair(capacity: f64) -> Settings {
    Settings { refresh: Millis(16_000), ..Settings::new(AlgorithmKind::FairShare, Amount::clamped(capacity)) }
}

fn slice(subclients: u32, wants: f64, priority: i16) -> Claim {
    Claim::new(Amount::clamped(wants), subclients, priority)
}

fn granted(answer: Answer) -> Lease {
    match answer {
        Answer::Granted(lease) => lease,
        Answer::Supplied(supplied) => supplied.lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

impl Server {
    fn new(settings: Settings) -> Server {
        Server::with_options(options(settings))
    }

    /// A node whose parent has not lent anything yet.
    fn below(settings: Settings) -> Server {
        Server::with_options(ResourceOptions { source: Source::Parent, ..options(settings) })
    }

    fn with_options(options: ResourceOptions) -> Server {
        Server { resource: Resource::new(options), now: Millis(0), leases: BTreeMap::new() }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Millis(ms));
    }

    /// The request that `id` would send now, with the newest lease that reached it.
    fn request(&self, id: &str, wants: f64) -> Ask {
        ask(id, wants, self.leases.get(id).map(has))
    }

    /// The request of a node of that name.
    fn node_request(&self, id: &str, slices: &[Claim]) -> Ask {
        Ask { kind: HolderKind::Node, claims: Claims::from_slice(slices), ..self.request(id, 0.0) }
    }

    /// A round of one request whose answer is lost.
    fn send(&mut self, ask: Ask) -> Answer {
        let before = self.resource.sums().held;
        let news = ask.understands_terms();
        let answer = one(&mut self.resource, now_at(self.now), Request::Ask(ask));
        if !news {
            invariant::held_within_capacity(&self.resource, before).expect("never over");
        }
        answer
    }

    /// A round of several requests, whose answers are lost.
    fn send_all<const N: usize>(&mut self, asks: [Ask; N]) -> [Answer; N] {
        let mut answers = Vec::new();
        self.resource.round(
            now_at(self.now),
            &mut asks.into_iter().map(Request::Ask).collect(),
            &mut answers,
            &mut RoundScratch::default(),
        );
        answers.try_into().expect("an answer for each")
    }

    /// A request whose answer arrives.
    fn deliver(&mut self, ask: Ask) -> f64 {
        let id = ask.id.to_string();
        let lease = granted(self.send(ask));
        self.leases.insert(id, lease);
        lease.capacity.get()
    }

    fn asks(&mut self, id: &str, wants: f64) -> f64 {
        self.deliver(self.request(id, wants))
    }

    fn node_asks(&mut self, id: &str, slices: &[Claim]) -> f64 {
        self.deliver(self.node_request(id, slices))
    }

    /// A round of several requests whose answers arrive.
    fn round(&mut self, requests: &[(&str, f64)]) -> Vec<f64> {
        let asks: Vec<Ask> = requests.iter().map(|(id, wants)| self.request(id, *wants)).collect();
        let mut answers = Vec::new();
        self.resource.round(
            now_at(self.now),
            &mut asks.into_iter().map(Request::Ask).collect(),
            &mut answers,
            &mut RoundScratch::default(),
        );
        let leases: Vec<Lease> = answers.into_iter().map(granted).collect();
        for ((id, _), lease) in requests.iter().zip(&leases) {
            self.leases.insert((*id).to_owned(), *lease);
        }
        leases.iter().map(|lease| lease.capacity.get()).collect()
    }

    fn release(&mut self, kind: HolderKind, id: &str, token: Option<Token>) {
        let release = Release { kind, id: id.into(), token, instance: None, spent: None };
        assert_eq!(one(&mut self.resource, now_at(self.now), Request::Release(release)), Answer::Released);
    }

    fn held(&self) -> f64 {
        self.resource.sums().held.get()
    }

    fn counters(&self) -> Counters {
        self.resource.counters()
    }

    fn report(&self, id: &str) -> HolderReport {
        let holders = holder_reports(&self.resource, self.now, 0, usize::MAX).0;
        holders.into_iter().find(|holder| *holder.id == *id).expect("a known holder")
    }

    fn change(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.resource.settings().clone();
        change(&mut settings);
        self.resource.configure(settings);
    }

    fn supply(&mut self, capacity: f64, until: Millis) {
        self.supply_with(capacity, until, Vec::new());
    }

    fn supply_with(&mut self, capacity: f64, until: Millis, terms: Vec<(i16, Terms)>) {
        let supply = Supply { capacity: Amount::clamped(capacity), until, terms, version: 1, ..Supply::default() };
        self.resource.supply(self.now, supply);
    }
}
