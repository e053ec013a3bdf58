//! What an Envoy is told that it may let through, in the words that it understands.
//!
//! Envoy 1.40 fills its token buckets evenly, at `tokens_per_fill / fill_interval`, and cuts both the interval and the
//! time to live to whole seconds. Whether a bucket is another one it sees by `max_tokens`, `tokens_per_fill` and the
//! *nanoseconds* of the interval, not by its seconds. So an interval of n seconds carries n nanoseconds as well: they
//! are cut away, and tell intervals apart. An Envoy that minds them lets through a billionth less.

use leaseway_envoy::Quota;
use leaseway_proto::envoy::quota::{
    RateLimitStrategy, TokenBucket,
    rate_limit_strategy::{BlanketRule, Strategy},
};

/// On the wire.
pub(super) fn strategy(quota: Quota) -> RateLimitStrategy {
    let strategy = match quota {
        Quota::Nothing => Strategy::BlanketRule(BlanketRule::DenyAll.into()),
        Quota::Everything => Strategy::BlanketRule(BlanketRule::AllowAll.into()),
        Quota::OneIn(seconds) => Strategy::TokenBucket(bucket(1, seconds)),
        Quota::PerSecond(requests) => Strategy::TokenBucket(bucket(requests, 1)),
    };
    RateLimitStrategy { strategy: Some(strategy) }
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
    fn buckets_that_differ_are_seen_to_differ() {
        let seen = |quota: Quota| match strategy(quota).strategy {
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
