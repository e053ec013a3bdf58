//! With `shadow` all clients get what they want; what they would have got is reported.

use super::*;

fn shadow(capacity: f64) -> Settings {
    let mut settings = fair(capacity);
    settings.shadow = true;
    settings
}

#[test]
fn everybody_gets_what_they_want_and_what_they_would_have_got_is_shown() {
    let mut server = Server::new(shadow(100.0));
    assert_eq!(server.round(&[("a", 90.0), ("b", 30.0)]), [90.0, 30.0]);
    assert_eq!((server.report("a").due.get(), server.report("b").due.get()), (70.0, 30.0));
    assert_eq!((server.report("a").granted.get(), server.held()), (90.0, 120.0));
}

#[test]
fn it_is_never_learnt() {
    let server = Server::born(Birth { learning_until: Millis(30_000), ..birth(shadow(100.0)) });
    assert!(!server.resource.is_learning(server.now), "no client lacks what others were given");
}

#[test]
fn when_the_shadow_is_lifted_what_is_out_comes_back() {
    let mut server = Server::new(shadow(100.0));
    server.round(&[("a", 90.0), ("b", 30.0)]);
    server.change(|settings| settings.shadow = false);
    for _ in 0..3 {
        server.pass(16_000);
        server.asks("a", 90.0);
        server.asks("b", 30.0);
    }
    assert_eq!((server.leases["a"].capacity.get(), server.held()), (70.0, 100.0));
}

#[test]
fn below_a_parent_it_ends_where_the_lease_does() {
    let mut server = Server::below(shadow(0.0));
    server.supply(100.0, Millis(60_000));
    assert_eq!((server.asks("a", 90.0), server.asks("b", 30.0), server.held()), (90.0, 10.0, 100.0));
}
