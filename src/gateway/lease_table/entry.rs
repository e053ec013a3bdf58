//! A resource that is open, with its limiter.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_client::limiter::Arrivals;
use leaseway_client::{
    Basis, Capacity, Rate, Window,
    limiter::{Standing, TryError},
};
use tokio::time::{Instant, timeout_at};

use super::caller_shares::SharePermit;

/// After so many sweeps without a request those that came before have been seen to end.
const SILENT: u32 = 3;

/// A resource that is open at a gateway.
#[derive(Debug)]
pub struct LeaseEntry {
    rate: Rate,
    /// Its window: the seconds, and the bits of the rate.
    window: [AtomicU64; 2],
    /// Until when requests wait for a first lease.
    first_wait: Instant,
    /// When it was last asked for, in sweeps.
    used: AtomicU32,
    /// Its wants are to be looked at.
    is_pressed: AtomicBool,
    /// As sweeps see them.
    arrivals: Mutex<Arrivals>,
    /// Callers say what they have used, rather than ask for it.
    is_charged: bool,
    _permit: SharePermit,
}

/// Whether something may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It may, and counts.
    Yes,
    /// There is too little now.
    No,
    /// There is no lease, and nothing that may be used without one.
    NoLease,
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

    /// The rule may have changed since it was opened.
    pub fn keep_to(&self, window: Window) {
        let parts = parts(window);
        let is_new = |(before, part): (&AtomicU64, &u64)| before.load(Ordering::Relaxed) != *part;
        if self.window.iter().zip(&parts).any(is_new) {
            self.window.iter().zip(parts).for_each(|(before, part)| before.store(part, Ordering::Relaxed));
            self.rate.set_window(window);
        }
    }

    /// For how long what is not used can be saved.
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window[0].load(Ordering::Relaxed))
    }

    /// Whether callers say what they have used, rather than ask for it.
    pub fn is_charged(&self) -> bool {
        self.is_charged
    }

    /// So much has been used, whether or not it was there: what was not is paid back before anything else passes.
    pub fn charge(&self, many: u32) {
        if let Err(exceeded) = self.rate.charge(many.into()) {
            tracing::debug!(resource = self.id(), "{exceeded}");
        }
    }

    pub fn id(&self) -> &str {
        self.rate.resource().id()
    }

    /// Its lease and its limiter.
    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    /// What could be had now.
    pub fn standing(&self) -> Standing {
        self.rate.standing()
    }

    /// Whether it has a lease, or something that may be used without one.
    pub fn has_capacity(&self) -> bool {
        let usable = self.rate.resource().usable();
        usable.basis == Basis::Lease || usable.capacity > Capacity::NONE
    }

    pub(super) fn take(&self, many: u32) -> Taken {
        match self.rate.try_acquire(many) {
            Ok(()) => Taken::Yes,
            Err(TryError::NotNow { .. } | TryError::TooMany { .. }) if self.has_capacity() => Taken::No,
            Err(_) => Taken::NoLease,
        }
    }

    /// Whether requests wait for its first lease.
    pub fn awaits_first_lease(&self) -> bool {
        let is_unknown = || self.rate.resource().usable().basis == Basis::Unknown;
        Instant::now() < self.first_wait && is_unknown()
    }

    /// So much is wanted, of what is not there yet.
    pub fn press(&self, many: u32) {
        let _ = self.rate.try_acquire(many);
    }

    /// Waits for the first lease, as long as requests do. Whether there is one, or another answer.
    pub async fn first_lease(&self) -> bool {
        if Instant::now() >= self.first_wait {
            return false;
        }
        timeout_at(self.first_wait, self.rate.resource().answered()).await.is_ok_and(|usable| usable.is_ok())
    }

    /// It is asked for.
    pub(super) fn note_use(&self, now: u32) {
        // Written once a second, so that threads that share it only read.
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// It has refused something. Whether that is not known yet.
    pub(super) fn presses(&self) -> bool {
        !self.is_pressed.load(Ordering::Relaxed) && !self.is_pressed.swap(true, Ordering::Relaxed)
    }

    pub(super) fn look_at_wants(&self) {
        self.is_pressed.store(false, Ordering::Relaxed);
        self.rate.resource().reestimate_wants();
    }

    /// Whether fewer ask for it than lately: others may need what it has. Of what has been silent for longer that is
    /// known already.
    pub(super) fn has_fallen(&self, now: u32) -> bool {
        let is_known = now.wrapping_sub(self.used.load(Ordering::Relaxed)) > SILENT;
        let seen = || self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).have_fallen(self.rate.arrived());
        !is_known && seen()
    }

    /// Whether it can be given back: it has not been asked for, and is full again. One that is opened anew begins full:
    /// sooner it would be given back to be refilled.
    pub(super) fn is_idle(&self, now: u32, idle: u32, is_tight: bool) -> bool {
        let unused = now.wrapping_sub(self.used.load(Ordering::Relaxed));
        let window = u32::try_from(self.window[0].load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        unused > idle && (is_tight || unused > window)
    }
}

fn parts(window: Window) -> [u64; 2] {
    [window.length.as_secs(), window.rate.to_bits()]
}
