//! The client for C: `leaseway.h`, and a library that programs of any language link with or load.
//!
//! Leases, limiters and the words of errors are those of `leaseway-client`. Here are pointers, codes and strings:
//!
//! - Every function that can fail returns a code and tells the caller's [`fault::Error`] what is wrong; none panics
//!   into its caller ([`fault::call`]).
//! - Options are strings, `key=value` ([`settings`]): a new one changes no structure.
//! - What was made before a fork is not touched after it ([`handle`]).
//!
//! **What callers owe**, which is what every `unsafe` here rests on: a handle is one that this library gave, and was
//! not freed; a string ends with NUL; what is written to is as large as its type; all of it as long as the call takes.
//! NULL is checked. [`handle`] follows pointers, and [`fault::call`] that of the error; nothing else does.
#![expect(clippy::missing_safety_doc, reason = "what callers owe is the same for all, and stands above")]

pub mod client;
pub mod fault;
pub mod gauge;
pub mod handle;
pub mod rate;
mod settings;
mod waiting;

#[cfg(test)]
mod tests;
