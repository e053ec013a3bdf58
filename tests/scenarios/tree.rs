//! Trees of nodes.

mod failover;
mod mixed;
mod names;
mod rules;
mod sharing;
mod up;
