//! The engine on a manual clock: commits, supplies, and the pacing of hints.

use std::collections::HashSet;

use crate::{
    allocation::division::Terms,
    lease::promises::Inherited,
    policy::{
        overrides::Load,
        settings::{AlgorithmKind, Settings},
    },
    pool::{Assigned, PoolNotes},
    resource::{Answer, Release, Request, ResourceOptions, supply::Source},
    tests::harness::{ask, options},
    types::{Amount, HolderKind, Millis, Now},
};

use super::*;

const CLIENT: HolderKind = HolderKind::Client;

/// The listeners. The environment has no other state.
#[derive(Default)]
struct Listeners(HashSet<String>);

impl Environment for Listeners {
    fn is_watched(&self, _: HolderKind, id: &str) -> bool {
        self.0.contains(id)
    }

    fn assignments(&self) -> Vec<(HolderKind, std::sync::Arc<str>, Assigned)> {
        Vec::new()
    }

    fn notes(&self, _: Millis) -> Option<PoolNotes> {
        None
    }

    fn reported_load(&self) -> Option<Load> {
        None
    }
}

struct Harness {
    engine: ResourceEngine<u32>,
    listeners: Listeners,
    batch: Batch<u32>,
    effects: Effects<u32>,
    now: Millis,
    may_decide: bool,
    tickets: u32,
}

impl Harness {
    fn new(source: Source, inherited: Option<Inherited>) -> Harness {
        let settings = Settings::new(AlgorithmKind::FairShare, Amount::clamped(100.0));
        let options = ResourceOptions { source, inherited, ..options(settings) };
        let idle_after = Millis::from_secs(10);
        let setup = Setup { options, keeps_notes: false, predecessor: None, idle_after };
        let (listeners, mut effects) = (Listeners::default(), Effects::default());
        let now = Now { at: Millis(1_000), unix: 0 };
        let moment = Moment { now, may_decide: true, max_holders: usize::MAX, environment: &listeners };
        let engine = ResourceEngine::new(setup, moment, &mut effects);
        Harness { engine, listeners, batch: Batch::default(), effects, now: now.at, may_decide: true, tickets: 0 }
    }

    fn own() -> Harness {
        Harness::new(Source::Own, None)
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Millis(ms));
    }

    /// Passes an input to the engine and returns its effects.
    fn step(&mut self, input: impl FnOnce(&mut ResourceEngine<u32>, Moment<'_>, &mut Effects<u32>)) -> Effects<u32> {
        let now = Now { at: self.now, unix: 0 };
        let (may_decide, environment) = (self.may_decide, &self.listeners);
        let moment = Moment { now, may_decide, max_holders: usize::MAX, environment };
        input(&mut self.engine, moment, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    /// A round of one request. Tickets count from 1.
    fn asks(&mut self, id: &str, wants: f64) -> Effects<u32> {
        self.request(Request::Ask(ask(id, wants, None)))
    }

    fn releases(&mut self, id: &str) -> Effects<u32> {
        self.request(Request::Release(Release {
            kind: CLIENT,
            id: id.into(),
            token: None,
            instance: None,
            spent: None,
        }))
    }

    fn request(&mut self, request: Request) -> Effects<u32> {
        self.tickets += 1;
        let mut batch = std::mem::take(&mut self.batch);
        batch.push(request, self.tickets);
        let effects = self.step(|engine, moment, effects| engine.run_round(moment, &mut batch, effects));
        assert!(batch.is_empty(), "each request is answered, held or waiting");
        self.batch = batch;
        effects
    }

    fn tick(&mut self) -> Effects<u32> {
        self.step(|engine, moment, effects| engine.tick(moment, false, effects))
    }

    fn wake(&mut self) -> Effects<u32> {
        self.step(|engine, moment, effects| engine.wake(moment, effects))
    }
}

/// The tickets that were answered.
fn answered(effects: &Effects<u32>) -> Vec<u32> {
    effects.replies.iter().map(|(ticket, _)| *ticket).collect()
}

fn granted(effects: &Effects<u32>) -> Vec<f64> {
    let leases = effects.replies.iter().filter_map(|(_, reply)| reply.as_ref().ok().and_then(Answer::lease));
    leases.map(|lease| lease.capacity.get()).collect()
}

#[test]
fn without_mastership_nothing_is_decided() {
    let mut harness = Harness::own();
    harness.may_decide = false;
    let effects = harness.asks("a", 10.0);
    assert_eq!(effects.replies, [(1, Err(LostMastership))]);
    assert!(harness.tick().is_empty());
    assert_eq!(harness.engine.resource().charged_slots(), 0);
}

#[test]
fn idle_resource_retires() {
    let mut harness = Harness::own();
    harness.asks("a", 10.0);
    harness.releases("a");
    for _ in 0..10 {
        assert_eq!(harness.tick().ended, None);
        harness.pass(1_000);
    }
    assert_eq!(harness.tick().ended, Some(Ended::Retired));
}

// Commits.

fn promising() -> Harness {
    Harness::new(Source::Own, Some(Inherited::default()))
}

#[test]
fn answer_with_a_new_promise_waits_for_its_commit() {
    let mut harness = promising();
    let effects = harness.asks("a", 10.0);
    let number = effects.changes.as_ref().expect("it is to be written").number;
    assert_eq!(answered(&effects), [0; 0], "not stored yet");
    let effects = harness.step(|engine, _, effects| engine.committed(number, effects));
    assert_eq!((answered(&effects), granted(&effects)), (vec![1], vec![10.0]));
    assert_eq!(answered(&harness.releases("a")), [2], "a release promises nothing");
}

#[test]
fn rounds_continue_during_a_commit() {
    let mut harness = promising();
    let first = harness.asks("a", 10.0).changes.expect("changes").number;
    let second = harness.asks("b", 40.0).changes.expect("changes").number;
    assert!(second > first);
    let effects = harness.step(|engine, _, effects| engine.committed(second, effects));
    assert_eq!(answered(&effects), [1, 2], "all up to a number are stored");
    let effects = harness.step(|engine, _, effects| engine.committed(second, effects));
    assert!(effects.is_empty(), "a repeated acknowledgement has no effect");
}

#[test]
fn a_lost_commit_ends_the_incarnation() {
    let mut harness = promising();
    harness.asks("a", 10.0);
    let effects = harness.step(|engine, _, effects| engine.commit_lost(effects));
    assert_eq!((effects.ended, effects.replies.len()), (Some(Ended::CommitLost), 0));
}

// Hints.

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
fn visits_of_watched_holders_are_paced() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.listens("b");
    harness.asks("a", 100.0);
    harness.pass(50);
    let effects = harness.asks("b", 100.0);
    assert_eq!(hinted(&effects), ["a"], "hinted immediately");
    assert!(effects.wake_at.is_some(), "the hint may be repeated");
    harness.pass(49);
    let steps = [harness.asks("a", 100.0), harness.asks("c", 100.0), harness.releases("a")];
    assert!(steps.iter().all(|effects| effects.hints.is_empty()), "49 ms after the last visit");
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
fn wake_up_is_requested_once() {
    let mut harness = Harness::own();
    harness.listens("a");
    harness.asks("a", 100.0);
    harness.pass(50);
    let at = harness.asks("b", 100.0).wake_at.expect("the hint is to be repeated");
    harness.pass(10);
    assert_eq!(harness.asks("b", 100.0).wake_at.filter(|again| *again >= at), None);
}

#[test]
fn unwatched_holder_is_not_hinted() {
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
fn new_holder_that_listens_is_watched() {
    let mut harness = Harness::own();
    harness.listeners.0.insert("a".into());
    harness.asks("a", 100.0);
    harness.pass(50);
    assert_eq!(hinted(&harness.asks("b", 100.0)), ["a"]);
}

// Requests that wait for a supply.

fn child() -> Harness {
    Harness::new(Source::Parent, None)
}

impl Harness {
    fn supplied(&mut self, capacity: f64) -> Effects<u32> {
        self.supplied_by(capacity, Terms::Wants)
    }

    fn supplied_by(&mut self, capacity: f64, terms: Terms) -> Effects<u32> {
        let supply = Supply {
            capacity: Amount::clamped(capacity),
            until: self.now.plus(Millis::from_secs(300)),
            version: 1,
            groups: Vec::new(),
            terms: vec![(0, terms)],
            period: None,
        };
        let settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        let mut batch = std::mem::take(&mut self.batch);
        let effects = self.step(|engine, moment, effects| engine.supply(moment, supply, settings, &mut batch, effects));
        self.batch = batch;
        effects
    }

    fn summarizes(&mut self) {
        self.step(|engine, moment, _| assert!(engine.summarize(moment).is_some()));
    }

    /// One client holds the whole supply.
    fn lent_out() -> Harness {
        let mut harness = child();
        harness.asks("a", 8.0);
        harness.summarizes();
        assert_eq!(granted(&harness.supplied(8.0)), [8.0]);
        harness
    }
}

#[test]
fn requests_wait_for_the_supply_and_are_answered_together() {
    let mut harness = child();
    let effects = harness.asks("a", 60.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    let effects = harness.asks("b", 60.0);
    assert!(answered(&effects).is_empty() && !effects.asks_parent, "the parent was asked already");
    let effects = harness.supplied_by(100.0, Terms::Level(50.0));
    assert_eq!((answered(&effects), granted(&effects)), (vec![1, 2], vec![50.0, 50.0]));
    assert_eq!(answered(&harness.asks("c", 1.0)), [3], "the parent has no more to lend");
}

#[test]
fn overdue_request_is_answered_without_supply() {
    let mut harness = child();
    let at = harness.asks("a", 60.0).wake_at.expect("the wait is bounded");
    harness.pass(500);
    harness.asks("b", 60.0);
    harness.now = at;
    let effects = harness.wake();
    assert_eq!(effects.replies, [(1, Ok(Answer::NotYet))]);
    assert_eq!(effects.wake_at, Some(at.plus(Millis(500))), "for the other request");
    assert_eq!(answered(&harness.supplied(100.0)), [2], "it is not answered again");
}

#[test]
fn without_mastership_no_request_waits() {
    let mut harness = child();
    harness.asks("a", 60.0);
    harness.may_decide = false;
    assert_eq!(harness.tick().replies, [(1, Err(LostMastership))]);
    let summary = harness.step(|engine, moment, _| assert_eq!(engine.summarize(moment), None));
    assert!(summary.is_empty());
}

#[test]
fn parent_is_asked_again_only_after_a_change() {
    let mut harness = child();
    assert!(harness.asks("a", 60.0).asks_parent);
    harness.step(|engine, moment, _| assert!(engine.summarize(moment).is_some()));
    harness.supplied(100.0);
    assert!(!harness.asks("a", 60.0).asks_parent);
    assert!(harness.asks("b", 60.0).asks_parent);
}

#[test]
fn new_client_waits_for_the_next_supply() {
    let mut harness = Harness::lent_out();
    let effects = harness.asks("b", 20.0);
    assert!(answered(&effects).is_empty() && effects.asks_parent);
    assert!(answered(&harness.supplied(8.0)).is_empty(), "this supply answers an earlier report");
    harness.summarizes();
    let effects = harness.supplied(28.0);
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![20.0]));
}

#[test]
fn small_new_demand_is_reported_at_once() {
    let mut harness = Harness::lent_out();
    let effects = harness.asks("b", 0.01);
    assert!(answered(&effects).is_empty() && effects.asks_parent, "smaller changes usually wait for the next refresh");
}

#[test]
fn after_a_vain_wait_no_request_waits() {
    let mut harness = Harness::lent_out();
    harness.asks("b", 20.0);
    harness.pass(1000);
    let effects = harness.wake();
    assert_eq!((answered(&effects), granted(&effects)), (vec![2], vec![0.0]), "decided from the current supply");
    assert_eq!(granted(&harness.asks("c", 20.0)), [0.0]);
    harness.summarizes();
    harness.supplied(8.0);
    assert!(answered(&harness.asks("d", 20.0)).is_empty());
}

#[test]
fn client_with_a_lease_does_not_wait() {
    let mut harness = Harness::lent_out();
    assert_eq!(granted(&harness.asks("a", 20.0)), [8.0]);
}

#[test]
fn no_client_waits_if_the_parent_divides() {
    let mut harness = child();
    harness.asks("a", 60.0);
    harness.summarizes();
    harness.supplied_by(50.0, Terms::Level(50.0));
    assert_eq!(granted(&harness.asks("b", 60.0)), [0.0]);
}
