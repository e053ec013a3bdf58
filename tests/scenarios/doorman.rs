//! The Doorman protocol of 2016.

mod bytes;
mod faults;
mod flows;
mod go_clients;
mod reflection;
mod reuse;
