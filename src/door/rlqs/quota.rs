//! What an Envoy is told that it may let through, in the words it understands.
//!
//! Envoy 1.40 fills its token buckets evenly, at `tokens_per_fill / fill_interval`, and cuts both the interval and the
//! time to live to whole seconds. Whether a bucket is another one it sees by `max_tokens`, `tokens_per_fill` and the
//! *nanoseconds* of the interval, not by its seconds. So an interval of n seconds carries n nanoseconds as well: they
//! are cut away, and tell intervals apart. An Envoy that minds them lets through a billionth less.

use leaseway_proto::envoy::quota::{
    RateLimitStrategy, TokenBucket,
    rate_limit_strategy::{BlanketRule, Strategy},
};

/// A rate in whole requests; never above the capacity that it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Nothing passes.
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

    /// On the wire.
    pub fn strategy(self) -> RateLimitStrategy {
        let strategy = match self {
            Quota::Nothing => Strategy::BlanketRule(BlanketRule::DenyAll.into()),
            Quota::Everything => Strategy::BlanketRule(BlanketRule::AllowAll.into()),
            Quota::OneIn(seconds) => Strategy::TokenBucket(bucket(1, seconds)),
            Quota::PerSecond(requests) => Strategy::TokenBucket(bucket(requests, 1)),
        };
        RateLimitStrategy { strategy: Some(strategy) }
    }
}

fn bucket(tokens: u32, seconds: u32) -> TokenBucket {
    let apart = if seconds > 1 { i32::try_from(seconds).unwrap_or_default() } else { 0 };
    let interval = prost_types::Duration { seconds: i64::from(seconds), nanos: apart };
    TokenBucket { max_tokens: tokens, tokens_per_fill: Some(tokens), fill_interval: Some(interval) }
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

    #[test]
    fn buckets_that_differ_are_seen_to_differ() {
        let seen = |quota: Quota| match quota.strategy().strategy {
            Some(Strategy::TokenBucket(bucket)) => {
                let interval = bucket.fill_interval.expect("an interval");
                (bucket.max_tokens, bucket.tokens_per_fill, interval.nanos)
            }
            other => panic!("{other:?}"),
        };
        let all = [Quota::PerSecond(1), Quota::PerSecond(2), Quota::OneIn(2), Quota::OneIn(3), Quota::OneIn(3600)];
        let mut seen = all.map(seen);
        seen.sort_unstable();
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
    }
}
