//! Clients with limiters.

use super::*;
use crate::client::ClientMachine;

#[test]
fn limiters_keep_to_their_leases_and_get_their_due() {
    let cramped = scenario("cramped_limiters", |_| {});
    let random = scenario("random_limiters", |scenario| scenario.length = Span::millis(420_000));
    for (plan, seeds) in [(cramped, 1..=6), (random, 1..=1)] {
        for seed in seeds {
            let figures = run(&plan, seed);
            assert!(figures.usage.of_capacity > 20.0, "{seed}: {figures:?}");
        }
    }
}

/// The checks need callers that are admitted and callers that are refused.
#[test]
fn callers_arrive_at_the_given_rate_and_limiters_do_not_spin() {
    let plan = scenario("cramped_limiters", |scenario| {
        scenario.random_faults.clear();
        scenario.length = Span::millis(160_000);
    });
    let mut simulation = Simulation::new(&plan, 1, RunOptions::default());
    simulation.start().and_then(|()| simulation.run()).and_then(|()| simulation.check_outcome()).expect("no violation");
    for client in &simulation.clients[..3] {
        let ClientMachine::Limiter(limiter) = &client.machine else { panic!("the first three are limiters") };
        let served = limiter.served();
        assert!((12_300..13_300).contains(&served.arrived), "80 a second: {served:?}");
        assert!((3_700..4_300).contains(&served.passed), "a quarter of 100 a second, and a burst: {served:?}");
    }
    assert!(simulation.events < 12_000, "in under three minutes: {}", simulation.events);
}

#[test]
fn limiters_without_their_due_are_found() {
    let plan = scenario("cramped_limiters", |scenario| {
        scenario.random_faults.clear();
        scenario.length = Span::millis(300_000);
        // The lease expires before the caller arrives.
        scenario.network.delay = Between { least: Millis(21_000), most: Millis(21_000) };
    });
    assert_eq!(plan.run(1, RunOptions::default()).expect_err("no client gets anything").violation.invariant, "I5");
}
