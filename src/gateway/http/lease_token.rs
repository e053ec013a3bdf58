//! Lease tokens for callers. A token has all fields by which the cluster recognises a lease, so the gateway keeps no
//! state.

use std::fmt;

use leaseway_core::types::Amount;
use leaseway_proto::doorman::Lease;

/// The maximum length of a token.
const MAX_BYTES: usize = 80;

/// The fields of a lease, exactly as the cluster sent them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LeaseToken {
    /// The cluster's token; 0 if the server speaks only the original protocol.
    token: u64,
    capacity: f64,
    expiry_time: i64,
    refresh_interval: i64,
}

impl LeaseToken {
    /// `None` if a required field is missing or the capacity is invalid.
    pub(super) fn of(lease: &Lease) -> Option<LeaseToken> {
        Some(LeaseToken {
            token: lease.token.unwrap_or_default(),
            capacity: lease.capacity.filter(|capacity| Amount::new(*capacity).is_ok())?,
            expiry_time: lease.expiry_time?,
            refresh_interval: lease.refresh_interval?,
        })
    }

    /// The lease to send as `has` in a request.
    pub(super) fn echo(self) -> Lease {
        Lease {
            expiry_time: Some(self.expiry_time),
            refresh_interval: Some(self.refresh_interval),
            capacity: Some(self.capacity),
            token: self.number(),
            remaining_ms: None,
        }
    }

    /// The cluster's token, if it has issued one.
    pub(super) fn number(self) -> Option<u64> {
        Some(self.token).filter(|token| *token != 0)
    }

    /// `None` if the text is malformed. An invalid capacity becomes 0, which confirms nothing.
    pub(super) fn parse(text: &str) -> Option<LeaseToken> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let mut parts = text.split('.').map(|part| {
            let digits = Some(part).filter(|part| part.len() <= 16 && part.bytes().all(is_digit));
            digits.and_then(|digits| u64::from_str_radix(digits, 16).ok())
        });
        let mut next = || parts.next().flatten();
        let (token, capacity) = (next()?, Amount::new(f64::from_bits(next()?)));
        let (expiry_time, refresh_interval) = (next()?.cast_signed(), next()?.cast_signed());
        let capacity = capacity.unwrap_or(Amount::ZERO).get();
        parts.next().is_none().then_some(LeaseToken { token, capacity, expiry_time, refresh_interval })
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseToken { token, capacity, expiry_time, refresh_interval } = self;
        write!(f, "{token:x}.{:x}.{expiry_time:x}.{refresh_interval:x}", capacity.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_lease_survives_a_round_trip(
            token: u64, capacity in 0.0..=1e15, expiry: i64, refresh: i64
        ) {
            let lease = Lease {
                expiry_time: Some(expiry),
                refresh_interval: Some(refresh),
                capacity: Some(capacity),
                token: Some(token).filter(|token| *token != 0),
                remaining_ms: None,
            };
            let told = LeaseToken::of(&lease).expect("a valid lease").to_string();
            prop_assert!(told.len() <= MAX_BYTES);
            prop_assert_eq!(LeaseToken::parse(&told).map(LeaseToken::echo), Some(lease));
        }

        #[test]
        fn a_text_that_is_a_token_survives_a_round_trip(text in ".{0,100}") {
            if let Some(token) = LeaseToken::parse(&text) {
                prop_assert_eq!(LeaseToken::parse(&token.to_string()), Some(token));
            }
        }
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in ["", "1", "1.2.3", "1.2.3.4.5", "x.0.0.0", "+1.0.0.0"] {
            assert_eq!(LeaseToken::parse(text), None, "{text}");
        }
        for text in ["0.7ff0000000000000.0.0", "0.7ff8000000000000.0.0", "0.bff0000000000000.0.0"] {
            assert!(LeaseToken::parse(text).is_some_and(|token| token.capacity == 0.0), "{text}");
        }
        assert!(LeaseToken::parse("0.0.0.0").is_some_and(|token| token.number().is_none()));
    }
}
