use std::fs;

use super::authority::{Authority, FUTURE, NOW, PAST, load, write};
use crate::{ClientCertificates, ClientTls, Credentials, Files, Protocol, ServerTls, TlsError, describe};

#[test]
fn unusable_files_are_refused_with_the_reason() {
    let authority = Authority::new();
    let (files, other) = (authority.issue("a", &["a.test"], NOW), authority.issue("b", &["b.test"], NOW));
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    let pem = fs::read_to_string(authority.path("a.pem")).expect("it was issued");
    let with_certificate = |name: &str, text: &str| {
        write(&authority.path(name), text);
        Files { certificate: Some(authority.path(name)), ..files.clone() }
    };
    let cases: [(Files, &[&str]); 11] = [
        (Files { key: None, ..files.clone() }, &["--tls-cert needs --tls-key"]),
        (Files { certificate: None, ..files.clone() }, &["--tls-key needs --tls-cert"]),
        (Files { ca: Some(authority.path("nothing")), ..files.clone() }, &["cannot read", "nothing"]),
        (Files { certificate: key.clone(), ..files.clone() }, &["a.key", "BEGIN CERTIFICATE"]),
        (Files { key: certificate, ..files.clone() }, &["a.pem", "BEGIN PRIVATE KEY"]),
        (Files { ca: key, ..files.clone() }, &["a.key", "CA certificate"]),
        (with_certificate("half.pem", &pem[..pem.len() / 2]), &["half.pem"]),
        (with_certificate("no_der.pem", NO_DER), &["no_der.pem", "cannot be used"]),
        (Files { key: other.key, ..files.clone() }, &["b.key", "does not belong to the certificate in", "a.pem"]),
        (authority.issue("past", &["a.test"], PAST), &["has expired", "2002-01-01T00:00:00Z"]),
        (authority.issue("future", &["a.test"], FUTURE), &["not valid before 2100-01-01T00:00:00Z"]),
    ];
    for (files, parts) in cases {
        let error = Credentials::load(files).expect_err("a file is unusable").to_string();
        for part in parts {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
}

/// PEM whose content is no certificate.
const NO_DER: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

#[test]
fn a_server_needs_a_certificate_and_a_ca_for_client_certificates() {
    let authority = Authority::new();
    let serve = |files| ServerTls::new(&load(files), ClientCertificates::Required, Protocol::Http2);
    assert_eq!(serve(authority.trust()).expect_err("no certificate"), TlsError::NoCertificate);
    let files = authority.issue("a", &["a.test"], NOW);
    assert_eq!(serve(Files { ca: None, ..files }).expect_err("no CA"), TlsError::NoCa);
}

#[test]
fn an_invalid_server_name_is_refused() {
    let authority = Authority::new();
    let error = ClientTls::new(&load(authority.trust()), Some("no name")).expect_err("no name");
    assert_eq!(error, TlsError::ServerName("no name".into()));
}

#[test]
fn a_description_has_all_names_and_the_validity() {
    let authority = Authority::new();
    let names = ["a.test", "*.b.test", "10.0.0.1", "::1", "spiffe://acme/web/1"];
    let files = authority.issue("web-1", &names, NOW);
    let loaded = load(files);
    let current = loaded.current();
    let own = current.own.as_ref().expect("it has one");
    let description = describe(&own.certified.cert[0]).expect("a certificate");
    assert_eq!(description.dns, ["a.test", "*.b.test"]);
    assert_eq!(description.uris, ["spiffe://acme/web/1"]);
    let addresses: Vec<_> = description.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "::1"]);
    assert_eq!(description.common_name.as_deref(), Some("web-1"));
    assert_eq!(description.issuer.as_deref(), Some(authority.name()));
    assert_eq!(Some(description.until), loaded.expires());
}
