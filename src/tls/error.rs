//! Errors of certificate files and handshakes. They name the cause, the side that has to change, and the remedy.

use std::{
    io,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use tokio_rustls::rustls::{
    AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, pki_types::UnixTime,
};

use crate::certificate;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("{given} needs {missing}: pass the files of both a certificate and its key")]
    HalfASet { given: &'static str, missing: &'static str },
    #[error("a server needs a certificate for TLS: pass --tls-cert and --tls-key")]
    NoCertificate,
    #[error("client certificates cannot be verified without a CA: pass the clients' CA file with --tls-ca")]
    NoCa,
    #[error("cannot read {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("{} contains no {expected} in PEM: expected a block that begins with -----BEGIN {begin}-----{}", file.display(), explained(why))]
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
    #[error("the certificate in {} is not valid before {from}: check the clock", file.display())]
    NotYetValid { file: PathBuf, from: String },
    #[error("the system has no CA certificates ({0}): pass the server's CA file with --tls-ca")]
    NoSystemRoots(String),
    #[error("`{0}` is not a valid server name: expected a host name or an IP address")]
    ServerName(String),
    #[error("{0}")]
    Handshake(String),
    #[error("the TLS handshake with {with} timed out after {} s: check that the port is that of a Leaseway server", deadline.as_secs())]
    Late { with: String, deadline: Duration },
}

fn explained(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}

/// The TLS error inside an I/O error, if there is one.
pub(crate) fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Why a client has no connection to `host`.
pub(crate) fn explain_to_client(host: &str, error: &io::Error) -> String {
    let Some(tls) = tls_error(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => format!(
                "{host} closed the connection during the TLS handshake, probably because it does not speak TLS: write \
                 http:// to connect without TLS, or use another port"
            ),
            _ => format!("the TLS handshake with {host} broke off: {error}"),
        };
    };
    match tls {
        Error::InvalidCertificate(why) => of_server(host, why),
        Error::InvalidMessage(_) => {
            format!("{host} does not speak TLS on this port: write http:// to connect without TLS, or use another port")
        }
        Error::AlertReceived(alert) => alerted_by_server(host, *alert),
        Error::PeerIncompatible(why) => incompatible(host, why),
        _ => format!("the TLS handshake with {host} has failed: {tls}"),
    }
}

fn of_server(host: &str, why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {host} was not issued by a CA that is trusted here: pass the file of its CA with \
             --tls-ca"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the certificate of {host} is for other names ({}): connect to one of them, or pass the expected name \
             with --tls-server-name",
            presented_names(presented)
        ),
        CertificateError::NotValidForName => format!("the certificate of {host} is for other names"),
        why => format!("the certificate of {host} {}", flaw(why)),
    }
}

/// As rustls prints them: `DnsName("a.test")`.
fn presented_names(presented: &[String]) -> String {
    let name = |presented: &String| match presented.split_once('(') {
        Some((_, name)) => name.trim_end_matches(')').trim_matches('"').to_owned(),
        None => presented.clone(),
    };
    if presented.is_empty() { "none".to_owned() } else { presented.iter().map(name).collect::<Vec<_>>().join(", ") }
}

/// Explains an alert from a server. Most alerts concern this client's certificate.
fn alerted_by_server(host: &str, alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            format!("{host} requires a client certificate: pass --tls-cert and --tls-key")
        }
        // TLS 1.2 has no alert for a missing certificate.
        AlertDescription::HandshakeFailure => format!(
            "{host} refused the TLS handshake: it requires a client certificate (--tls-cert and --tls-key), or shares \
             no TLS version or cipher with this client"
        ),
        // `DecryptError` if the server trusts another CA of the same name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!(
                "{host} does not trust the CA of this client's certificate: use a certificate of the CA in the \
                 server's --tls-ca"
            )
        }
        AlertDescription::CertificateExpired => {
            format!(
                "{host} rejected this client's certificate: it has expired or is not valid yet; renew it, or check the clocks"
            )
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => format!("{host} rejected this client's certificate ({alert:?})"),
        AlertDescription::NoApplicationProtocol => {
            format!("{host} speaks TLS, but not HTTP/2: this looks like the --http port")
        }
        AlertDescription::UnrecognisedName => format!("{host} does not serve this name: check --tls-server-name"),
        AlertDescription::ProtocolVersion => format!("{host} supports neither TLS 1.2 nor TLS 1.3"),
        alert => format!("{host} refused the TLS handshake ({alert:?})"),
    }
}

/// Why the handshake with a client has failed, on the side of the server. "It" is the client.
pub(crate) fn explain_to_server(error: &io::Error) -> String {
    let Some(tls) = tls_error(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "the client closed the connection during the TLS handshake".to_owned()
            }
            _ => format!("the TLS handshake broke off: {error}"),
        };
    };
    match tls {
        Error::NoCertificatesPresented => "the client presented no certificate, which --tls-client-auth requires".to_owned(),
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the client's certificate was not issued by the CA of --tls-ca".to_owned()
        }
        Error::InvalidCertificate(why) => format!("the client's certificate {}", flaw(why)),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "the client does not speak TLS".to_owned(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the client does not trust the CA of this server's certificate".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the client rejected this server's certificate: it has expired or is not valid yet".to_owned()
        }
        // rustls sends it for the wrong name, Go for all three.
        Error::AlertReceived(AlertDescription::BadCertificate) => {
            "the client rejected this server's certificate: the certificate is for another name, of an untrusted CA, or \
             not valid now"
                .to_owned()
        }
        Error::AlertReceived(alert) => format!("the client rejected this server's certificate ({alert:?})"),
        Error::NoApplicationProtocol => "the client does not speak HTTP/2".to_owned(),
        Error::PeerIncompatible(why) => incompatible("the client", why),
        _ => format!("the TLS handshake has failed: {tls}"),
    }
}

fn incompatible(who: &str, why: &PeerIncompatible) -> String {
    format!("{who} shares no TLS version or cipher with this side ({why:?}), which supports TLS 1.2 and 1.3")
}

/// What is wrong with a certificate, as the predicate of a sentence.
fn flaw(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("has expired: it was valid until {}", moment(*not_after))
        }
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}: check the clock", moment(*not_before))
        }
        CertificateError::NotValidYet => "is not valid yet: check the clock".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose: its extended key usage lacks client or server authentication".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "was issued by an unknown CA".to_owned(),
        why => format!("cannot be used: {why:?}"),
    }
}

fn moment(time: UnixTime) -> String {
    certificate::moment(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}
