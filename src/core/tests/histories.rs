//! Random histories: requests, lost, late and repeated messages, releases, deaths, expiries, capacity changes.

use proptest::prelude::*;

use super::{
    cases,
    harness::{Actor, Echo, Event, Harness, options},
};
use crate::{
    policy::{
        client_rules::ClientRule,
        groups::{GroupPattern, GroupRule, GroupSettings},
        settings::{AlgorithmKind, Priority, Reuse, Settings},
    },
    resource::{ResourceOptions, invariant, supply::Source},
    types::{Amount, Claim, Claims, Glob, HolderKind, Millis},
};

pub(in crate::tests) fn event(capacities: bool) -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => any::<usize>().prop_map(Event::Send),
        8 => (1..6usize, any::<usize>()).prop_map(|(most, pick)| Event::Arrive { most, pick }),
        2 => any::<usize>().prop_map(Event::ArriveTwice),
        8 => any::<usize>().prop_map(Event::Answer),
        1 => any::<usize>().prop_map(Event::LoseRequest),
        1 => any::<usize>().prop_map(Event::LoseAnswer),
        4 => prop_oneof![Just(1u64), 100..3_000u64, 3_000..30_000u64].prop_map(Event::Pass),
        3 => (any::<usize>(), prop_oneof![0.0..200.0, Just(0.0), Just(1000.0)]).prop_map(|(n, w)| Event::Want(n, w)),
        2 => any::<usize>().prop_map(Event::Drain),
        1 => any::<usize>().prop_map(Event::Release),
        1 => any::<usize>().prop_map(Event::Die),
        1 => (0.0..500.0).prop_map(move |capacity| if capacities { Event::Capacity(capacity) } else { Event::Pass(1) }),
    ]
}

/// Actions of a parent: it lends more or less, for long or for a moment.
pub(super) fn supply() -> impl Strategy<Value = Event> {
    let length = prop_oneof![3 => 20_000..90_000u64, 2 => 1_000..20_000u64, 1 => 0..1_000u64, 1 => Just(600_000u64)];
    let capacity = prop_oneof![4 => 0.0..500.0, 1 => Just(0.0)];
    (capacity, length).prop_map(|(capacity, length)| Event::Supply { capacity, length })
}

/// Below a parent all algorithms share one lease.
pub(super) fn settings_below_a_parent(reuse: Reuse) -> impl Strategy<Value = Settings> {
    (settings(reuse), proptest::sample::select(AlgorithmKind::ALL[..5].to_vec()))
        .prop_map(|(settings, kind)| Settings { kind, ..settings })
}

pub(super) fn below_a_parent(settings: Settings) -> ResourceOptions {
    ResourceOptions { source: Source::Parent, ..options(settings) }
}

fn claims(kind: HolderKind, wants: f64, shape: u32) -> Claims {
    let claim = |subclients: u32, priority| Claim::new(Amount::clamped(wants), subclients, priority);
    match kind {
        HolderKind::Client => Claims::from_slice(&[claim(1, (shape % 3) as i16)]),
        HolderKind::Node => (0..1 + shape % 3).map(|n| claim(1 + shape, n as i16)).collect(),
    }
}

pub(super) fn actors() -> impl Strategy<Value = Vec<Actor>> {
    let echo =
        prop_oneof![4 => Just(Echo::Token), 1 => Just(Echo::Plain), 1 => Just(Echo::Unknowing), 1 => Just(Echo::Never)];
    let kind = prop_oneof![3 => Just(HolderKind::Client), 1 => Just(HolderKind::Node)];
    proptest::collection::vec((kind, echo, 0.0..200.0, 0..4u32), 1..8).prop_map(|actors| {
        let actor = |(n, (kind, echo, wants, shape))| Actor::new(n, kind, echo, claims(kind, wants, shape));
        actors.into_iter().enumerate().map(actor).collect()
    })
}

pub(super) fn settings(reuse: Reuse) -> impl Strategy<Value = Settings> {
    let kind = proptest::sample::select(vec![AlgorithmKind::ProportionalShare, AlgorithmKind::FairShare]);
    let strict = |reserve| (Priority::Strict, reserve);
    let priority = prop_oneof![
        3 => Just((Priority::Ignore, 0.0)),
        2 => Just(strict(0.0)),
        1 => (0.01..1.0).prop_map(strict),
        1 => Just((Priority::Weighted, 0.0)),
    ];
    (kind, priority, prop_oneof![3 => 1.0..500.0, 1 => Just(0.0)], any::<bool>()).prop_map(
        move |(kind, priority, capacity, interval)| {
            let mut settings = Settings::new(kind, Amount::clamped(capacity));
            (settings.priority, settings.reserve) = priority;
            settings.reuse = reuse;
            if !interval {
                settings.min_request_interval = Millis(0);
            }
            settings
        },
    )
}

/// All clients are in one group, which keeps a minimum, and each in one of its own. Child nodes are in another.
fn grouped(settings: Settings) -> Settings {
    let mut groups = GroupSettings::new(GroupPattern::new("h{all}der-{number}").expect("a valid pattern"));
    let limits = |path: &str, min: f64, max: f64| {
        let mut limits = ClientRule::new(path, Glob::new(path).expect("a valid pattern"));
        (limits.min, limits.max) = (Amount::clamped(min), Some(Amount::clamped(max)));
        limits
    };
    assert!(groups.push(GroupRule { limits: limits("ol", 50.0, 300.0), lends: false }));
    assert!(groups.push(GroupRule { limits: limits("ol/1", 20.0, 60.0), lends: true }));
    Settings { groups: Some(groups.into()), ..settings }
}

pub(super) fn any_settings() -> impl Strategy<Value = Settings> {
    prop_oneof![settings(Reuse::Confirmed), settings(Reuse::Prompt)]
}

pub(super) fn maybe_grouped() -> impl Strategy<Value = Settings> {
    prop_oneof![3 => any_settings(), 1 => any_settings().prop_map(grouped)]
}

fn run(options: ResourceOptions, actors: Vec<Actor>, events: &[Event]) -> Result<Harness, TestCaseError> {
    let mut harness = Harness::new(options, actors);
    for event in events {
        harness.step(event)?;
    }
    Ok(harness)
}

proptest! {
    #![proptest_config(cases(1200))]

    /// With `prompt`, clients may use an old lease until the answer arrives, so only the held amount is bounded.
    #[test]
    fn believed_leases_stay_within_the_capacity(
        settings in prop_oneof![2 => settings(Reuse::Confirmed), 1 => settings(Reuse::Prompt)],
        actors in actors(),
        events in prop_oneof![
            proptest::collection::vec(event(false), 1..250),
            proptest::collection::vec(event(true), 1..250),
        ],
    ) {
        run(options(settings), actors, &events)?;
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Groups change what is fair, not what is safe.
    #[test]
    fn believed_leases_of_groups_stay_within_the_capacity(
        settings in any_settings().prop_map(grouped),
        actors in actors(),
        events in proptest::collection::vec(event(true), 1..250),
        whole_units in any::<bool>(),
    ) {
        run(options(Settings { whole_units, ..settings }), actors, &events)?;
    }

    #[test]
    fn learning_mode_restores_no_more_than_the_capacity(
        settings in maybe_grouped(),
        actors in actors(),
        events in proptest::collection::vec(event(false), 1..150),
    ) {
        let options = ResourceOptions { learning_until: Millis(60_000), ..options(settings) };
        run(options, actors, &events)?;
    }

    #[test]
    fn after_any_history_stable_demands_settle(
        settings in maybe_grouped(),
        actors in actors(),
        events in proptest::collection::vec(event(true), 0..150),
    ) {
        let reuse = settings.reuse;
        let mut harness = run(options(settings), actors, &events)?;
        // Leases of dead clients, and of clients that never confirm, expire first.
        harness.step(&Event::Pass(120_000))?;
        harness.resource.tick(harness.now);
        for actor in &mut harness.actors {
            actor.echo = Echo::Token;
        }
        // The first report of each client is not a refresh yet.
        let refreshes = 1 + if reuse == Reuse::Prompt { 2 } else { 3 };
        for _ in 0..refreshes {
            harness.refresh_all()?;
        }
        invariant::settled(&harness.resource, harness.now)?;
    }

    #[test]
    fn a_child_node_grants_no_more_and_no_longer_than_it_was_lent(
        settings in settings_below_a_parent(Reuse::Confirmed),
        actors in actors(),
        events in proptest::collection::vec(prop_oneof![6 => event(true), 1 => supply(), 1 => Just(Event::Tick)], 1..250),
    ) {
        run(below_a_parent(settings), actors, &events)?;
    }

    #[test]
    fn a_learning_child_node_restores_no_more_than_it_was_lent(
        settings in settings_below_a_parent(Reuse::Confirmed),
        actors in actors(),
        events in proptest::collection::vec(prop_oneof![6 => event(false), 1 => supply()], 1..150),
    ) {
        run(ResourceOptions { learning_until: Millis(60_000), ..below_a_parent(settings) }, actors, &events)?;
    }

    #[test]
    fn after_any_history_of_supplies_stable_demands_settle(
        settings in settings(Reuse::Confirmed),
        actors in actors(),
        events in proptest::collection::vec(prop_oneof![6 => event(true), 1 => supply()], 0..150),
        lent in 0.0..500.0,
    ) {
        let mut harness = run(below_a_parent(settings), actors, &events)?;
        harness.step(&Event::Pass(120_000))?;
        harness.resource.tick(harness.now);
        for actor in &mut harness.actors {
            actor.echo = Echo::Token;
        }
        harness.step(&Event::Supply { capacity: lent, length: 600_000 })?;
        for _ in 0..4 {
            harness.refresh_all()?;
        }
        invariant::settled(&harness.resource, harness.now)?;
    }

    #[test]
    fn packing_changes_no_answer(
        settings in any_settings(),
        learning_until in prop_oneof![Just(Millis(0)), Just(Millis(60_000))],
        actors in actors(),
        events in proptest::collection::vec(event(true), 1..250),
    ) {
        let options = ResourceOptions { learning_until, ..options(settings) };
        let plain = run(options.clone(), actors.clone(), &events)?;
        let mut packed = Harness::new(options, actors).packing();
        events.iter().try_for_each(|event| packed.step(event))?;
        invariant::replayed(&plain.log, &packed.log)?;
        prop_assert_eq!(plain.resource.sums(), packed.resource.sums());
        prop_assert!(packed.packed() > 0);
    }

    #[test]
    fn leases_may_be_renewed_without_a_round_in_any_history(
        settings in any_settings(),
        actors in actors(),
        events in proptest::collection::vec(event(true), 1..250),
    ) {
        let mut harness = Harness::new(options(settings), actors).renewing();
        events.iter().try_for_each(|event| harness.step(event))?;
        (0..2).try_for_each(|_| harness.refresh_all())?;
    }

    #[test]
    fn replaying_a_history_gives_the_same_answers(
        settings in maybe_grouped(),
        actors in actors(),
        events in proptest::collection::vec(event(true), 1..150),
    ) {
        let first = run(options(settings.clone()), actors.clone(), &events)?;
        // A different seed of the hash table must not change results.
        let again = run(ResourceOptions { seed: 1234, ..options(settings) }, actors, &events)?;
        invariant::replayed(&first.log, &again.log)?;
        prop_assert_eq!(first.resource.sums(), again.resource.sums());
    }
}
