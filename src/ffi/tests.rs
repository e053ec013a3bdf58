//! What needs no server; with one, C and JavaScript test it (`tests/scenarios/ffi.rs`).

mod header;
mod misuse;
