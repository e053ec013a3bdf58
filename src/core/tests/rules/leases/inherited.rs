//! Inherited leases are claimed by their holders (rules E2 to E12, see [`crate::lease`]).

use super::*;
use crate::{
    lease::promises::Inherited,
    resource::{
        report::{
            explain::{Block, explain},
            holder_reports,
        },
        supply::Source,
    },
    types::Epoch,
};

const UNTIL: u64 = 90_000;

/// A new incarnation that inherits this total for 90 s, and the wants of its holders.
fn heir_of(settings: Settings, total: f64, wants: &[f64]) -> Server {
    let wants = wants.iter().map(|wants| Claim::of_client(Amount::clamped(*wants), 0)).collect();
    let total = Amount::clamped(total);
    let inherited = Inherited { total, wants, newest: Some(Epoch(7)), until: Millis(UNTIL), ..Inherited::default() };
    Server::with_options(ResourceOptions { inherited: Some(inherited), ..options(settings) })
}

fn heir(total: f64) -> Server {
    heir_of(fair(100.0), total, &[])
}

/// A lease of an earlier master, with this token.
fn former(number: u64, capacity: f64) -> ShownLease {
    ShownLease {
        token: Token::new(number),
        capacity: Amount::clamped(capacity),
        expiry_time: now_at(Millis(80_000)).unix,
    }
}

fn names(id: &str, wants: f64, number: u64, capacity: f64) -> Ask {
    ask(id, wants, Some(former(number, capacity)))
}

/// The request without the fields of the Leaseway protocol, or with echoed unknown fields.
fn plain(ask: Ask) -> Ask {
    Ask { drops_late: false, ..ask }
}

impl Server {
    pub(super) fn unclaimed(&self) -> f64 {
        self.resource.promises().expect("promises are kept").unclaimed.get()
    }

    fn free(&self) -> f64 {
        self.resource.settings().capacity.get() - self.held()
    }
}

#[test]
fn inherited_total_is_held_and_the_rest_is_free() {
    let mut server = heir(70.0);
    assert_eq!((server.held(), server.unclaimed(), server.resource.holders()), (70.0, 70.0, 0));
    assert_eq!(server.asks("c", 100.0), 30.0);
    assert_eq!(holder_reports(&server.resource, server.now, 0, 9).0.len(), 1, "inherited leases are no holder");
}

#[test]
fn claim_moves_capacity_to_its_holder() {
    let mut server = heir(100.0);
    assert_eq!(server.deliver(names("a", 10.0, 17, 30.0)), 10.0);
    assert_eq!((server.held(), server.unclaimed()), (100.0, 70.0), "it may believe in the 30 until it echoes the 10");
    assert_eq!(server.asks("new", 50.0), 0.0);
    server.pass(16_000);
    server.asks("a", 10.0);
    assert_eq!((server.held(), server.unclaimed()), (80.0, 70.0));
    server.pass(16_000);
    assert_eq!(server.asks("new", 50.0), 20.0, "before the horizon");
}

/// A request of a holder whose lease expired while there was no master.
fn lapsed(id: &str, wants: f64, number: u64, capacity: f64) -> Ask {
    Ask { had: Some(former(number, capacity)), ..ask(id, wants, None) }
}

/// A total of 100 that includes expired leases with tokens from 17 on.
fn with_floor() -> Inherited {
    Inherited {
        total: Amount::clamped(100.0),
        newest: Some(Epoch(7)),
        until: Millis(UNTIL),
        high_water_mark: Token::new(17),
        ..Inherited::default()
    }
}

#[test]
fn ended_lease_above_the_high_water_mark_can_be_claimed() {
    let mut server = Server::with_options(ResourceOptions { inherited: Some(with_floor()), ..options(fair(100.0)) });
    assert_eq!(
        server.deliver(lapsed("below", 5.0, 16, 60.0)),
        0.0,
        "capacity below the mark may have been granted to others"
    );
    assert_eq!(server.deliver(plain(lapsed("plain", 5.0, 17, 60.0))), 0.0);
    assert_eq!(server.deliver(lapsed("a", 90.0, 17, 40.0)), 40.0);
    assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0));
    server.deliver(lapsed("b", 90.0, 18, 70.0));
    assert_eq!((server.held(), server.unclaimed()), (100.0, 0.0), "at most the capacity");
    server.pass(UNTIL);
    server.resource.tick(server.now);
    server.deliver(ask("c", 90.0, None));
    assert_eq!(
        server.deliver(lapsed("late", 90.0, 19, 40.0)),
        10.0,
        "a newcomer, once the inherited leases have ended"
    );
}

/// The parent may have lent the capacity of the expired lease to other nodes.
#[test]
fn ended_lease_below_a_parent_gives_free_capacity_only() {
    for (lent, granted) in [(60.0, 0.0), (80.0, 20.0), (100.0, 40.0)] {
        let options = ResourceOptions { inherited: Some(with_floor()), source: Source::Parent, ..options(fair(0.0)) };
        let mut server = Server::with_options(options);
        server.supply(lent, Millis(60_000));
        assert_eq!(server.deliver(lapsed("a", 90.0, 17, 40.0)), granted, "of {lent}");
        assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0), "of {lent}");
    }
}

#[test]
fn claim_is_bounded_by_the_unclaimed_amount() {
    let mut server = heir(50.0);
    server.asks("new", 50.0);
    assert_eq!(server.deliver(names("a", 100.0, 17, 40.0)), 40.0);
    server.asks("b", 1.0);
    assert_eq!(server.free(), 0.0);
}

#[test]
fn unpromised_lease_starts_learning_mode_once() {
    let mut server = heir(0.0);
    assert_eq!(
        server.deliver(names("x", 50.0, 17, 20.0)),
        20.0,
        "promises were lost, so there may be more such leases"
    );
    assert!(server.resource.is_learning(server.now));
    assert_eq!(server.asks("new", 50.0), 0.0);
    server.pass(61_060);
    assert!(!server.resource.is_learning(server.now));
    server.send(names("y", 50.0, 17, 90.0));
    assert!(!server.resource.is_learning(server.now), "no lease can be that old");
    assert_eq!(server.counters().unaccounted, 2, "learning mode expects unknown leases");
}

#[test]
fn claim_beyond_the_total_does_not_start_learning_mode() {
    let mut server = heir(10.0);
    assert_eq!(
        server.deliver(names("x", 10.0, 17, 20.0)),
        10.0,
        "this claim or a delayed one took another holder's part"
    );
    assert!(!server.resource.is_learning(server.now));
    assert_eq!((server.counters().unaccounted, server.asks("new", 90.0)), (1, 90.0));
}

#[test]
fn unclaimed_capacity_is_free_at_the_horizon() {
    let mut server = heir(80.0);
    server.deliver(names("a", 10.0, 17, 30.0));
    server.pass(UNTIL - 1);
    assert!(!server.resource.tick(server.now));
    assert_eq!(server.held(), 80.0);
    server.pass(1);
    assert!(server.resource.tick(server.now));
    assert_eq!((server.held(), server.unclaimed()), (0.0, 0.0));
}

#[test]
fn claim_of_an_older_lease_is_stale() {
    let mut server = heir(100.0);
    assert_eq!(server.deliver(names("a", 90.0, 19, 30.0)), 30.0);
    assert_eq!(server.send(names("a", 90.0, 17, 80.0)), Answer::Stale);
    assert_eq!(server.unclaimed(), 70.0);
    server.pass(16_000);
    server.asks("a", 90.0);
    assert_eq!(server.send(names("a", 90.0, 19, 30.0)), Answer::Stale, "it has been answered since");
}

#[test]
fn newer_claim_returns_the_older_one() {
    let mut server = heir(100.0);
    server.send(names("a", 90.0, 17, 80.0));
    assert_eq!(server.unclaimed(), 20.0);
    assert_eq!(server.deliver(names("a", 90.0, 19, 30.0)), 30.0);
    assert_eq!((server.unclaimed(), server.held()), (70.0, 100.0), "it may be another holder's");
}

#[test]
fn request_without_a_lease_is_left_out_while_a_claim_is_open() {
    let mut server = heir(80.0);
    server.send(names("a", 30.0, 17, 30.0));
    assert_eq!(server.send(ask("a", 30.0, None)), Answer::NotYet, "this holder or an earlier one may hold the 30");
    server.pass(UNTIL);
    assert_eq!(server.asks("a", 30.0), 30.0);
}

#[test]
fn fresh_lease_excludes_a_claim() {
    let mut server = heir(80.0);
    assert_eq!(server.asks("a", 20.0), 20.0);
    server.send(names("a", 90.0, 17, 30.0));
    assert_eq!((server.unclaimed(), server.held()), (80.0, 100.0));
}

#[test]
fn release_of_a_former_lease_frees_nothing() {
    let mut server = heir(90.0);
    server.deliver(names("a", 40.0, 17, 40.0));
    server.release(HolderKind::Client, "a", Token::new(17));
    server.release(HolderKind::Client, "a", None);
    assert_eq!(server.held(), 90.0, "either may have been delayed, and followed by a larger lease");
    server.release(HolderKind::Client, "a", Some(server.leases["a"].token));
    assert_eq!((server.held(), server.unclaimed()), (50.0, 50.0));
    assert_eq!(server.send(names("a", 40.0, 17, 40.0)), Answer::Stale, "sent before the release");
    assert_eq!((server.held(), server.resource.sums().wants.get()), (50.0, 0.0));
}

/// A request of a client that speaks only the original protocol.
fn without_token(ask: Ask) -> Ask {
    let has = ask.has.map(|has| ShownLease { token: None, ..has });
    plain(Ask { has, ..ask })
}

/// Leases of this length expire before `UNTIL` if they are granted within 30 s of the start of the master.
#[test]
fn without_a_token_an_ambiguous_lease_confirms_nothing() {
    let mut server = heir(100.0);
    assert_eq!(server.deliver(without_token(names("a", 90.0, 17, 40.0))), 40.0);
    server.pass(14_000);
    assert_eq!(server.deliver(without_token(server.request("a", 10.0))), 10.0);
    server.pass(12_000);
    assert_eq!(
        server.deliver(without_token(server.request("a", 90.0))),
        10.0,
        "the holder has shown that it has no more"
    );
    assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0));
    server.release(HolderKind::Client, "a", Some(server.leases["a"].token));
    assert_eq!(server.held(), 100.0);
    server.pass(UNTIL);
    assert_eq!(server.deliver(without_token(server.request("a", 90.0))), 90.0);
}

#[test]
fn without_a_token_an_unambiguous_lease_confirms() {
    let mut server = heir(100.0);
    server.pass(31_000);
    assert_eq!(server.deliver(without_token(names("a", 10.0, 17, 40.0))), 10.0);
    assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0), "it may believe in the 40 until it shows the 10");
    server.pass(5_000);
    assert_eq!(server.deliver(without_token(server.request("a", 25.0))), 25.0, "the difference is free");
    assert_eq!((server.held(), server.unclaimed()), (85.0, 60.0));
    server.pass(5_000);
    assert_eq!(server.deliver(without_token(server.request("a", 90.0))), 40.0, "it grows like other holders");
}

/// A smaller lease would free nothing before the inherited leases expire.
#[test]
fn without_a_token_an_answer_waits_for_an_unambiguous_lease() {
    let mut server = heir(100.0);
    server.pass(28_000);
    assert_eq!(server.send(without_token(names("a", 10.0, 17, 40.0))), Answer::NotYet);
    assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0), "its lease is known");
    server.pass(2_000);
    assert_eq!(server.deliver(without_token(names("a", 10.0, 17, 40.0))), 10.0);
    let mut server = heir(100.0);
    server.pass(28_000);
    let ends_soon = ShownLease { expiry_time: now_at(Millis(50_000)).unix, ..former(17, 40.0) };
    assert_eq!(server.deliver(without_token(ask("a", 10.0, Some(ends_soon)))), 10.0, "its lease would expire first");
}

#[test]
fn without_a_token_a_cut_client_refreshes_early() {
    let mut server = heir(100.0);
    server.pass(31_000);
    server.asks("new", 50.0);
    let lease = granted(server.send(without_token(names("a", 10.0, 17, 40.0))));
    assert_eq!(lease.refresh, Millis(1_000));
    let mut server = heir(100.0);
    server.asks("new", 50.0);
    let lease = granted(server.send(without_token(names("a", 10.0, 17, 40.0))));
    assert_eq!(lease.refresh, Millis(16_000), "that would confirm nothing");
}

#[test]
fn explanation_of_a_client_without_tokens() {
    let mut server = heir_of(fair(100.0), 90.0, &[50.0; 2]);
    server.deliver(without_token(names("a", 50.0, 17, 20.0)));
    assert_eq!(server.send(plain(ask("silent", 50.0, None))), Answer::NotYet);
    let explain = |id| explain(&server.resource, server.now, HolderKind::Client, id).expect("a known holder");
    let (shrinks, silent) = (explain("a"), explain("silent"));
    assert_eq!(shrinks.blocks.last(), Some(&Block::Unshown(Millis(UNTIL))));
    assert_eq!(silent.blocks, [Block::LeftOut(Millis(UNTIL))]);
    assert!(
        shrinks
            .sentences()
            .join(" ")
            .contains("it gets no more than it reports until a request shows a lease of this master, for 90 s at most")
    );
    assert!(silent.sentences().join(" ").contains("its requests stay unanswered for 90 s at most"));
    assert_eq!((shrinks.latest, silent.latest), (Some(Millis(UNTIL + 100)), Some(Millis(UNTIL + 100))));
    server.pass(UNTIL);
    assert_eq!(server.deliver(plain(ask("silent", 50.0, None))), 50.0);
}

/// The client may hold a lease of an earlier master.
#[test]
fn silent_client_is_left_out_until_former_holders_have_asked() {
    let silent = |id, wants| plain(ask(id, wants, None));
    let mut server = heir_of(fair(100.0), 90.0, &[50.0; 2]);
    assert_eq!(server.send(silent("a", 50.0)), Answer::NotYet);
    assert_eq!(server.deliver(silent("little", 5.0)), 5.0, "it is answered if capacity is free");
    assert_eq!(server.deliver(silent("new", 50.0)), 5.0, "all former holders have asked");
    assert_eq!(server.deliver(ask("ours", 50.0, None)), 0.0, "it would name its lease");
    server.pass(5_000);
    assert_eq!(server.send(silent("a", 50.0)), Answer::NotYet);
    server.pass(UNTIL);
    assert_eq!(server.deliver(silent("a", 50.0)), 50.0);
}

#[test]
fn silent_child_node_keeps_its_lease() {
    let mut server = heir(100.0);
    let node = |wants| Ask { outstanding: None, has: None, drops_late: false, ..server_node("n", wants) };
    assert_eq!(server.send(node(50.0)), Answer::NotYet);
    let mut server = heir(40.0);
    assert_eq!(server.deliver(node(50.0)), 50.0, "it is answered if capacity is free");
    server.asks("new", 10.0);
    server.pass(16_000);
    assert_eq!(server.deliver(node(90.0)), 50.0, "leases of this master are known");
}

fn server_node(id: &str, wants: f64) -> Ask {
    Server::new(fair(1.0)).node_request(id, &[slice(1, wants, 0)])
}

#[test]
fn division_counts_inherited_wants() {
    let mut server = heir_of(fair(100.0), 50.0, &[100.0; 4]);
    assert_eq!(server.asks("new", 100.0), 20.0, "a fifth, though a half is free");
    assert_eq!(server.deliver(names("a", 100.0, 17, 25.0)), 20.0, "one of the four former holders asks");
    assert_eq!((server.resource.sums().wants.get(), server.resource.sums().subclients), (500.0, 5));
    server.pass(UNTIL);
    server.resource.tick(server.now);
    assert_eq!(server.resource.sums().wants.get(), 0.0);
}

#[test]
fn outstanding_capacity_stays_unclaimed() {
    let report = |ask: Ask| Ask { outstanding: Some(Amount::clamped(60.0)), ..ask };
    for (kind, held) in [(HolderKind::Client, 100.0), (HolderKind::Node, 120.0)] {
        let mut server = heir(100.0);
        assert_eq!(server.deliver(report(Ask { kind, ..names("a", 90.0, 17, 40.0) })), 40.0);
        assert_eq!((server.held(), server.unclaimed()), (100.0, 60.0));
        server.pass(16_000);
        server.deliver(report(Ask { kind, ..server.request("a", 90.0) }));
        assert_eq!((server.held(), server.unclaimed()), (held, 60.0), "a node's lease counts twice until the horizon");
    }
}
