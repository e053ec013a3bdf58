//! The name of a lease, as a caller is given it and gives it back: all that the cluster has to be told of a lease, so
//! that the gateway need not remember any.

use std::fmt;

use leaseway_core::Amount;
use leaseway_proto::doorman::Lease;

/// Longer texts are none.
const MAX_BYTES: usize = 80;

/// What the cluster said of a lease, to the letter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LeaseToken {
    /// Servers of the original protocol give none: 0.
    token: u64,
    capacity: f64,
    expiry_time: i64,
    refresh_interval: i64,
}

impl LeaseToken {
    /// None if the server left out what every lease has.
    pub(super) fn of(lease: &Lease) -> Option<LeaseToken> {
        Some(LeaseToken {
            token: lease.token.unwrap_or_default(),
            capacity: lease.capacity.filter(|capacity| Amount::new(*capacity).is_ok())?,
            expiry_time: lease.expiry_time?,
            refresh_interval: lease.refresh_interval?,
        })
    }

    /// As `has` of a request says that it is known.
    pub(super) fn echo(self) -> Lease {
        Lease {
            expiry_time: Some(self.expiry_time),
            refresh_interval: Some(self.refresh_interval),
            capacity: Some(self.capacity),
            token: self.number(),
            remaining_ms: None,
        }
    }

    /// By which the cluster knows it.
    pub(super) fn number(self) -> Option<u64> {
        Some(self.token).filter(|token| *token != 0)
    }

    /// Nothing if it has another form. What no lease can say confirms nothing to the cluster.
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
        fn a_lease_comes_back_to_the_letter(
            token: u64, capacity in 0.0..=1e15, expiry: i64, refresh: i64
        ) {
            let lease = Lease {
                expiry_time: Some(expiry),
                refresh_interval: Some(refresh),
                capacity: Some(capacity),
                token: Some(token).filter(|token| *token != 0),
                remaining_ms: None,
            };
            let told = LeaseToken::of(&lease).expect("it is one").to_string();
            prop_assert!(told.len() <= MAX_BYTES);
            prop_assert_eq!(LeaseToken::parse(&told).map(LeaseToken::echo), Some(lease));
        }

        #[test]
        fn any_text_is_a_token_or_none(text in ".{0,100}") {
            if let Some(token) = LeaseToken::parse(&text) {
                prop_assert_eq!(LeaseToken::parse(&token.to_string()), Some(token));
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_token() {
        for text in ["", "1", "1.2.3", "1.2.3.4.5", "x.0.0.0", "+1.0.0.0"] {
            assert_eq!(LeaseToken::parse(text), None, "{text}");
        }
        for text in ["0.7ff0000000000000.0.0", "0.7ff8000000000000.0.0", "0.bff0000000000000.0.0"] {
            assert!(LeaseToken::parse(text).is_some_and(|token| token.capacity == 0.0), "{text}");
        }
        assert!(LeaseToken::parse("0.0.0.0").is_some_and(|token| token.number().is_none()));
    }
}
