//! When backends are enabled, and how changes of leases affect the schedule.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::{Balancer, Factor, RETRY, members::Members, milli_units, schedule::Schedule};
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
fn leases_of_seven_and_three_take_turns_as_documented() {
    assert_eq!(picks(&leased([7.0, 3.0]), 20), "abaaabaabaabaaabaaba");
}

#[test]
fn weights_take_turns_as_documented_and_weight_zero_takes_none() {
    let balancer = Balancer::weighted([('a', 5), ('b', 1), ('x', 0), ('c', 1)]);
    assert_eq!(picks(&balancer, 14), "aabacaaaabacaa");
}

#[test]
fn without_a_lease_none_is_picked() {
    let balancer = Balancer::leased(['a', 'b']);
    assert!(balancer.pick().is_none());
    assert!(balancer.pick_where(|_| true).is_none());
    assert!(balancer.pick_sticky(0).is_none());
    // Less than a milli-unit counts as 0.
    balancer.set_capacity(1, Capacity::of(0.0009));
    assert!(balancer.pick().is_none() && !balancer.is_enabled(1));
}

#[test]
fn a_backend_whose_lease_ends_is_left_out_until_it_is_renewed() {
    let balancer = leased([7.0, 3.0]);
    assert_eq!(picks(&balancer, 3), "aba");
    balancer.set_capacity(1, Capacity::NONE);
    assert_eq!(picks(&balancer, 50), "a".repeat(50));
    balancer.set_capacity(1, Capacity::of(3.0));
    assert_eq!(picks(&balancer, 10), "abaaabaaba");
}

#[test]
fn leases_that_shrink_a_hundredfold_starve_none() {
    let balancer = leased([100.0, 100.0, 100.0]);
    assert_eq!(picks(&balancer, 2), "ab");
    (0..3).for_each(|index| balancer.set_capacity(index, Capacity::of(1.0)));
    assert_eq!(picks(&balancer, 10), "cabcabcabc");
}

#[test]
fn leases_that_all_end_and_come_back_smaller_starve_none() {
    let balancer = leased([100.0, 100.0, 100.0]);
    assert_eq!(picks(&balancer, 2), "ab");
    (0..3).for_each(|index| balancer.set_capacity(index, Capacity::NONE));
    assert_eq!(picks(&balancer, 1), "-");
    (0..3).for_each(|index| balancer.set_capacity(index, Capacity::of(1.0)));
    assert_eq!(picks(&balancer, 9), "abcabcabc");
}

#[test]
fn changed_weights_begin_anew() {
    let balancer = Balancer::weighted([('a', 100), ('b', 100)]);
    assert_eq!(picks(&balancer, 1), "a");
    balancer.set_weight(1, 300);
    assert_eq!(picks(&balancer, 8), "babbbabb");
    balancer.set_weight(0, 0);
    assert_eq!(picks(&balancer, 3), "bbb");
}

#[test]
fn a_capacity_is_a_share_in_milli_units_rounded_down() {
    assert_eq!(milli_units(Capacity::NONE), Factor::ZERO);
    assert_eq!(milli_units(Capacity::of(0.001)), Factor::of(1));
    assert_eq!(milli_units(Capacity::of(2.9999)), Factor::of(2999));
    assert_eq!(milli_units(Capacity::of(1e30)), Factor::MAX);
    assert_eq!(milli_units(Capacity::UNLIMITED), Factor::MAX);
}

#[test]
fn backends_without_limit_share_equally_and_leave_little_to_the_others() {
    let balancer = leased([7.0, 3.0, 5.0]);
    picks(&balancer, 5);
    balancer.set_capacity(0, Capacity::UNLIMITED);
    balancer.set_capacity(2, Capacity::UNLIMITED);
    let turns = picks(&balancer, 1000);
    let count = |of| turns.chars().filter(|picked| *picked == of).count();
    assert!(count('b') <= 1 && count('a').abs_diff(count('c')) <= 2, "{turns}");
    // Once there are limits again, shares are as before.
    balancer.set_capacity(0, Capacity::of(7.0));
    balancer.set_capacity(2, Capacity::of(5.0));
    let turns = picks(&balancer, 150);
    assert!(turns.chars().filter(|picked| *picked == 'b').count().abs_diff(30) <= 2, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_failed_is_tried_again_when_its_time_is_over() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1)]);
    balancer.pick().expect("both take part").failed();
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
async fn failures_while_left_out_do_not_make_it_longer_and_a_failure_afterwards_begins_anew() {
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
async fn several_come_back_each_at_its_own_time() {
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
async fn a_retry_that_lies_beyond_the_end_of_time_does_not_come() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1)]).with_retry(Duration::MAX);
    balancer.failed(0, Instant::now());
    advance(Duration::from_secs(1_000_000)).await;
    assert_eq!((picks(&balancer, 2).as_str(), balancer.next_retry()), ("bb", None));
}

#[tokio::test(start_paused = true)]
async fn each_reason_to_be_left_out_is_enough() {
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
fn a_paused_backend_continues_where_it_was() {
    let balancer = Balancer::weighted([('a', 70), ('b', 30)]);
    assert_eq!(picks(&balancer, 1), "a");
    balancer.pause(1);
    assert_eq!(picks(&balancer, 5), "aaaaa");
    balancer.resume(1);
    assert_eq!(picks(&balancer, 9), "baaabaaba");
}

#[test]
fn a_sticky_pick_is_paid_for_and_the_others_catch_up() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1), ('c', 1)]);
    assert_eq!(balancer.pick_sticky(1).map(|pick| (pick.index(), *pick.backend())), Some((1, 'b')));
    assert_eq!(balancer.pick_sticky(1).map(|pick| pick.index()), Some(1));
    assert_eq!(picks(&balancer, 4), "acac");
}

#[test]
fn a_backend_that_cannot_be_used_is_passed_over_and_owed_nothing_for_it() {
    let balancer = Balancer::weighted([('a', 1), ('b', 1), ('c', 1)]);
    let usable = |of: &'static str| balancer.pick_where(|backend| of.contains(*backend)).map(|pick| *pick.backend());
    assert_eq!([usable("bc"), usable("bc"), usable("bc"), usable("bc")], [Some('b'), Some('c'), Some('b'), Some('c')]);
    assert_eq!(picks(&balancer, 6), "abcabc");
    assert_eq!(usable(""), None);
    assert_eq!(picks(&balancer, 3), "abc");
}

#[test]
fn only_those_whose_turn_it_is_are_asked() {
    let balancer = Balancer::weighted((0..1000).map(|index| (index, 1)));
    let mut asked = 0;
    for _ in 0..1000 {
        let picked = balancer.pick_where(|index| {
            asked += 1;
            *index != 0
        });
        assert!(picked.is_some());
    }
    // The refusing backend accrues nothing, so it is asked again only after all others have had their turn.
    assert_eq!(asked, 1002);
}

#[test]
fn a_panic_in_a_predicate_leaves_the_balancer_usable_and_as_it_was() {
    let balancer = Balancer::weighted([('a', 2), ('b', 1)]);
    let panicked = catch_unwind(AssertUnwindSafe(|| balancer.pick_where(|_| panic!("on purpose")).is_some()));
    assert!(panicked.is_err());
    assert_eq!(picks(&balancer, 6), "abaaba");
}

#[test]
fn picks_from_several_threads_are_shared_exactly() {
    let balancer = Balancer::weighted([(0usize, 7), (1, 3)]);
    let counted = |_| {
        let mut counts = [0; 2];
        (0..1000).filter_map(|_| balancer.pick()).for_each(|pick| counts[*pick.backend()] += 1);
        counts
    };
    let counts: Vec<[u32; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || counted(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it only picks")).collect()
    });
    assert_eq!(counts.iter().fold([0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]]), [2800, 1200]);
}

#[derive(Debug, Clone)]
enum Change {
    Lease(usize, u64),
    Pick(usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let lease = prop_oneof![1 => Just(0), 2 => 1..10u64, 2 => 1..1_000_000u64];
    let change = prop_oneof![
        (0..4usize, lease).prop_map(|(index, factor)| Change::Lease(index, factor)),
        (1..10usize).prop_map(Change::Pick),
    ];
    prop::collection::vec(change, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Changes of leases have a bounded effect on statuses: if leases stay constant from then on, each backend is
    /// picked as often as its share, with a small error.
    #[test]
    fn shares_are_right_whatever_leases_did_before(changes in changes(), last in prop::array::uniform4(1..10u64)) {
        let mut members = Members::new([Factor::of(5); 4]);
        for change in changes {
            match change {
                Change::Lease(index, factor) => members.lease(index, Factor::of(factor)),
                Change::Pick(times) => (0..times).for_each(|_| { members.pick(); }),
            }
        }
        last.iter().enumerate().for_each(|(index, factor)| members.lease(index, Factor::of(*factor)));
        let total: u64 = last.iter().sum();
        for (index, _) in last.iter().enumerate() {
            prop_assert!(members.status(index).unsigned_abs() <= 4 * u128::from(total), "{:?}", members);
        }
        let mut counts = [0u64; 4];
        (0..10 * total).filter_map(|_| members.pick()).for_each(|index| counts[index] += 1);
        for (count, share) in counts.iter().zip(last) {
            prop_assert!(count.abs_diff(10 * share) <= 4, "{counts:?} of {last:?}");
        }
    }
}

#[test]
#[should_panic = "at most"]
fn more_backends_than_fit_are_refused() {
    Balancer::weighted((0..=Schedule::MAX_MEMBERS).map(|index| (index, 1)));
}
