//! Why a node cannot have a parent.

use leaseway_client::transport::BadToken;
use leaseway_tls::TlsError;

/// Why a node cannot have this parent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParentError {
    /// Each peer would be another child.
    #[error(
        "--parent with --peers needs --node NAME: what this node is called at its parent, the same for all its peers"
    )]
    NoName,
    /// It would lend to itself.
    #[error("--parent names {address}, which is this server: a node cannot be its own parent")]
    Itself {
        /// As it was given.
        address: String,
    },
    /// It is no address.
    #[error("--parent names `{address}`: expected HOST:PORT, like 10.0.0.1:5100, or https://HOST:PORT")]
    Address {
        /// As it was given.
        address: String,
    },
    /// Whichever peer answers names the others without a scheme.
    #[error("--parent names some peers with https:// and others without TLS: all of them speak TLS, or none")]
    Mixed,
    /// It could be read on the way.
    #[error(
        "the token of --parent-token-file would cross the network to {address} without TLS, where all that is between \
         could read it: write https://{address}, or give --tls-ca"
    )]
    TokenInTheClear { address: String },
    #[error("--parent-token-file: {0}")]
    Token(#[from] BadToken),
    /// Its certificate cannot be checked.
    #[error("--parent: {0}")]
    Tls(#[from] TlsError),
}
