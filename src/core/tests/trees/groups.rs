//! Groups in a tree: clients get what one server with all groups would give them, in exact fractions.

use super::*;
use crate::{
    allocation::groups::{
        GroupDemand, GroupReport,
        tests::{
            Case, DrawnRule, PATTERNS, case,
            oracle::{Client, exact, number},
            settings_with,
        },
    },
    policy::{
        groups::{GroupChange, GroupSettings, OTHER_GROUP},
        overrides::{OverrideValue, ResourceOverrides},
    },
    resource::report::{explain::explain, resource_report},
    tests::rules::overrides::set,
};

/// The nodes: the root, two regions and three leaves. Each has clients.
const NODES: usize = 6;

/// A tree with the clients of a case, each at the node of this number.
fn tree(case: &Case, nodes: &[usize]) -> Tree {
    let pattern = format!("{}/*", PATTERNS[case.levels - 1]);
    let settings = Settings { min_request_interval: Millis(0), ..settings_with(case, &pattern) };
    let clients = |node: usize| {
        let of_node = case.clients.iter().enumerate().filter(|(index, _)| nodes[*index] == node);
        of_node.map(|(index, client)| tree_client(index, client)).collect()
    };
    let unknown = || Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
    let below = |at: usize, nodes| node(&format!("node-{at}"), unknown(), Source::Parent, nodes, clients(at));
    let (one, other) = (below(1, vec![below(3, vec![]), below(4, vec![])]), below(2, vec![below(5, vec![])]));
    let root = node("root", settings.clone(), Source::Own, vec![one, other], clients(0));
    Tree { root, settings, now: Millis(0), protocol: Protocol::Ours }
}

fn tree_client(index: usize, client: &Client) -> TreeClient {
    // An id of the case that fits no pattern would fit one that ends in `/*`.
    let path = if client.id.split('/').count() > PATTERNS.len() { "other" } else { &client.id };
    let id = if path == "other" { format!("{path}-{index}") } else { format!("{path}/{index}") };
    TreeClient { id, wants: client.wants, priority: client.priority, lease: None }
}

fn place_of(client: &TreeClient) -> usize {
    client.id.rsplit(['/', '-']).next().and_then(|number| number.parse().ok()).expect("a number")
}

impl Tree {
    /// The leases of all clients, in the order of the case.
    fn leases(&mut self) -> Vec<f64> {
        let mut leases: Vec<(usize, f64)> = Vec::new();
        for client in self.root.clients_mut() {
            leases.push((place_of(client), client.lease.map_or(0.0, |lease| lease.capacity.get())));
        }
        leases.sort_by_key(|(index, _)| *index);
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

fn one_level(capacity: f64, groups: Vec<DrawnRule>, clients: Vec<(&str, f64)>) -> Case {
    let client = |(id, wants): (&str, f64)| Client { id: id.to_owned(), wants, priority: 0, rule: None };
    Case {
        kind: AlgorithmKind::FairShare,
        priority: Priority::Ignore,
        levels: 1,
        capacity,
        groups,
        clients: clients.into_iter().map(client).collect(),
        client_rules: Vec::new(),
    }
}

fn at_most(pattern: &str, max: f64) -> DrawnRule {
    DrawnRule { pattern: pattern.to_owned(), weight: 1, min: 0.0, max: Some(max), lends: true }
}

impl Tree {
    /// The clients of node 3 refresh, but no node asks its parent.
    fn refresh_leaf(&mut self, times: usize) {
        for _ in 0..times {
            self.now = self.now.plus(Millis(2_000));
            self.root.nodes[0].nodes[0].refresh(self.now, self.protocol);
        }
    }
}

/// The parent learns of it with the next report. Until then a maximum holds for the whole tree, so a group with one
/// gets nothing of what others leave.
#[test]
fn groups_without_a_maximum_use_what_others_leave_at_their_node() {
    for (rules, first, then) in [(vec![], 50.0, 90.0), (vec![at_most("a", 45.0)], 45.0, 45.0)] {
        let case = one_level(100.0, rules, vec![("a", 100.0), ("b", 100.0)]);
        let mut tree = tree(&case, &[3, 3]);
        tree.settle_down();
        assert!((tree.leases()[0] - first).abs() < 1e-6, "{:?}", tree.leases());
        tree.root.nodes[0].nodes[0].clients[1].wants = 10.0;
        tree.refresh_leaf(4);
        assert!((tree.leases()[0] - then).abs() < 1e-6, "{:?}", tree.leases());
        tree.settle_down();
        assert!((tree.leases()[0] - then).abs() < 1e-6, "{:?}", tree.leases());
    }
}

#[test]
fn a_report_has_a_bounded_number_of_groups_and_slices() {
    let names: Vec<String> = (0..1_200).map(|n| format!("team-{n}")).collect();
    let clients = names.iter().flat_map(|name| (0..8).map(|n| (name.as_str(), 1.0 + f64::from(n)))).collect();
    let case = one_level(6_000.0, Vec::new(), clients);
    let mut tree = tree(&case, &vec![3; case.clients.len()]);
    tree.refresh(8);
    let leaf = &mut tree.root.nodes[0].nodes[0].resource;
    let report = leaf.summarize(tree.now);
    let slices: usize = report.groups.iter().map(|group| group.claims.len()).sum();
    assert_eq!(report.groups.len(), GroupSettings::MAX_GROUPS_OF_CHILD + 1);
    assert!((3_000..=GroupSettings::MAX_GROUP_SLICES).contains(&slices), "{slices}");
    let other = report.groups.iter().find(|group| &*group.path == OTHER_GROUP).expect("the rest is one group");
    assert_eq!(other.claims.iter().map(|claim| claim.subclients).sum::<u32>(), 200 * 8);
    let wants: Sum = report.groups.iter().flat_map(|group| &group.claims).map(|claim| claim.wants).collect();
    assert!(wants.get() >= 1_200.0 * 36.0);
    let granted: f64 = tree.leases().iter().sum();
    assert!((granted - 6_000.0).abs() < 1.0, "{granted}");
}

/// Groups beyond the maximum, or with a path that fits no pattern, are in one group, with several claims of a node.
#[test]
fn several_groups_of_a_node_may_be_one_group_of_its_parent() {
    let case = one_level(60.0, Vec::new(), vec![("x", 0.0)]);
    let mut tree = tree(&case, &[0]);
    let demand = |path: &str, wants: &[f64]| GroupDemand {
        path: path.into(),
        claims: wants.iter().map(|wants| Claim::of_client(Amount::clamped(*wants), 0)).collect(),
        held: Amount::ZERO,
    };
    let mut asks = |groups: Vec<GroupDemand>| {
        tree.now = tree.now.plus(Millis(8_000));
        let now = tree.now;
        let ask = Ask { kind: HolderKind::Node, outstanding: Some(Amount::ZERO), groups, ..ask("child", 0.0, None) };
        let Answer::Supplied(supplied) = tree.root.answer(now, ask) else { panic!("a lease") };
        let parts = supplied.groups.iter().map(|part| (part.path.to_string(), part.capacity.get()));
        (parts.collect::<Vec<_>>(), resource_report(&tree.root.resource, now).groups)
    };
    let part = |path: &str, capacity: f64| (path.to_owned(), capacity);
    let (parts, groups) = asks(vec![
        demand("a/b", &[10.0, 20.0]),
        demand("a", &[100.0]),
        demand("c/d", &[20.0, 10.0]),
        demand("a", &[50.0, 1.0]),
        demand("", &[]),
    ]);
    // Both groups are due 30, (other) 7.5 for each client, and `a` 14.5 for each that wants more.
    assert_eq!(parts, [part("a/b", 15.0), part("a", 14.5), part("c/d", 15.0), part("a", 15.5)]);
    let wants = |groups: &[GroupReport]| groups.iter().map(|group| group.wants.get()).collect::<Vec<_>>();
    assert_eq!((&*groups[0].path, &*groups[1].path, wants(&groups)), ("a", OTHER_GROUP, vec![151.0, 60.0]));
    // Fewer claims in the first group move the others.
    let (_, groups) = asks(vec![
        demand("a/b", &[7.0]),
        demand("a", &[100.0]),
        demand("c/d", &[20.0, 10.0]),
        demand("a", &[50.0, 1.0]),
    ]);
    assert_eq!(wants(&groups), [151.0, 37.0]);
    let (parts, groups) = asks(Vec::new());
    assert_eq!((parts.len(), groups.len()), (0, 1), "a report without groups counts in (other)");
}

/// An override at the root binds the clients of a group at all nodes; its maximum is no more than that of a rule.
#[test]
fn an_override_at_the_root_binds_a_group_at_all_nodes() {
    let clients = vec![("a", 100.0), ("a", 100.0), ("b", 100.0), ("b", 100.0)];
    let case = one_level(100.0, Vec::new(), clients);
    let mut tree = tree(&case, &[3, 5, 4, 0]);
    tree.settle_down();
    let near = |tree: &mut Tree, expected: [f64; 4]| {
        let leases = tree.leases();
        let is_near = leases.iter().zip(&expected).all(|(lease, expected)| (lease - expected).abs() < 1e-4);
        assert!(is_near, "{leases:?}, expected {expected:?}");
    };
    near(&mut tree, [25.0; 4]);
    let change = GroupChange { maximum: Some(Amount::clamped(20.0)), ..GroupChange::default() };
    let groups = vec![set(Some("a"), OverrideValue::Group(change))];
    let now = tree.now;
    tree.root.resource.set_overrides(now, ResourceOverrides { capacity: None, groups: groups.clone() });
    // At a child node it has no effect: the root divides.
    tree.root.nodes[0].resource.set_overrides(now, ResourceOverrides { capacity: None, groups });
    tree.settle_down();
    near(&mut tree, [10.0, 10.0, 40.0, 40.0]);
    // What others leave at a leaf is not for a group with a maximum.
    let leaf = &mut tree.root.nodes[0].nodes[0];
    let said =
        explain(&leaf.resource, tree.now, HolderKind::Client, "a/0").expect("a known holder").sentences().join("\n");
    assert!(said.contains("its group a is due 20 of the 200") && said.contains("its maximum is 20"), "{said}");
    let said =
        explain(&tree.root.resource, tree.now, HolderKind::Node, "node-1").expect("a node").sentences().join("\n");
    assert!(said.contains("The group a has a maximum of 20 in place of none: ada has overridden"), "{said}");
    tree.root.resource.set_overrides(tree.now, ResourceOverrides::default());
    tree.settle_down();
    near(&mut tree, [25.0; 4]);
}
