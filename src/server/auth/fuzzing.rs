//! Entry points for fuzzing tokens and JWTs.

use std::path::PathBuf;

use super::{
    jwt::{JwtOptions, Jwts},
    tokens::Tokens,
};

/// The public key of an unknown private key.
const KEYS: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "use": "sig",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

pub(crate) fn tokens(text: &str) {
    if let Ok(tokens) = Tokens::parse(text) {
        assert!(tokens.len() <= text.lines().count());
        // A hash is not accepted as a token.
        for word in text.split_whitespace() {
            assert!(tokens.holder(word.as_bytes()).is_none(), "{word:?} is accepted");
        }
    }
}

pub(crate) fn jwt(text: &str) {
    let options = JwtOptions {
        jwks: PathBuf::new(),
        issuer: "https://issuer".to_owned(),
        audience: "leaseway".to_owned(),
        claim: "sub".to_owned(),
    };
    let jwts = Jwts::new(&options, KEYS).expect("the keys are right");
    let answer = jwts.verify(text.as_bytes());
    assert!(answer.is_err(), "{text:?} is accepted as {answer:?}");
    if let Ok(others) = Jwts::new(&options, text) {
        let _ = others.verify(b"e30.e30.e30");
    }
}
