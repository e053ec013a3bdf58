//! Who calls, as far as that is proved.

use std::{fmt, sync::Arc};

/// The most bytes of a name.
const MAX_BYTES: usize = 512;

/// Who calls, as far as that is proved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// Nothing is proved.
    Anonymous,
    /// The holder of the server's own admin token. It may read, configure, manage pools and peers, and override,
    /// also where no rule lets it: a policy by which no identity may change it could not be mended otherwise.
    Operator,
    /// The name in a certificate or a token.
    Named(Arc<str>),
}

/// Why a text is no name of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("an identity is not empty")]
    Empty,
    #[error("an identity has at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("an identity has no control or invisible characters")]
    Unseen,
    #[error(
        "`anonymous` and `operator` are no names: rules mean callers without one by it, and the holder of the server's \
         admin token"
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

    /// As [`named`](Self::named), but also those that no caller can claim by name.
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
