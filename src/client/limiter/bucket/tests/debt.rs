//! Charges, refunds, reservations and settlements.

use super::*;

#[test]
fn a_charge_takes_what_is_there_and_owes_the_rest() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    assert_eq!(bucket.charge(60 * SECOND, 3), 3);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (0, 2));
    assert_eq!(bucket.charge(60 * SECOND, 10), 10);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (8, 0));
    assert_eq!(bucket.take(60 * SECOND, 1), Err(Shortage { ready_in: Some(9 * SECOND) }));
    assert_eq!(bucket.owed(60 * SECOND + SECOND / 2), 8, "a permit begun is owed");
    assert_eq!((bucket.owed(68 * SECOND), bucket.available(68 * SECOND)), (0, 0));
    assert_eq!(bucket.take(69 * SECOND - 1, 1), Err(Shortage { ready_in: Some(1) }));
    assert_eq!(bucket.take(69 * SECOND, 1), Ok(()));
}

#[test]
fn a_charge_takes_what_the_head_of_the_line_has_saved() {
    let mut bucket = bucket(Burst::Permits(1.0), 1.0);
    bucket.save_for(0, 10);
    assert_eq!(bucket.charge(9 * SECOND, 12), 12);
    assert_eq!(bucket.take(9 * SECOND, 10), Err(Shortage { ready_in: Some(13 * SECOND) }));
}

#[test]
fn what_is_owed_stays_owed_whatever_becomes_of_the_capacity() {
    let mut bucket = bucket(Burst::Window(Duration::from_secs(60)), 10.0);
    bucket.charge(0, 100);
    bucket.set_capacity(SECOND, Capacity::NONE);
    assert_eq!(bucket.owed(3600 * SECOND), 90);
    assert_eq!(bucket.take(3600 * SECOND, 1), Err(Shortage { ready_in: None }));
    bucket.set_capacity(3600 * SECOND, Capacity::of(1.0));
    assert_eq!(bucket.owed(3689 * SECOND), 1);
    bucket.charge(3690 * SECOND, 50);
    bucket.set_capacity(3690 * SECOND, Capacity::UNLIMITED);
    assert_eq!(bucket.owed(3690 * SECOND), 0, "where there is no limit nothing is owed");
    bucket.charge(3690 * SECOND, 50);
    assert_eq!((bucket.owed(3690 * SECOND), bucket.available(3690 * SECOND)), (0, u64::MAX));
}

#[test]
fn no_more_is_owed_than_may_be_and_what_is_not_charged_is_told() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.set_max_debt(10);
    assert_eq!(bucket.charge(2 * SECOND + SECOND / 2, 1_000), 12, "two and a half are there");
    assert_eq!((bucket.owed(2 * SECOND + SECOND / 2), bucket.taken()), (10, 12));
    assert_eq!(bucket.charge(3 * SECOND + SECOND / 2, 2), 1, "half a permit that is left does not count");
    bucket.set_max_debt(0);
    assert_eq!(bucket.charge(4 * SECOND, 5), 0);
    assert_eq!(bucket.owed(4 * SECOND), 9, "what is owed already stays");
    assert_eq!(bucket.charge(u64::MAX, u64::MAX), 5);
    assert_eq!(bucket.owed(u64::MAX), 0);
}

#[test]
fn what_is_refunded_pays_debt_first() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.charge(60 * SECOND, 25);
    assert_eq!(bucket.refund(60 * SECOND, 22), 22);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (0, 2));
}

#[test]
fn no_more_is_refunded_than_was_taken() {
    let mut bucket = bucket(Burst::Permits(50.0), 1.0);
    bucket.take(10 * SECOND, 4).expect("ten are there");
    bucket.charge(10 * SECOND, 3);
    assert_eq!(bucket.refund(10 * SECOND, 100), 7);
    assert_eq!((bucket.refund(10 * SECOND, 100), bucket.taken()), (0, 0));
    assert_eq!(drain(&mut bucket, 10 * SECOND), 10);
}

#[test]
fn what_was_taken_before_the_bucket_was_full_again_does_not_come_back() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(60 * SECOND, 5).expect("the burst");
    assert_eq!(bucket.refund(65 * SECOND, 5), 5);
    assert_eq!(drain(&mut bucket, 65 * SECOND), 5, "it was full, and would have been full all the time");
    assert_eq!(bucket.refund(65 * SECOND, 5), 5);
    assert_eq!(drain(&mut bucket, 65 * SECOND), 5, "those that were taken last were not used");
}

#[test]
fn what_is_settled_comes_back_once_and_what_was_used_of_it_can_be_refunded() {
    let mut bucket = bucket(Burst::Permits(100.0), 1.0);
    bucket.take(100 * SECOND, 40).expect("the burst");
    let promise = bucket.promise(40);
    bucket.use_part(100 * SECOND, promise, 30);
    assert_eq!((bucket.taken(), bucket.available(100 * SECOND)), (30, 70));
    bucket.refund(100 * SECOND, 1_000);
    assert_eq!((bucket.taken(), bucket.available(100 * SECOND)), (0, 100));
}

#[test]
fn debts_out_of_all_proportion_do_no_harm() {
    for capacity in [1e-300, 1e300, f64::MAX, f64::NAN] {
        for burst in [Burst::Window(Duration::MAX), Burst::Window(Duration::ZERO), Burst::Permits(f64::MAX)] {
            let mut bucket = bucket(burst, capacity);
            bucket.set_max_debt(u64::MAX);
            for now in [0, 1, SECOND, u64::MAX / 2, u64::MAX] {
                bucket.charge(now, u64::MAX);
                bucket.charge(now, u64::MAX);
                let _ = (bucket.owed(now), bucket.available(now), bucket.ready_in(now, u64::MAX));
                let promise = bucket.promise(u32::MAX);
                bucket.refund(now, u64::MAX);
                bucket.use_part(now, promise, 7);
                let _ = bucket.take(now, u32::MAX);
            }
            bucket.set_capacity(u64::MAX, Capacity::UNLIMITED);
            assert_eq!((bucket.take(u64::MAX, u32::MAX), bucket.owed(u64::MAX)), (Ok(()), 0));
        }
    }
}

#[derive(Debug, Clone)]
enum DebtStep {
    Pass(Duration),
    Capacity(f64),
    Take(u32),
    Charge(u32),
    Reserve(u32),
    /// Settles a reservation, with this usage in thousandths.
    Settle(usize, u32),
    Keep(usize),
}

fn act() -> impl Strategy<Value = DebtStep> {
    prop_oneof![
        4 => prop_oneof![Just(0), 0..5_000_000u64, 0..20 * SECOND].prop_map(|n| DebtStep::Pass(Duration::from_nanos(n))),
        1 => capacity().prop_map(DebtStep::Capacity),
        3 => (1..5u32).prop_map(DebtStep::Take),
        1 => (1..20u32).prop_map(DebtStep::Charge),
        5 => (1..30u32).prop_map(DebtStep::Reserve),
        4 => (any::<usize>(), 0..1500u32).prop_map(|(pick, part)| DebtStep::Settle(pick, part)),
        1 => any::<usize>().prop_map(DebtStep::Keep),
    ]
}

/// Used permits, when they were taken, and the debt right after.
#[derive(Debug, Clone, Copy)]
struct UsedPermits {
    number: usize,
    at: f64,
    n: f64,
    owed: f64,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// A reservation counts from when it was taken, with its final usage.
    #[test]
    fn no_span_of_time_sees_more_used_than_capacity_and_burst_and_what_is_owed_at_its_end(
        burst in prop_oneof![burst(), Just(Burst::Window(Duration::from_secs(60)))],
        max_debt in prop_oneof![Just(0u64), 1..200u64],
        acts in proptest::collection::vec(act(), 1..120),
    ) {
        let mut bucket = Bucket::new(burst);
        bucket.set_max_debt(max_debt);
        let (mut history, mut now) = (History::default(), 0);
        let (mut used, mut reserved) = (Vec::new(), Vec::new());
        for (number, act) in acts.into_iter().enumerate() {
            let at = seconds(now);
            match act {
                DebtStep::Pass(span) => now += span.as_nanos() as u64,
                DebtStep::Capacity(capacity) => {
                    bucket.set_capacity(now, Capacity::of(capacity));
                    history.capacities.push((at, capacity));
                }
                DebtStep::Take(n) => {
                    if bucket.take(now, n).is_ok() {
                        used.push(UsedPermits { number, at, n: f64::from(n), owed: 0.0 });
                    }
                }
                DebtStep::Charge(n) => {
                    let charged = bucket.charge(now, u64::from(n));
                    used.push(UsedPermits { number, at, n: charged as f64, owed: bucket.owed(now) as f64 });
                }
                DebtStep::Reserve(n) => {
                    if bucket.take(now, n).is_ok() {
                        reserved.push((number, at, bucket.promise(n)));
                    }
                }
                DebtStep::Settle(pick, part) if !reserved.is_empty() => {
                    let (taken, when, promise) = reserved.swap_remove(pick % reserved.len());
                    let (took, n) = (promise.n, promise.n * part / 1000);
                    bucket.use_part(now, promise, n);
                    used.push(UsedPermits { number: taken, at: when, n: f64::from(n.min(took)), owed: 0.0 });
                    let charged = bucket.charge(now, u64::from(n.saturating_sub(took)));
                    used.push(UsedPermits { number, at, n: charged as f64, owed: bucket.owed(now) as f64 });
                }
                DebtStep::Keep(pick) if !reserved.is_empty() => {
                    let (taken, when, promise) = reserved.swap_remove(pick % reserved.len());
                    bucket.claim(promise);
                    used.push(UsedPermits { number: taken, at: when, n: f64::from(promise.n), owed: 0.0 });
                }
                DebtStep::Settle(..) | DebtStep::Keep(_) => {}
            }
            prop_assert!(bucket.owed(now) <= max_debt);
            prop_assert!(bucket.credit == 0 || bucket.debt == 0);
        }
        used.sort_by_key(|used| used.number);
        for (first, start) in used.iter().enumerate() {
            let mut sum = 0.0;
            for end in &used[first..] {
                sum += end.n;
                let allowed =
                    history.brought(start.at, end.at) + history.largest_burst(burst, start.at, end.at) + end.owed;
                prop_assert!(sum <= allowed + TOLERANCE, "{sum} from {start:?} to {end:?}, allowed {allowed}");
            }
        }
    }
}
