//! Random histories with failovers: masters die at any time, several times over; log entries are lost, or stored
//! without reaching any client; peers apply entries late, with different clocks, or restart from a snapshot.
//!
//! In addition to the invariants, every step checks that stored promises cover each sent answer, that totals never rise
//! above the capacity, and that every master counts all leases in use as held or unclaimed.

use proptest::prelude::*;

use super::{
    cases,
    harness::{Actor, Echo, Event, Harness, ask, one, options},
    histories::{
        actors, any_settings, below_a_parent, event, maybe_grouped, settings, settings_below_a_parent, supply,
    },
};
use crate::{
    lease::promises::Inherited,
    policy::settings::{AlgorithmKind, Priority, Reuse, Settings},
    resource::{Answer, Request, ResourceOptions, invariant},
    types::{Amount, Sum},
};

fn fault() -> impl Strategy<Value = Event> {
    let gap = prop_oneof![2 => Just(0u64), 2 => 0..3_000u64, 1 => 0..100_000u64];
    prop_oneof![
        6 => (1..4usize, proptest::bool::weighted(0.85)).prop_map(|(entries, heard)| Event::Store { entries, heard }),
        2 => (any::<usize>(), 1..6usize).prop_map(|(peer, entries)| Event::CatchUp { peer: peer % 3, entries }),
        1 => any::<usize>().prop_map(Event::Restart),
        1 => (0..3usize, gap, any::<usize>()).prop_map(|(survive, gap, next)| Event::Fail { survive, gap, next: next % 3 }),
        2 => Just(Event::Tick),
    ]
}

fn events(capacities: bool, most: usize) -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(prop_oneof![3 => event(capacities), 1 => fault()], 1..most)
}

fn keeping(settings: Settings) -> ResourceOptions {
    ResourceOptions { inherited: Some(Inherited::default()), ..options(settings) }
}

fn run(settings: Settings, actors: Vec<Actor>, events: &[Event]) -> Result<Harness, TestCaseError> {
    let mut harness = Harness::new(keeping(settings), actors);
    for event in events {
        harness.step(event)?;
    }
    Ok(harness)
}

fn unbounded() -> impl Strategy<Value = Settings> {
    (proptest::sample::select(vec![AlgorithmKind::NoAlgorithm, AlgorithmKind::Static]), 1.0..300.0)
        .prop_map(|(kind, capacity)| Settings::new(kind, Amount::clamped(capacity)))
}

proptest! {
    #![proptest_config(cases(1000))]

    /// Both reuse modes, with all kinds of algorithms, with and without cuts of the capacity.
    #[test]
    fn across_failovers_believed_leases_stay_within_the_capacity(
        settings in prop_oneof![2 => settings(Reuse::Confirmed), 1 => settings(Reuse::Prompt), 1 => unbounded(),
            1 => maybe_grouped()],
        actors in actors(),
        events in prop_oneof![events(false, 300), events(true, 300)],
    ) {
        run(settings, actors, &events)?;
    }
}

proptest! {
    #![proptest_config(cases(250))]

    /// Each master requests a supply of its own. Before the first supply it decides nothing, and no client loses
    /// capacity.
    #[test]
    fn across_failovers_a_child_node_grants_no_more_than_it_was_lent(
        settings in settings_below_a_parent(Reuse::Confirmed),
        actors in actors(),
        events in proptest::collection::vec(prop_oneof![6 => event(true), 2 => fault(), 1 => supply()], 1..300),
    ) {
        let options = ResourceOptions { inherited: Some(Inherited::default()), ..below_a_parent(settings) };
        let mut harness = Harness::new(options, actors);
        for event in &events {
            harness.step(event)?;
        }
    }

    #[test]
    fn after_the_last_fault_stable_demands_settle(
        settings in any_settings(),
        actors in actors(),
        events in events(true, 150),
    ) {
        let reuse = settings.reuse;
        let mut harness = run(settings, actors, &events)?;
        harness.drop_in_flight();
        // Leases of dead clients, and of clients that never confirm, expire at the horizon at the latest.
        harness.step(&Event::Pass(110_000))?;
        harness.step(&Event::Tick)?;
        for actor in &mut harness.actors {
            actor.echo = Echo::Token;
        }
        let refreshes = 1 + if reuse == Reuse::Prompt { 2 } else { 3 };
        for _ in 0..refreshes {
            harness.refresh_all()?;
        }
        invariant::settled(&harness.resource, harness.at())?;
        prop_assert_eq!(harness.resource.promises().expect("promises are kept").unclaimed, Amount::ZERO);
    }

    #[test]
    fn a_new_master_grants_capacity_to_a_new_client_immediately(
        settings in settings(Reuse::Confirmed),
        actors in actors(),
        events in events(false, 150),
    ) {
        let settings = Settings { priority: Priority::Ignore, ..settings };
        let mut harness = run(settings, actors, &events)?;
        harness.step(&Event::Fail { survive: 9, gap: 100, next: 1 })?;
        let promised = harness.resource.promises().expect("promises are kept").unclaimed;
        let free = (Sum::from(harness.resource.settings().capacity) - promised.into()).get();
        let now = crate::types::Now { at: harness.at(), ..super::harness::now_at(harness.now) };
        let answer = one(&mut harness.resource, now, Request::Ask(ask("newcomer", 1e6, None)));
        let Answer::Granted(lease) = answer else { panic!("{answer:?}") };
        prop_assert!(lease.capacity > Amount::ZERO || free <= 1e-9, "{} free, {:?}", free, lease);
        prop_assert!(lease.capacity == Amount::ZERO || free > 0.0, "{} free, {:?}", free, lease);
        prop_assert!(!harness.resource.is_learning(now.at));
    }

    #[test]
    fn packing_changes_no_answer_of_a_chain_of_masters(
        settings in prop_oneof![any_settings(), unbounded()],
        actors in actors(),
        events in events(true, 250),
    ) {
        let plain = run(settings.clone(), actors.clone(), &events)?;
        let mut packed = Harness::new(keeping(settings), actors).packing();
        events.iter().try_for_each(|event| packed.step(event))?;
        invariant::replayed(&plain.log, &packed.log)?;
        prop_assert_eq!(plain.resource.promises(), packed.resource.promises());
        prop_assert!(packed.packed() > 0);
    }

    #[test]
    fn leases_may_be_renewed_without_a_round_under_any_chain_of_masters(
        settings in prop_oneof![any_settings(), unbounded()],
        actors in actors(),
        events in events(true, 250),
    ) {
        let mut harness = Harness::new(keeping(settings), actors).renewing();
        events.iter().try_for_each(|event| harness.step(event))?;
        (0..2).try_for_each(|_| harness.refresh_all())?;
    }

    #[test]
    fn replaying_a_chain_of_masters_gives_the_same_answers(
        settings in any_settings(),
        actors in actors(),
        events in events(true, 150),
    ) {
        let first = run(settings.clone(), actors.clone(), &events)?;
        let again = run(settings, actors, &events)?;
        invariant::replayed(&first.log, &again.log)?;
        prop_assert_eq!(first.resource.promises(), again.resource.promises());
    }
}

/// Constant demand costs ever fewer changes, and no answer waits for them.
#[test]
fn a_steady_state_writes_only_horizons_to_the_log() {
    let actors = (0..40).map(|n| client(n, 1.0 + n as f64)).collect();
    let mut harness = Harness::new(keeping(Settings::new(AlgorithmKind::FairShare, Amount::clamped(500.0))), actors);
    for _ in 0..4 {
        harness.refresh_all().expect("nothing is violated");
    }
    let (before, since) = (harness.peers.as_ref().expect("there are peers").written, harness.now);
    for _ in 0..100 {
        harness.step(&Event::Pass(16_000)).expect("nothing is violated");
        for n in 0..40 {
            harness.step(&Event::Send(n)).expect("nothing is violated");
            harness.step(&Event::Arrive { most: 1, pick: 0 }).expect("nothing is violated");
            // A waiting answer would not arrive, because its change is stored later.
            harness.step(&Event::Answer(0)).expect("nothing is violated");
            assert!(harness.is_answered(n), "the answer of {n} waited");
            harness.step(&Event::Store { entries: 9, heard: true }).expect("nothing is violated");
        }
    }
    let written = harness.peers.as_ref().expect("there are peers").written - before;
    let half_leases = harness.now.since(since).0 / 30_000;
    assert!(written >= 4 && written as u64 <= half_leases / 6, "{written} changes in {half_leases} half leases");
}

/// Of five holders with constant demands, each is answered by a round only when a horizon moves.
#[test]
fn in_a_steady_state_leases_are_renewed_without_rounds() {
    let actors = (0..5).map(|n| client(n, 1.0 + n as f64)).collect();
    let settings = Settings::new(AlgorithmKind::FairShare, Amount::clamped(500.0));
    let mut harness = Harness::new(keeping(settings), actors).renewing();
    (0..40).for_each(|_| harness.refresh_all().expect("nothing is violated"));
    let (renewed, written) = (harness.renewed(), harness.peers.as_ref().expect("there are peers").written);
    for _ in 0..200 {
        harness.refresh_all().expect("nothing is violated");
        let due: Vec<f64> = harness.actors.iter().filter_map(|actor| Some(actor.lease?.0.capacity.get())).collect();
        assert_eq!(due, [1.0, 2.0, 3.0, 4.0, 5.0]);
    }
    let written = harness.peers.as_ref().expect("there are peers").written - written;
    let by_rounds = 1000 - (harness.renewed() - renewed);
    assert!(by_rounds <= 10 * written && by_rounds < 50, "{by_rounds} of 1000 by rounds, {written} changes");
}

/// After a long quiet time, a change of demand lowers the total within a lease length.
#[test]
fn the_total_of_a_quiet_resource_falls_with_the_demand() {
    let actors = (0..4).map(|n| client(n, 100.0)).collect();
    let mut harness = Harness::new(keeping(Settings::new(AlgorithmKind::FairShare, Amount::clamped(500.0))), actors);
    let refresh = |harness: &mut Harness| {
        harness.step(&Event::Pass(10_000)).expect("nothing is violated");
        harness.refresh_all().expect("nothing is violated");
        harness.step(&Event::Store { entries: 99, heard: true }).expect("nothing is violated");
    };
    (0..100).for_each(|_| refresh(&mut harness));
    let total = |harness: &Harness| harness.resource.promises().expect("promises are kept").total;
    assert!(total(&harness) >= Amount::clamped(400.0));
    for actor in &mut harness.actors {
        actor.claims[0].wants = Amount::clamped(1.0);
    }
    (0..8).for_each(|_| refresh(&mut harness));
    assert!(total(&harness) <= Amount::clamped(100.0), "{:?}", total(&harness));
}

fn client(n: usize, wants: f64) -> Actor {
    let claims = crate::types::Claims::from_slice(&[crate::types::Claim::of_client(Amount::clamped(wants), 0)]);
    Actor::new(n, crate::types::HolderKind::Client, Echo::Token, claims)
}
