//! Certificates of every kind, on both sides of real connections over loopback.

mod authority;
mod files;
mod handshakes;
mod reload;
