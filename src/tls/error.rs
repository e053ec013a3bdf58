//! What is wrong with files, and what has become of a handshake.

use std::{path::PathBuf, time::Duration};

/// TLS cannot be used, or a connection was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A certificate is of no use without its key, nor the key without it.
    #[error("{given} is given without {missing}: a certificate and its key belong together")]
    HalfASet {
        /// The flag that was given.
        given: &'static str,
        /// The one that was not.
        missing: &'static str,
    },
    /// A server that checks certificates shows one itself.
    #[error("a server has no TLS without a certificate: give it --tls-cert and --tls-key")]
    NoCertificate,
    /// There is nothing that clients' certificates could be checked with.
    #[error("without --tls-ca no client's certificate can be checked: name the file with the CA of the clients")]
    NoCa,
    /// A file cannot be read.
    #[error("cannot read {}: {why}", file.display())]
    Unreadable {
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file holds something else.
    #[error("{} holds no {expected} in PEM: expected a block that begins with -----BEGIN {begin}-----{}", file.display(), explained(why))]
    NotPem {
        file: PathBuf,
        /// What it is to hold.
        expected: &'static str,
        begin: &'static str,
        /// What the reader stumbled over, if that says more.
        why: String,
    },
    /// A certificate or key that is none, or of a kind that is not supported.
    #[error("{} cannot be used: {why}", file.display())]
    Unusable { file: PathBuf, why: String },
    /// The key belongs to another certificate.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// The certificate is not valid any more.
    #[error("the certificate in {} has expired: it was valid until {until}", file.display())]
    Expired {
        file: PathBuf,
        /// When it ended.
        until: String,
    },
    /// The certificate is not valid yet.
    #[error("the certificate in {} is not valid before {from}: is the clock right?", file.display())]
    NotYetValid {
        file: PathBuf,
        /// When it begins.
        from: String,
    },
    /// The system has no CAs.
    #[error("the system has no CA certificates ({0}): name the file with the CA of the server with --tls-ca")]
    NoSystemRoots(String),
    /// No certificate can be for such a name.
    #[error("`{0}` is no name that a certificate could be for: expected a host's name or an IP address")]
    ServerName(String),
    /// The handshake has failed.
    #[error("{0}")]
    Handshake(String),
    /// It took too long.
    #[error("no TLS handshake with {with} within {} s: is that a port of another service?", deadline.as_secs())]
    Late {
        with: String,
        /// How long was waited.
        deadline: Duration,
    },
}

fn explained(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}
