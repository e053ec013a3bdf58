//! Pages for browsers.

mod debug;
mod peers;
mod status;
