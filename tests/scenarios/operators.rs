//! Changes that operators make: overrides and pools.

mod linearizability;
mod overrides;
mod pools;
