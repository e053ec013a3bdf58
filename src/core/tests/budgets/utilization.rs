//! Nothing is stranded: with demand, nearly all of an amount is spent.

use super::{Rng, Spender, settings};
use crate::{
    policy::period::PeriodLength,
    resource::{Answer, Request, Resource, RoundScratch},
    tests::harness::{now_at, options},
    types::Millis,
};

/// Spends until nobody can spend any more. The rate of the fastest client is `skew` times that of the slowest; one in
/// `crash` refreshes is the last of its client, which begins anew. Returns what was spent, and what was lost in crashes.
fn spend(amount: f64, clients: usize, skew: f64, crash: u64) -> (f64, f64) {
    let mut rng = Rng::new(7);
    let mut resource = Resource::new(options(settings(amount, PeriodLength::Unending)));
    let mut spenders: Vec<Spender> = (0..clients).map(|n| Spender::new(&format!("c{n}"), n as u64 + 1)).collect();
    let rate = |n: usize| skew.powf(n as f64 / (clients - 1).max(1) as f64);
    // What a client wants to spend per second, so that the amount lasts about a minute.
    let unit = amount / 60.0 / (0..clients).map(rate).sum::<f64>();
    let mut due = vec![0.0; clients];
    let (mut spent, mut lost, mut idle) = (0.0, 0.0, 0);
    let mut incarnations = clients as u64;
    for second in 1..100_000u64 {
        let now = Millis(second * 1000);
        let before = spent;
        for n in 0..clients {
            due[n] += rate(n) * unit;
            let whole = f64::floor(due[n]);
            let done = spenders[n].spend(whole, now);
            // Callers wait, but not without limit.
            due[n] = (due[n] - done).min(rate(n) * unit * 10.0 + 1.0);
            spent += done;
            let is_short = done < whole;
            if !is_short && second % 5 != n as u64 % 5 {
                continue;
            }
            if crash > 0 && rng.below(crash) == 0 {
                incarnations += 1;
                lost += spenders[n].allowance - spenders[n].spent;
                spenders[n] = Spender::new(&format!("c{n}"), incarnations);
            }
            // Two refresh intervals in advance, and what waits.
            spenders[n].wants = (rate(n) * unit * 4.0 + due[n]).ceil();
            let mut answers = Vec::new();
            let request = Request::Ask(spenders[n].ask());
            resource.round(now_at(now), &mut vec![request], &mut answers, &mut RoundScratch::default());
            if let Some(Answer::Granted(lease)) = answers.pop() {
                incarnations += 1;
                spenders[n].take(&lease, now, incarnations);
            }
        }
        resource.tick(now);
        idle = if spent > before { 0 } else { idle + 1 };
        if idle > 30 {
            break;
        }
    }
    (spent, lost)
}

#[test]
fn under_a_skew_of_100_to_1_among_1000_holders_nearly_all_is_spent() {
    let (spent, lost) = spend(1_000_000.0, 1000, 100.0, 0);
    assert!((995_000.0..=1_000_000.0).contains(&spent) && lost == 0.0, "{spent} spent");
}

#[test]
fn the_last_unit_is_given_out() {
    for clients in [1, 3, 10] {
        assert_eq!(spend(1000.0, clients, 10.0, 0).0, 1000.0, "{clients} clients");
    }
}

#[test]
fn a_crash_loses_at_most_its_slice() {
    let (spent, lost) = spend(1_000_000.0, 100, 10.0, 50);
    assert!(spent <= 1_000_000.0 && spent + lost >= 995_000.0, "{spent} spent, {lost} lost");
    assert!(lost < 200_000.0, "{lost} lost");
}

/// The table of docs/guide/budgets.md: `cargo test --release -p leaseway-core --features calendar utilization -- --ignored --nocapture`
#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout, reason = "it measures")]
fn table() {
    println!("| holders | skew | crashes | spent | lost in crashes |\n|--:|--:|--:|--:|--:|");
    for (clients, skew, crash) in [
        (10, 1.0, 0),
        (10, 1000.0, 0),
        (1000, 1.0, 0),
        (1000, 100.0, 0),
        (1000, 1000.0, 0),
        (1000, 100.0, 100),
        (10_000, 100.0, 0),
    ] {
        let (spent, lost) = spend(1_000_000.0, clients, skew, crash);
        let crashes = if crash == 0 { "none".to_owned() } else { format!("1 in {crash} refreshes") };
        println!("| {clients} | {skew}:1 | {crashes} | {:.3} % | {:.3} % |", spent / 1e4, lost / 1e4);
    }
}
