//! Certificates of every kind on both sides of real connections.

mod authority;
mod files;
mod handshakes;
mod reload;
