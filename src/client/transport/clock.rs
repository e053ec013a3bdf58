//! Clocks that advance while the machine is suspended.
//!
//! On Linux [`Instant`](std::time::Instant) stops during a suspend, but leases do not: after waking up a client would
//! use an expired lease, and a master would decide although another has succeeded it. Timers of the runtime stop, too;
//! [`sleep_until`] notices.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant as Awake},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Advances during a suspend, on systems that have such a clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The maximum time until a timer notices a suspend.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Two clocks that are read one after the other differ by less than this.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

/// A point in time on a clock that advances during a suspend.
#[derive(Debug, Clone, Copy)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// The current time.
    pub fn now() -> BootInstant {
        let time = clock_gettime(CLOCK);
        let (secs, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        BootInstant(Duration::new(secs, nanos))
    }

    /// The time since then.
    pub fn elapsed(self) -> Duration {
        BootInstant::now().0.saturating_sub(self.0)
    }
}

/// Measures how long the machine was suspended.
#[derive(Debug)]
pub struct SuspendedTime {
    since: BootInstant,
    /// The same time on the clock that stops during a suspend.
    awake: Awake,
    /// The largest difference so far, in milliseconds. The measured difference varies a little, and time must not run
    /// backwards.
    longest: AtomicU64,
}

impl SuspendedTime {
    /// Starts measuring.
    pub fn start() -> SuspendedTime {
        SuspendedTime { since: BootInstant::now(), awake: Awake::now(), longest: AtomicU64::new(0) }
    }

    /// The total time suspended.
    pub fn total(&self) -> Duration {
        let suspended = self.since.elapsed().saturating_sub(self.awake.elapsed());
        let millis = u64::try_from(suspended.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.longest.fetch_max(millis, Ordering::Relaxed).max(millis))
    }
}

/// Sleeps until `at`, or until the machine was suspended, because `at` may have passed then.
pub(super) async fn sleep_until(at: Instant) {
    let suspensions = SuspendedTime::start();
    loop {
        tokio::time::sleep_until(at.min(Instant::now() + CHECK_INTERVAL)).await;
        if at <= Instant::now() || suspensions.total() > CLOCK_TOLERANCE {
            return;
        }
    }
}
