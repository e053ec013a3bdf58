//! Changes that operators make: limits, overrides and pools.

mod limits;
mod linearizability;
mod overrides;
mod pools;
