use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    limiter::{Bucket, Burst},
    session::Capacity,
};

const SECOND: Nanos = 1_000_000_000;

fn bucket(burst: f64, capacity: f64) -> Bucket {
    let mut bucket = Bucket::new(Burst::Permits(burst));
    bucket.set_capacity(0, Capacity::of(capacity));
    bucket
}

fn at<M: Meter>(meters: &mut [M], now: Nanos) -> Vec<MeterAt<'_, M>> {
    meters.iter_mut().map(|meter| MeterAt { meter, now }).collect()
}

fn decide_all(buckets: &mut [Bucket], now: Nanos, claims: &mut [Claim], vetoed: bool) -> bool {
    let limit_of: Vec<usize> = (0..claims.len()).collect();
    decide(&mut at(buckets, now), &limit_of, claims, vetoed)
}

fn available(buckets: &mut [Bucket], now: Nanos) -> Vec<u64> {
    buckets.iter_mut().map(|bucket| bucket.available(now)).collect()
}

#[test]
fn a_refusal_takes_nothing_and_names_the_limit_that_takes_longest() {
    let mut buckets = [bucket(10.0, 10.0), bucket(10.0, 2.0), bucket(10.0, 1.0)];
    let mut claims = [Claim::of(4), Claim::of(8), Claim::of(3)];
    assert!(!decide_all(&mut buckets, 2 * SECOND, &mut claims, false));
    assert_eq!(available(&mut buckets, 2 * SECOND), [10, 4, 2]);
    let retry_after = Some(Duration::from_secs(2));
    assert_eq!(refusal(&claims), Some((1, TryError::NotNow { retry_after })));
    assert!(decide_all(&mut buckets, 4 * SECOND, &mut claims, false), "2 s later");
    assert_eq!((available(&mut buckets, 4 * SECOND), refusal(&claims)), (vec![6, 0, 1], None));
}

#[test]
fn what_never_fits_is_named_before_what_takes_long() {
    let mut buckets = [bucket(10.0, 1.0), bucket(10.0, 0.0), bucket(5.0, 1.0)];
    let mut claims = [Claim::of(9), Claim::of(1), Claim::of(6)];
    assert!(!decide_all(&mut buckets, SECOND, &mut claims, false));
    assert_eq!(refusal(&claims), Some((2, TryError::TooMany { burst: 5.0 })));
    claims[2] = Claim::of(1);
    assert!(!decide_all(&mut buckets, SECOND, &mut claims, false));
    assert_eq!(refusal(&claims), Some((1, TryError::NotNow { retry_after: None })), "without capacity");
}

#[test]
fn claims_of_one_limit_add_up() {
    let mut buckets = [bucket(10.0, 1.0)];
    let mut claims = [Claim::of(3), Claim::of(3)];
    assert!(!decide(&mut at(&mut buckets, 5 * SECOND), &[0, 0], &mut claims, false));
    assert_eq!((claims[0].outcome, available(&mut buckets, 5 * SECOND)), (Ok(()), vec![5]));
    assert_eq!(refusal(&claims), Some((1, TryError::NotNow { retry_after: Some(Duration::from_secs(1)) })));
    assert!(decide(&mut at(&mut buckets, 6 * SECOND), &[0, 0], &mut claims, false));
    assert_eq!(available(&mut buckets, 6 * SECOND), [0]);
}

#[test]
fn a_claim_that_is_not_binding_refuses_nothing_and_a_veto_everything() {
    let mut buckets = [bucket(10.0, 1.0), bucket(10.0, 1.0)];
    let on_trial = |n| Claim { binding: Binding::Never, ..Claim::of(n) };
    assert!(!decide_all(&mut buckets, 2 * SECOND, &mut [Claim::of(1), on_trial(1)], true));
    assert_eq!(available(&mut buckets, 2 * SECOND), [2, 2]);
    let mut claims = [Claim::of(1), on_trial(3)];
    assert!(decide_all(&mut buckets, 2 * SECOND, &mut claims, false));
    assert!(claims[1].outcome.is_err());
    assert_eq!((available(&mut buckets, 2 * SECOND), refusal(&claims)), (vec![1, 2], None));
    let only_checks = Claim { takes: 0, ..Claim::of(2) };
    assert!(decide_all(&mut buckets, 2 * SECOND, &mut [Claim::of(1), only_checks], false));
    assert_eq!(available(&mut buckets, 2 * SECOND), [0, 2]);
}

#[test]
fn one_of_several_claims_is_enough() {
    let mut buckets = [bucket(10.0, 1.0), bucket(10.0, 1.0), bucket(10.0, 1.0)];
    let one_of = |n| Claim { binding: Binding::OneOf, ..Claim::of(n) };
    let mut claims = [Claim::of(1), one_of(3), one_of(2)];
    assert!(decide_all(&mut buckets, 2 * SECOND, &mut claims, false));
    assert_eq!((available(&mut buckets, 2 * SECOND), claims[1].outcome.is_err()), (vec![1, 2, 0], true));
    assert!(!decide_all(&mut buckets, 2 * SECOND, &mut [Claim::of(1), one_of(3), one_of(1)], false));
    assert_eq!(available(&mut buckets, 2 * SECOND), [1, 2, 0], "nothing is taken");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The naive decision: look at every limit, then take.
    #[test]
    fn a_request_takes_exactly_what_it_claims_or_nothing(
        capacities in vec(prop_oneof![Just(0.0), 0.1..50.0, Just(f64::INFINITY)], 1..5),
        requests in vec((0..2_000u64, vec((0..4usize, 1..20u32), 1..6)), 1..60),
    ) {
        let mut buckets: Vec<_> = capacities.iter().map(|&capacity| bucket(15.0, capacity)).collect();
        let mut now = 0;
        for (millis, wanted) in requests {
            now += millis * 1_000_000;
            let limit_of: Vec<usize> = wanted.iter().map(|(limit, _)| limit % buckets.len()).collect();
            let mut claims: Vec<_> = wanted.iter().map(|&(_, n)| Claim::of(n)).collect();
            let mut claimed = vec![0; buckets.len()];
            limit_of.iter().zip(&wanted).for_each(|(&limit, &(_, n))| claimed[limit] += u64::from(n));
            let before = available(&mut buckets, now);
            let fits = before.iter().zip(&claimed).all(|(available, claimed)| available >= claimed);
            prop_assert_eq!(decide(&mut at(&mut buckets, now), &limit_of, &mut claims, false), fits);
            prop_assert_eq!(refusal(&claims).is_none(), fits);
            for (at, after) in available(&mut buckets, now).into_iter().enumerate() {
                let taken = if fits && before[at] != u64::MAX { claimed[at] } else { 0 };
                prop_assert_eq!(after, before[at] - taken);
            }
        }
    }
}
