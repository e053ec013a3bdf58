//! Trees of resources: a client of a leaf gets what a single server with all clients would give it.
//!
//! Groups of clients have a test of their own ([`groups`]).
//!
//! All requests and answers arrive; the random histories cover lost and delayed messages.

mod groups;

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    cases,
    harness::{ask, has, now_at, options},
};
use crate::{
    policy::{
        client_rules::ClientRule,
        settings::{AlgorithmKind, Priority, Settings},
    },
    resource::{
        Answer, Ask, Lease, Request, Resource, ResourceOptions, RoundScratch, invariant,
        report::holder_reports,
        supply::{DemandSummary, Source, Supply},
    },
    types::{Amount, Claim, Claims, HolderKind, Millis, Sum},
};

/// A client: its wants, its priority, and the newest lease that reached it.
struct TreeClient {
    id: String,
    wants: f64,
    priority: i16,
    lease: Option<Lease>,
}

/// A node of the tree.
struct Node {
    resource: Resource,
    id: Arc<str>,
    nodes: Vec<Node>,
    clients: Vec<TreeClient>,
    lease: Option<Lease>,
    versions: u64,
}

fn client_id(priority: i16, n: usize) -> String {
    format!("p{priority}-client-{n}")
}

/// Wants and priorities of clients, grouped by leaf and region.
type Demands = Vec<Vec<Vec<(f64, i16)>>>;

fn node(id: &str, settings: Settings, source: Source, nodes: Vec<Node>, clients: Vec<TreeClient>) -> Node {
    let resource = Resource::new(ResourceOptions { source, ..options(settings) });
    Node { resource, id: id.into(), nodes, clients, lease: None, versions: 0 }
}

impl Node {
    fn tree(settings: &Settings, demands: &Demands) -> Node {
        // The initial settings of a node do not matter, because its parent replaces them.
        let unknown = || Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        let clients = |demands: &[(f64, i16)]| {
            demands
                .iter()
                .enumerate()
                .map(|(n, (wants, priority))| TreeClient {
                    id: client_id(*priority, n),
                    wants: *wants,
                    priority: *priority,
                    lease: None,
                })
                .collect()
        };
        let leaf = |(n, demands): (usize, &Vec<(f64, i16)>)| {
            node(&format!("leaf-{n}"), unknown(), Source::Parent, Vec::new(), clients(demands))
        };
        let region = |(n, leaves): (usize, &Vec<Vec<(f64, i16)>>)| {
            let leaves = leaves.iter().enumerate().map(leaf).collect();
            node(&format!("region-{n}"), unknown(), Source::Parent, leaves, Vec::new())
        };
        node("root", settings.clone(), Source::Own, demands.iter().enumerate().map(region).collect(), Vec::new())
    }

    /// All clients and nodes refresh once, the leaves first.
    fn refresh(&mut self, now: Millis, protocol: Protocol) {
        for n in 0..self.clients.len() {
            let client = &self.clients[n];
            let claims = [Claim::new(Amount::clamped(client.wants), 1, client.priority)];
            let ask = ask(&client.id, 0.0, client.lease.as_ref().map(has));
            match self.answer(now, Ask { claims: claims[..].into(), ..ask }) {
                Answer::Granted(lease) => self.clients[n].lease = Some(lease),
                Answer::NotYet => {}
                other => panic!("{other:?}"),
            }
        }
        for n in 0..self.nodes.len() {
            self.nodes[n].refresh(now, protocol);
            let child = &mut self.nodes[n];
            let DemandSummary { mut claims, groups, outstanding, learning, .. } = child.resource.summarize(now);
            if protocol == Protocol::Sums {
                claims = sum(&claims);
            }
            let ask = ask(&child.id, 0.0, child.lease.as_ref().map(has));
            let ask = Ask { kind: HolderKind::Node, claims, groups, outstanding: Some(outstanding), learning, ..ask };
            let answer = self.answer(now, ask);
            self.nodes[n].take(now, answer, protocol);
        }
    }

    fn answer(&mut self, now: Millis, ask: Ask) -> Answer {
        let before = self.resource.sums().held;
        let news = ask.outstanding.unwrap_or_default();
        let mut answers = Vec::new();
        self.resource.round(now_at(now), &mut vec![Request::Ask(ask)], &mut answers, &mut RoundScratch::default());
        let mut most = before;
        most += news;
        invariant::held_within_capacity(&self.resource, most).expect("never over");
        answers.remove(0)
    }

    fn take(&mut self, now: Millis, answer: Answer, protocol: Protocol) {
        let supplied = match answer {
            Answer::Supplied(supplied) => *supplied,
            Answer::NotYet => return,
            other => panic!("{other:?}"),
        };
        self.versions += 1;
        self.lease = Some(supplied.lease);
        self.resource.configure(supplied.settings.of_child());
        let supply = Supply {
            capacity: supplied.lease.capacity,
            until: now.plus(supplied.lease.length),
            terms: if protocol == Protocol::Ours { supplied.terms } else { Vec::new() },
            groups: supplied.groups,
            version: self.versions,
            period: None,
        };
        self.resource.supply(now, supply);
    }

    fn clients_mut(&mut self) -> Vec<&mut TreeClient> {
        let below = self.nodes.iter_mut().flat_map(Node::clients_mut);
        below.collect::<Vec<_>>().into_iter().chain(&mut self.clients).collect()
    }

    fn granted(&self) -> Vec<f64> {
        let own = self.clients.iter().map(|client| client.lease.map_or(0.0, |lease| lease.capacity.get()));
        self.nodes.iter().flat_map(Node::granted).chain(own).collect()
    }
}

/// The protocol between child nodes and their parents.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Protocol {
    Ours,
    WithoutTerms,
    /// Neither terms nor slices: the number of clients and their total wants only.
    Sums,
}

fn sum(claims: &[Claim]) -> Claims {
    let wants = claims.iter().map(|claim| claim.wants).collect::<Sum>().floor();
    let subclients = claims.iter().map(|claim| claim.subclients).sum();
    claims.first().map(|claim| Claim { wants, subclients, ..*claim }).into_iter().collect()
}

/// The leases that a single server with all clients grants.
fn flat(settings: &Settings, wants: &[(f64, i16)]) -> Vec<f64> {
    let mut resource = Resource::new(options(settings.clone()));
    let ask = |(n, (wants, priority)): (usize, &(f64, i16))| {
        let claims = [Claim::new(Amount::clamped(*wants), 1, *priority)];
        Request::Ask(Ask { claims: claims[..].into(), ..ask(&client_id(*priority, n), 0.0, None) })
    };
    resource.round(
        now_at(Millis(0)),
        &mut wants.iter().enumerate().map(ask).collect(),
        &mut Vec::new(),
        &mut RoundScratch::default(),
    );
    let mut holders = holder_reports(&resource, Millis(0), 0, usize::MAX).0;
    let number = |id: &str| id.rsplit('-').next().and_then(|number| number.parse::<usize>().ok()).expect("a number");
    holders.sort_by_key(|holder| number(&holder.id));
    holders.iter().map(|holder| holder.due.get()).collect()
}

struct Tree {
    root: Node,
    settings: Settings,
    now: Millis,
    protocol: Protocol,
}

impl Tree {
    fn new(settings: Settings, demands: &Demands) -> Tree {
        Tree { root: Node::tree(&settings, demands), settings, now: Millis(0), protocol: Protocol::Ours }
    }

    fn refresh(&mut self, times: usize) {
        for _ in 0..times {
            self.now = self.now.plus(Millis(8_000));
            self.root.refresh(self.now, self.protocol);
        }
    }

    /// The largest deviation of any client, relative to its due, or to an equal share if that is larger.
    fn error(&mut self) -> f64 {
        let wants: Vec<(f64, i16)> =
            self.root.clients_mut().iter().map(|client| (client.wants, client.priority)).collect();
        let granted = self.root.granted();
        let least = self.settings.capacity.get() / wants.len() as f64 * 1e-3;
        let apart = |(fair, has): (f64, &f64)| (fair - has).abs() / fair.max(least);
        flat(&self.settings, &wants).into_iter().zip(&granted).map(apart).fold(0.0, f64::max)
    }
}

/// The priority mode and the reserve.
type Order = (Priority, f64);

const IGNORED: Order = (Priority::Ignore, 0.0);

const ORDERS: [Order; 4] = [IGNORED, (Priority::Strict, 0.0), (Priority::Strict, 0.3), (Priority::Weighted, 0.0)];

fn settings(kind: AlgorithmKind, (priority, reserve): Order, capacity: f64) -> Settings {
    let settings = Settings::new(kind, Amount::clamped(capacity));
    Settings { priority, reserve, min_request_interval: Millis(0), ..settings }
}

/// Three regions: one greedy client, 500 small clients, and a long tail.
fn lopsided(priority: impl Fn(usize) -> i16) -> Demands {
    let mut state = 1u64;
    let mut unit = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let mut some = |clients: usize, wants: fn(f64) -> f64| -> Vec<(f64, i16)> {
        (0..clients).map(|n| (wants(unit()), priority(n))).collect()
    };
    vec![
        vec![some(1, |_| 5_000.0)],
        vec![some(250, |unit| 2.0 * unit), some(250, |unit| unit)],
        vec![some(100, |unit| unit.powf(-1.0 / 1.1)), some(100, |unit| 5.0 * unit.powf(-1.0 / 1.1))],
    ]
}

/// A cut must be confirmed at each of three levels before others get that capacity.
const SETTLED: usize = 12;

const SHARING: [AlgorithmKind; 2] = [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare];

fn wanted(demands: &Demands) -> f64 {
    demands.concat().concat().iter().map(|(wants, _)| wants).sum()
}

#[test]
fn clients_of_a_lopsided_tree_share_like_one_server() {
    for kind in SHARING {
        for order in ORDERS {
            let demands = lopsided(|n| (n % 3) as i16);
            for part in [0.02, 0.1, 0.25, 0.5, 0.8, 0.99, 1.5] {
                let mut tree = Tree::new(settings(kind, order, wanted(&demands) * part), &demands);
                tree.refresh(SETTLED);
                let error = tree.error();
                assert!(error <= 0.01, "{kind:?}, {order:?}, capacity is {part} of the wants: off by {error}");
            }
        }
    }
}

/// Exact equality: a client that wants 7 whole units could use only 6 of 6.999999999999999.
#[test]
fn clients_of_a_tree_get_their_wants_if_capacity_suffices() {
    for kind in SHARING {
        let mut demands = lopsided(|n| (n % 3) as i16);
        demands.iter_mut().flatten().for_each(|clients| clients.push((7.0, 0)));
        let mut tree = Tree::new(settings(kind, IGNORED, wanted(&demands) * 1.5), &demands);
        tree.refresh(SETTLED);
        let wants: Vec<f64> = demands.concat().concat().iter().map(|(wants, _)| *wants).collect();
        assert_eq!(tree.root.granted(), wants, "{kind:?}");
    }
}

/// Weights, minimums and maximums of clients reach across nodes.
#[test]
fn client_rules_apply_across_the_tree() {
    for kind in SHARING {
        for order in [IGNORED, (Priority::Strict, 0.0), (Priority::Weighted, 0.0)] {
            let demands = lopsided(|n| (n % 3) as i16);
            for part in [0.1, 0.25, 0.5, 0.8] {
                let mut settings = settings(kind, order, wanted(&demands) * part);
                for rule in ["3 0 - p0-*", "1 0.4 5 p1-*", "2 0.2 - p2-*"] {
                    assert!(settings.clients.push(ClientRule::read(rule).expect("a rule")));
                }
                let mut tree = Tree::new(settings, &demands);
                tree.refresh(SETTLED);
                let error = tree.error();
                assert!(error <= 0.02, "{kind:?}, {order:?}, capacity is {part} of the wants: off by {error}");
            }
        }
    }
}

/// Without slices and terms, clients of different nodes get different shares.
#[test]
fn without_slices_and_terms_a_tree_does_not_share_like_one_server() {
    let demands = lopsided(|_| 0);
    let worst = |kind, protocol| {
        let errors = [0.1, 0.25, 0.5].map(|part| {
            let mut tree = Tree::new(settings(kind, IGNORED, wanted(&demands) * part), &demands);
            tree.protocol = protocol;
            tree.refresh(SETTLED);
            tree.error()
        });
        errors.into_iter().fold(0.0, f64::max)
    };
    for kind in SHARING {
        let (ours, sums) = (worst(kind, Protocol::Ours), worst(kind, Protocol::Sums));
        assert!(ours <= 0.01 && sums > 0.5, "{kind:?}: off by {ours}, and by {sums} with sums alone");
    }
    assert!(
        worst(AlgorithmKind::ProportionalShare, Protocol::WithoutTerms) > 0.1,
        "an equal share depends on the whole tree"
    );
    let level = worst(AlgorithmKind::FairShare, Protocol::WithoutTerms);
    assert!(level <= 0.01, "the level follows from the lease alone, off by {level}");
}

fn demands() -> impl Strategy<Value = Demands> {
    let wants = prop_oneof![4 => 0.0..100.0, 1 => Just(0.0), 1 => 0.0..5_000.0, 2 => (1..4u32).prop_map(f64::from)];
    let leaf = proptest::collection::vec((wants, -1..3i16), 0..20);
    let region = proptest::collection::vec(leaf, 0..4);
    proptest::collection::vec(region, 1..4)
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn clients_of_any_tree_share_like_one_server(
        // Which clients a full pool admits depends on their costs at each node.
        kind in proptest::sample::select(AlgorithmKind::ALL.into_iter().take(4).collect::<Vec<_>>()),
        order in proptest::sample::select(ORDERS.to_vec()),
        demands in demands(),
        part in 0.0..1.2f64,
        jumps in proptest::collection::vec(prop_oneof![Just(1.0), 0.0..20.0f64], 1..40),
    ) {
        let capacity = if kind == AlgorithmKind::Static { 30.0 } else { wanted(&demands) * part };
        let mut tree = Tree::new(settings(kind, order, capacity), &demands);
        tree.refresh(6);
        for (client, jump) in tree.root.clients_mut().into_iter().zip(jumps.iter().cycle()) {
            client.wants *= jump;
        }
        tree.refresh(SETTLED);
        let error = tree.error();
        prop_assert!(error <= 0.01, "off by {}", error);
    }
}
