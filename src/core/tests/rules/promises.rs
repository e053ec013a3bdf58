//! What a master has promised, the next one keeps; and what is not promised yet does not leave.

use super::*;
use crate::resource::Pending;
use crate::{Ceiling, Changes, Epoch, Inherited};

const UNTIL: u64 = 90_000;

/// A new life that inherits these ceilings for 90 s.
fn heir(settings: Settings, ceilings: &[(&str, f64)]) -> Server {
    let ceiling = |(id, amount): &(&str, f64)| {
        let amount = Amount::clamped(*amount);
        (Ceiling { kind: HolderKind::Client, id: (*id).into(), amount }, Millis(UNTIL))
    };
    let ceilings = ceilings.iter().map(ceiling).collect();
    let inherited = Inherited { ceilings, newest: Some(Epoch(7)), until: Millis(UNTIL) };
    Server::born(Birth { inherited: Some(inherited), ..birth(settings) })
}

fn keeper(settings: Settings) -> Server {
    Server::born(Birth { inherited: Some(Inherited::default()), ..birth(settings) })
}

/// A lease of the former master.
fn former(capacity: f64) -> Has {
    Has { token: Token::new(17), capacity: Amount::clamped(capacity), expiry_time: now_at(Millis(50_000)).unix }
}

impl Server {
    fn take(&mut self) -> Pending {
        self.resource.take_changes(self.now)
    }

    /// All that there is to promise is stored.
    fn settle(&mut self) -> Option<Changes> {
        let changes = self.take().changes;
        if let Some(changes) = &changes {
            self.resource.acknowledge(changes.number);
        }
        changes
    }

    fn unheard(&self) -> usize {
        self.resource.promises().expect("promises are kept").unheard
    }

    fn promised(&self) -> f64 {
        self.resource.promises().expect("promises are kept").promised.get()
    }
}

fn said(changes: Option<Changes>) -> Vec<(String, f64)> {
    let ceilings = changes.map_or(Vec::new(), |changes| changes.ceilings);
    ceilings.into_iter().map(|ceiling| (ceiling.id.to_string(), ceiling.amount.get())).collect()
}

#[test]
fn what_was_promised_is_held_and_the_rest_is_free_at_once() {
    let mut server = heir(fair(100.0), &[("a", 40.0), ("b", 30.0)]);
    assert_eq!((server.held(), server.unheard(), server.promised()), (70.0, 2, 70.0));
    assert_eq!(server.asks("c", 100.0), 30.0);
    assert!(!server.report("a").heard && server.report("c").heard);
    assert_eq!(server.report("a").wants.get(), 40.0, "what it may hold, until it says something else");
}

#[test]
fn whoever_returns_keeps_what_it_has_not_what_was_promised() {
    let mut server = heir(fair(100.0), &[("a", 80.0), ("b", 80.0)]);
    assert_eq!(server.deliver(ask("a", 100.0, Some(former(30.0)))), 30.0);
    assert_eq!(server.held(), 160.0, "it may believe in more until it proves that it knows of this");
    assert_eq!(server.unheard(), 1);
    server.pass(16_000);
    server.asks("a", 30.0);
    assert_eq!(server.held(), 110.0);
    let mut server = heir(fair(100.0), &[("a", 30.0), ("b", 80.0)]);
    assert_eq!(server.deliver(ask("a", 100.0, Some(former(90.0)))), 30.0, "nor more than was promised");
}

#[test]
fn where_there_is_room_it_may_have_all_that_is_held_for_it() {
    let mut server = heir(fair(100.0), &[("a", 80.0)]);
    assert_eq!(server.deliver(ask("a", 100.0, Some(former(30.0)))), 100.0);
}

#[test]
fn only_a_lease_of_this_epoch_named_by_its_token_clears_a_promise() {
    let mut server = heir(fair(100.0), &[("a", 80.0)]);
    let plain = |has: Has| Some(Has { token: None, ..has });
    for claimed in [Some(former(80.0)), plain(former(80.0)), None] {
        server.pass(5_000);
        server.deliver(ask("a", 10.0, claimed));
        assert_eq!(server.held(), 80.0);
    }
    let newest = has(&server.leases["a"]);
    server.pass(5_000);
    server.send(ask("a", 10.0, plain(newest)));
    assert_eq!(server.held(), 80.0, "a lease of the former master may look just the same");
    server.pass(5_000);
    server.send(ask("a", 10.0, Some(newest)));
    assert_eq!(server.held(), 10.0);
}

#[test]
fn without_tokens_leases_are_recognised_again_once_those_of_former_masters_have_ended() {
    let mut server = heir(fair(100.0), &[("a", 80.0)]);
    server.pass(UNTIL);
    let first = granted(server.send(ask("a", 60.0, None)));
    server.pass(16_000);
    let second = granted(server.send(ask("a", 10.0, Some(Has { token: None, ..has(&first) }))));
    assert_eq!(server.held(), 60.0);
    server.pass(16_000);
    server.send(ask("a", 10.0, Some(Has { token: None, ..has(&second) })));
    assert_eq!(server.held(), 10.0);
}

#[test]
fn whoever_does_not_return_counts_until_the_horizon() {
    let mut server = heir(fair(100.0), &[("a", 80.0)]);
    server.pass(UNTIL - 1);
    assert!(!server.resource.tick(server.now));
    assert_eq!(server.held(), 80.0);
    server.pass(1);
    assert!(!server.resource.tick(server.now), "its peers do not know yet");
    assert_eq!((server.held(), server.unheard()), (0.0, 0));
    assert_eq!(said(server.settle()), [("a".to_owned(), 0.0)]);
    assert!(server.resource.tick(server.now));
}

#[test]
fn a_release_from_former_times_frees_nothing() {
    let mut server = heir(fair(100.0), &[("a", 80.0), ("b", 10.0)]);
    server.release(HolderKind::Client, "a", Token::new(17));
    server.release(HolderKind::Client, "a", None);
    assert_eq!(server.held(), 90.0, "either may have been delayed, and followed by a larger lease");
    server.asks("b", 10.0);
    server.pass(16_000);
    server.asks("b", 10.0);
    server.release(HolderKind::Client, "b", None);
    assert_eq!(server.held(), 90.0, "nor does it matter what has been confirmed since");
    server.release(HolderKind::Client, "b", Some(server.leases["b"].token));
    assert_eq!(server.held(), 80.0);
    server.asks("b", 10.0);
    server.release(HolderKind::Client, "b", None);
    assert_eq!(server.held(), 80.0, "a client that came later has no earlier leases");
}

#[test]
fn inherited_holders_take_places() {
    let mut server = heir(fair(100.0), &[("a", 1.0), ("b", 1.0)]);
    server.resource.set_max_holders(2);
    assert_eq!(server.send(ask("c", 1.0, None)), Answer::Full);
    server.asks("a", 1.0);
}

#[test]
fn an_inherited_holder_that_is_heard_may_have_been_listening_for_hints() {
    let mut server = heir(fair(100.0), &[("a", 1.0)]);
    server.asks("a", 1.0);
    assert_eq!(server.resource.newcomers().map(|(_, id)| &**id).collect::<Vec<_>>(), ["a"]);
    server.pass(16_000);
    server.asks("a", 1.0);
    assert_eq!(server.resource.newcomers().count(), 0);
}

#[test]
fn a_lease_that_nobody_promised_makes_it_listen_once_for_a_lease_length_after_the_master_began() {
    let lie = |id: &str| ask(id, 50.0, Some(former(20.0)));
    let mut server = heir(fair(100.0), &[("a", 10.0)]);
    server.send(lie("a"));
    assert!(!server.resource.is_learning(server.now), "this one is known");
    assert_eq!(server.counters().unaccounted, 0);
    assert_eq!(server.deliver(lie("x")), 20.0);
    assert_eq!(server.asks("new", 50.0), 0.0);
    server.pass(61_059);
    server.send(lie("y"));
    assert!(server.resource.is_learning(server.now));
    server.pass(1);
    assert!(!server.resource.is_learning(server.now), "no matter which clients report it, and how often");
    let late = Has { expiry_time: now_at(Millis(100_000)).unix, ..former(20.0) };
    server.send(ask("z", 50.0, Some(late)));
    assert!(!server.resource.is_learning(server.now), "no lease can be that old");
    assert_eq!(server.counters().unaccounted, 2, "while it listens nothing has to be accounted for");
}

#[test]
fn an_answer_waits_for_what_it_raises_and_for_nothing_else() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    let Pending { changes: Some(changes), awaits: Some(1) } = server.take() else { panic!("nothing was promised yet") };
    assert_eq!((changes.number, said(Some(changes.clone()))), (1, vec![("a".to_owned(), 45.0)]));
    // 60 s, and what is added to it: certain after 61.06 s. An eighth and a half of a lease more, and a clock that is
    // fast.
    assert_eq!(changes.horizon, Some(Millis(98_560 + 99)));
    server.pass(16_000);
    server.asks("a", 45.0);
    assert_eq!(server.take(), Pending { changes: None, awaits: Some(1) }, "promised, but not stored yet");
    server.resource.acknowledge(1);
    server.pass(16_000);
    server.asks("a", 44.0);
    let pending = server.take();
    assert_eq!((said(pending.changes.clone()), pending.awaits), (vec![], None), "a later horizon needs no waiting");
    assert_eq!(pending.changes.and_then(|changes| changes.horizon), Some(Millis(98_560 + 99)));
    server.pass(16_000);
    server.asks("a", 46.0);
    assert_eq!(server.take().awaits, Some(3));
}

#[test]
fn a_lease_that_ends_beyond_the_horizon_waits_for_it() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    server.pass(37_500);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, None, "its end is the horizon");
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    server.pass(37_501);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, Some(2));
    server.resource.acknowledge(1);
    server.pass(5_000);
    server.asks("a", 40.0);
    assert_eq!(server.take().awaits, Some(2), "the second is not acknowledged yet");
}

#[test]
fn an_epoch_lies_above_all_that_it_inherits_whatever_the_caller_says() {
    let inherited = Inherited { newest: Some(Epoch(7)), ..Inherited::default() };
    let mut server = Server::born(Birth { epoch: Epoch(7), inherited: Some(inherited), ..birth(fair(100.0)) });
    server.asks("a", 40.0);
    assert_eq!(server.take().changes.map(|changes| changes.epoch), Some(Epoch(7 + Inherited::EPOCHS_APART)));
}

#[test]
fn what_is_reported_as_outstanding_is_promised_even_if_the_request_comes_too_soon() {
    let mut settings = fair(100.0);
    settings.min_request_interval = Millis(5_000);
    let mut server = keeper(settings);
    server.asks("n", 80.0);
    server.settle();
    server.pass(4_000);
    let report = Ask { outstanding: Some(Amount::clamped(95.0)), ..server.request("n", 80.0) };
    assert_eq!(server.send(report), Answer::TooSoon);
    assert_eq!(said(server.settle()), [("n".to_owned(), 95.0)]);
}

#[test]
fn the_first_horizon_is_no_earlier_than_what_was_inherited() {
    let mut settings = fair(100.0);
    settings.lease = Millis(10_000);
    let mut server = heir(settings, &[("a", 40.0)]);
    server.asks("a", 40.0);
    let changes = server.take().changes.expect("a promise of this epoch");
    assert_eq!(changes.horizon, Some(Millis(UNTIL + 90)), "what is rewritten covers leases of the former epoch too");
}

#[test]
fn what_raises_carries_the_lowerings_that_pay_for_it() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 64.0);
    assert_eq!(said(server.settle()), [("a".to_owned(), 72.0)]);
    server.pass(16_000);
    server.asks("b", 36.0);
    assert_eq!(said(server.settle()), [("a".to_owned(), 64.0), ("b".to_owned(), 36.0)]);
    assert_eq!(server.promised(), 100.0);
}

#[test]
fn the_slack_of_all_is_at_most_half_of_what_is_free() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 96.0);
    assert_eq!(said(server.settle()), [("a".to_owned(), 98.0)]);
}

#[test]
fn what_is_a_quarter_too_high_is_lowered_after_a_second() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    let ceilings_after = |server: &mut Server, ms| {
        server.pass(ms);
        server.resource.tick(server.now);
        let pending = server.take();
        assert_eq!(pending.awaits, None);
        said(pending.changes)
    };
    for wants in [36.0, 36.0] {
        server.pass(8_000);
        server.asks("a", wants);
        assert_eq!(server.settle(), None);
    }
    assert_eq!(ceilings_after(&mut server, 1_000), [], "45 are a quarter more than 36, not more than that");
    for wants in [8.0, 8.0] {
        server.pass(8_000);
        server.asks("a", wants);
    }
    assert_eq!(said(server.settle()), [("a".to_owned(), 9.0)], "with the horizon that was due");
    server.release(HolderKind::Client, "a", Some(server.leases["a"].token));
    assert_eq!(said(server.settle()), [], "not so soon again");
    assert_eq!(ceilings_after(&mut server, 999), []);
    assert_eq!(ceilings_after(&mut server, 1), [("a".to_owned(), 0.0)]);
    assert_eq!(server.promised(), 0.0);
}

#[test]
fn whoever_comes_back_before_its_peers_know_that_it_went_is_not_forgotten_afterwards() {
    let mut server = keeper(fair(100.0));
    server.asks("a", 40.0);
    server.settle();
    server.release(HolderKind::Client, "a", Some(server.leases["a"].token));
    server.leases.clear();
    server.asks("a", 20.0);
    server.settle();
    server.pass(1_000);
    server.resource.tick(server.now);
    server.settle();
    assert_eq!(server.promised(), 22.5);
}

#[test]
fn what_is_not_shared_is_promised_too() {
    for kind in [Kind::NoAlgorithm, Kind::Static] {
        let mut server = keeper(Settings::new(kind, Amount::clamped(50.0)));
        server.asks("a", 40.0);
        server.asks("b", 40.0);
        assert_eq!(said(server.take().changes), [("a".to_owned(), 45.0), ("b".to_owned(), 45.0)]);
    }
}

#[test]
fn under_prompt_an_answer_replaces_the_promise_too() {
    let mut settings = fair(100.0);
    settings.reuse = Reuse::Prompt;
    let mut server = heir(settings, &[("a", 100.0)]);
    assert_eq!(server.asks("a", 40.0), 40.0);
    assert_eq!(server.asks("b", 60.0), 60.0);
    assert_eq!(said(server.settle()), [("a".to_owned(), 40.0), ("b".to_owned(), 60.0)]);
}

#[test]
fn without_promises_there_is_never_anything_to_say() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 40.0);
    assert_eq!(server.take(), Pending::default());
    assert_eq!(server.resource.promises(), None);
    server.send(ask("x", 50.0, Some(former(20.0))));
    assert!(!server.resource.is_learning(server.now));
    assert_eq!(server.counters().unaccounted, 1);
}

/// More than fit into one change otherwise.
#[test]
fn however_many_lowerings_it_takes_all_are_in_the_change_that_they_pay_for() {
    let mut server = keeper(fair(100_000.0));
    for n in 0..5_000 {
        server.asks(&format!("a{n}"), 10.0);
    }
    server.settle();
    assert_eq!(server.promised(), 56_250.0);
    server.pass(1_000);
    assert_eq!(server.asks("b", 100_000.0), 50_000.0);
    assert_eq!(said(server.settle()).len(), 5_001);
    assert_eq!(server.promised(), 100_000.0);
}
