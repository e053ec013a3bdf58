//! Identities of callers.

use std::{fmt, sync::Arc};

/// Maximum length of a name in bytes.
const MAX_BYTES: usize = 512;

/// The authenticated identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// Not authenticated.
    Anonymous,
    /// The holder of the server's own admin token. It may read, configure, manage pools and peers, and override even if
    /// no rule allows it. Otherwise a policy that locks every identity out could not be repaired.
    Operator,
    /// The name in a certificate or a token.
    Named(Arc<str>),
}

/// Why a name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("an identity must not be empty")]
    Empty,
    #[error("an identity must have at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("an identity must not contain control or invisible characters")]
    Unseen,
    #[error(
        "`anonymous` (a caller without an identity) and `operator` (the holder of the server's admin token) are \
         reserved; choose another name"
    )]
    Reserved,
}

impl Identity {
    pub fn named(name: &str) -> Result<Identity, IdentityError> {
        match name {
            "" => Err(IdentityError::Empty),
            _ if name.len() > MAX_BYTES => Err(IdentityError::TooLong),
            _ if crate::types::escaped(name) != name => Err(IdentityError::Unseen),
            "anonymous" | "operator" => Err(IdentityError::Reserved),
            _ => Ok(Identity::Named(name.into())),
        }
    }

    /// As [`named`](Self::named), but accepts the reserved names `anonymous` and `operator`, too.
    pub fn parse(text: &str) -> Result<Identity, IdentityError> {
        match text {
            "anonymous" => Ok(Identity::Anonymous),
            "operator" => Ok(Identity::Operator),
            _ => Identity::named(text),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Identity::Anonymous => "anonymous",
            Identity::Operator => "operator",
            Identity::Named(name) => name,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
