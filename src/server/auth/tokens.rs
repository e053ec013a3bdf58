//! `--tokens FILE`: the identities of tokens, by the hash of the token.
//!
//! A token has 32 random bytes, so its hash needs no salt. It is looked up by its hash, so the duration of a lookup
//! reveals nothing about existing tokens.

use std::{collections::HashMap, fmt};

use leaseway_core::policy::access::{Identity, IdentityError};
use ring::digest::{SHA256, digest};

/// The format of a line.
const EXPECTED: &str = "expected `IDENTITY sha256:HEX`, as `leaseway token new IDENTITY` prints it";
/// Number of random bytes in a token.
const BYTES: usize = 32;
/// The prefix of all tokens, by which secret scanners recognise them.
const PREFIX: &str = "lwt_";
/// Maximum number of tokens in a file. JWTs scale further.
const MAX_TOKENS: usize = 100_000;

type Hash = [u8; 32];

/// Identities by the hash of their token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens(HashMap<Hash, Identity>);

/// Why a file of tokens is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokensError {
    /// A malformed line. The first line is 1.
    #[error("line {line}: {EXPECTED}")]
    Line { line: usize },
    #[error("line {line}: {error}")]
    Identity { line: usize, error: IdentityError },
    /// The same token as on line `first`.
    #[error("line {line}: the same token as on line {first}; remove one")]
    Twice { line: usize, first: usize },
    #[error("more than the maximum of {MAX_TOKENS} tokens; use JWTs instead (--jwks)")]
    TooMany,
}

impl Tokens {
    /// Parses a file. Empty lines and lines that begin with `#` are ignored.
    pub(super) fn parse(text: &str) -> Result<Tokens, TokensError> {
        let (mut tokens, mut lines) = (HashMap::new(), HashMap::new());
        for (at, line) in text.lines().enumerate() {
            let (number, line) = (at + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.rsplit_once(char::is_whitespace).ok_or(TokensError::Line { line: number })?;
            let hash = hash.strip_prefix("sha256:").and_then(from_hex).ok_or(TokensError::Line { line: number })?;
            let identity = Identity::named(name.trim_end());
            let identity = identity.map_err(|error| TokensError::Identity { line: number, error })?;
            if let Some(first) = lines.insert(hash, number) {
                return Err(TokensError::Twice { line: number, first });
            }
            tokens.insert(hash, identity);
            if tokens.len() > MAX_TOKENS {
                return Err(TokensError::TooMany);
            }
        }
        Ok(Tokens(tokens))
    }

    pub(super) fn holder(&self, token: &[u8]) -> Option<&Identity> {
        self.0.get(&hash(token))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn hash(token: &[u8]) -> Hash {
    digest(&SHA256, token).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

/// A new token. It is not stored.
pub struct NewToken {
    identity: Identity,
    token: String,
}

impl NewToken {
    pub fn make(identity: &str) -> Result<NewToken, TokenError> {
        let identity = Identity::named(identity)?;
        let mut chance = [0; BYTES];
        getrandom::fill(&mut chance).map_err(|error| TokenError::Chance(error.to_string()))?;
        Ok(NewToken { identity, token: format!("{PREFIX}{}", hex(&chance)) })
    }

    /// The token, which the client sends.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl fmt::Display for NewToken {
    /// The line for the server's file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sha256:{}", self.identity, hex(&hash(self.token.as_bytes())))
    }
}

/// Why no token could be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system has no randomness.
    #[error("cannot read random bytes from the system: {0}")]
    Chance(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_matches_its_line() {
        let [web, db] = ["spiffe://acme/web/1", "a name with spaces"].map(|name| NewToken::make(name).expect("a name"));
        let tokens = Tokens::parse(&format!("# comment\n\n{web}\r\n  {db}\n")).expect("two lines");
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens.holder(web.token().as_bytes()).map(Identity::text), Some("spiffe://acme/web/1"));
        assert_eq!(tokens.holder(db.token().as_bytes()).map(Identity::text), Some("a name with spaces"));
        assert_eq!(tokens.holder(b"lwt_other"), None);
        assert!(web.token().len() > 40 && web.token().starts_with("lwt_") && !web.to_string().contains(web.token()));
    }

    #[test]
    fn errors_name_the_invalid_line() {
        let line = NewToken::make("web").expect("a name").to_string();
        let hex = line.split_once(' ').expect("two words").1;
        for (text, error) in [
            ("web".to_owned(), TokensError::Line { line: 1 }),
            ("\nweb sha256:12".to_owned(), TokensError::Line { line: 2 }),
            (format!("web {}", hex.replace("sha256", "sha1")), TokensError::Line { line: 1 }),
            (format!("web {}é", &hex[..hex.len() - 2]), TokensError::Line { line: 1 }),
            (format!("operator {hex}"), TokensError::Identity { line: 1, error: IdentityError::Reserved }),
            (format!("{line}\n{line}"), TokensError::Twice { line: 2, first: 1 }),
        ] {
            assert_eq!(Tokens::parse(&text), Err(error), "{text}");
        }
    }
}
