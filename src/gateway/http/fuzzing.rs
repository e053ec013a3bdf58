//! Entry points for fuzzing the decoders of HTTP requests.

use super::{fields::Fields, lease_token::LeaseToken, operation::Operation};

/// Reads the body and the query of each operation.
pub fn fields(bytes: &[u8]) {
    for operation in Operation::ALL {
        let _ = Fields::of_body(operation.body(), bytes);
        let pairs = bytes.split(|byte| *byte == b'&').map(|pair| {
            let pair = String::from_utf8_lossy(pair);
            let (name, value) = pair.split_once('=').unwrap_or((&pair, ""));
            (name.to_owned(), value.to_owned())
        });
        let _ = Fields::of_query(operation.query(), pairs.collect());
    }
}

/// A token that parses survives a round trip through its text.
pub fn lease_token(bytes: &[u8]) {
    let token = str::from_utf8(bytes).ok().and_then(LeaseToken::parse);
    if let Some(token) = token {
        assert!(LeaseToken::parse(&token.to_string()) == Some(token), "{token}");
    }
}
