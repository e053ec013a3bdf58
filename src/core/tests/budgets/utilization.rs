//! Nothing is stranded: with demand, nearly all of an amount is spent.

use super::{Rng, Spender, settings};
use crate::{
    policy::period::PeriodLength,
    resource::{Answer, Request, Resource, RoundScratch},
    tests::harness::{now_at, options},
    types::Millis,
};

#[derive(Debug, Default)]
struct Outcome {
    spent: f64,
    crashes: u64,
    /// The unspent allowances of clients that crashed.
    lost: f64,
}

/// Spends until nobody has spent anything for half a minute. The rate of the fastest client is `skew` times that of the
/// slowest. A client lives for `life` seconds on average until it crashes at any time and begins anew; with 0 it does
/// not crash.
fn spend(amount: f64, clients: usize, skew: f64, life: u64, seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut resource = Resource::new(options(settings(amount, PeriodLength::Unending)));
    let mut spenders: Vec<Spender> = (0..clients).map(|n| Spender::new(&format!("c{n}"), n as u64 + 1)).collect();
    let rate = |n: usize| skew.powf(n as f64 / (clients - 1).max(1) as f64);
    // What a client wants to spend per second, so that the amount lasts about a minute.
    let unit = amount / 60.0 / (0..clients).map(rate).sum::<f64>();
    let mut due = vec![0.0; clients];
    let Outcome { mut spent, mut crashes, mut lost } = Outcome::default();
    let mut idle = 0;
    let mut incarnations = clients as u64;
    for second in 1..100_000u64 {
        let now = Millis(second * 1000);
        let before = spent;
        for n in 0..clients {
            if life > 0 && rng.below(life) == 0 {
                incarnations += 1;
                crashes += 1;
                lost += spenders[n].allowance - spenders[n].spent;
                spenders[n] = Spender::new(&format!("c{n}"), incarnations);
            }
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
    Outcome { spent, crashes, lost }
}

#[test]
fn under_a_skew_of_100_to_1_among_1000_holders_nearly_all_is_spent() {
    let Outcome { spent, lost, .. } = spend(1_000_000.0, 1000, 100.0, 0, 7);
    assert!((995_000.0..=1_000_000.0).contains(&spent) && lost == 0.0, "{spent} spent");
}

#[test]
fn the_last_unit_is_given_out() {
    for clients in [1, 3, 10] {
        assert_eq!(spend(1000.0, clients, 10.0, 0, 7).spent, 1000.0, "{clients} clients");
    }
}

#[test]
fn a_crash_loses_at_most_its_slice() {
    let Outcome { spent, crashes, lost } = spend(1_000_000.0, 100, 10.0, 250, 7);
    assert!(crashes > 10 && lost > 0.0, "{crashes} crashes lost {lost}");
    assert!(spent <= 1_000_000.0 && spent + lost >= 995_000.0, "{spent} spent, {lost} lost");
    assert!(lost < 200_000.0, "{lost} lost");
}

/// The table of docs/benchmarks.md: `cargo test --release -p leaseway-core --features calendar utilization -- --ignored --nocapture`
#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout, reason = "it measures")]
fn table() {
    const AMOUNT: f64 = 1_000_000.0;
    const SEEDS: u64 = 5;
    println!("Means of {SEEDS} runs.\n| holders | skew | mean life | crashes | spent | lost | stranded |");
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    for life in [0, 600, 60] {
        for clients in [10, 100, 1000, 10_000] {
            for skew in [1.0, 100.0, 1000.0] {
                let mut sum = Outcome::default();
                for seed in 1..=SEEDS {
                    let outcome = spend(AMOUNT, clients, skew, life, seed);
                    sum.spent += outcome.spent;
                    sum.crashes += outcome.crashes;
                    sum.lost += outcome.lost;
                }
                let lives = if life == 0 { "no crashes".to_owned() } else { format!("{life} s") };
                let all = AMOUNT * SEEDS as f64;
                let [spent, lost, stranded] =
                    [sum.spent, sum.lost, all - sum.spent - sum.lost].map(|part| part / all * 100.0);
                let crashes = sum.crashes as f64 / SEEDS as f64;
                println!(
                    "| {clients} | {skew}:1 | {lives} | {crashes:.1} | {spent:.3} % | {lost:.3} % | {stranded:.3} % |"
                );
            }
        }
    }
}
