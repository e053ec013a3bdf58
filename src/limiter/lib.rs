//! What a limiter computes: what a rate lets through ([`Bucket`]), and how much its callers want ([`demand`],
//! [`WindowDemand`]).
//!
//! Time is an argument. Deliberately absent: the line of those that wait, locks, timers and tasks, which are the
//! client library's.

mod arrivals;
mod bucket;
mod burst;
pub mod demand;
mod meter;
mod standing;
mod window;

pub use self::{
    arrivals::Arrivals,
    bucket::Bucket,
    burst::Burst,
    meter::{Meter, Nanos, Promise, Short},
    standing::Standing,
    window::{Window, WindowDemand, WindowLook, estimating},
};
