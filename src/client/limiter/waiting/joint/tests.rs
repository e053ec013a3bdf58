use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    env, fs,
    future::Future,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tokio::{
    runtime::Builder,
    task::{JoinHandle, yield_now},
    time::{advance, sleep, timeout},
};

use super::*;
use crate::{
    limiter::{Burst, Meter, Nanos},
    session::Capacity,
};

const MILLI: Nanos = 1_000_000;

fn rate(burst: f64, capacity: f64) -> RateLimiter {
    let limiter = RateLimiter::new(Burst::Permits(burst));
    limiter.set_capacity(Capacity::of(capacity));
    limiter
}

fn gauge(capacity: f64) -> GaugeLimiter {
    let limiter = GaugeLimiter::new();
    limiter.set_capacity(Capacity::of(capacity));
    limiter
}

fn of_rate(limiter: &RateLimiter, n: u32) -> (AnyLimiter, u32) {
    (AnyLimiter::Rate(limiter.clone()), n)
}

fn of_gauge(limiter: &GaugeLimiter, n: u32) -> (AnyLimiter, u32) {
    (AnyLimiter::Gauge(limiter.clone()), n)
}

async fn settle() {
    for _ in 0..8 {
        yield_now().await;
    }
}

fn paused<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime").block_on(test)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_limiter_and_takes_nothing() {
    let (tokens, slots) = (rate(1000.0, 100.0), gauge(2.0));
    advance(Duration::from_secs(10)).await;
    let both = JointLimiter::new([of_rate(&tokens, 900), of_gauge(&slots, 1)]);
    let permit = both.try_acquire().expect("both are available");
    assert_eq!((tokens.available(), slots.in_use()), (100, 1));
    let refused = both.try_acquire().expect_err("too few tokens");
    let retry_after = Some(Duration::from_secs(8));
    assert_eq!(refused, JointRefusal { index: 0, error: TryError::NotNow { retry_after } });
    assert_eq!((tokens.available(), slots.in_use()), (100, 1));
    advance(Duration::from_secs(8)).await;
    let held = slots.try_acquire(1).expect("free");
    assert_eq!(both.try_acquire().expect_err("no slot").index, 1);
    assert_eq!((tokens.available(), tokens.arrived()), (900, 1800), "only the first refusal was due to tokens");
    drop((held, permit));
    let reserved = both.try_reserve().expect("both are available");
    assert_eq!(reserved.reserved().collect::<Vec<_>>(), [900, 1]);
    assert_eq!(reserved.settle(&[300, 0]), [Ok(()), Ok(())]);
    assert_eq!((tokens.available(), slots.in_use()), (600, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_holds_nothing_and_others_get_what_is_left_over() {
    let (tokens, slots) = (rate(10.0, 1.0), gauge(3.0));
    let both = JointLimiter::new([of_rate(&tokens, 8), of_gauge(&slots, 2)]);
    let waiting = tokio::spawn(async move { both.acquire().await });
    settle().await;
    assert_eq!((slots.in_use(), tokens.taken()), (0, 0));
    let left_over = slots.try_acquire(1).expect("two are reserved, one is left");
    assert!(slots.try_acquire(1).is_err());
    assert!(tokens.try_acquire(1).is_err(), "it would overtake");
    drop(left_over);
    advance(Duration::from_secs(8)).await;
    let permit = waiting.await.expect("no panic").expect("open");
    assert_eq!((slots.in_use(), tokens.taken()), (2, 8));
    drop(permit);
    assert_eq!((slots.in_use(), tokens.taken()), (0, 8));
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_future_is_not_polled_is_admitted_by_events() {
    let (tokens, slots) = (rate(10.0, 1.0), gauge(1.0));
    let both = JointLimiter::new([of_rate(&tokens, 2), of_gauge(&slots, 1)]);
    let mut idle = Box::pin(both.acquire());
    assert!(poll_once(&mut idle).is_none());
    advance(Duration::from_secs(3)).await;
    assert_eq!(slots.in_use(), 0, "nobody has noticed the tokens yet");
    assert!(tokens.try_acquire(1).is_ok(), "the next caller does, and gets what is left over");
    assert_eq!((slots.in_use(), tokens.taken()), (1, 3));
    assert!(tokens.try_acquire(1).is_err());
    drop(idle);
    assert_eq!((slots.in_use(), tokens.taken()), (0, 1), "promised permits are returned");
    // The last permit of a gauge comes back, and the tokens have been there for a while.
    let held = slots.try_acquire(1).expect("free");
    let mut idle = Box::pin(both.acquire());
    assert!(poll_once(&mut idle).is_none());
    drop(held);
    assert_eq!((slots.in_use(), tokens.taken()), (1, 3));
    assert!(matches!(poll_once(&mut idle), Some(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn reserved_permits_survive_a_cut_after_others_have_taken_theirs() {
    let (tokens, slots) = (RateLimiter::new(Burst::Smooth), gauge(1.0));
    tokens.set_capacity(Capacity::UNLIMITED);
    let held = slots.try_acquire(1).expect("free");
    let both = JointLimiter::new([of_rate(&tokens, 2), of_gauge(&slots, 1)]);
    let mut waiting = Box::pin(both.acquire());
    assert!(poll_once(&mut waiting).is_none());
    advance(Duration::from_millis(1)).await;
    tokens.try_acquire(1).expect("unlimited");
    // More than this burst is reserved.
    tokens.set_capacity(Capacity::of(0.5));
    drop(held);
    assert!(matches!(poll_once(&mut waiting), Some(Ok(_))));
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn closing_one_limiter_ends_the_wait_and_leaves_the_others() {
    let (tokens, slots) = (rate(10.0, 1.0), gauge(1.0));
    let both = JointLimiter::new([of_rate(&tokens, 5), of_gauge(&slots, 1)]);
    let waiting = tokio::spawn({
        let both = both.clone();
        async move { both.acquire().await.map(drop) }
    });
    settle().await;
    tokens.close();
    assert_eq!(waiting.await.expect("no panic"), Err(Closed));
    assert!(slots.try_acquire(1).is_ok(), "nothing is reserved");
    assert_eq!(both.acquire().await.map(drop), Err(Closed));
    assert_eq!(both.try_acquire().map(drop), Err(JointRefusal { index: 0, error: TryError::Closed }));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_may_be_named_twice_and_0_permits_are_not_waited_for() {
    let (tokens, empty) = (rate(10.0, 1.0), gauge(0.0));
    advance(Duration::from_secs(5)).await;
    let twice = JointLimiter::new([of_rate(&tokens, 2), of_gauge(&empty, 0), of_rate(&tokens, 4)]);
    assert_eq!(twice.try_acquire().expect_err("five are there").index, 2);
    twice.acquire().await.map(drop).expect("after a second");
    assert_eq!((tokens.taken(), tokens.available()), (6, 0));
    let reserved = JointLimiter::new([of_rate(&tokens, 0)]).reserve().await.expect("nothing to wait for");
    assert_eq!(reserved.settle(&[3]), [Ok(())]);
    assert_eq!(tokens.debt(), 3);
    let most = JointLimiter::new([of_gauge(&empty, u32::MAX), of_gauge(&empty, u32::MAX)]);
    assert!(most.try_acquire().is_err());
}

#[tokio::test(start_paused = true)]
async fn claims_are_decided_at_once_without_a_guard() {
    let (tokens, requests) = (rate(10.0, 1.0), rate(10.0, 1.0));
    advance(Duration::from_secs(5)).await;
    let limiters = [LimiterRef::Rate(&requests), LimiterRef::Rate(&tokens), LimiterRef::Rate(&requests)];
    let mut claims = [Claim::of(2), Claim::of(4), Claim::of(3)];
    assert!(!try_acquire_all(&limiters, &mut claims, true), "vetoed");
    assert!(try_acquire_all(&limiters, &mut claims, false));
    assert_eq!((requests.available(), tokens.available()), (0, 1));
    assert!(!try_acquire_all(&limiters, &mut claims, false));
    assert!(claims.iter().all(|claim| claim.outcome.is_err()));
    assert_eq!((requests.available(), tokens.available()), (0, 1));
}

/// 64 callers need one permit of one or two limiters, again and again, and leave none idle. One needs nearly all permits
/// of four limiters at once.
#[tokio::test(start_paused = true)]
async fn a_caller_that_needs_much_is_not_starved_by_callers_that_need_little() {
    let (rates, gauges) = ([rate(50.0, 20.0), rate(50.0, 40.0)], [gauge(8.0), gauge(8.0)]);
    let greedy = |at: usize| {
        let (rate, gauge) = (rates[at % 2].clone(), gauges[at / 2 % 2].clone());
        let pair = JointLimiter::new([of_rate(&rate, 1), of_gauge(&gauge, 1)]);
        tokio::spawn(async move {
            for turn in 0.. {
                match turn % 3 {
                    0 => rate.wait().await.expect("open"),
                    1 => {
                        let permit = gauge.acquire().await.expect("open");
                        sleep(Duration::from_millis(300)).await;
                        drop(permit);
                    }
                    _ => {
                        let permit = pair.acquire().await.expect("open");
                        sleep(Duration::from_millis(100)).await;
                        drop(permit);
                    }
                }
            }
        })
    };
    let crowd: Vec<_> = (0..64).map(greedy).collect();
    sleep(Duration::from_secs(30)).await;
    let all = JointLimiter::new([
        of_rate(&rates[0], 50),
        of_gauge(&gauges[0], 8),
        of_rate(&rates[1], 45),
        of_gauge(&gauges[1], 7),
    ]);
    let ends = Instant::now() + Duration::from_secs(60);
    while Instant::now() < ends {
        assert!(all.try_acquire().is_err(), "a caller that does not wait in the queues is starved");
        sleep(Duration::from_millis(1)).await;
    }
    for turn in 0..5 {
        let begun = Instant::now();
        drop(timeout(Duration::from_secs(60), all.acquire()).await.expect("not starved").expect("open"));
        // The queue ahead of it, then 50 permits at 20/s, and 300 ms until gauges are free.
        assert!(begun.elapsed() < Duration::from_secs(10), "turn {turn}: {:?}", begun.elapsed());
    }
    assert!(crowd.iter().all(|greedy| !greedy.is_finished()));
    crowd.iter().for_each(JoinHandle::abort);
}

/// Everyone needs two neighbours of four limiters, as the philosophers do, in both orders.
#[tokio::test(start_paused = true)]
async fn callers_that_need_each_others_limits_do_not_deadlock() {
    let gauges: Vec<GaugeLimiter> = (0..4).map(|_| gauge(1.0)).collect();
    let meals = Arc::new(Mutex::new([0; 8]));
    let eaters: Vec<_> = (0..8)
        .map(|at| {
            let pair = [at % 4, (at + 1) % 4].map(|fork| of_gauge(&gauges[fork], 1));
            let [left, right] = pair;
            let forks = JointLimiter::new(if at < 4 { [left, right] } else { [right, left] });
            let meals = Arc::clone(&meals);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let permit = forks.acquire().await.expect("open");
                    meals.lock().expect("no panic")[at] += 1;
                    sleep(Duration::from_millis(10)).await;
                    drop(permit);
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(1000)).await;
    let eaten = *meals.lock().expect("no panic");
    let (least, most) = (eaten.iter().min(), eaten.iter().max());
    assert!(least.zip(most).is_some_and(|(least, most)| *least >= 10 && most - least <= 1), "in turns: {eaten:?}");
    for eater in eaters {
        timeout(Duration::from_secs(60), eater).await.expect("no deadlock").expect("no panic");
    }
    assert!(gauges.iter().all(|gauge| gauge.in_use() == 0 && gauge.waiting() == 0));
}

#[test]
fn threads_neither_deadlock_nor_lose_permits() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (rates, gauges) = ([rate(100.0, 1e5), rate(100.0, 1e5)], [gauge(3.0), gauge(5.0)]);
        let tasks: Vec<_> = (0..32u32)
            .map(|at| {
                let mut parts = vec![of_rate(&rates[0], at % 3), of_gauge(&gauges[0], at % 4), of_gauge(&gauges[1], 2)];
                parts.push(of_rate(&rates[1], at % 5));
                parts.rotate_left(at as usize % 4);
                let all = JointLimiter::new(parts);
                tokio::spawn(async move {
                    for turn in 0..200u32 {
                        if (turn + at) % 7 == 0 {
                            // Cancelled at some point, or not at all.
                            let _ = timeout(Duration::from_micros(u64::from(turn % 50)), all.acquire()).await;
                        } else {
                            let permit = all.acquire().await.expect("open");
                            yield_now().await;
                            drop(permit);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            timeout(Duration::from_secs(120), task).await.expect("no deadlock").expect("no panic");
        }
        assert!(gauges.iter().all(|gauge| gauge.in_use() == 0 && gauge.waiting() == 0));
        assert!(gauges.iter().all(|gauge| gauge.try_acquire(3).is_ok()), "nothing is reserved");
    });
}

// -- Random histories of four limits: two rates and two gauges.

/// Permits by limit.
type Needs = BTreeMap<usize, u32>;

#[derive(Debug, Clone)]
enum Act {
    Join(Needs),
    /// Cancels a caller, if it still waits.
    Leave(usize),
    /// Returns the permits of a caller.
    Release(usize),
    Try(Needs),
    Capacity(usize, f64),
    Charge(usize, u64),
    Pass(u64),
}

fn needs() -> impl Strategy<Value = Needs> {
    let n = prop_oneof![4 => 1..4u32, 1 => 4..9u32];
    prop_oneof![
        2 => (0..4usize, n.clone()).prop_map(|need| Needs::from([need])),
        5 => proptest::collection::btree_map(0..4usize, n, 2..5),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => needs().prop_map(Act::Join),
        2 => any::<usize>().prop_map(Act::Leave),
        8 => any::<usize>().prop_map(Act::Release),
        2 => needs().prop_map(Act::Try),
        1 => (0..4usize, prop_oneof![2 => 0.5..40.0, 1 => Just(0.0), 1 => Just(f64::INFINITY)])
            .prop_map(|(limit, capacity)| Act::Capacity(limit, capacity)),
        1 => (0..2usize, 1..10u64).prop_map(|(limit, n)| Act::Charge(limit, n)),
        6 => (1..300u64).prop_map(Act::Pass),
    ]
}

fn burst() -> impl Strategy<Value = Burst> {
    prop_oneof![Just(Burst::Smooth), Just(Burst::Window(Duration::from_secs(1))), (1.0..10.0).prop_map(Burst::Permits)]
}

type Held = Arc<Mutex<BTreeMap<usize, Box<dyn Any + Send>>>>;

/// The limiters, with a task for each caller.
struct Tasks {
    limiters: Vec<AnyLimiter>,
    callers: Vec<JoinHandle<()>>,
    held: Held,
}

impl Tasks {
    fn new(bursts: [Burst; 2]) -> Tasks {
        let rates = bursts.map(|burst| AnyLimiter::Rate(RateLimiter::new(burst)));
        let gauges = [(); 2].map(|()| AnyLimiter::Gauge(GaugeLimiter::new()));
        // Locked in another order than that of the list.
        let mut limiters: Vec<_> = rates.into_iter().chain(gauges).collect();
        limiters.swap(0, 1);
        Tasks { limiters, callers: Vec::new(), held: Held::default() }
    }

    fn joint(&self, needs: &Needs) -> JointLimiter {
        JointLimiter::new(needs.iter().rev().map(|(&limit, &n)| (self.limiters[limit].clone(), n)))
    }

    fn join(&mut self, needs: &Needs) {
        let (joint, held, index) = (self.joint(needs), Arc::clone(&self.held), self.callers.len());
        let single = (needs.len() == 1).then(|| joint.parts[0].clone());
        self.callers.push(tokio::spawn(async move {
            let permit: Box<dyn Any + Send> = match single {
                None => Box::new(joint.acquire().await.expect("open")),
                Some((AnyLimiter::Rate(rate), n)) => Box::new(rate.reserve(n).await.expect("open")),
                Some((AnyLimiter::Gauge(gauge), n)) => Box::new(gauge.acquire_many(n).await.expect("open")),
            };
            held.lock().expect("no panic").insert(index, permit);
        }));
    }

    fn set_capacity(&self, limit: usize, capacity: Capacity) {
        match &self.limiters[limit] {
            AnyLimiter::Rate(rate) => rate.set_capacity(capacity),
            AnyLimiter::Gauge(gauge) => gauge.set_capacity(capacity),
        }
    }

    /// Returns whether permits were taken without waiting.
    async fn apply(&mut self, act: &Act) -> bool {
        match act {
            Act::Join(needs) => self.join(needs),
            Act::Leave(pick) if !self.callers.is_empty() => self.callers[pick % self.callers.len()].abort(),
            Act::Release(pick) => {
                let mut held = self.held.lock().expect("no panic");
                let chosen = held.keys().nth(pick % held.len().max(1)).copied();
                let permit = chosen.and_then(|index| held.remove(&index));
                drop(held);
                drop(permit);
            }
            Act::Leave(_) => {}
            Act::Try(needs) => return self.joint(needs).try_acquire().map(drop).is_ok(),
            Act::Capacity(limit, capacity) => self.set_capacity(*limit, Capacity::of(*capacity)),
            Act::Charge(limit, n) => match &self.limiters[*limit] {
                AnyLimiter::Rate(rate) => rate.charge(*n).expect("below the maximum debt"),
                AnyLimiter::Gauge(_) => {}
            },
            Act::Pass(millis) => advance(Duration::from_millis(*millis)).await,
        }
        false
    }

    fn finished(&self) -> Vec<usize> {
        (0..self.callers.len()).filter(|&index| self.callers[index].is_finished()).collect()
    }

    /// Permits taken or in use, and permits of callers in the queue, by limit.
    fn readings(&self) -> Vec<(u64, u64)> {
        let reading = |limiter: &AnyLimiter| match limiter {
            AnyLimiter::Rate(rate) => {
                let state = rate.semaphore.lock();
                (state.meter.taken(), state.waiting + state.reserved)
            }
            AnyLimiter::Gauge(gauge) => {
                let state = gauge.semaphore.lock();
                (state.meter.in_use(), state.waiting + state.reserved)
            }
        };
        self.limiters.iter().map(reading).collect()
    }
}

enum NaiveMeter {
    Rate(Box<Bucket>),
    Gauge { capacity: Capacity, in_use: u64 },
}

impl NaiveMeter {
    fn has(&mut self, now: Nanos, n: u64) -> bool {
        match self {
            NaiveMeter::Rate(bucket) => bucket.check(now, 0, n).is_ok(),
            NaiveMeter::Gauge { capacity, in_use } => *in_use + n <= capacity.get() as u64,
        }
    }

    fn take(&mut self, now: Nanos, n: u32) {
        match self {
            NaiveMeter::Rate(bucket) => bucket.take(now, n).expect("checked"),
            NaiveMeter::Gauge { in_use, .. } => *in_use += u64::from(n),
        }
    }
}

/// The naive implementation: one list of all callers in the order of arrival, which is scanned each time.
struct NaiveQueue {
    meters: Vec<NaiveMeter>,
    taken: Vec<u64>,
    arrived: usize,
    waiting: Vec<(usize, Needs)>,
    finished: Vec<usize>,
    held: BTreeMap<usize, Needs>,
}

impl NaiveQueue {
    fn new(bursts: [Burst; 2]) -> NaiveQueue {
        let gauge = || NaiveMeter::Gauge { capacity: Capacity::NONE, in_use: 0 };
        let mut meters: Vec<_> = bursts.map(|burst| NaiveMeter::Rate(Box::new(Bucket::new(burst)))).into();
        meters.swap(0, 1);
        meters.extend([gauge(), gauge()]);
        let (waiting, finished, held) = (Vec::new(), Vec::new(), BTreeMap::new());
        NaiveQueue { meters, taken: vec![0; 4], arrived: 0, waiting, finished, held }
    }

    fn give_back(&mut self, needs: &Needs) {
        for (&limit, &n) in needs {
            if let NaiveMeter::Gauge { in_use, .. } = &mut self.meters[limit] {
                *in_use -= u64::from(n);
            }
        }
    }

    fn take(&mut self, now: Nanos, needs: &Needs) {
        for (&limit, &n) in needs {
            self.meters[limit].take(now, n);
            self.taken[limit] += u64::from(n);
        }
    }

    /// The permits of a limit that are reserved for callers, and whether each is served there.
    fn served(&mut self, now: Nanos, limit: usize) -> (u64, BTreeMap<usize, bool>) {
        let (mut reserved, mut served, mut is_blocked) = (0, BTreeMap::new(), false);
        for (index, needs) in &self.waiting {
            let Some(&n) = needs.get(&limit) else { continue };
            is_blocked |= !self.meters[limit].has(now, reserved + u64::from(n));
            served.insert(*index, !is_blocked);
            reserved += if is_blocked { 0 } else { u64::from(n) };
        }
        (reserved, served)
    }

    fn apply(&mut self, now: Nanos, act: &Act) -> bool {
        match act {
            Act::Join(needs) => {
                self.waiting.push((self.arrived, needs.clone()));
                self.arrived += 1;
            }
            Act::Leave(pick) if self.arrived > 0 => {
                let left = pick % self.arrived;
                if let Some(at) = self.waiting.iter().position(|(index, _)| *index == left) {
                    (0..4).for_each(|limit| self.stop_saving(now, limit, left));
                    self.waiting.remove(at);
                    self.finished.push(left);
                }
            }
            Act::Release(pick) => {
                let chosen = self.held.keys().nth(pick % self.held.len().max(1)).copied();
                if let Some(needs) = chosen.and_then(|index| self.held.remove(&index)) {
                    self.give_back(&needs);
                }
            }
            Act::Leave(_) | Act::Pass(_) => {}
            Act::Try(needs) => {
                let fits = needs.iter().all(|(&limit, &n)| {
                    let (reserved, served) = self.served(now, limit);
                    served.values().all(|served| *served) && self.meters[limit].has(now, reserved + u64::from(n))
                });
                if fits {
                    self.take(now, needs);
                    self.give_back(needs);
                }
                return fits;
            }
            Act::Capacity(limit, to) => match &mut self.meters[*limit] {
                NaiveMeter::Rate(bucket) => bucket.set_capacity(now, Capacity::of(*to)),
                NaiveMeter::Gauge { capacity, .. } => *capacity = Capacity::of(*to),
            },
            Act::Charge(limit, n) => {
                if let NaiveMeter::Rate(bucket) = &mut self.meters[*limit] {
                    self.taken[*limit] += bucket.charge(now, *n);
                }
            }
        }
        false
    }

    /// The caller leaves a limit, which may have saved up for it.
    fn stop_saving(&mut self, now: Nanos, limit: usize, left: usize) {
        let front = self.waiting.iter().find(|(_, needs)| needs.contains_key(&limit));
        if let NaiveMeter::Rate(bucket) = &mut self.meters[limit]
            && front.is_some_and(|(index, _)| *index == left)
        {
            bucket.stop_saving(now);
        }
    }

    fn save(&mut self, now: Nanos) {
        for (limit, meter) in self.meters.iter_mut().enumerate() {
            if let NaiveMeter::Rate(bucket) = meter
                && let Some(&n) = self.waiting.iter().find_map(|(_, needs)| needs.get(&limit))
            {
                bucket.save_for(now, n);
            }
        }
    }

    fn admit(&mut self, now: Nanos) {
        loop {
            self.save(now);
            let served: Vec<_> = (0..4).map(|limit| self.served(now, limit).1).collect();
            let is_served =
                |(index, needs): &(usize, Needs)| needs.keys().all(|limit| served[*limit].get(index) == Some(&true));
            let Some(at) = self.waiting.iter().position(is_served) else { return };
            let (index, needs) = self.waiting.remove(at);
            self.take(now, &needs);
            self.finished.push(index);
            self.held.insert(index, needs);
        }
    }

    fn readings(&self) -> Vec<(u64, u64)> {
        let reading = |(limit, meter): (usize, &NaiveMeter)| {
            let wanted = self.waiting.iter().filter_map(|(_, needs)| needs.get(&limit));
            let used = if let NaiveMeter::Gauge { in_use, .. } = meter { *in_use } else { self.taken[limit] };
            (used, wanted.map(|&n| u64::from(n)).sum())
        };
        self.meters.iter().enumerate().map(reading).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// About a hundred callers of four limits.
    #[test]
    fn callers_are_admitted_as_by_a_naive_list_and_nothing_is_lost(
        bursts in [burst(), burst()],
        capacities in [0.5..40.0, 0.5..40.0, 8.0..12.0, 8.0..12.0],
        acts in vec(act(), 1..240),
    ) {
        paused(async {
            let (mut tasks, mut naive, mut now) = (Tasks::new(bursts), NaiveQueue::new(bursts), 0);
            let first = capacities.into_iter().enumerate().map(|(limit, capacity)| Act::Capacity(limit, capacity));
            for act in first.chain(acts) {
                // tokio's timers are due at whole milliseconds.
                let steps = if let Act::Pass(millis) = act { vec![Act::Pass(1); millis as usize] } else { vec![act] };
                for step in &steps {
                    now += if let Act::Pass(_) = step { MILLI } else { 0 };
                    let taken = naive.apply(now, step);
                    prop_assert_eq!(tasks.apply(step).await, taken, "{:?}", step);
                    settle().await;
                    naive.admit(now);
                }
                naive.finished.sort_unstable();
                prop_assert_eq!(tasks.finished(), &naive.finished[..], "{:?}", steps[0]);
                prop_assert_eq!(tasks.readings(), naive.readings(), "{:?}", steps[0]);
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_wake_up_is_lost_between_two_polls(
        bursts in [burst(), burst()],
        acts in vec((act(), any::<bool>()), 1..120),
    ) {
        paused(async {
            let mut tasks = Tasks::new(bursts);
            for (act, settled) in acts {
                tasks.apply(&act).await;
                if settled {
                    settle().await;
                }
            }
            (0..4).for_each(|limit| tasks.set_capacity(limit, Capacity::of(100.0)));
            // From here on only timers and returned permits can admit callers.
            let held = Arc::clone(&tasks.held);
            let returns = tokio::spawn(async move {
                loop {
                    sleep(Duration::from_millis(5)).await;
                    drop(std::mem::take(&mut *held.lock().expect("no panic")));
                }
            });
            for caller in std::mem::take(&mut tasks.callers) {
                prop_assert!(timeout(Duration::from_secs(60), caller).await.is_ok(), "a caller was not woken");
            }
            sleep(Duration::from_millis(10)).await;
            returns.abort();
            prop_assert!(tasks.readings().iter().all(|(_, queued)| *queued == 0));
            prop_assert!(tasks.readings()[2..].iter().all(|(in_use, _)| *in_use == 0));
            Ok(())
        })?;
    }
}

// -- Scenarios that clients in other languages replay, too.

/// Callers of one scenario.
struct Replay {
    tasks: Tasks,
    released: BTreeSet<usize>,
    told: BTreeSet<usize>,
}

impl Replay {
    fn new(limits: &Value) -> Replay {
        let limiters = limits.as_array().expect("limits").iter().map(|limit| match limit.as_f64() {
            Some(burst) => AnyLimiter::Rate(RateLimiter::new(Burst::Permits(burst))),
            None => AnyLimiter::Gauge(GaugeLimiter::new()),
        });
        let tasks = Tasks { limiters: limiters.collect(), callers: Vec::new(), held: Held::default() };
        Replay { tasks, released: BTreeSet::new(), told: BTreeSet::new() }
    }

    fn admitted(&self) -> BTreeSet<usize> {
        let held = self.tasks.held.lock().expect("no panic");
        held.keys().copied().chain(self.released.iter().copied()).collect()
    }

    fn release(&mut self, caller: usize) {
        let permit = self.tasks.held.lock().expect("no panic").remove(&caller);
        self.released.extend(permit.is_some().then_some(caller));
    }

    fn try_acquire(&self, permits: &Value) -> Value {
        let parts = permits.as_array().expect("numbers").iter().map(|n| n.as_u64().expect("a number") as u32);
        match JointLimiter::new(self.tasks.limiters.iter().cloned().zip(parts)).try_acquire() {
            Ok(_) => json!("taken"),
            Err(JointRefusal { index, error: TryError::NotNow { retry_after } }) => {
                json!([index, "not-now", retry_after.map(|wait| wait.as_nanos() as f64 / 1e6)])
            }
            Err(JointRefusal { index, error: TryError::TooMany { burst } }) => json!([index, "too-many", burst]),
            Err(closed) => panic!("{closed}"),
        }
    }

    /// Takes a step. Returns it with its result.
    async fn take(&mut self, step: &Value) -> Value {
        let number = |at: usize| step[at].as_u64().unwrap_or_default();
        let index = number(1) as usize;
        match step[0].as_str().expect("a name") {
            "capacity" => {
                let capacity = step[2].as_f64().map_or(Capacity::UNLIMITED, Capacity::of);
                self.tasks.set_capacity(index, capacity);
            }
            "join" => {
                let needs = step[1].as_array().expect("numbers").iter().enumerate();
                let needs = needs.filter_map(|(limit, n)| Some((limit, u32::try_from(n.as_u64()?).ok()?)));
                self.tasks.join(&needs.filter(|(_, n)| *n > 0).collect());
            }
            "leave" => self.tasks.callers[index].abort(),
            "release" => self.release(index),
            "release-all" => {
                for caller in self.admitted() {
                    self.release(caller);
                    settle().await;
                }
            }
            "try" => return json!([step[0], step[1], self.try_acquire(&step[1])]),
            "charge" => drop(self.tasks.apply(&Act::Charge(index, number(2))).await),
            "advance" => {
                for _ in 0..number(1) {
                    advance(Duration::from_millis(1)).await;
                    settle().await;
                }
            }
            "admitted" => {
                let admitted = self.admitted();
                let new: Vec<_> = admitted.difference(&self.told).copied().collect();
                self.told = admitted;
                return json!([step[0], new]);
            }
            "permits" => return json!([step[0], self.tasks.readings()]),
            other => panic!("unknown step {other}"),
        }
        settle().await;
        step.clone()
    }
}

const SCENARIOS: &str = "testdata/limits.json";

/// `testdata/limits.json` describes its fields. The clients for Go, Java and TypeScript replay it, too. With `BLESS` set,
/// the results in it are written again.
#[test]
fn documented_scenarios_are_reproduced() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCENARIOS);
    let text = fs::read_to_string(&path).expect("the scenarios");
    let file: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(file["format"], "limits-scenarios/1");
    let mut results = Vec::new();
    for scenario in file["scenarios"].as_array().expect("scenarios") {
        paused(async {
            let mut replay = Replay::new(&scenario["limits"]);
            for (number, step) in scenario["steps"].as_array().expect("steps").iter().enumerate() {
                let taken = replay.take(step).await;
                results.push(taken.clone());
                if env::var_os("BLESS").is_none() {
                    assert_eq!(&taken, step, "{}, step {number}", scenario["name"]);
                }
            }
        });
    }
    if env::var_os("BLESS").is_some() {
        // A step has a line of its own, indented by eight spaces.
        let mut results = results.iter();
        let lines = text.lines().map(|line| match line.strip_prefix("        [") {
            Some(_) if line.ends_with(',') => format!("        {},", results.next().expect("a step")),
            Some(_) => format!("        {}", results.next().expect("a step")),
            None => line.to_owned(),
        });
        fs::write(&path, lines.collect::<Vec<_>>().join("\n") + "\n").expect("a file that can be written");
    }
}
