//! Clients. Each records the capacity that it believes it may use.

pub(crate) mod driven;
pub(crate) mod library;
pub(crate) mod operators;
pub(crate) mod pairs;
pub(crate) mod raw;
pub(crate) mod spenders;

use std::ops::Range;

/// The resource that all clients share.
pub(crate) const SCARCE: &str = "chaos";

/// Random wants of a client.
const WANTS: Range<f64> = 1.0..100.0;

pub(crate) fn draw(random: &mut fastrand::Rng) -> f64 {
    WANTS.start + random.f64() * (WANTS.end - WANTS.start)
}
