use leaseway_proto::{
    admin::{ListPeersResponse, PeerReport, Role},
    status::{Health, Ineligible, LimitUse, Resource, Supply},
};

use super::*;

fn server(name: &str, is_master: bool) -> ServerObservation {
    let health = Health { unix_ms: 0, free_bytes: Some(1 << 40), ..Health::default() };
    let status = GetStatusResponse {
        version: "1".into(),
        server_id: name.into(),
        is_master,
        master_address: "a:1".into(),
        config_version: 3,
        health: Some(health),
        ..GetStatusResponse::default()
    };
    ServerObservation { address: format!("{name}:1"), answer: Ok(status), clock_ms: Some((5, 10)) }
}

fn peer(name: &str, role: Role) -> PeerReport {
    let (self_, lag) = (role == Role::Master, (role != Role::Unreachable).then_some(0));
    let grpc_address = format!("{name}:1");
    PeerReport { name: name.into(), role: role.into(), grpc_address, lag, self_, ..PeerReport::default() }
}

/// Three healthy peers.
fn node() -> NodeObservation {
    let peers = vec![peer("a", Role::Master), peer("b", Role::Follower), peer("c", Role::Follower)];
    let list = ListPeersResponse { name: "a".into(), master: "a".into(), peer: peers, ..ListPeersResponse::default() };
    let servers = vec![server("a", true), server("b", false), server("c", false)];
    NodeObservation { name: "root".into(), servers, peers: PeersObservation::Listed(list) }
}

fn status(node: &mut NodeObservation, at: usize) -> &mut GetStatusResponse {
    node.servers[at].answer.as_mut().expect("an answer")
}

fn health(node: &mut NodeObservation) -> &mut Health {
    status(node, 1).health.as_mut().expect("a health report")
}

fn list(node: &mut NodeObservation) -> &mut ListPeersResponse {
    let PeersObservation::Listed(list) = &mut node.peers else { panic!("a list") };
    list
}

fn kill(node: &mut NodeObservation, at: usize) {
    node.servers[at].answer = Err("connection refused".into());
    list(node).peer[at].role = Role::Unreachable.into();
}

#[test]
fn elections_of_the_last_hour_are_counted_and_many_are_a_warning() {
    for (elections, expected) in [
        (0, "ok: a is master"),
        (1, "ok: a is master, elected within the last hour"),
        (5, "ok: a is master; 5 elections in the last hour"),
        (6, "warn: a is master, but the master has changed 6 times in the last hour"),
    ] {
        let mut node = node();
        health(&mut node).elections_last_hour = elections;
        let checks = check(&Observation { nodes: vec![node], unix: 0 });
        let master = checks.iter().find(|check| check.subject == "master").expect("a check");
        assert_eq!(format!("{}: {}", master.severity.name(), master.message), expected);
    }
}

fn resource(change: impl FnOnce(&mut Resource)) -> Resource {
    let (resource_id, template) = ("r".into(), "*".into());
    let mut resource = Resource { resource_id, template, capacity: 100.0, held: 100.0, ..Resource::default() };
    change(&mut resource);
    resource
}

fn with_resource(change: impl FnOnce(&mut Resource)) -> impl FnOnce(&mut NodeObservation) {
    move |node| status(node, 0).resources.push(resource(change))
}

fn uplink(failures: u32, answered_ms: Option<u64>) -> Option<Uplink> {
    Some(Uplink { master: "p:1".into(), parent: vec!["p:1".into()], failures, answered_ms, ..Uplink::default() })
}

/// The faults of the node after a change.
fn found(change: impl FnOnce(&mut NodeObservation)) -> Vec<(Severity, &'static str, String)> {
    let mut node = node();
    change(&mut node);
    let observation = Observation { nodes: vec![node], unix: 1_000_000 };
    let faults = check(&observation).into_iter().filter(|check| check.severity > Severity::Ok);
    faults
        .map(|check| {
            assert!(!check.remedy.is_empty(), "advice is missing: {check:?}");
            (check.severity, check.subject, check.message)
        })
        .collect()
}

#[track_caller]
fn finds(severity: Severity, about: &str, part: &str, change: impl FnOnce(&mut NodeObservation)) {
    let all = found(change);
    let is_it = |(of, at, text): &(Severity, &str, String)| (*of, *at) == (severity, about) && text.contains(part);
    assert!(all.len() == 1 && all.iter().any(is_it), "{about}, {part}: {all:?}");
}

#[test]
fn a_healthy_node_has_a_result_for_each_check() {
    assert_eq!(found(|_| {}), []);
    let all = check(&Observation { nodes: vec![node()], unix: 0 });
    assert_eq!(all.len(), 12);
    assert!(all.iter().all(|check| !check.message.is_empty() && check.remedy.is_empty()), "{all:?}");
}

#[test]
fn faults_of_peers_are_found() {
    use Severity::{Bad, Warn};
    finds(Warn, "peers", "c is down or cut off (no contact): no other peer may fail", |node| kill(node, 2));
    finds(Warn, "peers", "c runs, but the master does not hear", |node| {
        list(node).peer[2].role = Role::Unreachable.into();
    });
    finds(Warn, "peers", "does not answer here at c:1", |node| node.servers[2].answer = Err("refused".into()));
    finds(Warn, "peers", "c is catching up", |node| list(node).peer[2].role = Role::Learner.into());
    finds(Warn, "peers", "c lags behind: it lacks 1001 entries", |node| list(node).peer[2].lag = Some(1001));
    finds(Bad, "peers", "c is ineligible: removed by an operator", |node| {
        let why = "removed by an operator".into();
        status(node, 2).ineligible = Some(Ineligible { reason: "removed".into(), why });
    });
    finds(Bad, "peers", "c has lost entries", |node| {
        for server in [0, 1] {
            status(node, server).losses.push("c has lost entries of the log".into());
        }
    });
    finds(Warn, "peers", "the peers are unknown: no token", |node| {
        node.peers = PeersObservation::Unknown("no token".into())
    });
}

#[test]
fn a_lost_quorum_is_bad() {
    let all = found(|node| {
        kill(node, 0);
        kill(node, 2);
        list(node).name = "b".into();
        list(node).master.clear();
        status(node, 1).master_address.clear();
        list(node).peer[0].self_ = false;
        list(node).peer[1].self_ = true;
    });
    let text = "there is no master, so no leases are granted: 1 of 3 peers answer";
    assert!(all.contains(&(Severity::Bad, "master", text.into())), "{all:?}");
    let down = all.iter().filter(|(severity, about, text)| {
        (*severity, *about) == (Severity::Bad, "peers") && text.contains("there is no quorum")
    });
    assert_eq!(down.count(), 2, "{all:?}");
}

#[test]
fn faults_of_configurations_and_versions_are_found() {
    use Severity::Warn;
    finds(Warn, "configuration", "b refused the newest configuration, so version 3 stays", |node| {
        status(node, 1).config_error = "1:1: no".into();
    });
    finds(Warn, "configuration", "3 (a, c), 2 (b)", |node| status(node, 1).config_version = 2);
    finds(Warn, "versions", "1 (a, b), 2 (c)", |node| status(node, 2).version = "2".into());
}

#[test]
fn faults_of_resources_and_parents_are_found() {
    use Severity::{Bad, Warn};
    let told = |change: fn(&mut Resource)| {
        move |node: &mut NodeObservation| {
            with_resource(change)(node);
            status(node, 0).resources_total = 1;
        }
    };
    assert_eq!(found(told(|_| {})), []);
    finds(Warn, "resources", "r (120 of 100 held) is over-committed", told(|resource| resource.held = 120.0));
    assert_eq!(found(told(|resource| (resource.held, resource.unbounded) = (120.0, true))), []);
    finds(Warn, "resources", "learning", told(|resource| resource.learning_ms = 1));
    finds(Warn, "resources", "no template matches", told(|resource| resource.template.clear()));
    let ended = |resource: &mut Resource| resource.supply = Some(Supply { version: 1, ..Supply::default() });
    finds(Bad, "resources", "the parent's lease has expired", told(ended));
    finds(Warn, "resources", "no lease yet", told(|resource| resource.supply = Some(Supply::default())));
    finds(Bad, "parent", "never answered", |node| status(node, 0).uplink = uplink(2, None));
    finds(Bad, "parent", "for 60 s", |node| status(node, 0).uplink = uplink(2, Some(60_000)));
    finds(Warn, "parent", "2 requests", |node| status(node, 0).uplink = uplink(2, Some(100)));
    assert_eq!(found(|node| status(node, 0).uplink = uplink(0, Some(60_000))), []);
    finds(Bad, "children", "two nodes are called east", |node| status(node, 0).names_taken.push("east".into()));
    let many = found(|node| {
        (0..5).for_each(|_| with_resource(|resource| resource.learning_ms = 1)(node));
        status(node, 0).resources_total = 5;
    });
    assert!(many[0].2.contains("and 2 more are learning"), "{many:?}");
}

#[test]
fn the_price_of_the_death_of_a_gateway_is_told() {
    let message = |change: fn(&mut Resource)| {
        let mut node = node();
        with_resource(change)(&mut node);
        let all = check(&Observation { nodes: vec![node], unix: 0 });
        all.into_iter().find(|check| check.subject == "gateways").expect("a result").message
    };
    assert_eq!(message(|_| {}), "none holds a lease");
    assert_eq!(message(|resource| resource.gateways = 2), "they hold leases of 1 resources");
    let told = message(|resource| {
        let holder = |id: &str, held, is_gateway| Holder {
            id: id.into(),
            held,
            is_gateway,
            remaining_ms: 57_100,
            ..Holder::default()
        };
        resource.gateways = 2;
        resource.holder = vec![holder("a", 20.0, true), holder("b", 40.0, true), holder("c", 90.0, false)];
    });
    assert_eq!(
        told,
        "if gateway b failed, 40 % of r would stay unused for up to 58 s; this is the largest share that a gateway holds of any of 1 resources"
    );
}

#[test]
fn faults_of_hosts_are_found() {
    use Severity::{Bad, Warn};
    finds(Warn, "clocks", "the clock of c is 2.0 s behind", |node| node.servers[2].clock_ms = Some((-2_000, 10)));
    assert_eq!(found(|node| node.servers[2].clock_ms = Some((-2_000, 1_500))), [], "within the uncertainty");
    for (left, expected) in [(-1, Some(Bad)), (3_600, Some(Bad)), (3 * 86_400, Some(Warn)), (90 * 86_400, None)] {
        let all = found(|node| health(node).certificate_ends_unix = Some(1_000_000 + left));
        assert_eq!(all.first().map(|(severity, ..)| *severity), expected, "{all:?}");
    }
    finds(Warn, "disks", "only 1 MiB are free for the data directory of b", |node| {
        health(node).free_bytes = Some(1 << 20)
    });
    finds(Warn, "disks", "the disk of b is slow: the slowest flush of the last minute took 101 ms", |node| {
        health(node).slowest_flush_ms = Some(101)
    });
    assert_eq!(found(|node| health(node).slowest_flush_ms = Some(100)), []);
    finds(Bad, "disks", "b cannot store", |node| health(node).data_error = "EIO".into());
    let limit =
        |used, soft| LimitUse { what: "resources".into(), flag: "--max-resources".into(), used, most: 10, soft };
    let (used, shown) = (|used| limit(used, false), |used| limit(used, true));
    finds(Warn, "limits", "b has 8 of 10 resources", |node| health(node).limit.push(used(8)));
    finds(Bad, "limits", "b has 10 of 10 resources", |node| health(node).limit.push(used(10)));
    finds(Warn, "limits", "b has 11 resources, but", |node| health(node).limit.push(shown(11)));
    assert_eq!(found(|node| health(node).limit.push(shown(10))), [], "within the limit");
}

#[test]
fn a_node_without_any_answer_has_one_fault() {
    finds(Severity::Bad, "servers", "a:1 (refused)", |node| {
        node.servers.truncate(1);
        node.servers[0].answer = Err("refused".into());
    });
}

#[test]
fn a_master_that_is_unreachable_from_here_is_not_missing() {
    finds(
        Severity::Warn,
        "master",
        "a:1 is the master according to other servers, but does not answer here (refused)",
        |node| {
            node.servers[0].answer = Err("refused".into());
            list(node).name = "b".into();
            list(node).peer[0].self_ = false;
            list(node).peer[1].self_ = true;
        },
    );
}

/// The faults that a server finds by itself.
fn self_check(is_master: bool, change: impl FnOnce(&mut GetStatusResponse, &mut ListPeersResponse)) -> Vec<Check> {
    let mut node = node();
    let mut own = list(&mut node).clone();
    let mut status = status(&mut node, if is_master { 0 } else { 1 }).clone();
    change(&mut status, &mut own);
    check_self(status, if is_master { PeersObservation::Listed(own) } else { PeersObservation::Elsewhere })
}

#[test]
fn a_server_checks_only_what_it_knows() {
    assert_eq!(self_check(true, |_, _| {}), []);
    assert_eq!(self_check(false, |_, _| {}), []);
    let below =
        self_check(false, |status, _| status.uplink = Some(Uplink { parent: vec!["p:1".into()], ..Uplink::default() }));
    assert_eq!(below, [], "only the master has an uplink");
    let headless = self_check(false, |status, _| status.master_address.clear());
    assert!(
        headless[0].severity == Severity::Bad && headless[0].message.contains("no master is known"),
        "{headless:?}"
    );
    let worst_first = self_check(true, |status, list| {
        list.peer[2].role = Role::Unreachable.into();
        status.health.as_mut().expect("a health report").data_error = "EIO".into();
    });
    let about: Vec<_> = worst_first.iter().map(|check| (check.severity, check.subject)).collect();
    assert_eq!(about, [(Severity::Bad, "disks"), (Severity::Warn, "peers")], "{worst_first:?}");
    assert!(worst_first[1].message.contains("c is down or cut off"), "{worst_first:?}");
}

#[test]
fn two_peers_are_a_warning() {
    let found = found(|node| {
        list(node).peer.pop();
        node.servers.pop();
    });
    let expected = "two peers: if one of them is down, no leases are granted";
    assert_eq!(found, [(Severity::Warn, "peers", expected.to_owned())]);
}
