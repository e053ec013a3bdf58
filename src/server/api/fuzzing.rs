//! What strangers and operators send, from any bytes. Each function panics where reading it breaks a rule.

use crate::{auth, config};

pub use crate::api::grpc::fuzzing::{capacity, deadline, entries, node_capacity, pools, release, watch};

/// A configuration: it is refused in lines that name a place in it, or it is taken, and then again.
pub fn configuration(bytes: &[u8]) {
    match config::parse_bytes("fuzz.yaml", bytes) {
        Err(error) => {
            let error = error.to_string();
            assert!(error.lines().count() > 0 && error.starts_with("fuzz.yaml"), "{error}");
        }
        Ok(loaded) => {
            let again = config::parse_bytes("fuzz.yaml", loaded.text.as_bytes()).expect("it was taken before");
            assert_eq!(loaded.warnings, again.warnings);
        }
    }
}

/// A file of tokens, and a token.
pub fn tokens(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        auth::fuzzing::tokens(text);
    }
}

/// A JWT. None of those that are made up is right: the key that would sign it is not here.
pub fn jwt(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        auth::fuzzing::jwt(text);
    }
}
