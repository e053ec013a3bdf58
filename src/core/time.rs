//! Time as the caller tells it. Nothing in this crate reads a clock.
//!
//! Inside, time is monotonic milliseconds from an origin only the caller knows. Seconds since the epoch appear on the
//! wire only; the core is told them so that it can recognise a lease by the expiry it once wrote into it.

/// Monotonic milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// From whole seconds.
    pub const fn from_secs(secs: u64) -> Millis {
        Millis(secs * 1000)
    }

    /// Later by `span`.
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
    /// What everything is decided by.
    pub at: Millis,
    /// Whole seconds since the Unix epoch, for `expiry_time` only.
    pub unix: i64,
}

/// How much longer than the holder the server believes in a lease, besides [`CLOCK_RATE_ALLOWANCE`]: `expiry_time` is
/// whole seconds, and a holder may round it up.
const WIRE_ROUNDING: Millis = Millis(1000);

/// A holder's clock may run slow by one part in this many and still never outlive the server's idea of its lease.
const CLOCK_RATE_ALLOWANCE: u64 = 1000;

/// When a lease of `length`, answered at `now`, is certainly over at its holder.
///
/// The holder counts from when it *sent* its request, which is before `now`; rounding and slow clocks are added here.
pub(crate) fn certain_end(now: Millis, length: Millis) -> Millis {
    now.plus(length).plus(WIRE_ROUNDING).plus(Millis(length.0 / CLOCK_RATE_ALLOWANCE))
}
