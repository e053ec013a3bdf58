//! Limiters: they let callers through as fast as a capacity allows, or as many at a time.
//!
//! They know neither leases nor networks. Their owner calls `set_capacity`; until then no caller is let
//! through. [`RateLimiter`] is for capacities per second, [`GaugeLimiter`] for things in use at the same time.
//!
//! Both keep one line: first come, first served. No caller overtakes one that waits, not even with `try_acquire`, and
//! one that asks for much cannot be starved by many that ask for little. To stop waiting, drop the future: no permit is
//! lost.
//!
//! There is no task and no thread behind a limiter: the future at the head of the line keeps the time for all. So a
//! future that waits has to be polled or dropped. One that is kept and not polled holds up those behind it, until the
//! next caller comes and sees that it is late.
//!
//! What something costs may be known only afterwards. So a rate can be [charged](RateLimiter::charge) for what was used
//! already, and owes what is not there: that is paid back before it lets any caller through, those that wait included.
//! And what was not needed can be given back, best with a [reservation](RateReservation).
//!
//! Waiting for a rate needs a tokio runtime with its timer on; a free permit needs none.

mod arrivals;
mod bucket;
mod burst;
pub mod demand;
mod meter;
mod standing;
#[cfg(feature = "transport")]
mod waiting;
mod window;

pub use self::{
    arrivals::Arrivals,
    bucket::Bucket,
    burst::Burst,
    meter::{Meter, Nanos, Promise, Shortage},
    standing::Standing,
    window::{Window, WindowDemand, WindowSample, estimating},
};

#[cfg(feature = "transport")]
pub use self::waiting::{Closed, DebtExceeded, GaugeLimiter, GaugePermit, RateLimiter, RateReservation, TryError};
