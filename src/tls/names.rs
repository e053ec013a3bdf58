//! What a certificate proves about its holder.

use std::{net::IpAddr, time::SystemTime};

use tokio_rustls::rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};

use crate::certificate::{self, MalformedCertificate};

/// The names in a certificate that a handshake has verified: SPIFFE ids, then DNS names, then the common name. The
/// first is the identity of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    all: Vec<String>,
    until: SystemTime,
    certificate: CertificateDer<'static>,
}

impl Names {
    /// Reads a certificate, which must have been verified.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Names, MalformedCertificate> {
        let description = certificate::describe(certificate)?;
        let until = description.until;
        let spiffe = description.uris.into_iter().filter(|uri| uri.starts_with("spiffe://"));
        // A wildcard is a set of names, and no name.
        let dns = description.dns.into_iter().filter(|name| !name.contains('*'));
        let all = spiffe.chain(dns).chain(description.common_name);
        // They get into logs and terminals.
        let all = all.filter(|name| !name.is_empty() && !name.contains(char::is_control)).collect();
        Ok(Names { all, until, certificate: certificate.clone().into_owned() })
    }

    /// What the holder is called; none if the certificate has no name that could be used.
    pub fn identity(&self) -> Option<&str> {
        self.all.first().map(String::as_str)
    }

    /// When the certificate ends.
    pub fn until(&self) -> SystemTime {
        self.until
    }

    /// All names, the identity first.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Whether the certificate would also do for a server at this host: a name, or an IP address, which may be in
    /// brackets.
    pub fn is_valid_for(&self, host: &str) -> bool {
        let Some(name) = server_name(host) else { return false };
        let parsed = ParsedCertificate::try_from(&self.certificate);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }
}

/// The name that the certificate of a host has to have.
pub(crate) fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(ServerName::from(address)),
        Err(_) => ServerName::try_from(bare.to_owned()).ok(),
    }
}
