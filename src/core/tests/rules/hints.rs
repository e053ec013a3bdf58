//! Hints go to those whose request would change something, and to nobody else.

use std::sync::Arc;

use super::*;
use crate::{Sum, Why};

impl Desk {
    fn listens(&mut self, id: &str) {
        assert!(self.resource.watch(HolderKind::Client, id), "{id} is a holder");
    }

    /// Who is hinted now, and why.
    fn hints(&mut self) -> Vec<(String, Why)> {
        let mut hints = Vec::new();
        self.resource.hints(self.now, usize::MAX, &mut hints);
        hints.into_iter().map(|hint| (hint.id.to_string(), hint.why)).collect()
    }

    /// Whether it is among those who are hinted now.
    fn hinted(&mut self, id: &str) -> Option<Why> {
        self.hints().into_iter().find(|(hinted, _)| hinted == id).map(|(_, why)| why)
    }

    fn looks_again_in(&self) -> Option<u64> {
        self.resource.next_hints(self.now).map(|next| next.since(self.now).0)
    }
}

fn hint(id: &str, why: Why) -> (String, Why) {
    (id.to_owned(), why)
}

/// `a` has 100 and is due 50, for `b` waits. All listen who are named.
fn contended(listeners: &[&str]) -> Desk {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 100.0);
    desk.asks("b", 100.0);
    listeners.iter().for_each(|id| desk.listens(id));
    desk
}

#[test]
fn whoever_must_shrink_is_hinted_only_while_somebody_waits() {
    let mut desk = contended(&["a", "b"]);
    assert_eq!(desk.hints(), [hint("a", Why::Shrink)]);
    let mut desk = contended(&["a", "b"]);
    desk.release(HolderKind::Client, "b", None);
    assert_eq!(desk.hints(), []);
    // Another algorithm takes something from b for a, who does not know yet, and so does not wait.
    let mut desk = Desk::new(fair(100.0));
    desk.round(&[("a", 100.0), ("b", 60.0), ("c", 10.0)]);
    desk.listens("b");
    desk.change(|settings| settings.kind = Kind::ProportionalShare);
    assert_eq!((desk.report("b").due.get(), desk.report("b").granted.get()), (40.0, 45.0));
    assert_eq!(desk.hints(), []);
    desk.pass(16_000);
    assert_eq!(desk.asks("a", 100.0), 45.0);
    assert_eq!(desk.hints(), [hint("b", Why::Shrink)]);
}

#[test]
fn whoever_must_shrink_is_hinted_while_more_is_held_than_there_is() {
    for (capacity, hinted) in [(99.8, false), (99.7, true)] {
        let mut desk = Desk::new(fair(100.0));
        desk.round(&[("a", 100.0), ("b", 60.0), ("c", 10.0)]);
        desk.listens("b");
        let capacity = Amount::clamped(capacity);
        desk.change(|settings| (settings.kind, settings.capacity) = (Kind::ProportionalShare, capacity));
        assert_eq!(desk.hinted("b"), hinted.then_some(Why::Shrink), "100 are held of {capacity}");
    }
}

#[test]
fn other_wants_are_a_reason_to_look_also_if_they_change_no_lease() {
    let mut desk = Desk::new(fair(100.0));
    desk.round(&[("a", 100.0), ("b", 100.0)]);
    desk.listens("a");
    assert_eq!(desk.asks("c", 0.1), 0.0);
    assert_eq!((desk.hints(), desk.hints()), (Vec::new(), Vec::new()), "a need not give up half a per cent");
    assert_eq!(desk.looks_again_in(), None);
    assert_eq!(desk.asks("c", 30.0), 0.0);
    assert_eq!(desk.hints(), [hint("a", Why::Shrink)]);
}

#[test]
fn nobody_is_hinted_who_does_not_listen() {
    let mut desk = contended(&[]);
    assert_eq!(desk.hints(), []);
    assert_eq!(desk.looks_again_in(), None);
    desk.listens("a");
    desk.resource.unwatch(HolderKind::Client, "a");
    assert_eq!(desk.hints(), []);
    assert!(!desk.resource.watch(HolderKind::Client, "unheard of"));
    assert!(!desk.resource.watch(HolderKind::Node, "a"), "nodes have names of their own");
    assert_eq!(desk.looks_again_in(), None);
}

#[test]
fn an_older_lease_that_blocks_somebody_is_to_be_confirmed_away() {
    let mut desk = contended(&["a"]);
    desk.pass(16_000);
    assert_eq!((desk.asks("a", 100.0), desk.held()), (50.0, 100.0));
    assert_eq!(desk.hints(), [hint("a", Why::Confirm)]);
    desk.asks("a", 100.0);
    assert_eq!(desk.held(), 50.0);
    desk.pass(10_000);
    assert_eq!(desk.hints(), []);
}

#[test]
fn an_older_lease_that_blocks_nobody_stays() {
    let mut desk = contended(&["a", "b"]);
    desk.pass(16_000);
    desk.asks("a", 100.0);
    desk.release(HolderKind::Client, "b", None);
    // a itself is due more than it has by now, and its own older lease is what it would get.
    assert_eq!(desk.hints(), [hint("a", Why::Confirm)]);
    desk.asks("a", 50.0);
    desk.pass(10_000);
    assert_eq!(desk.hints(), []);
}

#[test]
fn whoever_waits_is_hinted_when_a_quarter_of_a_per_cent_is_free_or_enough_to_come_closer_to_its_due() {
    for (wants, keeps, hinted) in
        [(100.0, 99.75, false), (100.0, 99.7, true), (10.0, 99.96, false), (10.0, 99.94, true)]
    {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", keeps);
        desk.asks("filler", 100.0 - keeps);
        desk.asks("b", wants);
        desk.listens("b");
        desk.release(HolderKind::Client, "filler", None);
        assert_eq!(desk.hinted("b").is_some(), hinted, "{} is free, it wants {wants}", 100.0 - keeps);
    }
}

#[test]
fn half_a_per_cent_is_not_worth_a_request() {
    for (capacity, hinted) in [(100.4, false), (100.6, true), (99.6, false), (99.4, true)] {
        let mut desk = Desk::new(Settings::new(Kind::Static, Amount::clamped(100.0)));
        desk.asks("a", 1000.0);
        desk.listens("a");
        desk.change(|settings| settings.capacity = Amount::clamped(capacity));
        assert_eq!(desk.hinted("a").is_some(), hinted, "from 100 to {capacity}");
    }
}

#[test]
fn a_holder_is_hinted_once_in_200_ms() {
    let mut desk = contended(&["a"]);
    assert_eq!(desk.hinted("a"), Some(Why::Shrink));
    desk.pass(199);
    // Its answer to the first is here, and it has something to confirm.
    desk.asks("a", 100.0);
    assert_eq!((desk.hinted("a"), desk.looks_again_in()), (None, Some(1)));
    desk.pass(1);
    assert_eq!(desk.hinted("a"), Some(Why::Confirm));
}

#[test]
fn a_hint_in_vain_is_repeated_with_pauses_that_double() {
    let mut desk = contended(&["a"]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert_eq!(desk.hinted("a"), Some(Why::Shrink));
        let pause = desk.looks_again_in().expect("it is repeated");
        desk.pass(pause - 1);
        assert_eq!(desk.hinted("a"), None);
        desk.pass(1);
        pauses.push(pause);
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    // Once it has come its next hint is a first one.
    desk.asks("a", 100.0);
    assert_eq!(desk.hinted("a"), Some(Why::Confirm));
    assert_eq!(desk.looks_again_in(), Some(200));
}

#[test]
fn asking_to_confirm_in_vain_counts_as_in_vain() {
    let mut desk = Desk::new(fair(100.0));
    desk.node_asks("n", &[slice(2, 100.0, 0)]);
    desk.asks("b", 50.0);
    assert!(desk.resource.watch(HolderKind::Node, "n"));
    desk.pass(16_000);
    // Its clients do not know yet: so much is outstanding, however often it is asked.
    let clinging = |desk: &Desk| Ask {
        outstanding: Some(Amount::clamped(100.0)),
        ..desk.node_request("n", &[slice(2, 100.0, 0)])
    };
    let mut pauses = Vec::new();
    desk.deliver(clinging(&desk));
    for _ in 0..4 {
        assert_eq!(desk.hinted("n"), Some(Why::Confirm));
        let request = clinging(&desk);
        desk.deliver(request);
        assert_eq!(desk.hinted("n"), None);
        let pause = desk.looks_again_in().expect("it is asked again");
        pauses.push(pause);
        desk.pass(pause);
    }
    assert_eq!(pauses, [200, 400, 800, 1600]);
}

#[test]
fn a_request_that_follows_a_hint_is_never_too_soon_once() {
    let mut desk = contended(&["a"]);
    desk.pass(1);
    assert_eq!(desk.send(desk.request("a", 100.0)), Answer::TooSoon, "nobody told it to come");
    assert_eq!(desk.hinted("a"), Some(Why::Shrink));
    assert_eq!(desk.asks("a", 100.0), 50.0);
    assert_eq!(desk.send(desk.request("a", 100.0)), Answer::TooSoon, "it has been answered");
}

#[test]
fn what_is_free_sends_for_no_more_than_it_can_serve() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("hog", 100.0);
    let waiting = ["a", "b", "c", "d"];
    for id in waiting {
        desk.asks(id, 25.0);
        desk.listens(id);
    }
    desk.change(|settings| settings.capacity = Amount::clamped(145.0));
    // 45 are free. Each is due 25: one takes that, another what is left.
    assert_eq!(desk.hints(), [hint("a", Why::Grow), hint("b", Why::Grow)]);
    assert_eq!((desk.hints(), desk.looks_again_in()), (Vec::new(), Some(200)));
    desk.pass(200);
    assert_eq!(desk.hints(), [hint("c", Why::Grow), hint("d", Why::Grow)], "those who do not come keep it from nobody");
}

#[test]
fn while_it_learns_nobody_is_hinted_and_then_everybody_is_looked_at() {
    let mut desk = Desk::born(Birth { learning_until: Millis(5_000), ..birth(fair(100.0)) });
    desk.deliver(ask("a", 100.0, Some(Has { token: None, capacity: Amount::clamped(100.0), expiry_time: i64::MAX })));
    desk.asks("b", 100.0);
    desk.listens("a");
    desk.listens("b");
    assert_eq!((desk.hints(), desk.looks_again_in()), (Vec::new(), Some(5_000)));
    desk.pass(5_000);
    assert_eq!(desk.looks_again_in(), Some(0));
    // Who waits is found out by looking, though nobody has asked since.
    assert_eq!(desk.hints(), [hint("a", Why::Shrink)]);
}

#[test]
fn where_nothing_is_shared_only_a_change_of_configuration_hints() {
    for kind in [Kind::NoAlgorithm, Kind::Static] {
        let mut desk = Desk::new(Settings::new(kind, Amount::clamped(30.0)));
        desk.asks("a", 100.0);
        desk.asks("b", 10.0);
        desk.listens("a");
        desk.listens("b");
        assert_eq!(desk.hints(), [], "{kind:?}");
        desk.pass(16_000);
        desk.asks("b", 20.0);
        assert_eq!(desk.looks_again_in(), None, "{kind:?}: others' requests are nothing to look at");
        let before = desk.report("a").granted.get();
        desk.change(|settings| (settings.kind, settings.capacity) = (Kind::Static, Amount::clamped(50.0)));
        let why = if before > 50.0 { Why::Shrink } else { Why::Grow };
        assert_eq!(desk.hints(), [hint("a", why)], "{kind:?}");
    }
}

#[test]
fn a_change_of_capacity_hints_those_whose_due_it_changes() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("a", 100.0);
    desk.listens("a");
    assert_eq!(desk.hints(), []);
    desk.change(|settings| settings.capacity = Amount::clamped(50.0));
    assert_eq!(desk.hints(), [hint("a", Why::Shrink)], "more is held than there is");
    desk.change(|settings| settings.capacity = Amount::clamped(200.0));
    desk.asks("a", 300.0);
    desk.change(|settings| settings.capacity = Amount::clamped(300.0));
    desk.pass(200);
    assert_eq!(desk.hints(), [hint("a", Why::Grow)]);
}

#[test]
fn a_parents_lease_that_rises_hints_and_one_that_only_lasts_longer_does_not() {
    let mut desk = Desk::below(fair(100.0));
    desk.supply(100.0, Millis(60_000));
    desk.asks("a", 1000.0);
    desk.listens("a");
    assert_eq!(desk.hints(), []);
    desk.supply(100.0, Millis(70_000));
    assert_eq!(desk.looks_again_in(), None);
    desk.supply(150.0, Millis(70_000));
    assert_eq!(desk.hints(), [hint("a", Why::Grow)]);
}

#[test]
fn leases_that_end_hint_those_who_wait() {
    let mut desk = Desk::new(fair(100.0));
    desk.asks("dead", 100.0);
    desk.pass(30_000);
    desk.asks("b", 100.0);
    desk.listens("b");
    assert_eq!(desk.hints(), []);
    desk.pass(32_000);
    desk.resource.tick(desk.now);
    assert_eq!(desk.hints(), [hint("b", Why::Grow)]);
}

#[test]
fn newcomers_are_named_once_with_the_round_they_came_in() {
    let mut desk = Desk::new(fair(100.0));
    let newcomers = |desk: &Desk| desk.resource.newcomers().map(|(_, id)| Arc::clone(id)).collect::<Vec<_>>();
    desk.round(&[("a", 1.0), ("b", 1.0)]);
    assert_eq!(newcomers(&desk), [Arc::from("a"), Arc::from("b")]);
    desk.listens("a");
    assert_eq!(newcomers(&desk), [Arc::from("b")]);
    desk.round(&[("c", 1.0)]);
    assert_eq!(newcomers(&desk), [Arc::from("c")]);
    desk.pass(16_000);
    desk.round(&[("a", 1.0)]);
    assert_eq!(newcomers(&desk), []);
}

#[test]
fn a_look_goes_on_from_where_it_stopped_and_misses_nobody() {
    let mut desk = Desk::new(fair(100.0));
    let ids: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    for id in &ids {
        desk.asks(id, 10.0);
        desk.listens(id);
    }
    desk.asks("late", 100.0);
    let mut seen = Vec::new();
    for _ in 0..100 {
        let mut hints = Vec::new();
        desk.resource.hints(desk.now, 3, &mut hints);
        assert!(hints.len() <= 3);
        seen.extend(hints.into_iter().map(|hint| hint.id.to_string()));
        if desk.looks_again_in() != Some(0) {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, ids);
    assert!(desk.resource.sums().held <= Sum::from(Amount::clamped(100.0)));
}
