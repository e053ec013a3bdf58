//! Pages for browsers.

mod debug;
mod peers;
mod plots;
mod status;
