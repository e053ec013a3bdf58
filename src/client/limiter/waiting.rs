//! The two limiters that callers can wait at. Each is a fair semaphore over a [`Meter`](super::Meter).

mod gauge;
mod joint;
mod linked_list;
mod rate;
mod semaphore;
#[cfg(test)]
mod tests;

pub use self::{
    gauge::{GaugeLimiter, GaugePermit},
    joint::{AnyLimiter, JointLimiter, JointPermit, JointRefusal, JointReservation, LimiterRef, try_acquire_all},
    rate::{RateLimiter, RateReservation},
};
