use std::fs;

use super::authority::{Authority, FUTURE, NOW, PAST, load, write};
use crate::{ClientCertificates, ClientTls, Credentials, Files, Protocol, ServerTls, TlsError, describe};

fn refused(files: Files) -> TlsError {
    Credentials::load(files).expect_err("something is wrong")
}

#[test]
fn a_certificate_and_its_key_are_required_together() {
    let authority = Authority::new();
    let files = authority.issue("a", &["a.test"], NOW);
    let error = refused(Files { key: None, ..files.clone() });
    assert_eq!(error, TlsError::HalfASet { given: "--tls-cert", missing: "--tls-key" });
    let error = refused(Files { certificate: None, ..files });
    assert_eq!(error, TlsError::HalfASet { given: "--tls-key", missing: "--tls-cert" });
}

#[test]
fn a_missing_or_wrong_file_is_named_with_the_expected_content() {
    let authority = Authority::new();
    let files = authority.issue("a", &["a.test"], NOW);
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    let text = |files: Files| refused(files).to_string();
    let missing = text(Files { ca: Some(authority.path("nothing")), ..files.clone() });
    assert!(missing.contains("nothing") && missing.contains("cannot read"), "{missing}");
    for (swapped, says) in [
        (Files { certificate: key.clone(), ..files.clone() }, ["a.key", "BEGIN CERTIFICATE"]),
        (Files { key: certificate, ..files.clone() }, ["a.pem", "BEGIN PRIVATE KEY"]),
        (Files { ca: key, ..files }, ["a.key", "CA certificate"]),
    ] {
        let error = text(swapped);
        assert!(says.iter().all(|said| error.contains(said)), "{error}");
    }
}

#[test]
fn a_truncated_certificate_file_is_named() {
    let authority = Authority::new();
    let files = authority.issue("a", &["a.test"], NOW);
    let path = files.certificate.clone().expect("named");
    let pem = fs::read_to_string(&path).expect("it is there");
    write(&path, &pem[..pem.len() / 2]);
    let error = refused(files.clone()).to_string();
    assert!(error.contains("a.pem"), "{error}");
    write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let error = refused(files);
    assert!(matches!(error, TlsError::Unusable { .. }), "{error}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let authority = Authority::new();
    let (files, other) = (authority.issue("a", &["a.test"], NOW), authority.issue("b", &["b.test"], NOW));
    let error = refused(Files { key: other.key, ..files });
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
    assert!(error.to_string().contains("a.pem") && error.to_string().contains("b.key"), "{error}");
}

#[test]
fn an_expired_or_future_certificate_is_refused_with_its_validity() {
    let authority = Authority::new();
    let error = refused(authority.issue("a", &["a.test"], PAST)).to_string();
    assert!(error.contains("has expired") && error.contains("2002-01-01T00:00:00Z"), "{error}");
    let error = refused(authority.issue("a", &["a.test"], FUTURE)).to_string();
    assert!(error.contains("not valid before 2100-01-01T00:00:00Z"), "{error}");
}

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
