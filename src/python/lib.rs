//! The client for Python: the native half of the package `leaseway`.
//!
//! It wraps `leaseway-client`. Anything that does not need Rust (decorators, `async with`, event loops) is in
//! `leaseway/*.py`.
//!
//! - A call that does not have to wait keeps the interpreter lock; one that waits releases it ([`waiting`]).
//! - The client's thread never takes the interpreter lock. It wakes event loops through a socket
//!   ([`waiting::loop_waker`]), so leases stay alive while Python is busy, suspended or shutting down.
//! - Objects created before a fork are not touched after it ([`fork`]).
//! - A daemon thread that waits when the process ends stops without an exception ([`exit`]).

mod arguments;
mod balancer;
mod budget;
mod client;
mod cost;
mod error;
mod exit;
mod fork;
mod gauge;
mod handle;
mod limits;
mod prices;
mod rate;
mod reservation;
mod waiting;

use pyo3::prelude::*;

/// See `leaseway/__init__.py`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        balancer::{NativeBackends, NativeBalanced, NativeBalancer},
        budget::{NativeBudget, ReservedAmount},
        client::{Health, NativeClient},
        cost::Cost,
        exit::exiting,
        fork::forked,
        gauge::{NativeGauge, Permit},
        handle::NativeResource,
        limits::{NativeLimits, Refusal, ReservedPermits},
        prices::NativePrices,
        rate::{NativeRate, Reservation, Standing},
        waiting::{Waiting, loop_waker::LoopWaker},
    };

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
