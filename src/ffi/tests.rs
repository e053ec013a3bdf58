//! Tests without a server. `tests/scenarios/ffi.rs` has those with one, in C and JavaScript.

mod header;
mod misuse;
