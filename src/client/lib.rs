//! The Leaseway client.

mod capacity;
pub mod balancer;
pub mod demand;
pub mod limiter;

pub use capacity::Capacity;
