//! The names that a certificate proves.

use std::{net::IpAddr, time::SystemTime};

use tokio_rustls::rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};

use crate::certificate::{self, MalformedCertificate};

/// The names in a verified certificate: SPIFFE ids, then DNS names, then the common name. The first one is the identity
/// of the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    all: Vec<String>,
    until: SystemTime,
    certificate: CertificateDer<'static>,
}

impl Names {
    /// The certificate has to be verified.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Names, MalformedCertificate> {
        let description = certificate::describe(certificate)?;
        let until = description.until;
        let spiffe = description.uris.into_iter().filter(|uri| uri.starts_with("spiffe://"));
        // A wildcard is a set of names, so it identifies nobody.
        let dns = description.dns.into_iter().filter(|name| !name.contains('*'));
        let all = spiffe.chain(dns).chain(description.common_name);
        // Names are printed to logs and terminals.
        let all = all.filter(|name| !name.is_empty() && !name.contains(char::is_control)).collect();
        Ok(Names { all, until, certificate: certificate.clone().into_owned() })
    }

    /// `None` if the certificate has no usable name.
    pub fn identity(&self) -> Option<&str> {
        self.all.first().map(String::as_str)
    }

    /// The expiry of the certificate.
    pub fn until(&self) -> SystemTime {
        self.until
    }

    /// All names, the identity first.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Whether the certificate is valid for a server at this host: a name, or an IP address with or without brackets.
    pub fn is_valid_for(&self, host: &str) -> bool {
        let Some(name) = server_name(host) else { return false };
        let parsed = ParsedCertificate::try_from(&self.certificate);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }
}

/// The name for which the certificate of a host must be valid.
pub(crate) fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(ServerName::from(address)),
        Err(_) => ServerName::try_from(bare.to_owned()).ok(),
    }
}
