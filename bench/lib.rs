//! What the harness shares with tests: links between processes that can be made bad.
//!
//! The measuring itself is in the binary. Nothing here knows what the bytes mean that it carries.

pub mod link;
