//! Whom nobody can give a hint is told to ask again sooner while others wait for it, or it for others.

use super::*;

/// Two that share, and one that comes and gets nothing yet.
fn with_a_newcomer(reuse: Reuse) -> Desk {
    let mut desk = Desk::new(Settings { reuse, ..fair(100.0) });
    desk.round(&[("a", 100.0), ("b", 100.0)]);
    desk.pass(16_000);
    assert_eq!(desk.asks("c", 100.0), 0.0);
    desk
}

fn refresh(desk: &Desk, id: &str) -> u64 {
    desk.leases[id].refresh.0
}

#[test]
fn one_that_was_cut_is_to_confirm_soon_and_then_as_usual() {
    let mut desk = with_a_newcomer(Reuse::Confirmed);
    desk.asks("a", 100.0);
    assert_eq!(refresh(&desk, "a"), 1_000);
    desk.pass(1_000);
    desk.asks("a", 100.0);
    assert_eq!(refresh(&desk, "a"), 16_000, "it has confirmed, and is not too soon");
    desk.pass(4_000);
    assert!(desk.asks("c", 100.0) > 16.0, "what it gave up is used");
}

#[test]
fn one_that_waits_asks_again_when_there_may_be_room() {
    for reuse in [Reuse::Confirmed, Reuse::Prompt] {
        let mut desk = with_a_newcomer(reuse);
        assert_eq!(refresh(&desk, "c"), 5_000);
        for _ in 0..2 {
            desk.pass(5_000);
            desk.round(&[("a", 100.0), ("b", 100.0), ("c", 100.0)]);
        }
        assert!((desk.leases["c"].capacity.get() - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(refresh(&desk, "c"), 16_000);
    }
}

#[test]
fn nobody_hurries_where_nobody_waits() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 80.0);
    desk.pass(16_000);
    desk.asks("a", 80.0);
    desk.pass(16_000);
    desk.asks("a", 10.0);
    assert_eq!(refresh(&desk, "a"), 16_000);
}

#[test]
fn one_that_never_says_what_it_has_would_hurry_in_vain() {
    let mut desk = Desk::new(fair(100.0));
    desk.deliver(ask("a", 100.0, None));
    desk.pass(16_000);
    desk.asks("b", 100.0);
    desk.deliver(ask("a", 100.0, None));
    assert_eq!((desk.leases["a"].capacity.get(), refresh(&desk, "a")), (50.0, 16_000));
}

#[test]
fn one_that_listens_for_hints_needs_no_haste() {
    let mut desk = with_a_newcomer(Reuse::Confirmed);
    for id in ["a", "c"] {
        desk.resource.watch(HolderKind::Client, id);
    }
    desk.asks("a", 100.0);
    desk.pass(5_000);
    desk.asks("c", 100.0);
    assert_eq!((refresh(&desk, "a"), refresh(&desk, "c")), (16_000, 16_000));
}

#[test]
fn a_cut_that_nobody_would_notice_is_confirmed_as_usual() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 1_000.0);
    desk.pass(16_000);
    desk.asks("a", 1_000.0);
    desk.asks("b", 0.1);
    desk.pass(16_000);
    desk.asks("a", 1_000.0);
    assert_eq!((desk.leases["a"].capacity.get(), refresh(&desk, "a")), (99.9, 16_000));
}
