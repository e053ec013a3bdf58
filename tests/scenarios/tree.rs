//! Trees of nodes.

mod groups;
mod mixed;
mod names;
mod rules;
mod sharing;
mod up;
