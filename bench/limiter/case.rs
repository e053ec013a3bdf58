//! One limiter under one load.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_client::{
    Capacity,
    limiter::{Burst, RateLimiter},
};
use serde::Serialize;
use tokio::{task::yield_now, time::sleep};

/// Callers of an open loop that may be there at the same time. Beyond it they are counted as offered and turned away:
/// the line is as long as it has to be, and memory is not.
pub(super) const CALLERS_MAX: usize = 100_000;

/// Callers that are sent off before the generator looks at the clock again.
const VOLLEY_MAX: u64 = 1000;

/// How long the generator of an open loop sleeps at least; what is due meanwhile comes together.
const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct LimiterCase {
    pub(super) capacity: Capacity,
    pub(super) burst: Burst,
    pub(super) load: Load,
    pub(super) duration: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// Workers that ask again as soon as they are served.
    Closed { workers: u32 },
    /// Callers that come evenly spaced, at this multiple of the capacity.
    Open { factor: f64 },
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Closed { workers } => write!(f, "closed, {workers} workers"),
            Load::Open { factor } => write!(f, "open, {factor}x"),
        }
    }
}

pub(super) struct Outcome {
    /// When callers were let through, in nanoseconds since the capacity was set; ascending.
    pub(super) admitted: Vec<u64>,
    pub(super) arrivals: Arrivals,
    /// How long it really took.
    pub(super) took: Duration,
}

/// Callers of an open loop. All zero for a closed one.
#[derive(Default)]
pub(super) struct Arrivals {
    /// How many were to come.
    pub(super) planned: u64,
    /// How many came, also if they were turned away.
    pub(super) offered: u64,
    pub(super) turned_away: u64,
}

/// What a call costs when there is no other caller and there is a permit, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) wait_ns: f64,
    pub(super) try_acquire_ns: f64,
}

impl Cost {
    pub(super) async fn measure() -> Cost {
        const CALLS: u32 = 1_000_000;
        // A permit a nanosecond: there always is one, and the bucket works as it does at any rate.
        let limiter = RateLimiter::new(Burst::Window(Duration::from_secs(1)));
        limiter.set_capacity(Capacity::of(1e9));
        let per_call = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(CALLS);
        let start = Instant::now();
        for _ in 0..CALLS {
            limiter.wait().await.expect("it is not closed");
        }
        let wait_ns = per_call(start);
        let start = Instant::now();
        for _ in 0..CALLS {
            limiter.try_acquire(1).expect("there is one");
        }
        Cost { wait_ns, try_acquire_ns: per_call(start) }
    }
}

struct Scene {
    limiter: RateLimiter,
    start: Instant,
    /// Times of admissions; the first `next` are taken.
    times: Box<[AtomicU64]>,
    next: AtomicUsize,
}

impl Scene {
    fn new(case: &LimiterCase) -> Scene {
        // Twice what is allowed: a limiter that admits more than that is measured for as long as there is room.
        let room =
            2.0 * (case.capacity.get() * case.duration.as_secs_f64() + case.burst.permits(case.capacity)) + 100.0;
        let times = (0..room as usize).map(|_| AtomicU64::new(0)).collect();
        let limiter = RateLimiter::new(case.burst);
        Scene { limiter, start: Instant::now(), times, next: AtomicUsize::new(0) }
    }

    /// One call; whether the limiter is still open.
    async fn call(&self) -> bool {
        if self.limiter.wait().await.is_err() {
            return false;
        }
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: they are read when all callers have been joined or the limiter is closed, and sorted then.
        let Some(time) = self.times.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return false };
        time.store(now, Ordering::Relaxed);
        true
    }
}

pub(super) async fn run(case: LimiterCase) -> Outcome {
    let scene = Scene::new(&case);
    // From here: making room takes time.
    let scene = Arc::new(Scene { start: Instant::now(), ..scene });
    scene.limiter.set_capacity(case.capacity);
    let arrivals = match case.load {
        Load::Closed { workers } => closed(&scene, workers, case.duration).await,
        Load::Open { factor } => open(&scene, factor * case.capacity.get(), case.duration).await,
    };
    let took = scene.start.elapsed();
    scene.limiter.close();
    // Those that are left are being told; none of them is let through any more.
    while Arc::strong_count(&scene) > 1 {
        sleep(TICK).await;
    }
    let end = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let taken = scene.next.load(Ordering::Relaxed).min(scene.times.len());
    let mut admitted: Vec<_> = scene.times[..taken].iter().map(|time| time.load(Ordering::Relaxed)).collect();
    admitted.retain(|&time| time <= end);
    admitted.sort_unstable();
    Outcome { admitted, arrivals, took }
}

/// Offers as much as there is.
async fn closed(scene: &Arc<Scene>, workers: u32, duration: Duration) -> Arrivals {
    for _ in 0..workers {
        let scene = scene.clone();
        tokio::spawn(async move { while scene.call().await {} });
    }
    sleep(duration).await;
    Arrivals::default()
}

async fn open(scene: &Arc<Scene>, rate: f64, duration: Duration) -> Arrivals {
    let mut arrivals = Arrivals::default();
    loop {
        let elapsed = scene.start.elapsed();
        arrivals.planned = (elapsed.min(duration).as_secs_f64() * rate) as u64;
        if elapsed >= duration {
            return arrivals;
        }
        for _ in 0..(arrivals.planned - arrivals.offered).min(VOLLEY_MAX) {
            arrivals.offered += 1;
            // Callers hold it, each once.
            if Arc::strong_count(scene) > CALLERS_MAX {
                arrivals.turned_away += 1;
                continue;
            }
            let scene = scene.clone();
            tokio::spawn(async move { scene.call().await });
        }
        if arrivals.offered < arrivals.planned {
            yield_now().await;
        } else {
            let next = Duration::from_secs_f64((arrivals.offered + 1) as f64 / rate);
            sleep(next.min(duration).saturating_sub(scene.start.elapsed()).max(TICK)).await;
        }
    }
}
