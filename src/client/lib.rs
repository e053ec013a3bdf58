//! The Leaseway client.

pub mod balancer;
mod capacity;
pub mod demand;
pub mod limiter;

pub use capacity::Capacity;
