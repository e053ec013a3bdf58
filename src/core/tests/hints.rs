//! Random histories with listeners: hints are few and go to listeners only, and holders that follow them soon have
//! their dues.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    cases,
    harness::{Actor, Echo, Event, Harness, options},
    histories::{actors, any_settings, event},
};
use crate::{
    policy::settings::Settings,
    resource::{Resource, report::holder_reports, watch_list::Hint},
    types::{HolderKind, Millis},
};

#[derive(Debug, Clone)]
enum Step {
    Happens(Event),
    /// A holder opens or closes its stream of hints.
    Listen(usize),
    StopListening(usize),
    /// The caller asks for hints and visits at most this many holders.
    VisitHolders(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => event(true).prop_map(Step::Happens),
        2 => any::<usize>().prop_map(Step::Listen),
        1 => any::<usize>().prop_map(Step::StopListening),
        3 => (1..6usize).prop_map(Step::VisitHolders),
        2 => prop_oneof![Just(1u64), 50..400u64].prop_map(|ms| Step::Happens(Event::Pass(ms))),
    ]
}

/// Known listeners, and the time of the last hint to each.
type Listeners = BTreeMap<(bool, String), Option<Millis>>;

fn key(kind: HolderKind, id: &str) -> (bool, String) {
    (kind == HolderKind::Node, id.to_owned())
}

/// Watches new holders that listen, as a server does. A client that has released its lease and returns is a new holder.
fn watch_newcomers(resource: &mut Resource, listeners: &mut Listeners) {
    let newcomers: Vec<_> = resource.newcomers().map(|(kind, id)| (kind, id.to_string())).collect();
    for (kind, id) in newcomers {
        if let Some(last) = listeners.get_mut(&key(kind, &id)) {
            assert!(resource.watch(kind, &id), "new holders have records");
            *last = None;
        }
    }
}

fn hints(resource: &mut Resource, now: Millis, budget: usize) -> Vec<Hint> {
    let mut hints = Vec::new();
    resource.hints(now, budget, &mut hints);
    hints
}

/// All holders ask once, one after the other, without losses or delays.
fn all_ask(harness: &mut Harness) -> Result<(), TestCaseError> {
    for n in 0..harness.actors.len() {
        asks(harness, n)?;
    }
    Ok(())
}

fn asks(harness: &mut Harness, n: usize) -> Result<(), TestCaseError> {
    harness.drop_in_flight();
    for event in [Event::Send(n), Event::Arrive { most: 1, pick: 0 }, Event::Answer(0), Event::Drain(n)] {
        harness.step(&event)?;
    }
    Ok(())
}

/// Advances time in steps of 50 ms. Listeners ask as soon as they are hinted; no other client asks. Returns after six
/// steps without a hint.
fn follow(harness: &mut Harness) -> Result<(), TestCaseError> {
    const QUIET: u32 = 6;
    let mut quiet = 0;
    // Ten seconds are far more than necessary.
    for _ in 0..200 {
        let hints = hints(&mut harness.resource, harness.now, usize::MAX);
        quiet = if hints.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET {
            return Ok(());
        }
        for hint in hints {
            let n = harness.actors.iter().position(|actor| actor.id == hint.id).expect("only who listens is hinted");
            asks(harness, n)?;
        }
        harness.step(&Event::Pass(50))?;
    }
    Err(TestCaseError::fail("hints without end"))
}

/// Holders are as close to their dues as hints promise: the sum of what waiting holders lack is too small to ask for,
/// no holder keeps capacity that others wait for, and the held amount is within the capacity.
fn settled_by_hints(resource: &Resource, now: Millis) -> Result<(), TestCaseError> {
    let capacity = resource.settings().capacity.get();
    let holders = holder_reports(resource, now, 0, usize::MAX).0;
    let waiting = holders.iter().any(|h| h.due.get() - h.granted.get() > 0.005 * h.due.get() + 0.0075 * capacity);
    prop_assert!(!waiting, "a holder waits: {holders:#?}");
    let held = resource.sums().held.get();
    prop_assert!(held <= 1.0076 * capacity, "{held} are held of {capacity}: {holders:#?}");
    let lacking = holders.iter().any(|h| h.due.get() - h.granted.get() > 0.005 * h.due.get());
    for h in holders.iter().filter(|_| lacking) {
        prop_assert!(h.granted.get() - h.due.get() <= 0.005 * h.granted.get(), "{h:?} keeps what others lack");
        prop_assert!(h.held.get() - h.granted.get() <= 0.005 * h.held.get(), "{h:?} is in the way");
    }
    Ok(())
}

/// Long intervals, so that no refresh is due and no lease expires within a test.
fn unhurried(mut settings: Settings) -> Settings {
    (settings.refresh, settings.lease) = (Millis::from_secs(3_000), Millis::from_secs(10_000));
    settings
}

fn honest(mut actors: Vec<Actor>) -> Vec<Actor> {
    actors.iter_mut().for_each(|actor| actor.echo = Echo::Token);
    actors
}

/// Events that change dues while leases are live: changes of wants, releases, and changes of capacity.
fn news() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (any::<usize>(), prop_oneof![0.0..200.0, Just(0.0), Just(1000.0)]).prop_map(|(n, w)| Event::Want(n, w)),
        1 => any::<usize>().prop_map(Event::Release),
        1 => (0.0..500.0).prop_map(Event::Capacity),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn hints_go_to_listeners_only_and_once_in_200_ms(
        settings in any_settings(),
        actors in actors(),
        steps in proptest::collection::vec(step(), 1..250),
    ) {
        let mut harness = Harness::new(options(settings), actors);
        let mut listeners = Listeners::new();
        for step in &steps {
            match *step {
                Step::Happens(ref event) => {
                    harness.step(event)?;
                    watch_newcomers(&mut harness.resource, &mut listeners);
                }
                Step::Listen(n) => {
                    let actor = &harness.actors[n % harness.actors.len()];
                    harness.resource.watch(actor.kind, &actor.id);
                    listeners.entry(key(actor.kind, &actor.id)).or_default();
                }
                Step::StopListening(n) => {
                    let actor = &harness.actors[n % harness.actors.len()];
                    harness.resource.unwatch(actor.kind, &actor.id);
                    listeners.remove(&key(actor.kind, &actor.id));
                }
                Step::VisitHolders(budget) => {
                    let now = harness.now;
                    let hints = hints(&mut harness.resource, now, budget);
                    prop_assert!(hints.len() <= budget);
                    prop_assert!(hints.is_sorted_by_key(|hint| hint.reason));
                    for hint in hints {
                        let last = listeners.get_mut(&key(hint.kind, &hint.id));
                        let last = last.ok_or_else(|| TestCaseError::fail(format!("{hint:?} does not listen")))?;
                        let soonest = last.map(|last| last.plus(Millis(200)));
                        prop_assert!(soonest.is_none_or(|soonest| soonest <= now), "{hint:?} after {last:?}");
                        *last = Some(now);
                    }
                }
            }
        }
    }

    #[test]
    fn a_client_that_follows_hints_has_its_due_long_before_its_next_refresh(
        settings in any_settings(),
        actors in actors(),
        news in proptest::collection::vec(news(), 1..12),
    ) {
        let mut harness = Harness::new(options(unhurried(settings)), honest(actors));
        all_ask(&mut harness)?;
        for n in 0..harness.actors.len() {
            let (kind, id) = (harness.actors[n].kind, harness.actors[n].id.clone());
            prop_assert!(harness.resource.watch(kind, &id));
        }
        follow(&mut harness)?;
        settled_by_hints(&harness.resource, harness.now)?;
        for event in &news {
            harness.step(event)?;
            if let Event::Want(n, _) = event {
                // A client with new wants asks; one that returns after a release is a new holder.
                let n = n % harness.actors.len();
                asks(&mut harness, n)?;
                let (kind, id) = (harness.actors[n].kind, harness.actors[n].id.clone());
                prop_assert!(harness.resource.watch(kind, &id));
            }
            follow(&mut harness)?;
            settled_by_hints(&harness.resource, harness.now)?;
        }
    }
}
