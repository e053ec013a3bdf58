//! Properties of the schedule.

use proptest::prelude::*;

use crate::balancer::{Factor, Member, Schedule};

fn schedule_of(factors: &[u64]) -> (Schedule, Vec<Member>) {
    let mut schedule = Schedule::new();
    let members = factors.iter().map(|factor| schedule.add(Factor::of(*factor))).collect();
    (schedule, members)
}

fn statuses(schedule: &Schedule, members: &[Member]) -> Vec<i128> {
    members.iter().map(|member| schedule.status(*member).expect("it was not removed")).collect()
}

fn picks(schedule: &mut Schedule, count: usize) -> Vec<usize> {
    (0..count).map(|_| schedule.pick().expect("one is enabled").index()).collect()
}

fn common_divisor(factors: &[u64]) -> u64 {
    fn of_two(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { of_two(b, a % b) }
    }
    factors.iter().fold(0, |divisor, factor| of_two(divisor, *factor))
}

fn some_factors() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1..10u64, 1..200u64], 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_of_statuses_does_not_change_and_none_is_a_whole_round_ahead(
        factors in some_factors(),
        initial in prop::collection::vec(0..100i64, 40),
        count in 1..300usize,
    ) {
        let mut schedule = Schedule::new();
        let members: Vec<Member> = factors.iter().zip(&initial)
            .map(|(factor, status)| schedule.add_with_status(Factor::of(*factor), *status)).collect();
        let sum: i128 = statuses(&schedule, &members).iter().sum();
        let total = i128::from(factors.iter().sum::<u64>());
        for _ in 0..count {
            schedule.pick();
            let statuses = statuses(&schedule, &members);
            prop_assert_eq!(statuses.iter().sum::<i128>(), sum);
            prop_assert!(statuses.iter().all(|status| *status > -total));
        }
    }

    #[test]
    fn multiplying_every_factor_changes_no_pick(factors in some_factors(), by in 2..1_000_000u64) {
        let multiplied: Vec<u64> = factors.iter().map(|factor| factor * by).collect();
        let ((mut one, _), (mut other, _)) = (schedule_of(&factors), schedule_of(&multiplied));
        prop_assert_eq!(picks(&mut one, 300), picks(&mut other, 300));
    }

    #[test]
    fn after_one_period_each_has_exactly_its_share(factors in some_factors()) {
        let divisor = common_divisor(&factors);
        let period = factors.iter().sum::<u64>() / divisor;
        let (mut schedule, members) = schedule_of(&factors);
        let mut counts = vec![0; factors.len()];
        picks(&mut schedule, period as usize).into_iter().for_each(|index| counts[index] += 1);
        let shares: Vec<u64> = factors.iter().map(|factor| factor / divisor).collect();
        prop_assert_eq!(counts, shares);
        prop_assert!(statuses(&schedule, &members).iter().all(|status| *status == 0));
    }

    #[test]
    fn a_disabled_member_keeps_its_status_and_the_others_keep_their_sum(
        factors in prop::collection::vec(1..50u64, 2..20),
        before in 0..100usize,
        alone in 1..100usize,
    ) {
        let (mut schedule, members) = schedule_of(&factors);
        picks(&mut schedule, before);
        let frozen = members[before % members.len()];
        schedule.disable(frozen);
        let then = statuses(&schedule, &members);
        prop_assert!(picks(&mut schedule, alone).iter().all(|index| *index != frozen.index()));
        let now = statuses(&schedule, &members);
        prop_assert_eq!(now[frozen.index()], then[frozen.index()]);
        prop_assert_eq!(now.iter().sum::<i128>(), then.iter().sum::<i128>());
    }
}
