//! Limiters admit callers as a capacity allows. The capacity is a rate, or a maximum number of permits in use.
//!
//! A limiter knows neither leases nor networks. Its owner calls `set_capacity`, and before that no caller is admitted.
//! [`RateLimiter`] is for permits per second, [`GaugeLimiter`] for permits in use at the same time.
//!
//! Callers are served first come, first served. No caller overtakes a waiting one, not even with `try_acquire`, so a
//! caller that needs many permits is not starved by callers that need few. To stop waiting, drop the future: no permit
//! is lost.
//!
//! An operation that needs permits of several limiters takes all of them at the same moment, or nothing, with a
//! [`JointLimiter`]. It waits in the queues of all of them.
//!
//! A limiter has no task and no thread. The future at the head of the queue keeps the timer for all waiters, so a
//! waiting future must be polled or dropped. One that is kept without being polled delays those behind it, until the
//! next caller arrives and notices.
//!
//! The cost of work may be known only afterwards. A rate can be [charged](RateLimiter::charge) for permits that were
//! already used; missing permits become debt, which is paid before any caller is admitted, waiting callers included.
//! Unused permits can be returned, best with a [reservation](RateReservation).
//!
//! Waiting for a rate needs a tokio runtime with its timer enabled; taking an available permit does not.
//!
//! Without the feature `transport` this module has the arithmetic only: what a rate lets through ([`Bucket`]) and how
//! much its callers want ([`demand`], [`WindowDemand`]), with time as an argument, and what a request for permits of
//! several limits takes ([`joint`]).

mod bucket;
mod budget;
pub mod demand;
pub mod joint;
mod meter;
#[cfg(feature = "transport")]
mod rate_meter;
mod refusal;
mod sliding;
#[cfg(feature = "transport")]
mod waiting;
mod window;

pub use self::{
    bucket::{Bucket, Burst, Standing},
    budget::{BudgetBook, SpendingPeriod},
    joint::{Binding, Claim},
    meter::{Meter, Nanos, Promise, Shortage},
    refusal::{Closed, DebtExceeded, TryError},
    sliding::SlidingWindow,
    window::{Arrivals, Window, WindowDemand, WindowSample, estimating},
};

#[cfg(feature = "transport")]
pub use self::waiting::{
    AnyLimiter, GaugeLimiter, GaugePermit, JointLimiter, JointPermit, JointRefusal, JointReservation, LimiterRef,
    RateLimiter, RateReservation, try_acquire_all,
};
