//! Commands of `leaseway`.

mod check;
mod cluster_cli;
mod debug_bundle;
mod explain;
mod first_steps;
mod json;
mod plan;
mod shell;
mod terminal;
mod top;
