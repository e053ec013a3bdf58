//! Admission: which clients get a place.

use serde_json::Value;

use super::*;

/// The table of LES: in a full pool a newcomer is admitted if its balance plus the bias is less than the largest
/// balance of the connected clients, and displaces that client.
#[test]
fn admission_follows_the_les_vectors() {
    let vectors: Value = serde_json::from_str(include_str!("../data/les.json")).expect("valid JSON");
    let cases = vectors["admission"]["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 5);
    for case in cases {
        let bias = case["bias"].to_string();
        let capacity = case["connected"].as_array().expect("balances").len() as f64;
        // Time has no cost here, so balances consist of usage only.
        let parameters = [
            ("connected_bias_s", &*bias),
            ("time_factor", "0"),
            ("negative_tc_s", "31536000"),
            ("request_factor", "1"),
        ];
        let mut server = PoolServer::new(capacity, &parameters);
        let newcomer = case["newcomer"].as_f64().expect("a balance");
        if newcomer > 0.0 {
            server.reports("new", 1.0, 0.0, 0.0);
            server.reports("new", 0.0, 0.0, newcomer);
            server.asks("new", 0.0);
        }
        for (n, balance) in case["connected"].as_array().expect("balances").iter().enumerate() {
            let id = format!("c{n}");
            server.reports(&id, 1.0, 0.0, 0.0);
            server.reports(&id, 1.0, 0.0, balance.as_f64().expect("a balance"));
        }
        server.asks("new", 1.0);
        assert_eq!(server.due("new") > 0.0, case["admitted"].as_bool().expect("a truth"), "{case}");
        for n in 0..capacity as usize {
            let kicked = case["kicked_index"].as_u64() == Some(n as u64);
            assert_eq!(server.due(&format!("c{n}")) == 0.0, kicked, "{case}: {n}");
        }
    }
}

#[test]
fn largest_balance_is_displaced_first() {
    let mut server = PoolServer::new(3.0, &[]);
    for (id, cost) in [("a", 0.0), ("b", 50.0), ("c", 10.0)] {
        server.reports(id, 1.0, 0.0, 0.0);
        server.reports(id, 1.0, 0.0, cost);
    }
    server.assign("p", 2.0).expect("fits");
    server.asks("p", 2.0);
    assert_eq!([server.due("a"), server.due("b"), server.due("c"), server.due("p")], [1.0, 0.0, 0.0, 2.0]);
}

#[test]
fn repeated_report_is_charged_once() {
    let mut server = PoolServer::new(3.0, &[]);
    server.reports("a", 1.0, 0.5, 0.0);
    let usage = |cost| Usage { recharging: 0.5, request_cost: Amount::clamped(cost), interval: None };
    let with = |server: &PoolServer, cost| {
        let pool_fields = Some(Box::new(PoolFields { key: None, usage: Some(usage(cost)) }));
        Ask { pool_fields, ..server.request("a", 1.0) }
    };
    let first = with(&server, 10.0);
    // The answer is lost. The client retries, and has used more in the meantime.
    one(&mut server.resource, now_at(server.now), Request::Ask(first.clone()));
    one(&mut server.resource, now_at(server.now), Request::Ask(first));
    let again = with(&server, 12.0);
    server.send(again);
    let page = server.resource.pool_members(PoolFilter::Connected, None, 10);
    assert_eq!(page.members[0].request_cost, 12.0);
}

#[test]
fn balance_belongs_to_the_address() {
    let mut server = PoolServer::new(1.0, &[("connected_bias_s", "0")]);
    let from = |server: &PoolServer, id: &str, address: &str| {
        let pool_fields = Some(Box::new(PoolFields { key: Some(address.into()), usage: None }));
        Ask { pool_fields, ..server.request(id, 1.0) }
    };
    let first = from(&server, "first", "10.0.0.1");
    assert_eq!(server.send(first), 1.0);
    server.pass(30);
    server.release("first");
    let second = from(&server, "second", "10.0.0.1");
    assert_eq!(server.send(second), 1.0);
    let stranger = from(&server, "stranger", "10.0.0.2");
    assert_eq!(server.send(stranger), 0.0, "the displaced client must confirm first");
    assert_eq!((server.due("stranger"), server.due("second")), (1.0, 0.0));
}

#[test]
fn free_client_gets_min_capacity_or_nothing() {
    let mut server = PoolServer::new(10.0, &[("min_capacity", "3")]);
    let given = ["a", "b", "c", "d"].map(|id| server.asks(id, 100.0));
    assert_eq!(given, [3.0, 3.0, 3.0, 0.0], "the tenth unit is of no use to any client");
    assert_eq!(server.asks("e", 0.0), 0.0, "a client that wants nothing has no place");
    assert_eq!(server.asks("a", 0.0), 0.0);
    server.asks("a", 0.0);
    assert_eq!(server.asks("d", 0.1), 3.0, "less is useless");
}

#[test]
fn priority_needs_an_assignment() {
    let mut server = PoolServer::new(10.0, &[]);
    let claims = Claims::from_slice(&[Claim::of_client(Amount::clamped(8.0), 7)]);
    assert_eq!(server.send(Ask { claims, ..ask("a", 8.0, None) }), 1.0);
}

#[test]
fn capacity_is_bounded_by_assignment_and_wants() {
    let mut server = PoolServer::new(10.0, &[("min_capacity", "2")]);
    server.assign("p", 6.0).expect("fits");
    assert_eq!(server.asks("p", 100.0), 6.0);
    assert_eq!(server.asks("p", 4.0), 4.0);
    assert_eq!(server.asks("p", 1.0), 2.0, "less is useless");
    assert_eq!(server.asks("p", 0.0), 0.0);
}

#[test]
fn assigned_share_follows_the_total() {
    let mut server = PoolServer::new(10.0, &[]);
    server.assign_as("p", Assigned::Share(0.5)).expect("a part");
    server.assign_as("q", Assigned::Share(0.5)).expect("a part");
    assert_eq!((server.asks("p", 9.0), server.asks("q", 9.0)), (5.0, 5.0));
    server.event_kinds();
    server.capacity(6.0);
    assert_eq!((server.due("p"), server.due("q")), (3.0, 3.0), "both shrink, the manager need not choose");
    assert_eq!(server.event_kinds(), [PoolEventKind::Total]);
    for _ in 0..2 {
        server.pass(5);
        server.asks("p", 9.0);
        server.asks("q", 9.0);
    }
    server.capacity(20.0);
    server.pass(5);
    assert_eq!((server.asks("p", 99.0), server.asks("q", 99.0)), (10.0, 10.0));
}

#[test]
fn one_request_moves_a_bounded_number_of_members() {
    let mut server = PoolServer::new(1000.0, &[]);
    for n in 0..1000 {
        server.asks(&format!("c{n}"), 1.0);
    }
    let mut settings = server.resource.settings().clone();
    settings.capacity = Amount::clamped(100.0);
    server.resource.configure(settings);
    server.asks("c0", 1.0);
    let revoking = server.report().revoking;
    assert!((1..200).contains(&revoking), "{revoking} in one request");
    server.tick();
    assert!(server.report().revoking >= 899, "a tick does more");
    assert_eq!(server.resource.sums().held.get(), 1000.0, "all keep what they have until they ask");
}

#[test]
fn freed_capacity_is_granted_once_in_a_round() {
    let mut server = PoolServer::new(2.0, &[]);
    server.asks("a", 1.0);
    server.asks("b", 1.0);
    for id in ["p", "q"] {
        server.assign(id, 1.0).expect("fits");
        assert_eq!(server.asks(id, 1.0), 0.0);
    }
    server.release("a");
    let mut requests = ["p", "q"].map(|id| Request::Ask(server.request(id, 1.0))).to_vec();
    let mut answers = Vec::new();
    server.resource.round(now_at(server.now), &mut requests, &mut answers, &mut RoundScratch::default());
    let given: Vec<f64> = answers.iter().map(|answer| answer.lease().expect("a lease").capacity.get()).collect();
    assert_eq!(given, [1.0, 0.0]);
    assert_eq!(server.resource.sums().held.get(), 2.0);
}

#[test]
fn smaller_assignment_overtakes_one_that_does_not_fit() {
    let mut server = PoolServer::new(10.0, &[]);
    for (id, capacity) in [("a", 8.0), ("b", 6.0), ("c", 3.0)] {
        server.assign(id, capacity).expect("none is connected");
        server.asks(id, capacity);
    }
    assert_eq!((server.due("b"), server.due("c")), (0.0, 0.0));
    server.asks("a", 6.0);
    assert_eq!((server.due("b"), server.due("c")), (0.0, 3.0), "b came first, but 4 are of no use to it");
}

#[test]
fn pending_client_yields_to_a_higher_priority() {
    let mut server = PoolServer::new(10.0, &[]);
    for n in 0..10 {
        server.asks(&format!("c{n}"), 1.0);
    }
    let comes = |server: &mut PoolServer, id: &str, capacity: f64, priority: i64| {
        server.assign(id, capacity).expect("it is not connected");
        let claims = Claims::from_slice(&[Claim::of_client(Amount::clamped(capacity), priority)]);
        let ask = Ask { claims, ..server.request(id, capacity) };
        assert_eq!(server.send(ask), 0.0, "free clients still hold the capacity");
    };
    comes(&mut server, "minor", 4.0, 2);
    comes(&mut server, "least", 3.0, 1);
    assert_eq!((server.due("minor"), server.due("least")), (4.0, 3.0));
    comes(&mut server, "huge", 10.5, 9);
    comes(&mut server, "equal", 5.0, 1);
    assert_eq!((server.due("minor"), server.due("least")), (4.0, 3.0), "neither yields");
    comes(&mut server, "major", 6.0, 5);
    assert_eq!(
        ["major", "minor", "least", "equal"].map(|id| server.due(id)),
        [6.0, 4.0, 0.0, 0.0],
        "no more than it takes"
    );
    comes(&mut server, "chief", 9.0, 7);
    assert_eq!(["chief", "major", "minor"].map(|id| server.due(id)), [9.0, 0.0, 0.0]);
    for n in 0..20 {
        // The first request receives the smaller lease, the second confirms it.
        server.asks(&format!("c{}", n % 10), 1.0);
    }
    comes_in(&mut server, "chief", 9.0, 7);
    comes(&mut server, "crown", 8.0, 8);
    assert_eq!((server.due("chief"), server.due("crown")), (9.0, 0.0), "a connected client keeps its capacity");
}

fn comes_in(server: &mut PoolServer, id: &str, capacity: f64, priority: i64) {
    let claims = Claims::from_slice(&[Claim::of_client(Amount::clamped(capacity), priority)]);
    assert_eq!(server.send(Ask { claims, ..server.request(id, capacity) }), capacity);
}

#[test]
fn waiting_client_learns_the_reason() {
    let mut server = PoolServer::new(1.0, &[]);
    server.asks("a", 1.0);
    server.asks("b", 1.0);
    server.assign("b", 0.0).expect("nothing is assigned to it");
    let request = Request::Ask(server.request("b", 1.0));
    let answer = one(&mut server.resource, now_at(server.now), request);
    let told = answer.lease().and_then(|lease| lease.pool).expect("it is a pool");
    assert_eq!(told.reason, Some(Cause::Full));
}
