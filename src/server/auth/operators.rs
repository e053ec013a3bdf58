//! The token of `--admin-token-file`.

use subtle::ConstantTimeEq as _;

/// The token whose holder is the operator of this server.
#[derive(Clone)]
pub(crate) struct OperatorToken(Vec<u8>);

impl OperatorToken {
    pub(crate) fn new(token: &str) -> OperatorToken {
        OperatorToken(token.as_bytes().to_vec())
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, sent: &[u8]) -> bool {
        sent.ct_eq(&self.0).into()
    }
}
