//! Time. Nothing in this crate reads a clock: the caller passes the time with every call.
//!
//! There are two clocks. All decisions use monotonic milliseconds ([`Millis`]) from an origin that only the caller
//! knows. The wire carries the end of a lease in seconds since the Unix epoch; the core gets these seconds, too
//! ([`Now`]), writes them into leases, and recognizes by them the lease of a client that returns no token. A lease ends
//! at its holder first: the server adds [`WIRE_ROUNDING`] and [`CLOCK_RATE_ALLOWANCE`] to every end it counts on.

use crate::planted::{self, Fault};

/// Monotonic milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Millis(pub u64);

impl Millis {
    pub const fn from_secs(secs: u64) -> Millis {
        Millis(secs * 1000)
    }

    #[must_use]
    pub const fn plus(self, span: Millis) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }

    /// How much later this is than `earlier`; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Millis) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// The moment of an event, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub at: Millis,
    /// Whole seconds since the Unix epoch, for `expiry_time` only.
    pub unix: i64,
}

/// Added to the end of each lease at the server, besides [`CLOCK_RATE_ALLOWANCE`]: `expiry_time` has whole seconds, and
/// a holder may round it up.
const WIRE_ROUNDING: Millis = Millis(1000);

/// A holder's clock may be slow by one part in this many: its lease still ends there before it ends at the server.
const CLOCK_RATE_ALLOWANCE: u64 = 1000;

/// When a lease of `length`, answered at `now`, has certainly ended at its holder.
///
/// The holder counts from when it *sent* its request, which is before `now`; rounding and slow clocks are added here.
pub(crate) fn certain_end(now: Millis, length: Millis) -> Millis {
    if planted::is(Fault::ForgetsEarly) {
        return now.plus(Millis(length.0 / 2));
    }
    now.plus(length).plus(WIRE_ROUNDING).plus(Millis(length.0 / CLOCK_RATE_ALLOWANCE))
}
