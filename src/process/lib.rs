//! Child processes on this machine: started, watched, and never left behind. `leaseway up`, the bench and the
//! end-to-end tests share it.
//!
//! `process` starts and signals them, `lines` reads what they say, [`tether`] ends them when their parent is gone,
//! [`usage`] is what they have used, [`ports`] finds where they can listen, and [`link`] is a connection between them
//! that can be made bad. Nothing here knows what a process does.

mod lines;
pub mod link;
pub mod ports;
mod process;
pub mod tether;
pub mod usage;

pub use process::{Output, Process, Start};
pub use rustix::process::Signal;
