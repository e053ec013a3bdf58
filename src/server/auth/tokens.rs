//! `--tokens FILE`: who holds which token, by the token's hash.
//!
//! A token is 32 bytes of chance, so that one hash of it says nothing about it and needs no salt. It is looked up by
//! its hash: how long that takes says nothing about the tokens that there are.

use std::{collections::HashMap, fmt};

use leaseway_core::access::{Identity, IdentityError};
use ring::digest::{SHA256, digest};

/// What a line of the file says.
const EXPECTED: &str = "expected `IDENTITY sha256:HEX`, as `leaseway token new IDENTITY` prints it";
/// The bytes of a token.
const BYTES: usize = 32;
/// So that a token is recognised for what it is where it should not be.
const PREFIX: &str = "lwt_";
/// More are more than a file is for: JWTs need no line each.
const MAX_TOKENS: usize = 100_000;

type Hash = [u8; 32];

/// Who holds which token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens(HashMap<Hash, Identity>);

/// Why a file of tokens cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokensError {
    /// A line that says nothing.
    #[error("line {line}: {EXPECTED}")]
    Line {
        /// The first is 1.
        line: usize,
    },
    /// A name that no caller can have.
    #[error("line {line}: {error}")]
    Identity {
        /// The first is 1.
        line: usize,
        error: IdentityError,
    },
    /// One token cannot prove two names.
    #[error("line {line}: the same token as on line {first}")]
    Twice {
        /// The first is 1.
        line: usize,
        /// Where it was before.
        first: usize,
    },
    #[error("more than {MAX_TOKENS} tokens")]
    TooMany,
}

impl Tokens {
    /// Reads the lines of a file; empty lines and those that begin with `#` say nothing.
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

/// A token that was just made. It is stored nowhere.
pub struct NewToken {
    identity: Identity,
    token: String,
}

impl NewToken {
    /// Makes one for an identity.
    pub fn make(identity: &str) -> Result<NewToken, CannotMake> {
        let identity = Identity::named(identity)?;
        let mut chance = [0; BYTES];
        getrandom::fill(&mut chance).map_err(|error| CannotMake::Chance(error.to_string()))?;
        Ok(NewToken { identity, token: format!("{PREFIX}{}", hex(&chance)) })
    }

    /// What its holder sends.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl fmt::Display for NewToken {
    /// Its line in the server's file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sha256:{}", self.identity, hex(&hash(self.token.as_bytes())))
    }
}

/// Why no token could be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotMake {
    /// For no such identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system has no randomness.
    #[error("the system gives no random bytes: {0}")]
    Chance(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_found_by_its_line() {
        let [web, db] = ["spiffe://acme/web/1", "a name with spaces"].map(|name| NewToken::make(name).expect("a name"));
        let tokens = Tokens::parse(&format!("# those that are\n\n{web}\r\n  {db}\n")).expect("two lines");
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens.holder(web.token().as_bytes()).map(Identity::text), Some("spiffe://acme/web/1"));
        assert_eq!(tokens.holder(db.token().as_bytes()).map(Identity::text), Some("a name with spaces"));
        assert_eq!(tokens.holder(b"lwt_other"), None);
        assert!(web.token().len() > 40 && web.token().starts_with("lwt_") && !web.to_string().contains(web.token()));
    }

    #[test]
    fn bad_lines_are_named() {
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
