//! When watched holders are looked at.

use super::*;

fn hinted(effects: &Effects<u32>) -> Vec<&str> {
    effects.hints.iter().map(|hint| &*hint.id).collect()
}

impl Harness {
    fn listens(&mut self, id: &str) {
        self.listeners.0.insert(id.into());
        self.engine.watch(CLIENT, id);
    }
}

#[test]
fn it_looks_with_the_round_that_changed_something_unless_it_has_just_looked() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.listens("b");
    harness.asks("a", 100.0);
    harness.pass(50);
    let effects = harness.asks("b", 100.0);
    assert_eq!(hinted(&effects), ["a"], "at once");
    assert!(effects.wake_at.is_some(), "its hint may have to be repeated");
    harness.pass(49);
    let steps = [harness.asks("a", 100.0), harness.asks("c", 100.0), harness.releases("a")];
    assert!(steps.iter().all(|effects| effects.hints.is_empty()), "49 ms after the last look");
    let woken_at = steps.iter().filter_map(|effects| effects.wake_at).min();
    assert_eq!(woken_at, Some(harness.now.plus(Millis(1))));
    harness.pass(1);
    assert_eq!(hinted(&harness.wake()), ["b"]);
}

#[test]
fn a_resource_without_listeners_or_changes_is_not_woken() {
    let mut harness = Harness::own();
    assert_eq!(harness.asks("a", 100.0).wake_at, None);
    assert_eq!(harness.asks("b", 100.0).wake_at, None);
    harness.listens("b");
    assert_eq!(harness.tick().wake_at, None, "b waits, but nothing is free");
    harness.pass(50);
    harness.listens("a");
    assert!(harness.tick().wake_at.is_some());
}

#[test]
fn a_wake_up_is_asked_for_once() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.asks("a", 100.0);
    harness.pass(50);
    let at = harness.asks("b", 100.0).wake_at.expect("the hint is to be repeated");
    harness.pass(10);
    assert_eq!(harness.asks("b", 100.0).wake_at.filter(|again| *again >= at), None);
}

#[test]
fn hints_that_are_not_followed_are_repeated_ever_later() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.asks("a", 100.0);
    harness.pass(50);
    let mut effects = harness.asks("b", 100.0);
    for pause in [200, 400, 800, 1_600] {
        assert_eq!(hinted(&effects), ["a"]);
        let at = effects.wake_at.expect("once more");
        assert_eq!(at.since(harness.now), Millis(pause));
        harness.now = at;
        effects = harness.wake();
    }
}

#[test]
fn a_holder_that_does_not_listen_any_more_is_hinted_once_and_never_again() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.asks("a", 100.0);
    harness.listeners.0.clear();
    harness.pass(50);
    assert_eq!(hinted(&harness.asks("b", 100.0)), ["a"]);
    harness.engine.unwatch(CLIENT, "a");
    harness.pass(50);
    let effects = harness.asks("c", 100.0);
    assert_eq!((hinted(&effects), effects.wake_at), (vec![], None));
}

#[test]
fn a_holder_that_has_come_and_listens_is_watched() {
    let mut harness = Harness::own();
    harness.listeners.0.insert("a".into());
    harness.asks("a", 100.0);
    harness.pass(50);
    assert_eq!(hinted(&harness.asks("b", 100.0)), ["a"]);
}
