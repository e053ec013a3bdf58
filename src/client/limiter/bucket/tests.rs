use std::{iter, time::Duration};

use proptest::{collection::vec, prelude::*};

use super::*;

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
fn a_whole_limit_per_window_is_not_rounded_down() {
    for seconds in [1, 60, 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400] {
        for limit in 1..=3_000 {
            let capacity = Capacity::of(f64::from(limit) / seconds as f64);
            let permits = Burst::Window(Duration::from_secs(seconds)).permits(capacity);
            assert_eq!(permits, f64::from(limit), "{limit} in {seconds} s");
        }
    }
}

#[test]
fn the_wait_is_exact_to_the_nanosecond() {
    for capacity in [0.1, 0.3, 1.0, 7.0, 333.3, 1e6] {
        let mut bucket = bucket(Burst::Smooth, capacity);
        let mut now = 0;
        for _ in 0..100 {
            let Err(Shortage { ready_in: Some(wait) }) = bucket.take(now, 1) else {
                panic!("{capacity}: a permit was left")
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
        bucket.take(at, 1).expect("available if evenly spaced");
    }
    (bucket.recharging(from + 10 * SECOND) - before) as f64 / (10 * SECOND) as f64
}

#[test]
fn usage_is_the_fraction_of_time_that_permits_take_at_any_burst() {
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
fn an_empty_bucket_is_in_use_and_an_unlimited_one_never() {
    let mut bucket = bucket(Burst::Permits(5.0), 10.0);
    assert_eq!(bucket.recharging(SECOND), SECOND / 2, "until it is full for the first time");
    bucket.take(SECOND, 5).expect("saved");
    bucket.save_for(SECOND, 100);
    assert_eq!(bucket.recharging(4 * SECOND), SECOND / 2 + 3 * SECOND, "the head of the queue is not served yet");
    bucket.stop_saving(4 * SECOND);
    let before = bucket.recharging(4 * SECOND);
    bucket.set_capacity(4 * SECOND, Capacity::UNLIMITED);
    bucket.take(5 * SECOND, 1000).expect("unlimited");
    assert_eq!(bucket.recharging(6 * SECOND), before);
}

#[test]
fn nothing_drifts_in_a_day_of_operations() {
    const DAY: Nanos = 86_400 * SECOND;
    for capacity in [0.1, 11.3, 33.3] {
        let mut bucket = bucket(Burst::Permits(2.0), capacity);
        let mut taken = 0u128;
        let mut now = 0;
        // Steps of an odd length. Every step settles, and most requests are refused.
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
fn an_unlimited_capacity_leaves_at_most_a_burst() {
    let mut bucket = bucket(Burst::Window(Duration::from_secs(1)), f64::INFINITY);
    for _ in 0..1000 {
        assert_eq!(bucket.take(0, u32::MAX), Ok(()));
    }
    bucket.set_capacity(SECOND, Capacity::of(10.0));
    assert_eq!(drain(&mut bucket, 3600 * SECOND), 10);
}

#[test]
fn a_request_beyond_the_burst_saves_up_and_pays_in_full() {
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
fn returned_permits_restore_no_more_than_the_credit_without_them() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(60 * SECOND, 3).expect("the burst");
    let promise = bucket.promise(3);
    // Without the promise the bucket would have stayed full. Now it has recharged to 4 of 5 …
    assert_eq!(drain(&mut bucket, 62 * SECOND), 4);
    // … so one permit did not overflow, and only that is returned.
    bucket.hand_back(62 * SECOND, promise);
    assert_eq!(drain(&mut bucket, 62 * SECOND), 1);
}

#[test]
fn an_old_promise_does_not_return_the_permits_of_a_newer_one() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.take(60 * SECOND, 1).expect("the burst");
    let old = bucket.promise(1);
    bucket.take(90 * SECOND, 2).expect("the burst again");
    let new = bucket.promise(2);
    bucket.hand_back(90 * SECOND, old); // the bucket was full since
    assert_eq!(drain(&mut bucket, 90 * SECOND), 3);
    bucket.hand_back(90 * SECOND, new);
    assert_eq!(drain(&mut bucket, 90 * SECOND), 2);
}

#[test]
fn a_charge_takes_credit_first_and_then_becomes_debt() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    assert_eq!(bucket.charge(60 * SECOND, 3), 3);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (0, 2));
    assert_eq!(bucket.charge(60 * SECOND, 10), 10);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (8, 0));
    assert_eq!(bucket.take(60 * SECOND, 1), Err(Shortage { ready_in: Some(9 * SECOND) }));
    assert_eq!(bucket.owed(60 * SECOND + SECOND / 2), 8, "a part of a permit counts as one");
    assert_eq!((bucket.owed(68 * SECOND), bucket.available(68 * SECOND)), (0, 0));
    assert_eq!(bucket.take(69 * SECOND - 1, 1), Err(Shortage { ready_in: Some(1) }));
    assert_eq!(bucket.take(69 * SECOND, 1), Ok(()));
}

#[test]
fn debt_survives_changes_of_capacity_except_to_unlimited() {
    let mut bucket = bucket(Burst::Window(Duration::from_secs(60)), 10.0);
    bucket.charge(0, 100);
    bucket.set_capacity(SECOND, Capacity::NONE);
    assert_eq!(bucket.owed(3600 * SECOND), 90);
    assert_eq!(bucket.take(3600 * SECOND, 1), Err(Shortage { ready_in: None }));
    bucket.set_capacity(3600 * SECOND, Capacity::of(1.0));
    assert_eq!(bucket.owed(3689 * SECOND), 1);
    bucket.charge(3690 * SECOND, 50);
    bucket.set_capacity(3690 * SECOND, Capacity::UNLIMITED);
    assert_eq!(bucket.owed(3690 * SECOND), 0, "an unlimited capacity has no debt");
    bucket.charge(3690 * SECOND, 50);
    assert_eq!((bucket.owed(3690 * SECOND), bucket.available(3690 * SECOND)), (0, u64::MAX));
}

#[test]
fn debt_is_bounded_and_the_charged_part_is_returned() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.set_max_debt(10);
    assert_eq!(bucket.charge(2 * SECOND + SECOND / 2, 1_000), 12, "a credit of 2.5");
    assert_eq!((bucket.owed(2 * SECOND + SECOND / 2), bucket.taken()), (10, 12));
    assert_eq!(bucket.charge(3 * SECOND + SECOND / 2, 2), 1, "half a permit is not charged");
    bucket.set_max_debt(0);
    assert_eq!(bucket.charge(4 * SECOND, 5), 0);
    assert_eq!(bucket.owed(4 * SECOND), 9, "existing debt stays");
    assert_eq!(bucket.charge(u64::MAX, u64::MAX), 5);
    assert_eq!(bucket.owed(u64::MAX), 0);
}

#[test]
fn extreme_numbers_neither_overflow_nor_panic() {
    for capacity in [1e-300, 1e-13, 1e300, f64::MAX, f64::NAN, -1.0] {
        for burst in
            [Burst::Smooth, Burst::Window(Duration::MAX), Burst::Window(Duration::ZERO), Burst::Permits(f64::MAX)]
        {
            let mut bucket = bucket(burst, capacity);
            bucket.set_max_debt(u64::MAX);
            bucket.save_for(1, u32::MAX);
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

#[test]
fn refunds_pay_debt_first_and_are_bounded_by_the_permits_taken() {
    let mut bucket = bucket(Burst::Permits(5.0), 1.0);
    bucket.charge(60 * SECOND, 25);
    assert_eq!(bucket.refund(60 * SECOND, 22), 22);
    assert_eq!((bucket.owed(60 * SECOND), bucket.available(60 * SECOND)), (0, 2));
    assert_eq!((bucket.refund(60 * SECOND, 100), bucket.refund(60 * SECOND, 100), bucket.taken()), (3, 0, 0));
    assert_eq!(drain(&mut bucket, 60 * SECOND), 5);
}

// -- Random histories.

#[derive(Debug, Clone)]
enum Step {
    Pass(Nanos),
    Capacity(f64),
    Take(u32),
    Charge(u32),
    /// Returns permits taken last.
    Refund(u32),
    /// Takes all available permits one by one.
    Drain,
    /// The head of the queue asks. If it is refused, the bucket saves up for it.
    Head(u32),
    /// The head of the queue leaves.
    GiveUp,
    Reserve(u32),
    /// Settles a reservation, with this usage in thousandths.
    Settle(usize, u32),
}

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.1..100.0, 1 => Just(0.0), 1 => 1e3..1e6, 1 => Just(1.0)]
}

fn plain_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![Just(0), 0..5_000_000u64, 0..20 * SECOND].prop_map(Step::Pass),
        1 => capacity().prop_map(Step::Capacity),
        6 => (1..5u32).prop_map(Step::Take),
        2 => (1..20u32).prop_map(Step::Charge),
        1 => (1..20u32).prop_map(Step::Refund),
    ]
}

/// The largest request.
const LARGEST: u32 = 40;

/// A step of the callers of a limiter.
fn caller_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..LARGEST).prop_map(Step::Take),
        2 => Just(Step::Drain),
        3 => (1..LARGEST).prop_map(Step::Head),
        1 => Just(Step::GiveUp),
        1 => (1..LARGEST).prop_map(Step::Charge),
        4 => (1..LARGEST).prop_map(Step::Reserve),
        4 => (any::<usize>(), prop_oneof![1 => Just(0), 1 => Just(1000), 4 => 0..1500u32])
            .prop_map(|(pick, part)| Step::Settle(pick, part)),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    prop_oneof![
        Just(Burst::Smooth),
        Just(Burst::Window(Duration::from_secs(1))),
        Just(Burst::Window(Duration::from_secs(60))),
        (0.5..50.0).prop_map(Burst::Permits)
    ]
}

/// Used permits. A reservation counts from when it was taken, with its final usage.
#[derive(Debug, Clone, Copy)]
struct UsedPermits {
    /// The number of the step in which they were taken.
    number: usize,
    at: Nanos,
    n: u64,
    /// The debt of all limiters right after.
    debt: u64,
}

/// A limiter with callers: at most one waits at the head of the queue, and others hold reservations.
struct Limiter {
    bucket: Bucket,
    head: Option<u32>,
    /// The largest request at the head of the queue so far: the bucket may have saved up for it.
    largest: u32,
    reserved: Vec<(UsedPermits, Promise)>,
    used: Vec<UsedPermits>,
}

impl Limiter {
    fn new(burst: Burst) -> Limiter {
        Limiter { bucket: Bucket::new(burst), head: None, largest: 0, reserved: Vec::new(), used: Vec::new() }
    }

    /// Performs a step. `other_debt` is the debt of other limiters.
    fn apply(&mut self, number: usize, now: Nanos, other_debt: u64, step: &Step) {
        let taken = |bucket: &mut Bucket, n| UsedPermits { number, at: now, n, debt: other_debt + bucket.owed(now) };
        match *step {
            Step::Take(n) | Step::Reserve(n) if self.head.is_none() && self.bucket.take(now, n).is_ok() => {
                let taken = taken(&mut self.bucket, u64::from(n));
                match step {
                    Step::Take(_) => self.used.push(taken),
                    _ => self.reserved.push((taken, self.bucket.promise(n))),
                }
            }
            Step::Drain if self.head.is_none() => {
                let n = drain(&mut self.bucket, now);
                self.used.push(taken(&mut self.bucket, n));
            }
            Step::Head(n) => {
                let n = *self.head.get_or_insert(n);
                self.largest = self.largest.max(n);
                if self.bucket.take(now, n).is_ok() {
                    self.head = None;
                    let taken = taken(&mut self.bucket, u64::from(n));
                    self.reserved.push((taken, self.bucket.promise(n)));
                } else {
                    self.bucket.save_for(now, n);
                }
            }
            Step::GiveUp => {
                self.bucket.stop_saving(now);
                self.head = None;
            }
            Step::Charge(n) => {
                let charged = self.bucket.charge(now, u64::from(n));
                self.used.push(taken(&mut self.bucket, charged));
            }
            Step::Settle(pick, part) if !self.reserved.is_empty() => {
                let (reserved, promise) = self.reserved.swap_remove(pick % self.reserved.len());
                let n = promise.n * part / 1000;
                self.bucket.use_part(now, promise, n);
                self.used.push(UsedPermits { n: u64::from(n.min(promise.n)), ..reserved });
                let charged = self.bucket.charge(now, u64::from(n.saturating_sub(promise.n)));
                self.used.push(taken(&mut self.bucket, charged));
            }
            _ => {}
        }
    }
}

/// Checks that no span of time sees more permits used than `allowed`, plus the debt at its end.
fn check_spans(mut used: Vec<UsedPermits>, allowed: impl Fn(Nanos, Nanos) -> f64) -> Result<(), TestCaseError> {
    used.sort_by_key(|used| used.number);
    for (first, start) in used.iter().enumerate() {
        let mut sum = 0;
        for end in &used[first..] {
            sum += end.n;
            let allowed = allowed(start.at, end.at) + end.debt as f64;
            prop_assert!(sum as f64 <= allowed + TOLERANCE, "{sum} from {start:?} to {end:?}, allowed {allowed}");
        }
    }
    Ok(())
}

/// Capacities with their start times, and admitted permits with their times, in seconds.
#[derive(Default)]
struct History {
    capacities: Vec<(f64, f64)>,
    admitted: Vec<(f64, u32)>,
}

impl History {
    /// Removes `n` permits that were admitted last.
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

const CAPACITY: f64 = 100.0;
const LIMITERS: usize = 4;

#[derive(Debug, Clone)]
enum SharedStep {
    Pass(Nanos),
    /// Moves a part of one lease, in thousandths, to another limiter.
    Move(usize, usize, u32),
    At(usize, Step),
}

fn shared_step() -> impl Strategy<Value = SharedStep> {
    prop_oneof![
        5 => prop_oneof![Just(1), 0..5_000_000u64, 0..30 * SECOND].prop_map(SharedStep::Pass),
        5 => (0..LIMITERS, 0..LIMITERS, prop_oneof![Just(1000), 0..=1000u32])
            .prop_map(|(from, to, part)| SharedStep::Move(from, to, part)),
        14 => (0..LIMITERS, caller_step()).prop_map(|(at, step)| SharedStep::At(at, step)),
    ]
}

/// Limiters that share a capacity, which moves between them.
struct SharedCapacity {
    leases: [f64; LIMITERS],
    limiters: Vec<Limiter>,
}

impl SharedCapacity {
    /// The first limiter has the whole capacity.
    fn new(window: Duration) -> SharedCapacity {
        let limiters = (0..LIMITERS).map(|_| Limiter::new(Burst::Window(window))).collect();
        let mut shared = SharedCapacity { leases: [0.0; LIMITERS], limiters };
        shared.lease(0, 0, CAPACITY);
        shared
    }

    fn lease(&mut self, now: Nanos, limiter: usize, capacity: f64) {
        self.leases[limiter] = capacity;
        self.limiters[limiter].bucket.set_capacity(now, Capacity::of(capacity));
    }

    /// The server grants capacity whose loss its former holder has confirmed.
    fn give(&mut self, now: Nanos, from: usize, to: usize, part: f64) {
        let moved = self.leases[from] * part;
        self.lease(now, from, self.leases[from] - moved);
        self.lease(now, to, self.leases[to] + moved);
    }

    fn drain(&mut self, now: Nanos) -> u64 {
        self.limiters.iter_mut().map(|limiter| drain(&mut limiter.bucket, now)).sum()
    }
}

#[test]
fn permits_saved_under_a_lease_are_cut_when_the_lease_moves() {
    let mut shared = SharedCapacity::new(Duration::from_secs(60));
    // The lease moves around, and stays at each limiter for as long as it takes to fill its bucket.
    let mut now = 0;
    for holder in [0, 1, 2, 3, 0, 1] {
        now += 60 * SECOND;
        shared.give(now, holder, (holder + 1) % LIMITERS, 1.0);
    }
    now += 60 * SECOND;
    assert_eq!(shared.drain(now), 6_000, "one window, at the holder of the lease");
    shared.give(now, 2, 3, 0.5);
    assert_eq!(shared.drain(now + 30 * SECOND), 3_001, "half a window, and the permit that a limiter may always save");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn exactly_the_credit_by_definition_can_be_taken(
        burst in burst(),
        steps in vec(plain_step(), 1..60),
    ) {
        let mut bucket = Bucket::new(burst);
        let mut history = History::default();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Pass(span) => now += span,
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
                    prop_assert!(!taken || left > -TOLERANCE, "took {n}: {left} left");
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
    fn no_span_of_time_sees_more_used_than_capacity_burst_and_final_debt(
        burst in burst(),
        max_debt in prop_oneof![Just(0u64), 1..200u64],
        steps in vec(prop_oneof![3 => caller_step(), 1 => plain_step()], 1..120),
    ) {
        let (mut limiter, mut history, mut now) = (Limiter::new(burst), History::default(), 0);
        limiter.bucket.set_max_debt(max_debt);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Pass(span) => now += span,
                Step::Capacity(capacity) => {
                    limiter.bucket.set_capacity(now, Capacity::of(capacity));
                    history.capacities.push((seconds(now), capacity));
                }
                step => limiter.apply(number, now, 0, &step),
            }
            prop_assert!(limiter.bucket.owed(now) <= max_debt);
            prop_assert!(limiter.bucket.credit == 0 || limiter.bucket.debt == 0);
        }
        // Open reservations count as used.
        limiter.used.extend(limiter.reserved.iter().map(|(taken, _)| *taken));
        let largest = f64::from(limiter.largest);
        check_spans(limiter.used, |start, end| {
            let (start, end) = (seconds(start), seconds(end));
            history.brought(start, end) + history.largest_burst(burst, start, end).max(largest)
        })?;
    }

    #[test]
    fn limiters_that_share_a_capacity_together_keep_to_it(
        window in prop_oneof![Just(60), Just(10), Just(1)].prop_map(Duration::from_secs),
        steps in vec(shared_step(), 1..150),
    ) {
        let (mut shared, mut now) = (SharedCapacity::new(window), 0);
        // Each may have a permit beyond its window, or the savings of the head of its queue.
        let burst = CAPACITY * window.as_secs_f64() + LIMITERS as f64 * f64::from(LARGEST);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                SharedStep::Pass(span) => now += span,
                SharedStep::Move(from, to, part) => shared.give(now, from, to, f64::from(part) / 1000.0),
                SharedStep::At(at, step) => {
                    let debts = shared.limiters.iter_mut().enumerate().filter(|(other, _)| *other != at);
                    let debt = debts.map(|(_, limiter)| limiter.bucket.owed(now)).sum();
                    shared.limiters[at].apply(number, now, debt, &step);
                }
            }
            let saved: u128 = shared.limiters.iter().map(|limiter| limiter.bucket.credit).sum();
            prop_assert!(saved as f64 / UNITS_PER_PERMIT as f64 <= burst + TOLERANCE, "{saved} units saved");
        }
        // Permits that are still reserved are left out: they count by their final usage, which is at least 0.
        let mut used: Vec<_> = shared.limiters.into_iter().flat_map(|limiter| limiter.used).collect();
        check_spans(used.clone(), |start, end| CAPACITY * seconds(end - start) + burst)?;
        // All started without credit.
        used.sort_by_key(|used| used.number);
        let mut sum = 0;
        for used in &used {
            sum += used.n;
            let allowed = CAPACITY * seconds(used.at) + used.debt as f64;
            prop_assert!(sum as f64 <= allowed + TOLERANCE, "{sum} up to {used:?}, allowed {allowed}");
        }
    }
}
