//! Errors of certificate files and of handshakes.

use std::{path::PathBuf, time::Duration};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("{given} is given without {missing}: a certificate and its key belong together")]
    HalfASet { given: &'static str, missing: &'static str },
    #[error("a server has no TLS without a certificate: give it --tls-cert and --tls-key")]
    NoCertificate,
    #[error("without --tls-ca no client's certificate can be checked: name the file with the CA of the clients")]
    NoCa,
    #[error("cannot read {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("{} holds no {expected} in PEM: expected a block that begins with -----BEGIN {begin}-----{}", file.display(), explained(why))]
    NotPem {
        file: PathBuf,
        expected: &'static str,
        begin: &'static str,
        /// The parse error; empty if the file has no such block.
        why: String,
    },
    /// A certificate or key is malformed or of an unsupported kind.
    #[error("{} cannot be used: {why}", file.display())]
    Unusable { file: PathBuf, why: String },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch { certificate: PathBuf, key: PathBuf },
    #[error("the certificate in {} has expired: it was valid until {until}", file.display())]
    Expired { file: PathBuf, until: String },
    #[error("the certificate in {} is not valid before {from}: is the clock right?", file.display())]
    NotYetValid { file: PathBuf, from: String },
    #[error("the system has no CA certificates ({0}): name the file with the CA of the server with --tls-ca")]
    NoSystemRoots(String),
    #[error("`{0}` is no name that a certificate could be for: expected a host's name or an IP address")]
    ServerName(String),
    #[error("{0}")]
    Handshake(String),
    #[error("no TLS handshake with {with} within {} s: is that a port of another service?", deadline.as_secs())]
    Late { with: String, deadline: Duration },
}

fn explained(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}
