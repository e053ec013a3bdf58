//! Timeouts, refresh intervals and back-off.

use leaseway_core::types::Millis;

/// The timeouts and intervals of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// The timeout of a request.
    pub deadline: Millis,
    /// The minimum refresh interval, whatever the server says. Hints and changes of demand are exempt. Less than 100 ms
    /// counts as 100 ms, here and below, so that no setting makes a client hammer a server.
    pub refresh_min: Millis,
    /// The pause after the first failure; each further failure makes it 1.6 times as long.
    pub backoff_first: Millis,
    /// The maximum pause. It is also bounded such that all endpoints are tried once per refresh interval.
    pub backoff_max: Millis,
    /// The maximum pause while servers answer that they have no master: they will elect one soon.
    pub masterless_max: Millis,
    /// Resources that will be due within this time are asked for together with those that are due now.
    pub ahead: Millis,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            deadline: Millis(3_000),
            refresh_min: Millis(1_000),
            backoff_first: Millis(100),
            backoff_max: Millis(15_000),
            masterless_max: Millis(1_000),
            // As Doorman does: one request for everything.
            ahead: Millis(u64::MAX),
        }
    }
}

const BACKOFF_GROWTH: f64 = 1.6;

/// The refresh interval assumed without a lease: the default of servers.
const DEFAULT_REFRESH: Millis = Millis(5_000);

/// The minimum time between requests outside the refresh interval (hints, changes of demand, early confirmations).
pub(super) const MIN_REQUEST_GAP: Millis = Millis(100);

impl Pace {
    /// The maximum time between two attempts. Each of `endpoints` is tried within `refresh`, the shortest interval of
    /// the known leases, so the session notices within one interval that a server is back.
    ///
    /// Load during an outage: a server gets one attempt per client and interval; jitter raises that to 4/3 on average
    /// and to 2 at worst. The attempts are spread over the interval as the refreshes were.
    pub(super) fn longest_retry(&self, refresh: Option<Millis>, endpoints: usize) -> Millis {
        let refresh = refresh.unwrap_or(DEFAULT_REFRESH).max(self.refresh_min);
        Millis(refresh.0 / endpoints.max(1) as u64)
    }

    /// The pause after `failures` in a row, the last of which took `took`. Attempts are sent at most `longest` apart.
    /// The result is a random fraction, at least half, of the computed pause, so that clients that failed together do
    /// not retry together.
    pub(super) fn backoff(&self, failures: u32, longest: Millis, took: Millis, rng: &mut fastrand::Rng) -> Millis {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let apart = (self.backoff_first.0 as f64 * BACKOFF_GROWTH.powi(exponent)).min(longest.0 as f64);
        scaled((apart - took.0 as f64).max(MIN_REQUEST_GAP.0 as f64), 0.5 + rng.f64() / 2.0)
    }

    /// The time until the next refresh: a little less than the interval, so that clients drift apart, and always while
    /// a third of the lease is left, so that one lost answer costs nothing.
    pub(super) fn refresh(&self, interval: Millis, left: Millis, rng: &mut fastrand::Rng) -> Millis {
        let least = self.refresh_min.max(MIN_REQUEST_GAP);
        let interval = scaled(interval.max(least).0 as f64, 0.9 + rng.f64() / 10.0);
        interval.min(Millis(left.0 / 3 * 2)).max(least.min(interval))
    }
}

fn scaled(span: f64, factor: f64) -> Millis {
    Millis((span * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_maximum_with_jitter() {
        let mut rng = fastrand::Rng::with_seed(1);
        let pace = Pace::default();
        for failures in [1, 2, 5, 12, 1_000, u32::MAX] {
            let whole = (100.0 * 1.6f64.powi((failures - 1).min(1_000) as i32)).min(15_000.0);
            let pauses: Vec<u64> =
                (0..100).map(|_| pace.backoff(failures, pace.backoff_max, Millis(0), &mut rng).0).collect();
            assert!(pauses.iter().all(|pause| (*pause as f64) <= whole && *pause as f64 >= whole / 2.0 - 1.0));
            assert!(pauses.iter().max() > pauses.iter().min(), "no jitter after {failures}");
        }
    }

    #[test]
    fn a_refresh_comes_shortly_before_the_interval_ends() {
        let mut rng = fastrand::Rng::with_seed(1);
        let waits: Vec<u64> =
            (0..100).map(|_| Pace::default().refresh(Millis(5_000), Millis(60_000), &mut rng).0).collect();
        assert!(waits.iter().all(|wait| (4_500..=5_000).contains(wait)), "{waits:?}");
        assert!(waits.iter().max() > waits.iter().min());
    }

    #[test]
    fn a_refresh_comes_while_a_third_of_the_lease_is_left() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut refresh = |interval, left| Pace::default().refresh(Millis(interval), Millis(left), &mut rng).0;
        assert_eq!(refresh(60_000, 30_000), 20_000);
        assert!(refresh(0, 60_000) >= 900);
        assert!(refresh(5_000, 0) >= 900, "an expired lease");
    }

    #[test]
    fn zero_settings_do_not_cause_a_request_storm() {
        let mut rng = fastrand::Rng::with_seed(1);
        let zero = Millis(0);
        let pace = Pace {
            deadline: zero,
            refresh_min: zero,
            backoff_first: zero,
            backoff_max: zero,
            masterless_max: zero,
            ahead: zero,
        };
        assert!((1..100).all(|failures| pace.backoff(failures, zero, zero, &mut rng) >= Millis(50)));
        assert!([0, 1, 60_000].iter().all(|left| pace.refresh(zero, Millis(*left), &mut rng) >= Millis(90)));
    }
}
