//! Trees of nodes.

mod mixed;
mod names;
mod rules;
mod sharing;
mod up;
