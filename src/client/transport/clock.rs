//! Time that goes on while the machine is suspended.
//!
//! [`Instant`](std::time::Instant) stands still then on Linux, and a lease goes on: on waking, a client would use one
//! that has ended, and a master would decide in a reign that another has succeeded. Timers of the runtime stand still,
//! too; [`sleep_until`] notices.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant as Awake},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Goes on while the machine is suspended, where the system has such a clock; elsewhere it may stand still.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// So long a machine that has woken may take to notice, if it was suspended while a timer ran.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Two clocks that are read one after the other differ by less.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

/// A moment on that clock.
#[derive(Debug, Clone, Copy)]
pub struct BootInstant(Duration);

impl BootInstant {
    pub fn now() -> BootInstant {
        let time = clock_gettime(CLOCK);
        let (secs, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        BootInstant(Duration::new(secs, nanos))
    }

    /// How long ago it was.
    pub fn elapsed(self) -> Duration {
        BootInstant::now().0.saturating_sub(self.0)
    }
}

/// How long the machine has been suspended since.
#[derive(Debug)]
pub struct SuspendedTime {
    since: BootInstant,
    /// The same moment on the clock that stands still meanwhile.
    awake: Awake,
    /// What was longest, in milliseconds: two clocks do not always differ by the same, and time must not run backwards.
    longest: AtomicU64,
}

impl SuspendedTime {
    pub fn start() -> SuspendedTime {
        SuspendedTime { since: BootInstant::now(), awake: Awake::now(), longest: AtomicU64::new(0) }
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        let suspended = self.since.elapsed().saturating_sub(self.awake.elapsed());
        let millis = u64::try_from(suspended.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.longest.fetch_max(millis, Ordering::Relaxed).max(millis))
    }
}

/// Returns then, or soon after the machine has been suspended: what was to be done then may be overdue.
pub(super) async fn sleep_until(at: Instant) {
    let suspensions = SuspendedTime::start();
    loop {
        tokio::time::sleep_until(at.min(Instant::now() + CHECK_INTERVAL)).await;
        if at <= Instant::now() || suspensions.total() > CLOCK_TOLERANCE {
            return;
        }
    }
}
