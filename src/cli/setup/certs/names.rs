//! Names in certificates, as given on the command line.

use std::net::IpAddr;

use rcgen::SanType;

use super::files::CA;

/// The X.509 limit for a common name.
const LONGEST_COMMON_NAME: usize = 64;

/// The DNS limit for a name.
const LONGEST_HOST: usize = 253;

/// The maximum length of a URI. Access policies cannot use longer ones, because ids have at most 256 bytes.
const LONGEST_URI: usize = 255;

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubjectName {
    Dns(String),
    Address(IpAddr),
    Uri(String),
}

impl SubjectName {
    /// A host name or an address.
    pub(super) fn host(text: &str) -> Result<SubjectName, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(SubjectName::Address(address));
        }
        let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        // A certificate may cover all names of a zone.
        let name = text.strip_prefix("*.").unwrap_or(text);
        match name.chars().find(|c| odd(*c)) {
            Some(':') => Err("expected a host without scheme and port".to_owned()),
            Some(c) => Err(format!("{c:?} cannot be part of a host: expected a name like a.internal, or an address")),
            None if name.is_empty() || name.len() > LONGEST_HOST => {
                Err(format!("a host's name has 1 to {LONGEST_HOST} bytes"))
            }
            None => Ok(SubjectName::Dns(text.to_ascii_lowercase())),
        }
    }

    /// A SPIFFE id; no other URI is an identity.
    pub(super) fn uri(text: &str) -> Result<SubjectName, String> {
        let expected = || "expected a URI like spiffe://acme/web/1".to_owned();
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.strip_prefix("spiffe://").is_none_or(str::is_empty) || !plain {
            return Err(expected());
        }
        if text.len() > LONGEST_URI {
            return Err(format!("a URI in a certificate has at most {LONGEST_URI} bytes"));
        }
        Ok(SubjectName::Uri(text.to_owned()))
    }

    pub(super) fn is_host(&self) -> bool {
        matches!(self, SubjectName::Dns(_) | SubjectName::Address(_))
    }

    /// The holder's identity: the first URI, else the first DNS name without a wildcard. An address is not an identity.
    pub(super) fn first_identity(names: &[SubjectName]) -> Option<&str> {
        let uris = names.iter().filter_map(|name| if let SubjectName::Uri(uri) = name { Some(uri) } else { None });
        let dns = names.iter().filter_map(|name| if let SubjectName::Dns(name) = name { Some(name) } else { None });
        uris.chain(dns.filter(|name| !name.starts_with('*'))).map(String::as_str).next()
    }

    pub(super) fn general_name(&self) -> Result<SanType, rcgen::Error> {
        Ok(match self {
            SubjectName::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            SubjectName::Address(address) => SanType::IpAddress(*address),
            SubjectName::Uri(uri) => SanType::URI(uri.as_str().try_into()?),
        })
    }
}

impl std::fmt::Display for SubjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SubjectName::Dns(name) | SubjectName::Uri(name) => f.write_str(name),
            SubjectName::Address(address) => address.fmt(f),
        }
    }
}

/// Checks a holder's name, which is also that of its files.
pub(super) fn file_name(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > LONGEST_COMMON_NAME || text.starts_with('.') || !text.chars().all(fine) {
        return Err(format!(
            "expected at most {LONGEST_COMMON_NAME} letters, digits, `-`, `_` and `.`, not beginning with `.`, because \
             files get this name; use --host and --uri for other names"
        ));
    }
    if text == CA {
        return Err("this name is reserved for the files of the CA: choose another name".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn common_name(text: &str) -> Result<String, String> {
    let fine = !text.trim().is_empty() && text.len() <= LONGEST_COMMON_NAME;
    if !fine || text.chars().any(char::is_control) {
        return Err(format!("expected 1 to {LONGEST_COMMON_NAME} bytes of visible characters"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_without_a_port() {
        let dns = |name: &str| Ok(SubjectName::Dns(name.to_owned()));
        assert_eq!(SubjectName::host("A.internal"), dns("a.internal"));
        assert_eq!(SubjectName::host("*.internal"), dns("*.internal"));
        for (text, address) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("[fe80::1]", "fe80::1")] {
            let address = address.parse().expect("an address");
            assert_eq!(SubjectName::host(text), Ok(SubjectName::Address(address)));
        }
        for (text, says) in [
            ("a:5100", "without scheme and port"),
            ("https://a", "without scheme and port"),
            ("", "1 to 253"),
            ("*.", "1 to 253"),
            ("a b", "' ' cannot be"),
            ("a.*.b", "'*' cannot be"),
            ("a\nb", "cannot be part of a host"),
        ] {
            assert!(
                SubjectName::host(text).is_err_and(|why| why.contains(says)),
                "{text}: {:?}",
                SubjectName::host(text)
            );
        }
    }

    #[test]
    fn a_uri_is_preferred_as_identity_and_an_address_is_never_one() {
        let host = |text: &str| SubjectName::host(text).expect("a host");
        let uri = SubjectName::uri("spiffe://acme/web/1").expect("a URI");
        assert_eq!(SubjectName::first_identity(&[host("127.0.0.1")]), None);
        assert_eq!(SubjectName::first_identity(&[host("127.0.0.1"), host("a")]), Some("a"));
        assert_eq!(SubjectName::first_identity(&[host("a"), uri]), Some("spiffe://acme/web/1"));
        for wrong in ["acme", "https://x", "spiffe://", "spiffe://a b", "spiffe://\u{e4}"] {
            assert!(SubjectName::uri(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        for wrong in ["", "a/b", "..", ".a", "a b", "ca", "\u{e4}"] {
            assert!(file_name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(file_name("web-1.acme_x"), Ok("web-1.acme_x".to_owned()));
    }
}
