//! What a holder may use once its lease has ended and the server is gone.

use super::*;

fn safe(server: &Server, id: &str) -> f64 {
    server.leases[id].safe_capacity
}

#[test]
fn it_is_what_the_template_says() {
    for (setting, expected) in [(SafeCapacity::Fixed(Amount::clamped(7.5)), 7.5), (SafeCapacity::Unlimited, -1.0)] {
        let mut settings = fair(100.0);
        settings.safe_capacity = setting;
        let mut server = Server::new(settings);
        server.asks("a", 10.0);
        assert_eq!(safe(&server, "a"), expected);
    }
}

#[test]
fn or_else_the_capacity_divided_by_all_clients_known_those_below_nodes_too() {
    let mut server = Server::new(fair(120.0));
    server.asks("a", 10.0);
    assert_eq!(safe(&server, "a"), 120.0, "the one who asks counts");
    server.node_asks("n", &[slice(3, 30.0, 0), slice(1, 5.0, 0)]);
    assert_eq!(safe(&server, "n"), 24.0);
    server.round(&[("b", 1.0), ("c", 1.0), ("d", 1.0)]);
    assert_eq!(safe(&server, "b"), 15.0, "all of a round count for each of it");
    server.release(HolderKind::Node, "n", None);
    server.pass(16_000);
    server.asks("a", 10.0);
    assert_eq!(safe(&server, "a"), 30.0);
}

#[test]
fn it_is_never_infinite_or_undefined() {
    let mut server = Server::new(fair(0.0));
    // A node without any clients.
    server.node_asks("n", &[]);
    assert_eq!(safe(&server, "n"), 0.0);
    let mut server = Server::new(fair(120.0));
    server.node_asks("n", &[]);
    assert_eq!(safe(&server, "n"), 120.0);
}
