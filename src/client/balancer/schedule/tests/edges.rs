//! Edge cases that are not documented.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::tournament::Tournament;
use crate::balancer::{Factor, Member, Schedule};

fn schedule_of<const N: usize>(factors: [u64; N]) -> (Schedule, [Member; N]) {
    let mut schedule = Schedule::new();
    let members = factors.map(|factor| schedule.add(Factor::of(factor)));
    (schedule, members)
}

fn statuses<const N: usize>(schedule: &Schedule, members: [Member; N]) -> [i128; N] {
    members.map(|member| schedule.status(member).expect("it was not removed"))
}

#[test]
fn none_is_picked_from_an_empty_schedule() {
    assert_eq!(Schedule::new().pick(), None);
    assert_eq!(Schedule::new().pick_where(|_| true), None);
}

#[test]
fn a_disabled_member_cannot_be_forced_and_none_accrues() {
    let (mut schedule, [a, b]) = schedule_of([2, 1]);
    schedule.disable(b);
    assert!(!schedule.force(b));
    assert_eq!(statuses(&schedule, [a, b]), [0, 0]);
}

#[test]
fn a_member_added_in_the_place_of_another_is_not_mistaken_for_it_and_comes_last() {
    let (mut schedule, [a, b]) = schedule_of([1, 1]);
    schedule.remove(a);
    let c = schedule.add(Factor::of(1));
    assert_eq!(c.index(), a.index());
    schedule.remove(a);
    schedule.disable(a);
    schedule.set_factor(a, Factor::of(9));
    schedule.rescale(a, Factor::of(9));
    schedule.enable(a);
    assert!(!schedule.force(a) && !schedule.is_enabled(a));
    assert_eq!((schedule.status(a), schedule.factor(a)), (None, None));
    assert_eq!([schedule.pick(), schedule.pick()], [Some(b), Some(c)]);
}

#[test]
fn rescaling_rounds_toward_zero_and_gives_the_rest_to_the_first() {
    let (mut schedule, [a, b, c]) = schedule_of([10, 10, 10]);
    schedule.pick();
    assert_eq!(statuses(&schedule, [a, b, c]), [-20, 10, 10]);
    // 30 becomes 25: -16.67, 8.33 and 8.33. The sum of 0 stays.
    schedule.rescale(c, Factor::of(5));
    assert_eq!(statuses(&schedule, [a, b, c]), [-16, 8, 8]);
    // 25 becomes 16: -10.24, 5.12 and 5.12.
    schedule.rescale(b, Factor::of(1));
    assert_eq!(statuses(&schedule, [a, b, c]), [-10, 5, 5]);
    // 16 becomes 19: -11.875, 5.9375 and 5.9375. Rounded, the sum is -11 + 5 + 5, and the first gets the difference.
    schedule.rescale(b, Factor::of(4));
    assert_eq!(statuses(&schedule, [a, b, c]), [-10, 5, 5]);
}

#[test]
fn a_rescale_measures_a_disabled_member_by_the_factors_of_all() {
    let (mut schedule, [a, b, c]) = schedule_of([100, 100, 200]);
    schedule.pick();
    assert_eq!(statuses(&schedule, [a, b, c]), [100, 100, -200]);
    schedule.disable(c);
    // For enabled members 200 becomes 101, for the other one 400 becomes 301.
    schedule.rescale(a, Factor::of(1));
    assert_eq!(statuses(&schedule, [a, b, c]), [51, 50, -150]);
}

#[test]
fn a_rescale_to_the_same_factor_or_from_nothing_leaves_statuses_alone() {
    let mut schedule = Schedule::new();
    let a = schedule.add_with_status(Factor::ZERO, 5);
    let b = schedule.add_with_status(Factor::ZERO, -7);
    schedule.rescale(a, Factor::ZERO);
    schedule.rescale(a, Factor::of(10));
    assert_eq!(statuses(&schedule, [a, b]), [5, -7]);
}

#[test]
fn extremes_up_and_down_overflow_nothing() {
    let (mut schedule, [a, b]) = schedule_of([1, 1]);
    let c = schedule.add_with_status(Factor::of(1), i64::MIN);
    for _ in 0..20 {
        assert!(schedule.force(a));
        [a, b, c].into_iter().for_each(|member| schedule.rescale(member, Factor::MAX));
        assert!(schedule.force(a));
        [a, b, c].into_iter().for_each(|member| schedule.set_factor(member, Factor::of(1)));
        schedule.disable(c);
        schedule.enable(c);
    }
    assert!(statuses(&schedule, [a, b, c]).iter().all(|status| status.abs() < 1 << 110));
    assert_eq!(schedule.pick(), Some(b));
}

#[test]
fn a_full_schedule_of_the_largest_factors_takes_its_turns() {
    let mut schedule = Schedule::new();
    let members: Vec<Member> = (0..Schedule::MAX_MEMBERS).map(|_| schedule.add(Factor::MAX)).collect();
    for member in members.iter().take(100) {
        assert_eq!(schedule.pick(), Some(*member));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| schedule.add(Factor::of(1)))).is_err());
    schedule.remove(members[100]);
    schedule.add(Factor::of(1));
    assert_eq!(schedule.pick(), Some(members[101]));
}

#[test]
fn a_pick_that_is_not_accepted_changes_nothing() {
    let (mut schedule, members) = schedule_of([3, 2, 1]);
    schedule.pick();
    let before = statuses(&schedule, members);
    let mut asked = 0;
    assert_eq!(
        schedule.pick_where(|_| {
            asked += 1;
            false
        }),
        None
    );
    assert_eq!((asked, statuses(&schedule, members)), (3, before));
}

#[test]
fn a_panic_of_what_is_asked_changes_nothing() {
    let (mut schedule, members) = schedule_of([3, 2, 1]);
    let mut undisturbed = schedule.clone();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        schedule.pick_where(|member| if member == members[0] { false } else { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    for _ in 0..12 {
        assert_eq!(schedule.pick(), undisturbed.pick());
        assert_eq!(statuses(&schedule, members), statuses(&undisturbed, members));
    }
}

#[test]
fn a_step_taken_back_takes_the_lead_back() {
    let mut tournament = Tournament::new();
    tournament.enter(0, 0, 1, 0);
    tournament.enter(1, -1, 3, 1);
    assert_eq!(tournament.leader(), Some(0));
    tournament.advance();
    assert_eq!(tournament.leader(), Some(1));
    tournament.retreat();
    assert_eq!((tournament.leader(), tournament.value(0), tournament.value(1)), (Some(0), 0, -1));
}
