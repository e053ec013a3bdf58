//! An open resource, with its lease and limiter.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_client::limiter::Arrivals;
use leaseway_client::{Basis, Capacity, Rate, Window, limiter::Standing};
use tokio::time::{Instant, timeout_at};

use super::{NoLease, caller_shares::SharePermit};

/// Windows up to this length, in seconds, pass no more than their limit even if the table of resources is nearly full.
const STRICT_SECS: u32 = 60;

/// A resource counts as silent after this many sweeps without a request.
const SILENT: u32 = 3;

#[derive(Debug)]
pub struct LeaseEntry {
    rate: Rate,
    /// The length of the window in seconds, and the bits of its rate.
    window: [AtomicU64; 2],
    /// The deadline for requests that wait for the first lease.
    first_wait: Instant,
    /// The sweep count at the last request.
    used: AtomicU32,
    /// An estimate of the wants is pending.
    is_pressed: AtomicBool,
    arrivals: Mutex<Arrivals>,
    /// Callers report their usage afterwards, so every hit is charged.
    is_charged: bool,
    _permit: SharePermit,
}

impl LeaseEntry {
    pub(super) fn new(rate: Rate, window: Window, first_wait: Duration, now: u32, permit: SharePermit) -> LeaseEntry {
        let first_wait = Instant::now() + first_wait;
        let window = parts(window).map(AtomicU64::new);
        let (used, is_pressed, arrivals) = (AtomicU32::new(now), AtomicBool::new(false), Mutex::default());
        LeaseEntry { rate, window, first_wait, used, is_pressed, arrivals, is_charged: false, _permit: permit }
    }

    pub(super) fn charged(self, is_charged: bool) -> LeaseEntry {
        LeaseEntry { is_charged, ..self }
    }

    /// Changes the window if the rule has changed.
    pub fn set_window(&self, window: Window) {
        let parts = parts(window);
        let is_new = |(before, part): (&AtomicU64, &u64)| before.load(Ordering::Relaxed) != *part;
        if self.window.iter().zip(&parts).any(is_new) {
            self.window.iter().zip(parts).for_each(|(before, part)| before.store(part, Ordering::Relaxed));
            self.rate.set_window(window);
        }
    }

    /// How long unused permits are saved.
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window[0].load(Ordering::Relaxed))
    }

    /// Whether callers report their usage afterwards, so that every hit is charged.
    pub fn is_charged(&self) -> bool {
        self.is_charged
    }

    /// Charges permits that were used already. Nothing passes until the debt is repaid.
    pub fn charge(&self, many: u32) {
        if let Err(exceeded) = self.rate.charge(many.into()) {
            tracing::debug!(resource = self.id(), "{exceeded}");
        }
    }

    pub fn id(&self) -> &str {
        self.rate.resource().id()
    }

    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    pub fn standing(&self) -> Standing {
        self.rate.standing()
    }

    /// Whether it has a lease or a fallback.
    pub fn has_capacity(&self) -> bool {
        let usable = self.rate.resource().usable();
        usable.basis == Basis::Lease || usable.capacity > Capacity::NONE
    }

    /// Why there is no lease, if there is none.
    pub fn no_lease(&self) -> NoLease {
        match self.rate.resource().usable().basis {
            Basis::Unknown => NoLease::NotYet,
            Basis::Lease | Basis::Fallback => NoLease::Unreachable,
        }
    }

    /// Whether permits are in use that were taken in the current window, if it slides.
    pub(super) fn is_in_use(&self) -> bool {
        self.rate.is_in_use()
    }

    /// Wants nothing from now on. The cluster is told what is in use.
    pub(super) fn give_up(&self) {
        let _ = self.rate.resource().set_wants(0.0);
    }

    pub fn awaits_first_lease(&self) -> bool {
        let is_unknown = || self.rate.resource().usable().basis == Basis::Unknown;
        Instant::now() < self.first_wait && is_unknown()
    }

    /// Counts these permits as wanted, so that the first request to the cluster asks for enough.
    pub fn add_wants(&self, many: u32) {
        let _ = self.rate.try_acquire(many);
    }

    /// Waits for the first answer of the cluster. Returns false if the wait timed out or failed.
    pub async fn first_lease(&self) -> bool {
        if Instant::now() >= self.first_wait {
            return false;
        }
        timeout_at(self.first_wait, self.rate.resource().answered()).await.is_ok_and(|usable| usable.is_ok())
    }

    pub(super) fn note_use(&self, now: u32) {
        // Stored at most once per sweep, so that threads mostly read the cache line.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Notes a refused request. Returns whether it is the first since wants were estimated.
    pub(super) fn note_refusal(&self) -> bool {
        !self.is_pressed.load(Ordering::Relaxed) && !self.is_pressed.swap(true, Ordering::Relaxed)
    }

    pub(super) fn estimate_wants(&self) {
        self.is_pressed.store(false, Ordering::Relaxed);
        self.rate.resource().reestimate_wants();
    }

    /// Whether fewer requests arrive than before, so that the wants must be estimated again. False if the resource has
    /// been silent for more than [`SILENT`] sweeps: then the estimate is already low.
    pub(super) fn has_fallen(&self, now: u32) -> bool {
        let is_known = now.wrapping_sub(self.used.load(Ordering::Relaxed)) > SILENT;
        let seen = || self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).have_fallen(self.rate.arrived());
        !is_known && seen()
    }

    /// Whether the entry can be released: it is unused, and no permit of its window is in use, or its bucket is full
    /// again. An earlier release would grant permits twice. `is_tight`: the table is nearly full, so that only the idle
    /// time counts, and a window of up to a minute.
    pub(super) fn is_idle(&self, now: u32, idle: u32, is_tight: bool) -> bool {
        let unused = now.wrapping_sub(self.used.load(Ordering::Relaxed));
        let window = u32::try_from(self.window[0].load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        // A permit comes back up to a hundredth of the window late.
        let passed = window.saturating_add(window / 100 + 1);
        unused > idle && (unused > passed || (is_tight && window > STRICT_SECS))
    }
}

fn parts(window: Window) -> [u64; 2] {
    [window.length.as_secs(), window.rate.to_bits()]
}
