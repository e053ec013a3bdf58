//! The client library, in Rust and through its C interface.

mod c_interface;
mod conformance;
mod dependencies;
mod hints;
mod leases;
mod limits;
mod servers;
mod several_limits;
mod streams;
