//! The server: configuration so far.

pub mod config;
