//! Pages for browsers.

mod events;
mod peers;
mod plots;
mod routes;
mod status;
