//! Checks the rules of CONTRIBUTING.md for code and documents.
#![allow(clippy::unwrap_used, reason = "all of it is test")]

#[path = "../harness/binary.rs"]
#[expect(dead_code, reason = "only one of the binaries is asked here")]
mod binary;
mod circles;
mod command_line;
mod deployment;
mod documents;
mod files;
mod layout;
mod metrics;
mod modules;
mod reference;
