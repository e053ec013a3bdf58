//! The client for Python: the native half of the package `leaseway`.
//!
//! Leases, limiters and their errors are those of `leaseway-client`; here they become Python's. What does not need Rust
//! (decorators, `async with`, event loops) is in `leaseway/*.py`.
//!
//! - A call that need not wait keeps the interpreter; one that waits releases it ([`waiting`]).
//! - The client's thread never asks for the interpreter: what waits in an event loop is woken through a socket
//!   ([`bell`]). So leases are kept also while Python is busy, stopped, or ending.
//! - What was made before a fork is not touched after it ([`fork`]).

mod arguments;
mod bell;
mod client;
mod error;
mod fork;
mod gauge;
mod handle;
mod permit;
mod rate;
mod reservation;
mod state;
mod waiting;

use pyo3::prelude::*;

/// See `leaseway/__init__.py`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        bell::Bell,
        client::NativeClient,
        fork::forked,
        gauge::NativeGauge,
        handle::NativeResource,
        permit::Permit,
        rate::NativeRate,
        reservation::Reservation,
        state::{Health, Standing},
        waiting::Waiting,
    };

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
