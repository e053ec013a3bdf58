//! Tests without a server. `tests/scenarios/clients/c_interface.rs` has those with one, in C and JavaScript.

mod header;
mod misuse;
