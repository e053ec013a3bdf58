//! Doorman's fault 10: its FAIR_SHARE stops after two redistributions, and so grants too much here and too little
//! there.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, capacity, node_request},
    server::Server,
};

/// Refreshes after which all have what they are due: one to want, one to shrink, one to confirm, one to take.
const ROUNDS: usize = 4;

/// What clients that want so much end up with, one after the other.
fn settled(server: &Server, resource: &str, wants: &[f64]) -> Vec<f64> {
    let mut clients: Vec<_> = (0..wants.len()).map(|n| server.client(&format!("client {n}"))).collect();
    let mut granted = vec![0.0; wants.len()];
    for _ in 0..ROUNDS {
        for ((client, wants), granted) in clients.iter_mut().zip(wants).zip(&mut granted) {
            *granted = client.ask(resource, *wants);
            assert!(*granted <= *wants, "{granted} to one that wants {wants}");
        }
        assert!(granted.iter().sum::<f64>() <= 120.0, "{granted:?}");
    }
    granted
}

fn server(kind: &str) -> Server {
    Server::with_config(&ConfigFile::of(&[Template { kind, ..Template::fair("*", 120.0) }]))
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64]) {
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
    assert!(near && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[test]
fn doorman_fault_10_fair_share_leaves_capacity_unused_when_there_are_many_levels_of_demand() {
    let server = server("FAIR_SHARE");
    assert_near(&settled(&server, "a", &[1000.0, 50.0, 10.0]), &[60.0, 50.0, 10.0]);
    assert_near(&settled(&server, "b", &[5.0, 15.0, 30.0, 50.0, 1000.0]), &[5.0, 15.0, 30.0, 35.0, 35.0]);
    // Each redistribution satisfies one more; the level is only found after seven.
    let wants = [1.0, 4.0, 8.0, 13.0, 17.0, 19.5, 20.0, 300.0, 300.0];
    assert_near(&settled(&server, "c", &wants), &[1.0, 4.0, 8.0, 13.0, 17.0, 19.25, 19.25, 19.25, 19.25]);
}

#[test]
fn doorman_fault_10_fair_share_grants_more_than_is_wanted() {
    let server = server("FAIR_SHARE");
    assert_near(&settled(&server, "a", &[0.0, 0.5, 3.0]), &[0.0, 0.5, 3.0]);
    assert_near(&settled(&server, "b", &[120.0, 1e-9]), &[120.0 - 1e-9, 1e-9]);
    // More than there is, by less than a float can tell.
    assert_near(&settled(&server, "c", &[0.1, 119.9]), &[0.1, 119.9]);
}

#[test]
fn doorman_fault_10_fair_share_is_not_fair_to_nodes_with_many_clients() {
    let server = server("FAIR_SHARE");
    let doorman = server.doorman();
    let mut client = server.client("alone");
    let mut lease = None;
    let mut granted = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let mut request = node_request("node of three", "mysql", &[(3, 300.0)]);
        request.resource[0].has = lease;
        let answer = doorman.get_server(request).unwrap();
        lease = answer.response[0].gets;
        granted = (capacity(lease), client.ask("mysql", 100.0));
        assert!(granted.0 + granted.1 <= 120.0, "{granted:?}");
    }
    assert_eq!(granted, (90.0, 30.0), "thirty for each of four");
}

#[test]
fn proportional_share_tops_up_what_is_above_the_equal_share() {
    let server = server("PROPORTIONAL_SHARE");
    assert_near(&settled(&server, "fits", &[70.0, 50.0]), &[70.0, 50.0]);
    // Forty each; what the third leaves goes to the others as 960 to 10.
    let extra = 30.0 / 970.0;
    let expected = [40.0 + 960.0 * extra, 40.0 + 10.0 * extra, 10.0];
    assert_near(&settled(&server, "a", &[1000.0, 50.0, 10.0]), &expected);
}
