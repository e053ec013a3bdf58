//! A round absorbs what is waiting, settles once, and answers all of it.

use super::*;

#[test]
fn what_arrives_together_is_divided_together() {
    let mut server = Server::new(fair(120.0));
    assert_eq!(server.round(&[("a", 1000.0), ("b", 50.0), ("c", 10.0)]), [60.0, 50.0, 10.0]);
    assert_eq!(server.counters().rounds, 1);
}

#[test]
fn the_order_within_a_round_means_nothing() {
    for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
        let mut server = Server::new(fair(96.0));
        server.asks("d", 48.0); // so that not all can have what is due at once: 96 / 4 = 24 each, 48 free
        let wants = order.map(|id| (id, 1000.0));
        assert_eq!(server.round(&wants), [16.0; 3], "{order:?}");
    }
}

#[test]
fn a_holder_that_asks_twice_in_a_round_gets_two_answers_the_second_after_the_first() {
    let mut server = Server::new(fair(100.0));
    assert_eq!(server.round(&[("a", 90.0), ("a", 40.0)]), [90.0, 40.0]);
    assert_eq!(server.held(), 90.0, "either answer may arrive");
    assert_eq!(server.resource.sums().wants.get(), 40.0, "the later request says what it wants");

    let mut server = Server::new(fair(100.0));
    assert_eq!(server.round(&[("a", 100.0), ("b", 100.0), ("a", 10.0), ("b", 100.0)]), [50.0, 50.0, 10.0, 50.0]);
    assert_eq!(server.counters().granted, 4);
}

#[test]
fn a_release_between_two_requests_of_a_round_takes_its_place_among_them() {
    let mut server = Server::new(fair(100.0));
    let release = Release { kind: HolderKind::Client, id: "a".into(), token: None, instance: None };
    let requests =
        [Request::Ask(ask("a", 100.0, None)), Request::Release(release), Request::Ask(ask("b", 100.0, None))];
    let mut answers = Vec::new();
    server.resource.round(now_at(server.now), &mut requests.into(), &mut answers, &mut RoundScratch::default());
    assert_eq!(granted(answers[0].clone()).capacity.get(), 100.0);
    assert_eq!(answers[1], Answer::Released);
    assert_eq!(granted(answers[2].clone()).capacity.get(), 100.0);
    assert_eq!(server.resource.holders(), 1);
}

#[test]
fn no_holder_is_granted_more_than_its_due_though_more_is_held_for_it() {
    for capacity in [100.0, 50.0] {
        let mut server = Server::new(fair(100.0));
        server.asks("a", 60.0);
        server.pass(16_000);
        granted(server.send(server.request("a", 5.0)));
        assert_eq!(server.held(), 60.0);
        server.change(|settings| settings.capacity = Amount::clamped(capacity));
        assert_eq!(server.asks("a", 30.0), 30.0, "of {capacity}");
    }
}

#[test]
fn no_holder_is_granted_more_than_its_due() {
    let mut server = Server::new(fair(100.0));
    assert_eq!(server.asks("a", 30.0), 30.0, "what no client wants stays free");
    server.asks("b", 1000.0);
    server.pass(16_000);
    assert_eq!(server.asks("a", 60.0), 30.0, "due 50, but `b` holds the rest");
    assert_eq!(server.asks("b", 1000.0), 50.0);
    server.pass(16_000);
    server.asks("b", 1000.0);
    assert_eq!(server.asks("a", 60.0), 50.0, "70 would be free if only capacity less grants counted");
}
