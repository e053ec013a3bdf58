//! A server: flags, start and stop, reload, metrics.

mod flags;
mod lifecycle;
mod metrics;
mod refusals;
mod reload;
mod traces;
mod up;
