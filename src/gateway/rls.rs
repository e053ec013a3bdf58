//! Rate limits for Envoys that ask for each request (RLS), by the rules of envoyproxy/ratelimit.
//!
//! The rules come from files ([`mod@file`]) or from a control plane ([`xds`]). [`rules`] finds the rule for a
//! descriptor, and [`decision`] decides whether a request passes. The capacity comes from the cluster: a rule gives the
//! resource, the window, and the limit that Envoy is told. [`declare`] tells the cluster the capacities that follow
//! from the rules.

pub mod answer;
pub mod current;
pub mod decision;
pub mod declare;
mod definition;
pub mod file;
pub(crate) mod http;
mod json;
mod metadata;
pub mod rules;
pub mod service;
pub mod stats;
pub mod templates;
pub mod xds;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The pause before the first retry. Each further failure doubles it.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The pause after `failures` in a row: a random part of it, at least half. `random` is from 0 to 1.
fn backoff(failures: u32, random: f64) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
    BACKOFF_FIRST.saturating_mul(doubled).min(BACKOFF_MAX).mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_maximum_and_are_jittered() {
        assert_eq!([1, 2, 3].map(|failures| backoff(failures, 1.0)), [1, 2, 4].map(|times| BACKOFF_FIRST * times));
        assert_eq!(backoff(1, 0.0), BACKOFF_FIRST / 2);
        assert_eq!([8, u32::MAX].map(|failures| backoff(failures, 1.0)), [BACKOFF_MAX; 2]);
    }
}
