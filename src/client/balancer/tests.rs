//! Tests of a balancer: when backends are enabled, and how changes of leases affect the schedule.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use proptest::prelude::*;
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

#[test]
fn backends_are_picked_by_weight_and_weight_zero_never() {
    let balancer = Balancer::weighted([('a', 5), ('b', 1), ('x', 0), ('c', 1)]);
    assert_eq!(picks(&balancer, 14), "aabacaaaabacaa");
}

#[test]
fn no_backend_is_picked_without_a_lease() {
    let balancer = Balancer::leased(['a', 'b']);
    assert!(balancer.pick().is_none());
    assert!(balancer.pick_where(|_| true).is_none());
    assert!(balancer.pick_sticky(0).is_none());
    // Less than a milli-unit counts as 0.
    balancer.set_capacity(1, Capacity::of(0.0009));
    assert!(balancer.pick().is_none() && !balancer.is_enabled(1));
}

#[test]
fn a_backend_without_live_lease_is_skipped_until_renewed() {
    let balancer = leased([7.0, 3.0]);
    assert_eq!(picks(&balancer, 3), "aba");
    balancer.set_capacity(1, Capacity::NONE);
    assert_eq!(picks(&balancer, 50), "a".repeat(50));
    balancer.set_capacity(1, Capacity::of(3.0));
    assert_eq!(picks(&balancer, 10), "abaaabaaba");
}

#[test]
fn leases_that_shrink_a_hundredfold_starve_no_backend() {
    let balancer = leased([100.0, 100.0, 100.0]);
    assert_eq!(picks(&balancer, 2), "ab");
    (0..3).for_each(|index| balancer.set_capacity(index, Capacity::of(1.0)));
    assert_eq!(picks(&balancer, 10), "cabcabcabc");
}

#[test]
fn changing_a_weight_restarts_the_schedule() {
    let balancer = Balancer::weighted([('a', 100), ('b', 100)]);
    assert_eq!(picks(&balancer, 1), "a");
    balancer.set_weight(1, 300);
    assert_eq!(picks(&balancer, 8), "babbbabb");
    balancer.set_weight(0, 0);
    assert_eq!(picks(&balancer, 3), "bbb");
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
async fn a_failed_backend_is_retried_after_the_back_off() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1)]);
    balancer.pick().expect("both are enabled").failed();
    assert_eq!(balancer.next_retry(), Some(Instant::now() + RETRY));
    assert_eq!(picks(&balancer, 3), "bbb");
    assert!(balancer.pick_sticky(0).is_none());
    advance(RETRY - Duration::from_millis(1)).await;
    assert_eq!(picks(&balancer, 2), "bb");
    advance(Duration::from_millis(1)).await;
    assert!(balancer.is_enabled(0));
    // It was charged for the failed pick, and continues from there.
    assert_eq!(picks(&balancer, 4), "baba");
    assert_eq!(balancer.next_retry(), None);
}

#[tokio::test(start_paused = true)]
async fn failures_during_a_back_off_do_not_prolong_it() {
    let balancer = Balancer::weighted([('a', 1)]).with_retry(Duration::from_secs(5));
    balancer.failed(0, Instant::now());
    advance(Duration::from_secs(4)).await;
    balancer.failed(0, Instant::now());
    assert_eq!(balancer.next_retry(), Some(Instant::now() + Duration::from_secs(1)));
    advance(Duration::from_secs(1)).await;
    assert_eq!(picks(&balancer, 1), "a");
    balancer.failed(0, Instant::now());
    advance(Duration::from_secs(4)).await;
    assert_eq!(picks(&balancer, 1), "-");
    advance(Duration::from_secs(1)).await;
    assert_eq!(picks(&balancer, 1), "a");
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

#[tokio::test(start_paused = true)]
async fn pause_failure_and_missing_lease_each_disable_a_backend() {
    let balancer = leased([1.0, 1.0]);
    balancer.pause(0);
    balancer.failed(0, Instant::now());
    balancer.set_capacity(0, Capacity::NONE);
    balancer.set_capacity(0, Capacity::of(1.0));
    assert!(!balancer.is_enabled(0));
    balancer.resume(0);
    assert!(!balancer.is_enabled(0));
    balancer.pause(0);
    advance(RETRY).await;
    assert!(!balancer.is_enabled(0));
    balancer.set_capacity(0, Capacity::NONE);
    balancer.resume(0);
    assert!(!balancer.is_enabled(0));
    balancer.set_capacity(0, Capacity::of(1.0));
    assert!(balancer.is_enabled(0));
}

#[test]
fn a_sticky_pick_is_charged_and_the_others_catch_up() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1), ('c', 1)]);
    assert_eq!(balancer.pick_sticky(1).map(|pick| (pick.index(), *pick.backend())), Some((1, 'b')));
    assert_eq!(balancer.pick_sticky(1).map(|pick| pick.index()), Some(1));
    assert_eq!(picks(&balancer, 4), "acac");
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
