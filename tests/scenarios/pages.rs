//! Pages for browsers.

mod peers;
mod plots;
mod routes;
mod status;
