//! Groups in a tree: clients get what one server with all groups would give them, in exact fractions.

use super::*;
use crate::allocation::groups::tests::{
    Case, PATTERNS, case,
    oracle::{Client, exact, number},
    settings_with,
};

/// The nodes: the root, two regions and three leaves. Each has clients.
const NODES: usize = 6;

/// A tree with the clients of a case, each at the node of this number.
fn tree(case: &Case, nodes: &[usize]) -> Tree {
    let pattern = format!("{}/*", PATTERNS[case.levels - 1]);
    let settings = Settings { min_request_interval: Millis(0), ..settings_with(case, &pattern) };
    let clients = |node: usize| {
        let of_node = case.clients.iter().enumerate().filter(|(place, _)| nodes[*place] == node);
        of_node.map(|(place, client)| tree_client(place, client)).collect()
    };
    let unknown = || Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    let below = |at: usize, nodes| node(&format!("node-{at}"), unknown(), Source::Parent, nodes, clients(at));
    let (one, other) = (below(1, vec![below(3, vec![]), below(4, vec![])]), below(2, vec![below(5, vec![])]));
    let root = node("root", settings.clone(), Source::Own, vec![one, other], clients(0));
    Tree { root, settings, now: Millis(0), protocol: Protocol::Ours }
}

fn tree_client(place: usize, client: &Client) -> TreeClient {
    // An id of the case that fits no pattern would fit one that ends in `/*`.
    let path = if client.id.split('/').count() > PATTERNS.len() { "other" } else { &client.id };
    let id = if path == "other" { format!("{path}-{place}") } else { format!("{path}/{place}") };
    TreeClient { id, wants: client.wants, priority: client.priority, lease: None }
}

fn place_of(client: &TreeClient) -> usize {
    client.id.rsplit(['/', '-']).next().and_then(|place| place.parse().ok()).expect("a place")
}

impl Tree {
    /// The leases of all clients, in the order of the case.
    fn leases(&mut self) -> Vec<f64> {
        let mut leases: Vec<(usize, f64)> = Vec::new();
        for client in self.root.clients_mut() {
            leases.push((place_of(client), client.lease.map_or(0.0, |lease| lease.capacity.get())));
        }
        leases.sort_by_key(|(place, _)| *place);
        leases.into_iter().map(|(_, lease)| lease).collect()
    }

    fn settle_down(&mut self) {
        self.refresh(2 * SETTLED);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Client rules follow from the ids of clients, so these cases have none.
    #[test]
    fn groups_of_a_tree_agree_with_exact_fractions(
        case in case(),
        nodes in proptest::collection::vec(0..NODES, 40),
        jumps in proptest::collection::vec(prop_oneof![Just(1.0), 0.0..4.0f64], 1..40),
    ) {
        let clients = case.clients.into_iter().map(|client| Client { rule: None, ..client }).collect();
        let mut case = Case { client_rules: Vec::new(), clients, ..case };
        let mut tree = tree(&case, &nodes);
        tree.refresh(4);
        for (client, jump) in case.clients.iter_mut().zip(jumps.iter().cycle()) {
            client.wants *= jump;
        }
        for client in tree.root.clients_mut() {
            client.wants = case.clients[place_of(client)].wants;
        }
        tree.settle_down();
        let leases = tree.leases();
        // Slices, leases and terms round a few times each. Settlement leaves the dust.
        let tolerance = case.capacity.max(1.0) * 1e-6;
        for ((lease, expected), client) in leases.iter().zip(&exact(&case)).zip(&case.clients) {
            let expected = number(expected);
            prop_assert!((lease - expected).abs() <= tolerance, "{client:?}: {lease}, expected {expected}");
        }
    }
}
