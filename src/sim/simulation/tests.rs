use leaseway_core::{
    resource::{Release, Request},
    types::HolderKind,
};

use super::*;
use crate::{
    accounting::pool::{KickedOut, PoolFigures},
    network::message::{RequestMessage, Sender},
    scenario::{
        ClientSpec, Handover, NodeSpec, ParameterValue, ResourceSpec, Scenario, TimedFault, Wants, built_in,
        fault::{Fault, OverrideSpec},
    },
    units::{Between, WallTime},
};

mod limiters;
mod moving;

fn load(name: &str) -> Scenario {
    Scenario::parse(name, built_in(name).expect("it is built in")).expect("it is valid")
}

fn scenario(name: &str, change: impl FnOnce(&mut Scenario)) -> Plan {
    let mut scenario = load(name);
    change(&mut scenario);
    Plan::new(scenario).expect("it is valid")
}

fn run(plan: &Plan, seed: u64) -> Figures {
    plan.run(seed, RunOptions::default()).unwrap_or_else(|broken| panic!("{broken:?}"))
}

/// Three minutes with all kinds of faults.
fn trouble() -> Plan {
    scenario("random", |scenario| scenario.length = Span::millis(480_000))
}

#[test]
fn a_run_is_determined_by_its_seed() {
    let plan = trouble();
    let (first, again, other) = (run(&plan, 7), run(&plan, 7), run(&plan, 8));
    assert_eq!((&first.digest, first.events), (&again.digest, again.events));
    assert_eq!(first.usage, again.usage);
    assert_ne!(first.digest, other.digest);
}

/// Refresh intervals are those of Doorman's simulation: 8 s, 4 s and 2 s. The file only has that of the root.
#[test]
fn nodes_take_their_settings_from_their_parents() {
    let plan = scenario("five", |scenario| scenario.length = Span::millis(30_000));
    let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
    simulation.start().and_then(|()| simulation.run()).expect("no violation");
    for (place, node) in plan.tree.nodes.iter().zip(&simulation.nodes) {
        let settings = node.master.as_ref().expect("nothing goes wrong").engine.resource().settings();
        assert_eq!(settings.refresh.0, 8_000 >> place.level, "{}", place.name);
    }
}

#[test]
fn one_server_meets_all_demand_from_the_first_second_on() {
    let figures = run(&scenario("one", |_| {}), 1);
    assert!((99.0..101.0).contains(&figures.usage.of_wanted), "{figures:?}");
    assert_eq!((figures.usage.over_seconds, figures.usage.first_99_s), (0.0, Some(1.0)));
}

/// As in Doorman, a master without promises learns for the length of a lease.
#[test]
fn a_learning_master_grants_nothing_before_old_leases_have_expired() {
    let figures = run(&scenario("one", |scenario| scenario.handover = Handover::Learning), 1);
    let first = figures.usage.first_95_s.expect("they converge");
    assert!((61.0..70.0).contains(&first), "{first}");
}

#[test]
fn leases_expire_if_there_is_no_master_for_longer_than_a_lease() {
    let plan = scenario("three", |_| {});
    let figures = plan.run(1, RunOptions { curve: true, ..RunOptions::default() }).expect("no violation");
    let had = |second: u64| {
        let point = figures.curve.iter().find(|point| point.at == Millis(second * 1000)).expect("a point a second");
        point.had / point.wants.min(500.0)
    };
    assert!(had(119) > 0.95 && had(170) > 0.9, "leases last for a minute");
    assert_eq!(had(189), 0.0, "all have ended");
    assert!(had(210) > 0.95, "and there is a master again");
}

#[test]
fn a_tree_of_three_levels_uses_nearly_all_capacity_and_never_more() {
    let figures = run(&scenario("five", |scenario| scenario.length = Span::millis(300_000)), 1);
    assert!(figures.usage.of_wanted > 99.3, "{figures:?}");
    assert_eq!(figures.usage.over_seconds, 0.0);
}

#[test]
fn overuse_under_prompt_reuse_is_measured() {
    let prompt = |scenario: &mut Scenario| {
        scenario.length = Span::millis(600_000);
        scenario.network.delay = Between { least: Millis(10), most: Millis(100) };
        scenario.resource.parameters.insert("reuse".into(), ParameterValue::Text("prompt".into()));
    };
    let plan = scenario("six", prompt);
    let over = (1..20).map(|seed| run(&plan, seed).usage).find(|usage| usage.over_seconds > 0.0);
    let over = over.expect("in one run of many there is too much for a moment");
    assert!(over.over_seconds < 60.0 && over.over_most > 100.0, "{over:?}");
}

#[test]
fn after_faults_end_all_clients_get_their_due() {
    for handover in [Handover::Promises, Handover::Learning] {
        let plan = scenario("random", |scenario| {
            scenario.handover = handover;
            scenario.length = Span::millis(600_000);
        });
        let figures = run(&plan, 3);
        assert!(
            figures.settled_s.is_some() && figures.apart_at_end.worst <= MAX_DEVIATION_PERCENT,
            "{handover:?}: {figures:?}"
        );
    }
}

/// A client at a leaf gets its due with `slices`. If child nodes send sums of claims, it does not.
#[test]
fn a_lopsided_tree_is_as_fair_as_one_server() {
    let short = |scenario: &mut Scenario| scenario.length = Span::millis(120_000);
    assert!(run(&scenario("lopsided", short), 1).apart_at_end.worst < 1.0);
    let sums = scenario("lopsided", |scenario| {
        short(scenario);
        (scenario.slices, scenario.terms) = (false, false);
    });
    assert!(run(&sums, 1).apart_at_end.worst > 5.0);
}

/// The figures compare clients, so groups deviate no more.
#[test]
fn groups_of_a_lopsided_tree_share_like_those_of_one_server() {
    let figures = run(&scenario("lopsided_groups", |scenario| scenario.length = Span::millis(150_000)), 1);
    assert!(figures.apart_at_end.worst < 1.0, "{:?}", figures.apart_at_end);
}

#[test]
fn after_faults_end_all_clients_of_groups_get_their_due() {
    for (name, length) in [("random_groups", 600_000), ("cramped_groups", 400_000)] {
        let figures = run(&scenario(name, |scenario| scenario.length = Span::millis(length)), 3);
        let worst = figures.apart_at_end.worst;
        assert!(figures.settled_s.is_some() && worst <= MAX_DEVIATION_PERCENT, "{name}: {figures:?}");
    }
}

/// If a server grants more than the capacity, accounting notices at once, and the trace shows the events before it.
#[test]
fn overuse_is_found_and_reproducible() {
    let mut plan = scenario("five", |_| {});
    plan.settings.capacity = Amount::clamped(550.0);
    let keep = RunOptions { trace: true, ..RunOptions::default() };
    let broken = plan.run(1, keep).expect_err("550 of 500 are granted");
    assert_eq!(broken.violation.invariant, "I2");
    assert!(broken.trace.iter().any(|line| line.contains("datacenter9: master")));
    assert!(!broken.trace.is_empty() && broken.trace.len() <= MAX_TRACE + plan.tree.nodes.len());
    let again = plan.run(1, keep).expect_err("the same again");
    assert_eq!((broken.at, &broken.trace), (again.at, &again.trace));
    let figures =
        plan.run(1, RunOptions { continue_after_violation: true, ..RunOptions::default() }).expect("it goes on");
    assert!(figures.usage.over_most > 105.0 && figures.usage.over_seconds > 1_000.0, "{figures:?}");
}

#[test]
fn clients_without_their_due_are_found() {
    // Messages stop arriving, although the quiet period has begun.
    let plan = scenario("random", |scenario| {
        scenario.length = Span::millis(300_000);
        scenario.quiet = Some(Span::millis(20_000));
        scenario.network.deadline = Span::millis(1);
        scenario.network.delay = Between { least: Millis(21_000), most: Millis(21_000) };
    });
    assert_eq!(plan.run(1, RunOptions::default()).expect_err("no client gets anything").violation.invariant, "I5");
}

fn pool(change: impl FnOnce(&mut Scenario)) -> Plan {
    scenario("pool_surge", change)
}

fn pooled(figures: &Figures) -> &PoolFigures {
    figures.pool.as_ref().expect("it is a pool")
}

/// The master of a pool learns of usage up to one refresh late, and a client that has to leave uses its capacity until
/// its next refresh. Nevertheless, only the clients above the capacity have to leave.
#[test]
fn a_surge_kicks_out_only_the_clients_above_the_capacity() {
    let plan = pool(|_| {});
    let figures = plan.run(1, RunOptions { curve: true, ..RunOptions::default() }).expect("no violation");
    let at = |second: u64| {
        let point = figures.curve.iter().find(|point| point.at == Millis(second * 1000)).expect("a point");
        (point.had, point.pool.expect("it is a pool"))
    };
    let (had, before) = at(3_595);
    assert!(had > 150.0 && before.kicked_out == 0 && before.used < 60.0, "{had} {before:?}");
    let (had, after) = at(3_720);
    assert!((100.0..140.0).contains(&had), "120 use 100: {had}");
    let kicked_out = after.kicked_out - before.kicked_out;
    assert!((40..90).contains(&kicked_out), "180 - 120 are too many, {kicked_out} were kicked out");
}

#[test]
fn a_pool_is_overbooked_by_reported_usage() {
    let total = |plan: &Plan| {
        let figures = run(plan, 1);
        (pooled(&figures).total_most, figures.usage.of_capacity)
    };
    let short = |scenario: &mut Scenario| scenario.length = Span::millis(1_800_000);
    let (most, _) = total(&pool(short));
    assert!(most > 160.0, "{most}");
    let silent = pool(|scenario| {
        short(scenario);
        scenario.nodes[0].clients[0].uses = None;
    });
    let (most, connected) = total(&silent);
    assert!(
        most < 101.0 && connected > 80.0,
        "a client without reports counts as using everything: {most}, {connected}"
    );
}

/// Two nodes with half of the free clients each. One client at each has an assignment.
fn tree(scenario: &mut Scenario) {
    let strangers = &mut scenario.nodes[0].clients;
    strangers[0].count /= 2;
    let known = ClientSpec { count: 1, wants: Wants::Constant(8.0), assigned: Some(8.0), ..strangers[0].clone() };
    let clients = vec![strangers[0].clone(), known];
    strangers.clear();
    let leaf =
        NodeSpec { name: "leaf".into(), parent: Some("root".into()), times: 2, clients, ..scenario.nodes[0].clone() };
    scenario.nodes.push(leaf);
}

#[test]
fn overbooking_and_overloads_work_through_a_tree() {
    let figures = run(&pool(tree), 1);
    let pool = pooled(&figures);
    assert!(pool.total_most > 150.0 && pool.overloads > 0, "{pool:?}");
    let surge = |kicks: &&KickedOut| (60..63).contains(&kicks.minute);
    let kicked_out: u64 = pool.kicked_out_in.iter().filter(surge).map(|kicks| kicks.clients).sum();
    assert!((40..90).contains(&kicked_out), "about 196 - 120 are too many: {pool:?}");
    assert!(pool.used < 100.0, "{pool:?}");
}

/// No run violates an invariant, whatever the faults.
#[test]
fn pools_in_a_tree_keep_their_promises_under_faults() {
    for handover in [Handover::Promises, Handover::Learning] {
        let plan = scenario("random", |random| {
            let surge = load("pool_surge");
            random.handover = handover;
            random.length = Span::millis(900_000);
            random.resource = ResourceSpec { refresh: random.resource.refresh, ..surge.resource };
            random.nodes.truncate(1);
            random.nodes[0].clients = surge.nodes[0].clients.clone();
            tree(random);
            for random_faults in &mut random.random_faults {
                random_faults.one_of.retain(|chance| !named(&chance.what));
            }
        });
        let figures = run(&plan, 5);
        assert!(pooled(&figures).total_most > 101.0, "{handover:?}: {figures:?}");
    }
}

/// Whether a fault names a node that is not in every tree.
fn named(fault: &Fault) -> bool {
    matches!(fault, Fault::CutUplink { node: Some(_), .. })
}

/// Masters with promises and learning masters, with clients of every kind.
#[test]
fn no_client_loses_its_whole_capacity_because_masters_die() {
    for handover in [Handover::Promises, Handover::Learning] {
        run(&scenario("handover", |scenario| scenario.handover = handover), 1);
    }
}

#[test]
fn a_client_that_loses_its_whole_capacity_is_found() {
    let plan = scenario("handover", |scenario| {
        let back = Some(Between { least: Millis(70_000), most: Millis(70_000) });
        scenario.random_faults[0].one_of[1].what = Fault::LoseMaster { node: None, back };
    });
    assert_eq!(
        plan.run(1, RunOptions::default()).expect_err("leases last for a minute").violation.invariant,
        "no total loss"
    );
}

#[test]
fn newcomers_after_a_failover_do_not_wait_for_earlier_leases() {
    let waits = |handover| {
        let plan = scenario("newcomers", |scenario| scenario.handover = handover);
        run(&plan, 1).newcomers_worst_s.expect("five come")
    };
    let (knows, listens) = (waits(Handover::Promises), waits(Handover::Learning));
    assert!(knows < 10.0 && listens > knows, "{knows} {listens}");
    assert_eq!(run(&scenario("one", |_| {}), 1).newcomers_worst_s, None);
}

/// A client believes more than its node counts.
#[test]
fn capacity_that_no_node_counts_is_found() {
    let plan = scenario("one", |scenario| scenario.length = Span::millis(20_000));
    let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
    simulation.start().and_then(|()| simulation.run()).expect("no violation");
    simulation.audit().expect("no violation");
    simulation.clients[0].believes = Amount::clamped(501.0);
    assert_eq!(simulation.audit().expect_err("there are 500").invariant, "Σ held + unclaimed ≥ Σ believed");
    simulation.nodes[0].master = None;
    assert_eq!(simulation.audit().expect_err("there are 500").invariant, "T ≥ Σ believed");
}

/// Few clients and all kinds of faults.
#[test]
fn the_safety_invariant_holds_in_cramped_trees() {
    let trees = [
        ("cramped_tree", 1..3),
        ("cramped_nodes", 1..4),
        ("cramped_middle", 1..4),
        ("ended_tree", 1..4),
        ("drawn", 1..31),
    ];
    for (name, seeds) in
        [("cramped", 1..4), ("cramped_mixed", 1..4), ("cramped_plain", 1..4), ("cramped_alike", 1..4), ("ended", 1..3)]
            .into_iter()
            .chain(trees)
    {
        let plan = scenario(name, |scenario| scenario.length = Span::millis(400_000));
        for seed in seeds {
            run(&plan, seed);
        }
    }
}

/// Clients' own books of each period, through lost masters, late messages and restarts.
#[test]
fn budgets_are_not_overspent_and_are_used() {
    spend("cramped_budget", 0.5);
}

#[test]
fn slices_end_with_their_period() {
    spend("ended_budget", 0.1);
}

#[test]
fn budgets_of_trees_are_not_overspent_and_are_used() {
    spend("cramped_budget_tree", 0.2);
}

/// Over a leap day, and over the days of 23 and of 25 hours.
#[test]
fn budgets_follow_the_calendar() {
    for (begins, day, hours) in [
        ("2028-02-27T11:00:00Z", "2028-02-28T23:00:00Z", 24),
        ("2028-03-24T11:00:00Z", "2028-03-25T23:00:00Z", 23),
        ("2028-10-27T11:00:00Z", "2028-10-28T22:00:00Z", 25),
    ] {
        let plan = scenario("calendar_budget", |scenario| {
            scenario.begins = begins.parse().expect("a moment");
            scenario.length = Span::millis(4 * 86_400_000);
        });
        let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
        let outcome = simulation.start().and_then(|()| simulation.run());
        outcome.unwrap_or_else(|violation| panic!("from {begins}: {violation}"));
        let budget = simulation.budget.as_ref().expect("a budget");
        let day = day.parse::<WallTime>().expect("a moment").0;
        let starts: Vec<i64> = budget.starts().collect();
        assert!(starts.windows(2).any(|days| days == [day, day + hours * 3600]), "{starts:?}");
        assert!(budget.mean_share() > 0.9, "from {begins}: {}", budget.mean_share());
    }
}

/// On average at least this fraction of the amount is spent. `LEASEWAY_SEEDS` sets the number of runs.
fn spend(name: &str, least: f64) {
    let plan = scenario(name, |_| {});
    let share = |seed| {
        let mut simulation = Simulation::new(&plan, seed, RunOptions::default());
        let outcome = simulation.start().and_then(|()| simulation.run());
        outcome.unwrap_or_else(|violation| panic!("{name}, seed {seed}: {violation}"));
        simulation.budget.as_ref().expect("a budget").mean_share()
    };
    let seeds: u64 = std::env::var("LEASEWAY_SEEDS").map_or(5, |seeds| seeds.parse().expect("a number of seeds"));
    let shares: Vec<f64> = (1..=seeds).map(share).collect();
    assert!(shares.iter().sum::<f64>() > seeds as f64 * least, "{name}: {shares:?}");
}

/// Clients that renew by streams, below a root that keeps promises and below one that learns.
#[test]
fn streams_of_renewals_violate_no_invariant() {
    for handover in [Handover::Promises, Handover::Learning] {
        let plan = scenario("cramped_streams", |scenario| scenario.handover = handover);
        let renewals: u64 = (1..9).map(|seed| run(&plan, seed).renewals).sum();
        assert!(renewals > 1_000, "{renewals} renewals without a round");
    }
}

/// If a pool grants more than its total, accounting notices at once.
#[test]
fn overuse_of_a_pool_is_found() {
    let mut plan = pool(|_| {});
    plan.settings.kind = leaseway_core::policy::settings::AlgorithmKind::NoAlgorithm;
    let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
    simulation.accounting = Accounting::new(Amount::clamped(100.0), Amount::ZERO, true, Millis(0));
    simulation.accounting.allow(Sum::from(Amount::clamped(120.0)));
    let broken = simulation.start().and_then(|()| simulation.run()).expect_err("180 have one each");
    assert_eq!(broken.invariant, "I2");
    assert!(broken.detail.contains("120"), "{broken:?}");
}

#[test]
fn overrides_forgeries_and_envoys_violate_no_invariant() {
    for name in ["cramped_overrides", "cramped_envoys"] {
        let plan = scenario(name, |_| {});
        for seed in 1..=3 {
            let figures = run(&plan, seed);
            assert!(figures.usage.of_capacity > 20.0 && figures.settled_s.is_some(), "{name}: {figures:?}");
        }
    }
}

#[test]
fn envoys_let_their_load_through_and_gateways_do_not_spin() {
    let plan = scenario("cramped_envoys", |_| {});
    for seed in 4..=8 {
        let mut simulation = Simulation::new(&plan, seed, RunOptions::default());
        simulation.start().and_then(|()| simulation.run()).expect("no violation");
        let (offered, passes) = simulation.accounting.sums();
        assert!(passes > offered.min(100.0) - 3.0, "each loses less than a whole request: {passes} of {offered}");
        assert!(simulation.events < 200_000, "in twenty minutes: {}", simulation.events);
    }
}

/// An override of a child node does not exceed its lease.
#[test]
fn an_override_is_in_force_until_it_ends_and_outlives_masters() {
    let set = |node: &str, factor, ends| {
        Fault::Override(OverrideSpec {
            node: Some(node.into()),
            capacity: None,
            factor: Some(factor),
            above: true,
            ends: Between { least: Millis(ends), most: Millis(ends) },
        })
    };
    let capacity = |length: u64| {
        let plan = scenario("cramped_tree", |scenario| {
            scenario.random_faults.clear();
            let fault = |at, what| TimedFault { at: Span::millis(at), what };
            scenario.events = vec![
                fault(20_000, set("root", 0.5, 60_000)),
                fault(20_000, set("leaf", 10.0, 60_000)),
                fault(40_000, Fault::LoseMaster { node: Some("root".into()), back: Some(Between::default()) }),
            ];
            (scenario.quiet, scenario.length) = (None, Span::millis(length));
        });
        let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
        simulation.start().and_then(|()| simulation.run()).expect("no violation");
        let master = simulation.nodes[0].master.as_ref().expect("one was elected");
        (master.engine.resource().settings().capacity.get(), simulation.accounting.sums().1)
    };
    assert_eq!(capacity(19_000).0, 10.0);
    let (all, had) = capacity(79_000);
    assert!(all == 5.0 && had <= 5.0 + 1e-9 && had > 4.5, "{had} of {all}");
    assert_eq!(capacity(82_000).0, 10.0);
}

#[test]
fn a_release_under_the_name_of_another_is_refused() {
    let plan = scenario("cramped_overrides", |_| {});
    let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
    simulation.start().expect("no violation");
    let release = |forged_by| RequestMessage {
        from: Sender { participant: Participant::Client(0), incarnation: 0, number: 1, stream: None },
        node: plan.tree.clients[0].node,
        peer: 0,
        request: Request::Release(Release {
            kind: HolderKind::Client,
            id: Participant::Client(0).name(0).into(),
            token: None,
            instance: None,
            spent: None,
        }),
        forged_by,
    };
    assert_eq!(simulation.is_allowed(&release(None)), Ok(true));
    for forger in [Participant::Client(1), Participant::Node(0)] {
        assert_eq!(simulation.is_allowed(&release(Some(forger))), Ok(false));
    }
}
