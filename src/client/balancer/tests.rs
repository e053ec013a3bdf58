//! Tests of a balancer: when backends are enabled, and how changes of leases affect the schedule.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::{Balancer, Factor, RETRY, milli_units};
use crate::session::Capacity;

fn leased<const N: usize>(capacities: [f64; N]) -> Balancer<char> {
    let balancer = Balancer::leased(('a'..='z').take(N));
    for (index, capacity) in capacities.into_iter().enumerate() {
        balancer.set_capacity(index, Capacity::of(capacity));
    }
    balancer
}

fn picks(balancer: &Balancer<char>, count: usize) -> String {
    (0..count).map(|_| balancer.pick().map_or('-', |pick| *pick.backend())).collect()
}

/// `testdata/balancer.json` describes its fields. The Go and the Python client replay it, too.
#[tokio::test(start_paused = true)]
async fn documented_sequences_are_reproduced() {
    let file: Value = serde_json::from_str(include_str!("../testdata/balancer.json")).expect("valid JSON");
    assert_eq!(file["format"], "balancer-scenarios/1");
    for scenario in file["scenarios"].as_array().expect("scenarios") {
        let capacities = scenario["capacities"].as_array().map_or(&[][..], Vec::as_slice);
        let weights: Vec<u32> = match scenario["weights"].as_array() {
            Some(weights) => weights.iter().map(|weight| weight.as_u64().expect("a weight") as u32).collect(),
            None => vec![0; capacities.len()],
        };
        let retry = scenario["retry"].as_f64().map_or(RETRY, Duration::from_secs_f64);
        let balancer = Balancer::weighted(('a'..='z').zip(weights)).with_retry(retry);
        for (index, capacity) in capacities.iter().enumerate() {
            balancer.set_capacity(index, capacity_of(capacity));
        }
        for step in scenario["steps"].as_array().expect("steps") {
            if step[0] == "advance" {
                advance(Duration::from_millis(step[1].as_u64().expect("milliseconds"))).await;
            } else {
                take(&balancer, step, &format!("{}: {step}", scenario["name"]));
            }
        }
    }
}

fn capacity_of(value: &Value) -> Capacity {
    if value == "unlimited" { Capacity::UNLIMITED } else { Capacity::of(value.as_f64().expect("a number")) }
}

fn take(balancer: &Balancer<char>, step: &Value, what: &str) {
    let text = |at: usize| step[at].as_str().unwrap_or_default();
    let index = text(1).chars().next().map_or(0, |name| balancer.backends().partition_point(|known| *known < name));
    match text(0) {
        "pick" => assert_eq!(picks(balancer, text(1).len()), text(1), "{what}"),
        "where" => {
            let mut asked = String::new();
            let picked = balancer.pick_where(|name| {
                asked.push(*name);
                !text(1).contains(*name)
            });
            let picked = picked.map_or('-', |pick| *pick.backend()).to_string();
            assert_eq!((asked.as_str(), picked.as_str()), (text(2), text(3)), "{what}");
        }
        "sticky" => assert_eq!(json!(balancer.pick_sticky(index).is_some()), step[2], "{what}"),
        "capacity" => balancer.set_capacity(index, capacity_of(&step[2])),
        "weight" => balancer.set_weight(index, step[2].as_u64().expect("a weight") as u32),
        "pause" => balancer.pause(index),
        "resume" => balancer.resume(index),
        "fail" => balancer.failed(index, Instant::now()),
        "enabled" => {
            let enabled = (0..balancer.backends().len()).filter(|index| balancer.is_enabled(*index));
            assert_eq!(enabled.map(|index| balancer.backends()[index]).collect::<String>(), text(1), "{what}");
        }
        "next_retry" => {
            let left = balancer.next_retry().map(|at| (at - Instant::now()).as_millis() as u64);
            assert_eq!(json!(left), step[1], "{what}");
        }
        other => panic!("unknown step {other}"),
    }
}

#[tokio::test]
async fn the_end_of_a_pause_is_told() {
    let balancer = Balancer::weighted([('a', 1)]);
    balancer.pause(0);
    let changed = balancer.changed();
    assert!(balancer.pick().is_none());
    balancer.resume(0);
    changed.await;
    assert!(balancer.pick().is_some());
}

#[test]
fn capacities_become_milli_units_rounded_down() {
    assert_eq!(milli_units(Capacity::NONE), Factor::ZERO);
    assert_eq!(milli_units(Capacity::of(0.001)), Factor::of(1));
    assert_eq!(milli_units(Capacity::of(2.9999)), Factor::of(2999));
    assert_eq!(milli_units(Capacity::of(1e30)), Factor::MAX);
    assert_eq!(milli_units(Capacity::UNLIMITED), Factor::MAX);
}

#[test]
fn unlimited_backends_share_equally_and_dominate() {
    let balancer = leased([7.0, 3.0, 5.0]);
    picks(&balancer, 5);
    balancer.set_capacity(0, Capacity::UNLIMITED);
    balancer.set_capacity(2, Capacity::UNLIMITED);
    let turns = picks(&balancer, 1000);
    let count = |of| turns.chars().filter(|picked| *picked == of).count();
    assert!(count('b') <= 1 && count('a').abs_diff(count('c')) <= 2, "{turns}");
    // With limits again, shares are as before.
    balancer.set_capacity(0, Capacity::of(7.0));
    balancer.set_capacity(2, Capacity::of(5.0));
    let turns = picks(&balancer, 150);
    assert!(turns.chars().filter(|picked| *picked == 'b').count().abs_diff(30) <= 2, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn each_back_off_ends_at_its_own_time() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1), ('c', 1)]).with_retry(Duration::from_secs(5));
    let start = Instant::now();
    // Threads may report out of order.
    balancer.failed(1, start + Duration::from_secs(2));
    balancer.failed(0, start);
    advance(Duration::from_secs(5)).await;
    assert_eq!([0, 1, 2].map(|index| balancer.is_enabled(index)), [true, false, true]);
    advance(Duration::from_secs(2)).await;
    assert!(balancer.is_enabled(1));
}

#[test]
fn only_the_next_backend_is_asked_whether_it_is_usable() {
    let balancer = Balancer::weighted((0..1000).map(|index| (index, 1)));
    let mut asked = 0;
    for _ in 0..1000 {
        let picked = balancer.pick_where(|index| {
            asked += 1;
            *index != 0
        });
        assert!(picked.is_some());
    }
    // The unusable backend accrues nothing, so it is asked again only after all others were picked.
    assert_eq!(asked, 1002);
}

#[test]
fn a_panic_in_a_predicate_changes_nothing() {
    let balancer = Balancer::weighted([('a', 2), ('b', 1)]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let refuses_a = |backend: &char| *backend != 'a' && panic!("on purpose");
        balancer.pick_where(refuses_a).is_some()
    }));
    assert!(panicked.is_err());
    assert_eq!(picks(&balancer, 6), "abaaba");
}

#[test]
fn concurrent_picks_keep_exact_shares() {
    let balancer = Balancer::weighted([(0usize, 7), (1, 3)]);
    let counted = |_| {
        let mut counts = [0; 2];
        (0..1000).filter_map(|_| balancer.pick()).for_each(|pick| counts[*pick.backend()] += 1);
        counts
    };
    let counts: Vec<[u32; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || counted(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(counts.iter().fold([0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]]), [2800, 1200]);
}

#[derive(Debug, Clone)]
enum Change {
    Lease(usize, u32),
    Pick(usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let lease = prop_oneof![1 => Just(0), 2 => 1..10u32, 2 => 1..1_000_000u32];
    let change = prop_oneof![
        (0..4usize, lease).prop_map(|(index, capacity)| Change::Lease(index, capacity)),
        (1..10usize).prop_map(Change::Pick),
    ];
    prop::collection::vec(change, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Changes of leases have a bounded effect on statuses: if leases stay constant from then on, each backend is
    /// picked as often as its share, with a small error.
    #[test]
    fn shares_are_right_after_any_history_of_leases(changes in changes(), last in prop::array::uniform4(1..10u32)) {
        let balancer = leased([5.0; 4]);
        for change in changes {
            match change {
                Change::Lease(index, capacity) => balancer.set_capacity(index, Capacity::of(f64::from(capacity))),
                Change::Pick(times) => _ = picks(&balancer, times),
            }
        }
        last.iter().enumerate().for_each(|(index, share)| balancer.set_capacity(index, Capacity::of(f64::from(*share))));
        let total: u32 = last.iter().sum();
        let turns = picks(&balancer, 10 * total as usize);
        for (name, share) in ('a'..).zip(last) {
            let count = turns.chars().filter(|picked| *picked == name).count();
            prop_assert!(count.abs_diff(10 * share as usize) <= 4, "{name} picked {count} times, share {share}");
        }
    }
}
