//! When watched holders are looked at.

use super::*;

fn hinted(effects: &Effects<u32>) -> Vec<&str> {
    effects.hints.iter().map(|hint| &*hint.id).collect()
}

impl World {
    fn listens(&mut self, id: &str) {
        self.listeners.0.insert(id.into());
        self.engine.watch(CLIENT, id);
    }
}

#[test]
fn it_looks_with_the_round_that_changed_something_unless_it_has_just_looked() {
    let mut world = World::own();
    world.listens("a");
    world.listens("b");
    world.asks("a", 100.0);
    world.pass(50);
    let effects = world.asks("b", 100.0);
    assert_eq!(hinted(&effects), ["a"], "at once");
    assert!(effects.wake_at.is_some(), "its hint may have to be repeated");
    world.pass(49);
    let steps = [world.asks("a", 100.0), world.asks("c", 100.0), world.releases("a")];
    assert!(steps.iter().all(|effects| effects.hints.is_empty()), "49 ms after the last look");
    let woken_at = steps.iter().filter_map(|effects| effects.wake_at).min();
    assert_eq!(woken_at, Some(world.now.plus(Millis(1))));
    world.pass(1);
    assert_eq!(hinted(&world.wake()), ["b"]);
}

#[test]
fn a_resource_without_listeners_or_changes_is_not_woken() {
    let mut world = World::own();
    assert_eq!(world.asks("a", 100.0).wake_at, None);
    assert_eq!(world.asks("b", 100.0).wake_at, None);
    world.listens("b");
    assert_eq!(world.tick().wake_at, None, "b waits, but nothing is free");
    world.pass(50);
    world.listens("a");
    assert!(world.tick().wake_at.is_some());
}

#[test]
fn a_wake_up_is_asked_for_once() {
    let mut world = World::own();
    world.listens("a");
    world.asks("a", 100.0);
    world.pass(50);
    let at = world.asks("b", 100.0).wake_at.expect("the hint is to be repeated");
    world.pass(10);
    assert_eq!(world.asks("b", 100.0).wake_at.filter(|again| *again >= at), None);
}

#[test]
fn hints_that_are_not_followed_are_repeated_ever_later() {
    let mut world = World::own();
    world.listens("a");
    world.asks("a", 100.0);
    world.pass(50);
    let mut effects = world.asks("b", 100.0);
    for pause in [200, 400, 800, 1_600] {
        assert_eq!(hinted(&effects), ["a"]);
        let at = effects.wake_at.expect("once more");
        assert_eq!(at.since(world.now), Millis(pause));
        world.now = at;
        effects = world.wake();
    }
}

#[test]
fn a_holder_that_does_not_listen_any_more_is_hinted_once_and_never_again() {
    let mut world = World::own();
    world.listens("a");
    world.asks("a", 100.0);
    world.listeners.0.clear();
    world.pass(50);
    assert_eq!(hinted(&world.asks("b", 100.0)), ["a"]);
    world.engine.unwatch(CLIENT, "a");
    world.pass(50);
    let effects = world.asks("c", 100.0);
    assert_eq!((hinted(&effects), effects.wake_at), (vec![], None));
}

#[test]
fn a_holder_that_has_come_and_listens_is_watched() {
    let mut world = World::own();
    world.listeners.0.insert("a".into());
    world.asks("a", 100.0);
    world.pass(50);
    assert_eq!(hinted(&world.asks("b", 100.0)), ["a"]);
}
