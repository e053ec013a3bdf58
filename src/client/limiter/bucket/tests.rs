use std::{iter, time::Duration};

use proptest::prelude::*;

use super::*;

mod debt;
mod shared;

const SECOND: Nanos = 1_000_000_000;

fn bucket(burst: Burst, capacity: f64) -> Bucket {
    let mut bucket = Bucket::new(burst);
    bucket.set_capacity(0, Capacity::of(capacity));
    bucket
}

/// The number of single permits that can be taken at once.
fn drain(bucket: &mut Bucket, now: Nanos) -> u64 {
    iter::repeat_with(|| bucket.take(now, 1)).take(100_000).take_while(Result::is_ok).count() as u64
}

#[test]
fn without_a_capacity_there_is_nothing() {
    let mut bucket = Bucket::new(Burst::Permits(10.0));
    assert_eq!(bucket.take(3600 * SECOND, 1), Err(Shortage { ready_in: None }));
    assert_eq!(bucket.max_at_once(), None);
}

#[test]
fn the_wait_is_exact_to_the_nanosecond() {
    for capacity in [0.1, 0.3, 1.0, 7.0, 333.3, 1e6] {
        let mut bucket = bucket(Burst::Smooth, capacity);
        let mut now = 0;
        for _ in 0..100 {
            let Err(Shortage { ready_in: Some(wait) }) = bucket.take(now, 1) else {
                panic!("{capacity}: had one left")
            };
            now += wait - 1;
            assert!(bucket.take(now, 1).is_err(), "{capacity}: a nanosecond early");
            now += 1;
            assert_eq!(bucket.take(now, 1), Ok(()), "{capacity}: in time");
        }
    }
}

/// The usage counted in the ten seconds after `from`, in which `permits` are taken.
fn used(bucket: &mut Bucket, from: Nanos, permits: u32) -> f64 {
    let before = bucket.recharging(from);
    for permit in 0..permits {
        let at = from + u64::from(permit) * 10 * SECOND / u64::from(permits);
        bucket.take(at, 1).expect("spread evenly they are there");
    }
    (bucket.recharging(from + 10 * SECOND) - before) as f64 / (10 * SECOND) as f64
}

#[test]
fn a_rate_is_in_use_for_the_part_of_the_time_that_its_permits_take_at_any_burst() {
    for burst in [Burst::Smooth, Burst::Permits(1.0), Burst::Permits(40.0)] {
        let mut bucket = bucket(burst, 10.0);
        let full = 60 * SECOND;
        bucket.recharging(full);
        for (round, permits) in [(0, 0), (1, 25), (2, 50), (3, 99)] {
            let used = used(&mut bucket, full + round * 60 * SECOND, permits);
            assert!((used - f64::from(permits) / 100.0).abs() < 0.011, "{burst:?}, {permits}: {used}");
        }
    }
}

#[test]
fn a_rate_without_credit_or_with_a_waiter_is_in_use_and_an_unlimited_one_never() {
    let mut bucket = bucket(Burst::Permits(5.0), 10.0);
    assert_eq!(bucket.recharging(SECOND), SECOND / 2, "until it was full for the first time");
    bucket.take(SECOND, 5).expect("saved");
    bucket.save_for(SECOND, 100);
    assert_eq!(bucket.recharging(4 * SECOND), SECOND / 2 + 3 * SECOND, "the head of the line is not served yet");
    bucket.stop_saving(4 * SECOND);
    let before = bucket.recharging(4 * SECOND);
    bucket.set_capacity(4 * SECOND, Capacity::UNLIMITED);
    bucket.take(5 * SECOND, 1000).expect("no limit");
    assert_eq!(bucket.recharging(6 * SECOND), before);
}

#[test]
fn what_is_handed_back_was_not_taken() {
    let mut bucket = bucket(Burst::Permits(5.0), 10.0);
    bucket.take(SECOND, 3).expect("saved");
    let promise = bucket.promise(3);
    bucket.take(SECOND, 2).expect("saved");
    assert_eq!(bucket.taken(), 5);
    bucket.hand_back(2 * SECOND, promise);
    assert_eq!(bucket.taken(), 2);
    assert!(bucket.take(2 * SECOND, 100).is_err());
    assert_eq!(bucket.taken(), 2);
}

#[test]
fn nothing_drifts_in_a_day_of_operations() {
    const DAY: Nanos = 86_400 * SECOND;
    for capacity in [0.1, 11.3, 33.3] {
        let mut bucket = bucket(Burst::Permits(2.0), capacity);
        let mut taken = 0u128;
        let mut now = 0;
        // Steps with an odd length. Every step settles, and most requests are refused.
        while now < DAY {
            now = DAY.min(now + 13_717_421);
            taken += u128::from(bucket.take(now, 1).is_ok());
        }
        // Credit is income less expenses, to the unit.
        let rate = (capacity * UNITS_PER_RATE) as u128;
        assert_eq!(rate * u128::from(DAY), taken * UNITS_PER_PERMIT + bucket.credit, "{capacity}");
    }
}

#[test]
fn credit_never_exceeds_the_burst_however_long_no_caller_comes() {
    for (burst, expected) in [
        (Burst::Smooth, 3),
        (Burst::Window(Duration::from_secs(1)), 100),
        (Burst::Permits(7.9), 7),
        (Burst::Permits(f64::NAN), 1),
    ] {
        let mut bucket = bucket(burst, 100.0);
        assert_eq!(drain(&mut bucket, 1000 * SECOND), expected, "{burst:?}");
    }
}

#[test]
fn without_capacity_nothing_is_let_through_even_if_some_was_saved() {
    let mut bucket = bucket(Burst::Permits(50.0), 100.0);
    bucket.set_capacity(SECOND, Capacity::NONE);
    assert_eq!(bucket.take(SECOND, 1), Err(Shortage { ready_in: None }));
    // The credit is neither lost nor has it grown.
    bucket.set_capacity(900 * SECOND, Capacity::of(1.0));
    assert_eq!(drain(&mut bucket, 900 * SECOND), 50);
}

#[test]
fn a_change_counts_the_old_rate_up_to_now_and_the_new_one_after() {
    let mut bucket = bucket(Burst::Permits(1000.0), 10.0);
    bucket.set_capacity(2 * SECOND, Capacity::of(100.0)); // 20 so far
    assert_eq!(drain(&mut bucket, 3 * SECOND), 120);
}

#[test]
fn what_is_above_the_new_burst_is_cut() {
    let mut bucket = bucket(Burst::Window(Duration::from_secs(1)), 100.0);
    bucket.set_capacity(5 * SECOND, Capacity::of(10.0));
    assert_eq!(drain(&mut bucket, 5 * SECOND), 10);
}

#[test]
fn unlimited_is_unlimited_and_leaves_no_more_than_a_burst() {
    let mut bucket = bucket(Burst::Window(Duration::from_secs(1)), f64::INFINITY);
    for _ in 0..1000 {
        assert_eq!(bucket.take(0, u32::MAX), Ok(()));
    }
    bucket.set_capacity(SECOND, Capacity::of(10.0));
    assert_eq!(drain(&mut bucket, 3600 * SECOND), 10);
}

#[test]
fn one_that_needs_more_than_the_burst_pays_in_full_and_leaves_nothing() {
    let mut bucket = bucket(Burst::Permits(2.0), 1.0);
    assert_eq!(drain(&mut bucket, 60 * SECOND), 2);
    assert_eq!(bucket.take(60 * SECOND, 10), Err(Shortage { ready_in: Some(10 * SECOND) }));
    bucket.save_for(60 * SECOND, 10);
    assert!(bucket.take(70 * SECOND - 1, 10).is_err());
    // It comes late: credit beyond its price was not kept.
    assert_eq!(bucket.take(75 * SECOND, 10), Ok(()));
    assert_eq!(drain(&mut bucket, 75 * SECOND), 0);
    assert_eq!(drain(&mut bucket, 200 * SECOND), 2);
}

#[test]
fn of_what_was_saved_by_one_that_gives_up_only_the_burst_is_left() {
    let mut bucket = bucket(Burst::Permits(2.0), 1.0);
    bucket.save_for(0, 10);
    bucket.stop_saving(9 * SECOND);
    assert_eq!(drain(&mut bucket, 9 * SECOND), 2);
}

#[test]
fn what_is_handed_back_can_be_taken_again() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(3 * SECOND, 3).expect("three seconds' worth");
    let promise = bucket.promise(3);
    bucket.hand_back(4 * SECOND, promise);
    assert_eq!(drain(&mut bucket, 4 * SECOND), 4);
}

#[test]
fn what_is_handed_back_does_not_exceed_what_there_would_be_without_it() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(60 * SECOND, 3).expect("the burst");
    let promise = bucket.promise(3);
    // Without it the bucket would have stayed full. Now it has recharged to 4 of 5 …
    assert_eq!(drain(&mut bucket, 62 * SECOND), 4);
    // … so one permit did not overflow, and is all that is returned.
    bucket.hand_back(62 * SECOND, promise);
    assert_eq!(drain(&mut bucket, 62 * SECOND), 1);
}

#[test]
fn one_that_waited_too_long_to_hand_back_does_not_hand_back_what_was_promised_to_another() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(60 * SECOND, 1).expect("the burst");
    let old = bucket.promise(1);
    bucket.take(90 * SECOND, 2).expect("the burst again");
    let new = bucket.promise(2);
    bucket.hand_back(90 * SECOND, old); // would have run over
    assert_eq!(drain(&mut bucket, 90 * SECOND), 3);
    bucket.hand_back(90 * SECOND, new);
    assert_eq!(drain(&mut bucket, 90 * SECOND), 2);
}

#[test]
fn numbers_out_of_all_proportion_do_no_harm() {
    for capacity in [1e-300, 1e-13, 1e300, f64::MAX, f64::NAN, -1.0] {
        for burst in
            [Burst::Smooth, Burst::Window(Duration::from_secs(1)), Burst::Permits(f64::MAX), Burst::Permits(-1.0)]
        {
            let mut bucket = bucket(burst, capacity);
            bucket.save_for(1, u32::MAX);
            let _ = bucket.take(u64::MAX, u32::MAX);
            let promise = bucket.promise(u32::MAX);
            bucket.hand_back(u64::MAX, promise);
            let _ = bucket.ready_in(0, u64::MAX);
            bucket.set_capacity(0, Capacity::UNLIMITED);
            assert_eq!(bucket.take(u64::MAX, u32::MAX), Ok(()));
        }
    }
}

// -- random histories against a naive implementation

#[derive(Debug, Clone)]
enum Step {
    Pass(Duration),
    Capacity(f64),
    Take(u32),
    Charge(u32),
    /// Returns permits taken last.
    Refund(u32),
    /// The head of the queue asks. If it is refused, the bucket saves up for it.
    Head(u32),
    /// The head of the queue leaves.
    GiveUp,
    /// A promise is claimed, or handed back.
    Claim(usize),
    HandBack(usize),
}

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.1..100.0, 1 => Just(0.0), 1 => 1e3..1e6, 1 => Just(1.0)]
}

fn pass() -> impl Strategy<Value = Step> {
    prop_oneof![Just(0), 0..5_000_000u64, 0..20 * SECOND].prop_map(|nanos| Step::Pass(Duration::from_nanos(nanos)))
}

fn plain_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => pass(),
        1 => capacity().prop_map(Step::Capacity),
        6 => (1..5u32).prop_map(Step::Take),
        2 => (1..20u32).prop_map(Step::Charge),
        1 => (1..20u32).prop_map(Step::Refund),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => plain_step(),
        4 => (1..20u32).prop_map(Step::Head),
        1 => Just(Step::GiveUp),
        2 => any::<usize>().prop_map(Step::Claim),
        2 => any::<usize>().prop_map(Step::HandBack),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    prop_oneof![Just(Burst::Smooth), Just(Burst::Window(Duration::from_secs(1))), (0.5..50.0).prop_map(Burst::Permits)]
}

/// A history: capacities with their start times, and admitted permits with their times.
#[derive(Default)]
struct History {
    capacities: Vec<(f64, f64)>,
    admitted: Vec<(f64, u32)>,
}

impl History {
    /// Removes permits that were admitted last.
    fn take_back(&mut self, mut n: u32) {
        while let Some((_, last)) = self.admitted.last_mut().filter(|_| n > 0) {
            let part = n.min(*last);
            (*last, n) = (*last - part, n - part);
            if *last == 0 {
                self.admitted.pop();
            }
        }
    }

    /// The integral of the capacity from `start` to `end`.
    fn brought(&self, start: f64, end: f64) -> f64 {
        let ends = self.capacities.iter().skip(1).map(|&(from, _)| from).chain([f64::INFINITY]);
        let segments = self.capacities.iter().zip(ends);
        segments.map(|(&(from, capacity), to)| capacity * (end.min(to) - start.max(from)).max(0.0)).sum()
    }

    /// The largest burst of any capacity in force in the span, ends included.
    fn largest_burst(&self, burst: Burst, start: f64, end: f64) -> f64 {
        let before = self.capacities.iter().rfind(|&&(from, _)| from < start);
        let during = self.capacities.iter().filter(|&&(from, _)| start <= from && from <= end);
        before.into_iter().chain(during).map(|&(_, c)| burst.permits(Capacity::of(c))).fold(0.0, f64::max)
    }

    /// Credit by definition: the minimum over all spans up to now of what they still allow. A span allows the burst at
    /// its start plus the capacity since, less what was admitted. The first span starts without a burst.
    fn credit(&self, burst: Burst, now: f64) -> f64 {
        let from_birth = self.brought(0.0, now) - self.admitted.iter().map(|&(_, n)| f64::from(n)).sum::<f64>();
        let starts = self.admitted.iter().enumerate().map(|(index, &(at, _))| (at, index));
        let cuts = self.capacities.iter().map(|&(at, _)| (at, self.admitted.partition_point(|&(when, _)| when < at)));
        // Between those the burst is constant, and a later start allows less.
        starts.chain(cuts).chain([(now, self.admitted.len())]).fold(from_birth, |least, (start, first)| {
            let spent: f64 = self.admitted[first..].iter().map(|&(_, n)| f64::from(n)).sum();
            let before = self.capacities.iter().rfind(|&&(from, _)| from < start);
            let at = self.capacities.iter().rfind(|&&(from, _)| from <= start);
            let smallest = before.into_iter().chain(at).map(|&(_, c)| burst.permits(Capacity::of(c)));
            least.min(smallest.fold(f64::INFINITY, f64::min) + self.brought(start, now) - spent)
        })
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Rounding error of the oracle, in permits.
const TOLERANCE: f64 = 1e-5;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_that_can_be_had_is_had_and_nothing_else(
        burst in burst(),
        steps in proptest::collection::vec(plain_step(), 1..60),
    ) {
        let mut bucket = Bucket::new(burst);
        let mut history = History::default();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Pass(span) => now += span.as_nanos() as u64,
                Step::Capacity(capacity) => {
                    // Changes at the same time would make "before" ambiguous.
                    now += 1;
                    bucket.set_capacity(now, Capacity::of(capacity));
                    history.capacities.push((seconds(now), capacity));
                }
                Step::Take(n) => {
                    let taken = bucket.take(now, n).is_ok();
                    let blocked = history.capacities.last().is_none_or(|&(_, capacity)| capacity == 0.0);
                    let left = history.credit(burst, seconds(now)) - f64::from(n);
                    prop_assert!(!(taken && blocked));
                    prop_assert!(!taken || left > -TOLERANCE, "took {n}, {left} too many");
                    prop_assert!(taken || blocked || left < TOLERANCE, "refused {n} with {left} to spare");
                    if taken {
                        history.admitted.push((seconds(now), n));
                    }
                }
                Step::Charge(n) => {
                    prop_assert_eq!(bucket.charge(now, u64::from(n)), u64::from(n));
                    history.admitted.push((seconds(now), n));
                    let credit = history.credit(burst, seconds(now));
                    let owed = bucket.debt as f64 / UNITS_PER_PERMIT as f64;
                    prop_assert!((owed + credit.min(0.0)).abs() < TOLERANCE, "owes {owed}, has {credit}");
                }
                Step::Refund(n) => {
                    bucket.refund(now, u64::from(n));
                    history.take_back(n);
                }
                _ => unreachable!("not a plain step"),
            }
        }
    }

    #[test]
    fn no_span_of_time_ever_sees_more_than_capacity_and_burst(
        burst in burst(),
        steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        let mut bucket = Bucket::new(burst);
        let mut history = History::default();
        let mut now = 0;
        let mut promised = Vec::new(); // when, what
        let mut head = None; // as long as there is one, no other asks
        for step in steps {
            match step {
                Step::Pass(span) => now += span.as_nanos() as u64,
                Step::Capacity(capacity) => {
                    bucket.set_capacity(now, Capacity::of(capacity));
                    history.capacities.push((seconds(now), capacity));
                }
                Step::Charge(_) | Step::Refund(_) => {}
                Step::Take(n) => {
                    if head.is_none() && bucket.take(now, n).is_ok() {
                        history.admitted.push((seconds(now), n));
                    }
                }
                Step::Head(n) => {
                    let n = *head.get_or_insert(n);
                    if bucket.take(now, n).is_ok() {
                        promised.push((seconds(now), bucket.promise(n)));
                        head = None;
                    } else {
                        bucket.save_for(now, n);
                    }
                }
                Step::GiveUp => {
                    bucket.stop_saving(now);
                    head = None;
                }
                Step::Claim(pick) if !promised.is_empty() => {
                    let (when, promise) = promised.remove(pick % promised.len());
                    bucket.claim(promise);
                    history.admitted.push((when, promise.n));
                }
                Step::HandBack(pick) if !promised.is_empty() => {
                    let (_, promise) = promised.remove(pick % promised.len());
                    bucket.hand_back(now, promise);
                }
                Step::Claim(_) | Step::HandBack(_) => {}
            }
        }
        history.admitted.extend(promised.into_iter().map(|(when, promise)| (when, promise.n)));
        history.admitted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let largest = history.admitted.iter().map(|&(_, n)| f64::from(n)).fold(0.0, f64::max);
        // A caller that left may have saved up more than was ever admitted: only the burst of that is left.
        for (first, &(start, _)) in history.admitted.iter().enumerate() {
            let mut admitted = 0.0;
            for &(end, n) in &history.admitted[first..] {
                admitted += f64::from(n);
                let allowed = history.brought(start, end) + history.largest_burst(burst, start, end).max(largest);
                prop_assert!(admitted <= allowed + TOLERANCE, "{admitted} from {start} to {end}, allowed {allowed}");
            }
        }
    }
}
