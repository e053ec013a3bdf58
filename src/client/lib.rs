//! The Leaseway client.

pub mod balancer;
mod capacity;
pub mod demand;
pub mod limiter;
pub mod session;
mod wants;

pub use capacity::Capacity;
