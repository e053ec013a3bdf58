//! A holder that receives no hints is told to ask again sooner while others wait for it, or it for others.

use super::*;

/// Two that share, and one that comes and gets nothing yet.
fn with_a_newcomer(reuse: Reuse) -> Server {
    let mut server = Server::new(Settings { reuse, ..fair(100.0) });
    server.round(&[("a", 100.0), ("b", 100.0)]);
    server.pass(16_000);
    assert_eq!(server.asks("c", 100.0), 0.0);
    server
}

fn refresh(server: &Server, id: &str) -> u64 {
    server.leases[id].refresh.0
}

#[test]
fn one_that_was_cut_is_to_confirm_soon_and_then_as_usual() {
    let mut server = with_a_newcomer(Reuse::Confirmed);
    server.asks("a", 100.0);
    assert_eq!(refresh(&server, "a"), 1_000);
    server.pass(1_000);
    server.asks("a", 100.0);
    assert_eq!(refresh(&server, "a"), 16_000, "it has confirmed, and is not too soon");
    server.pass(4_000);
    assert!(server.asks("c", 100.0) > 16.0, "what it gave up is used");
}

#[test]
fn one_that_waits_asks_again_when_there_may_be_room() {
    for reuse in [Reuse::Confirmed, Reuse::Prompt] {
        let mut server = with_a_newcomer(reuse);
        assert_eq!(refresh(&server, "c"), 5_000);
        for _ in 0..2 {
            server.pass(5_000);
            server.round(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        }
        assert!((server.leases["c"].capacity.get() - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(refresh(&server, "c"), 16_000);
    }
}

#[test]
fn nobody_hurries_where_nobody_waits() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 80.0);
    server.pass(16_000);
    server.asks("a", 80.0);
    server.pass(16_000);
    server.asks("a", 10.0);
    assert_eq!(refresh(&server, "a"), 16_000);
}

#[test]
fn one_that_never_says_what_it_has_would_hurry_in_vain() {
    let mut server = Server::new(fair(100.0));
    server.deliver(ask("a", 100.0, None));
    server.pass(16_000);
    server.asks("b", 100.0);
    server.deliver(ask("a", 100.0, None));
    assert_eq!((server.leases["a"].capacity.get(), refresh(&server, "a")), (50.0, 16_000));
}

#[test]
fn one_that_listens_for_hints_needs_no_haste() {
    let mut server = with_a_newcomer(Reuse::Confirmed);
    for id in ["a", "c"] {
        server.resource.watch(HolderKind::Client, id);
    }
    server.asks("a", 100.0);
    server.pass(5_000);
    server.asks("c", 100.0);
    assert_eq!((refresh(&server, "a"), refresh(&server, "c")), (16_000, 16_000));
}

#[test]
fn a_cut_that_nobody_would_notice_is_confirmed_as_usual() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 1_000.0);
    server.pass(16_000);
    server.asks("a", 1_000.0);
    server.asks("b", 0.1);
    server.pass(16_000);
    server.asks("a", 1_000.0);
    assert_eq!((server.leases["a"].capacity.get(), refresh(&server, "a")), (99.9, 16_000));
}
