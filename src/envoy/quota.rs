//! What an Envoy is told that it may let through: whole requests.

/// A rate in whole requests; never above the capacity that it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    Nothing,
    /// One request in so many seconds, from two on.
    OneIn(u32),
    /// So many requests in a second.
    PerSecond(u32),
    /// There is no limit.
    Everything,
}

/// What is less than one request in so many seconds is nothing.
const SLOWEST: f64 = 3600.0;

impl Quota {
    /// As much of `capacity` as whole requests can say.
    pub fn of(capacity: f64) -> Quota {
        let capacity = capacity.max(0.0);
        match capacity {
            capacity if capacity.is_infinite() => Quota::Everything,
            // The conversion cuts, and what is too large becomes the largest.
            capacity if capacity >= 1.0 => Quota::PerSecond(capacity as u32),
            capacity if capacity * SLOWEST < 1.0 => Quota::Nothing,
            capacity => Quota::OneIn((1.0 / capacity).ceil() as u32),
        }
    }

    /// In requests per second.
    pub fn rate(self) -> f64 {
        match self {
            Quota::Nothing => 0.0,
            Quota::OneIn(seconds) => 1.0 / f64::from(seconds),
            Quota::PerSecond(requests) => f64::from(requests),
            Quota::Everything => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_whole_and_never_above_the_capacity() {
        for capacity in [0.0, 1e-9, 0.1, 0.3, 0.999, 1.0, 1.9, 33.3, 1e3, 5e9, f64::INFINITY, -1.0, f64::NAN] {
            assert!(Quota::of(capacity).rate() <= capacity.max(0.0), "{capacity}");
        }
        let quotas = [0.0, 0.2, 0.3, 0.99, 1.99, 33.3].map(Quota::of);
        use Quota::{Nothing, OneIn, PerSecond};
        assert_eq!(quotas, [Nothing, OneIn(5), OneIn(4), OneIn(2), PerSecond(1), PerSecond(33)]);
        assert_eq!([1.0 / 3600.0, 1.0 / 3601.0, 1e10].map(Quota::of), [OneIn(3600), Nothing, PerSecond(u32::MAX)]);
    }
}
