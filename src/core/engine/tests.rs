//! The engine on a clock that the tests move: what waits for what, and how often anything happens.

mod commits;
mod hints;
mod waiting;

use std::collections::HashSet;

use crate::{
    allocation::division::Terms,
    lease::promises::Inherited,
    policy::{
        overrides::Load,
        settings::{AlgorithmKind, Settings},
    },
    pool::{Assigned, PoolNotes},
    resource::{Answer, Ask, Birth, Release, Request, supply::Source},
    types::{
        amount::Amount,
        claim::{Claim, Claims, HolderKind},
        principal::ChargedTo,
        time::{Millis, Now},
        token::Epoch,
    },
};

use super::*;

const CLIENT: HolderKind = HolderKind::Client;

/// Who listens; nothing else is remembered of the resource.
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
        let birth = Birth {
            settings: Settings::new(AlgorithmKind::FairShare, Amount::clamped(100.0)),
            source,
            epoch: Epoch(1),
            since: Millis(0),
            learning_until: Millis(0),
            inherited,
            max_holders: usize::MAX,
            seed: 1,
        };
        let idle_after = Millis::from_secs(10);
        let setup = Setup { birth, keeps_notes: false, predecessor: None, idle_after };
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

    /// Hands the engine the moment, and returns what came of it.
    fn step(&mut self, input: impl FnOnce(&mut ResourceEngine<u32>, Moment<'_>, &mut Effects<u32>)) -> Effects<u32> {
        let now = Now { at: self.now, unix: 0 };
        let (may_decide, environment) = (self.may_decide, &self.listeners);
        let moment = Moment { now, may_decide, max_holders: usize::MAX, environment };
        input(&mut self.engine, moment, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    /// A round of one request. Tickets count from 1.
    fn asks(&mut self, id: &str, wants: f64) -> Effects<u32> {
        let claims = Claims::from_slice(&[Claim::of_client(Amount::clamped(wants), 0)]);
        let ask = Ask {
            kind: CLIENT,
            id: id.into(),
            claims,
            has: None,
            had: None,
            outstanding: None,
            learning: false,
            drops_late: true,
            is_gateway: false,
            instance: None,
            news: None,
            charged_to: ChargedTo::default(),
        };
        self.request(Request::Ask(ask))
    }

    fn releases(&mut self, id: &str) -> Effects<u32> {
        self.request(Request::Release(Release { kind: CLIENT, id: id.into(), token: None, instance: None }))
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
    assert_eq!(harness.engine.resource().places(), 0);
}

#[test]
fn a_resource_that_is_held_by_no_one_for_long_enough_retires() {
    let mut harness = Harness::own();
    harness.asks("a", 10.0);
    harness.releases("a");
    for _ in 0..10 {
        assert_eq!(harness.tick().ended, None);
        harness.pass(1_000);
    }
    assert_eq!(harness.tick().ended, Some(Ended::Retired));
}
