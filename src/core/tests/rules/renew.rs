//! A request whose wants could not be read refreshes what is known, and makes nothing up.

use super::*;

fn renew(server: &mut Server, ask: Ask) -> Answer {
    one(&mut server.resource, now_at(server.now), Request::Renew(ask))
}

#[test]
fn one_that_is_known_goes_on_as_it_was() {
    let mut server = Server::new(fair(100.0));
    assert_eq!(server.asks("a", 40.0), 40.0);
    server.pass(16_000);
    let unread = server.request("a", 0.0);
    assert_eq!(granted(renew(&mut server, unread)).capacity.get(), 40.0);
    assert_eq!(server.report("a").wants.get(), 40.0);
    server.pass(59_000);
    assert_eq!(server.held(), 40.0, "it is refreshed");
}

#[test]
fn all_that_it_says_of_its_leases_is_heard() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 100.0);
    server.asks("b", 100.0);
    server.pass(16_000);
    assert_eq!(server.asks("a", 100.0), 50.0);
    assert_eq!(server.held(), 100.0);
    server.pass(16_000);
    let unread = server.request("a", 0.0);
    assert_eq!(granted(renew(&mut server, unread)).capacity.get(), 50.0);
    assert_eq!(server.held(), 50.0, "it knows that it was cut");
}

#[test]
fn a_node_is_known_by_all_its_bands() {
    let mut server = Server::new(fair(100.0));
    let bands = [slice(2, 30.0, 0), slice(1, 20.0, 3)];
    server.node_asks("n", &bands);
    server.pass(16_000);
    let unread = server.node_request("n", &[slice(1, 0.0, 0)]);
    assert_eq!(granted(renew(&mut server, unread)).capacity.get(), 50.0);
    assert_eq!(server.report("n").subclients, 3);
}

#[test]
fn of_one_that_is_not_known_only_a_lease_that_lives_says_anything() {
    let learning = Birth { learning_until: Millis(30_000), ..birth(fair(100.0)) };
    let mut server = Server::born(learning);
    let has = |left: i64| {
        let expiry_time = now_at(Millis(0)).unix + left;
        Some(Has { token: Token::new(17), capacity: Amount::clamped(40.0), expiry_time })
    };
    assert_eq!(renew(&mut server, ask("a", 0.0, None)), Answer::Unknown);
    assert_eq!(renew(&mut server, ask("a", 40.0, has(-1))), Answer::Unknown);
    assert_eq!(server.resource.holders(), 0, "nothing is made up");
    assert_eq!(granted(renew(&mut server, ask("a", 40.0, has(50)))).capacity.get(), 40.0);
    assert_eq!(server.report("a").wants.get(), 40.0, "what it goes by");
}
