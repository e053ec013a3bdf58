//! Errors of certificate files and of handshakes, with the cause, the side it is on, and the remedy.

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
    #[error("`{0}` is not a valid server name: expected a host name or an IP address")]
    ServerName(String),
    #[error("{0}")]
    Handshake(String),
    #[error("no TLS handshake with {with} within {} s: is that a port of another service?", deadline.as_secs())]
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
                "{host} closed the connection during the TLS handshake, probably because it does not speak TLS: use \
                 http:// without TLS, or another port"
            ),
            _ => format!("the TLS handshake with {host} broke off: {error}"),
        };
    };
    match tls {
        Error::InvalidCertificate(why) => of_server(host, why),
        Error::InvalidMessage(_) => {
            format!("{host} does not speak TLS on this port: use http:// without TLS, or another port")
        }
        Error::AlertReceived(alert) => alerted_by_server(host, *alert),
        Error::PeerIncompatible(why) => incompatible(host, why),
        _ => format!("the TLS handshake with {host} has failed: {tls}"),
    }
}

fn of_server(host: &str, why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {host} was not issued by a CA that is trusted here: name the file with its CA \
             (--tls-ca)"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the certificate of {host} is for other names ({}): ask under one of them, or say which is expected \
             (--tls-server-name)",
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
    if presented.is_empty() {
        "it has none".to_owned()
    } else {
        presented.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// Explains an alert of a server, which is usually about this client's certificate.
fn alerted_by_server(host: &str, alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            format!("{host} asks for a certificate, and this client has none: give it one (--tls-cert and --tls-key)")
        }
        // TLS 1.2 has no alert for a missing certificate.
        AlertDescription::HandshakeFailure => format!(
            "{host} has refused the TLS handshake: it asks for a certificate (--tls-cert and --tls-key), or has no \
             version or cipher in common"
        ),
        // `DecryptError` if the server trusts another CA of the same name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!("{host} does not trust the CA that has issued this client's certificate")
        }
        AlertDescription::CertificateExpired => {
            format!("{host} says that this client's certificate has expired, or is not valid yet")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => format!("{host} does not accept this client's certificate ({alert:?})"),
        AlertDescription::NoApplicationProtocol => {
            format!("{host} speaks TLS, but not HTTP/2: this looks like the --http port")
        }
        AlertDescription::UnrecognisedName => format!("{host} does not know itself by this name (--tls-server-name)"),
        AlertDescription::ProtocolVersion => format!("{host} speaks neither TLS 1.2 nor 1.3"),
        alert => format!("{host} has refused the TLS handshake ({alert:?})"),
    }
}

/// Why a server has refused a client.
pub(crate) fn explain_to_server(error: &io::Error) -> String {
    let Some(tls) = tls_error(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "it has hung up during the TLS handshake".to_owned()
            }
            _ => format!("the TLS handshake broke off: {error}"),
        };
    };
    match tls {
        Error::NoCertificatesPresented => "it has shown no certificate, and has to (--tls-client-auth)".to_owned(),
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate was not issued by the CA of --tls-ca".to_owned()
        }
        Error::InvalidCertificate(why) => format!("its certificate {}", flaw(why)),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "it does not speak TLS".to_owned(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "it does not trust the CA of this server's certificate".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "it says that this server's certificate has expired, or is not valid yet".to_owned()
        }
        // rustls sends it for the wrong name, Go for all three.
        Error::AlertReceived(AlertDescription::BadCertificate) => {
            "it does not accept this server's certificate: it is for another name than it has asked for, of a CA that \
             it does not trust, or not valid now"
                .to_owned()
        }
        Error::AlertReceived(alert) => format!("it does not accept this server's certificate ({alert:?})"),
        Error::NoApplicationProtocol => "it speaks another protocol than HTTP/2".to_owned(),
        Error::PeerIncompatible(why) => incompatible("it", why),
        _ => format!("the TLS handshake has failed: {tls}"),
    }
}

fn incompatible(who: &str, why: &PeerIncompatible) -> String {
    format!("{who} has no version of TLS or no cipher in common with this side ({why:?}): 1.2 and 1.3 are spoken here")
}

/// What is wrong with a certificate: the end of a sentence.
fn flaw(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("has expired: it was valid until {}", moment(*not_after))
        }
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}: is the clock right?", moment(*not_before))
        }
        CertificateError::NotValidYet => "is not valid yet: is the clock right?".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose: its extended key usage lacks client or server authentication".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "is of an unknown CA".to_owned(),
        why => format!("cannot be used: {why:?}"),
    }
}

fn moment(time: UnixTime) -> String {
    certificate::moment(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}
