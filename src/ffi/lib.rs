//! The client for C: `leaseway.h`, and a library that programs in any language can link with or load.
//!
//! A thin layer over `leaseway-client`:
//!
//! - Every function that can fail returns a code and describes the error in the caller's [`error::Error`]. No panic
//!   crosses into the caller ([`error::call`]).
//! - Options are `key=value` strings ([`settings`]), so a new option changes no struct.
//! - Handles created before a fork are not touched after it ([`handle`]).
//!
//! # Safety
//!
//! Every `unsafe` block relies on what callers guarantee for the duration of each call:
//!
//! - A handle was returned by this library and was not freed.
//! - A string ends with NUL.
//! - An out pointer points to memory of its type.
//! - An array has as many elements as the count beside it says, and does not change.
//!
//! NULL is checked. Pointers are dereferenced in [`handle`] and [`error::call`] only.
#![expect(clippy::missing_safety_doc, reason = "the guarantees of callers are the same for all functions, see above")]

pub mod budget;
pub mod client;
pub mod error;
pub mod gauge;
pub mod handle;
pub mod limits;
pub mod rate;
mod settings;
mod waiting;

#[cfg(test)]
mod tests;
