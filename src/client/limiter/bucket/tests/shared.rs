//! Several limiters that share a capacity, which moves between them.

use super::*;

const CAPACITY: f64 = 100.0;
const LIMITERS: usize = 4;
/// The largest request.
const LARGEST: u32 = 40;

#[derive(Debug, Clone)]
enum SharedStep {
    Pass(Duration),
    /// Moves a part of one lease, in thousandths, to another limiter.
    Move(usize, usize, u32),
    Take(usize, u32),
    /// Takes all available permits one by one.
    Drain(usize),
    /// The head of the queue asks, and saves up if it is refused.
    Wait(usize, u32),
    Charge(usize, u32),
    Reserve(usize, u32),
    Settle(usize, u32),
}

fn act() -> impl Strategy<Value = SharedStep> {
    let limiter = || 0..LIMITERS;
    prop_oneof![
        5 => prop_oneof![Just(1), 0..5_000_000u64, 0..30 * SECOND].prop_map(|n| SharedStep::Pass(Duration::from_nanos(n))),
        5 => (limiter(), limiter(), prop_oneof![Just(1000), 0..=1000u32]).prop_map(|(a, b, c)| SharedStep::Move(a, b, c)),
        2 => (limiter(), 1..LARGEST).prop_map(|(limiter, n)| SharedStep::Take(limiter, n)),
        3 => limiter().prop_map(SharedStep::Drain),
        2 => (limiter(), 1..LARGEST).prop_map(|(limiter, n)| SharedStep::Wait(limiter, n)),
        1 => (limiter(), 1..LARGEST).prop_map(|(limiter, n)| SharedStep::Charge(limiter, n)),
        3 => (limiter(), 1..LARGEST).prop_map(|(limiter, n)| SharedStep::Reserve(limiter, n)),
        3 => (any::<usize>(), 0..=1000u32).prop_map(|(pick, part)| SharedStep::Settle(pick, part)),
    ]
}

#[derive(Debug, Clone, Copy)]
struct SharedUse {
    number: usize,
    at: Nanos,
    n: u64,
    /// The total debt right after.
    owed: u64,
}

struct SharedLimiters {
    leases: [f64; LIMITERS],
    buckets: Vec<Bucket>,
    /// The permits that the head of each queue waits for.
    waiting: [Option<u32>; LIMITERS],
    /// Reservations, counted as fully used: when, where, and the promise.
    reserved: Vec<(SharedUse, usize, Promise)>,
    now: Nanos,
    used: Vec<SharedUse>,
}

impl SharedLimiters {
    /// The first limiter has the whole capacity.
    fn new(window: Duration) -> SharedLimiters {
        let mut world = SharedLimiters {
            leases: [0.0; LIMITERS],
            buckets: (0..LIMITERS).map(|_| Bucket::new(Burst::Window(window))).collect(),
            waiting: [None; LIMITERS],
            reserved: Vec::new(),
            now: 0,
            used: Vec::new(),
        };
        world.lease(0, CAPACITY);
        world
    }

    fn lease(&mut self, limiter: usize, capacity: f64) {
        self.leases[limiter] = capacity;
        self.buckets[limiter].set_capacity(self.now, Capacity::of(capacity));
    }

    /// The server grants capacity that its former holder has confirmed to have lost.
    fn give(&mut self, from: usize, to: usize, part: f64) {
        let moved = self.leases[from] * part;
        self.lease(from, self.leases[from] - moved);
        self.lease(to, self.leases[to] + moved);
    }

    fn used_now(&mut self, number: usize, n: u64) -> SharedUse {
        let owed = self.buckets.iter_mut().map(|bucket| bucket.owed(self.now)).sum();
        SharedUse { number, at: self.now, n, owed }
    }

    fn note(&mut self, number: usize, n: u64) {
        let used = self.used_now(number, n);
        self.used.push(used);
    }

    fn act(&mut self, number: usize, act: &SharedStep) {
        let now = self.now;
        match *act {
            SharedStep::Pass(span) => self.now += span.as_nanos() as u64,
            SharedStep::Move(from, to, part) => self.give(from, to, f64::from(part) / 1000.0),
            SharedStep::Take(limiter, n) => {
                if self.waiting[limiter].is_none() && self.buckets[limiter].take(now, n).is_ok() {
                    self.note(number, u64::from(n));
                }
            }
            SharedStep::Drain(limiter) => {
                let n = if self.waiting[limiter].is_none() { drain(&mut self.buckets[limiter], now) } else { 0 };
                self.note(number, n);
            }
            SharedStep::Wait(limiter, n) => {
                let n = *self.waiting[limiter].get_or_insert(n);
                if self.buckets[limiter].take(now, n).is_ok() {
                    self.waiting[limiter] = None;
                    self.note(number, u64::from(n));
                } else {
                    self.buckets[limiter].save_for(now, n);
                }
            }
            SharedStep::Charge(limiter, n) => {
                let charged = self.buckets[limiter].charge(now, u64::from(n));
                self.note(number, charged);
            }
            SharedStep::Reserve(limiter, n) => {
                if self.waiting[limiter].is_none() && self.buckets[limiter].take(now, n).is_ok() {
                    let promise = self.buckets[limiter].promise(n);
                    let taken = self.used_now(number, u64::from(n));
                    self.reserved.push((taken, limiter, promise));
                }
            }
            SharedStep::Settle(pick, part) if !self.reserved.is_empty() => {
                let (taken, limiter, promise) = self.reserved.swap_remove(pick % self.reserved.len());
                let n = promise.n * part / 1000;
                self.buckets[limiter].use_part(now, promise, n);
                self.used.push(SharedUse { n: u64::from(n), ..taken });
            }
            SharedStep::Settle(..) => {}
        }
    }

    fn saved(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.credit as f64 / UNITS_PER_PERMIT as f64).sum()
    }
}

fn windows() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(60), Just(10), Just(1)].prop_map(Duration::from_secs)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn all_together_use_no_more_than_the_capacity_and_what_it_brings_in_a_window(
        window in windows(),
        acts in proptest::collection::vec(act(), 1..150),
    ) {
        let mut world = SharedLimiters::new(window);
        // Each may have a permit beyond its window, or what the head of its queue saves up.
        let burst = CAPACITY * window.as_secs_f64() + LIMITERS as f64 * f64::from(LARGEST);
        for (number, act) in acts.into_iter().enumerate() {
            world.act(number, &act);
            prop_assert!(world.saved() <= burst + TOLERANCE, "{} saved", world.saved());
        }
        let mut used = world.used;
        used.sort_by_key(|used| used.number);
        for (first, start) in used.iter().enumerate() {
            let mut sum = 0;
            for end in &used[first..] {
                sum += end.n;
                let allowed = CAPACITY * seconds(end.at - start.at) + burst + end.owed as f64;
                prop_assert!(sum as f64 <= allowed + TOLERANCE, "{sum} from {start:?} to {end:?}, allowed {allowed}");
            }
        }
        // All started without credit.
        let mut sum = 0;
        for used in &used {
            sum += used.n;
            let allowed = CAPACITY * seconds(used.at) + used.owed as f64;
            prop_assert!(sum as f64 <= allowed + TOLERANCE, "{sum} up to {used:?}, allowed {allowed}");
        }
    }
}

#[test]
fn what_was_saved_under_a_lease_is_not_spent_beside_the_one_that_has_it_now() {
    let mut world = SharedLimiters::new(Duration::from_secs(60));
    // The lease moves around, and stays at each for as long as it takes to fill its bucket.
    for holder in [0, 1, 2, 3, 0, 1] {
        world.now += 60 * SECOND;
        world.give(holder, (holder + 1) % LIMITERS, 1.0);
    }
    world.now += 60 * SECOND;
    let now = world.now;
    let all: u64 = world.buckets.iter_mut().map(|bucket| drain(bucket, now)).sum();
    assert_eq!(all, 6_000, "a window's worth, where the lease is");
    world.give(2, 3, 0.5);
    let now = world.now + 30 * SECOND;
    let all: u64 = world.buckets.iter_mut().map(|bucket| drain(bucket, now)).sum();
    assert_eq!(all, 3_001, "and the one permit that a limiter may always save");
}
