//! The certificate authority: it is created, read from its files, and signs certificates. Time is an argument, so that
//! tests can make certificates of any date.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leaseway_tls::MalformedCertificate;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use super::files;
use super::files::{CA, Pair};
use super::names::SubjectName;
use crate::{error::CliError, output::utc};

/// Certificates are valid from this long before they are made, because clocks of other machines may be behind.
const SKEW: Duration = Duration::from_secs(3600);

const DAY: u64 = 86_400;

/// The holder of a certificate.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) names: Vec<SubjectName>,
}

impl Subject {
    /// Whether others connect to the holder by host name or address.
    pub(super) fn serves(&self) -> bool {
        self.names.iter().any(SubjectName::is_host)
    }

    /// The identity that the other side of a connection sees.
    pub(super) fn identity(&self) -> &str {
        SubjectName::first_identity(&self.names).unwrap_or(&self.name)
    }
}

pub(super) fn generate(name: &str, now: SystemTime, days: u64) -> Result<Pair, CliError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ends = after(now, days);
    limit(&mut params, now, ends);
    let key = new_key()?;
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), ends })
}

/// A CA that can sign.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ends: i64,
    /// The path of its certificate.
    path: String,
}

impl Authority {
    pub(super) fn read(directory: &Path) -> Result<Authority, CliError> {
        let (certificate_path, key_path) = (files::certificate(directory, CA), files::key(directory, CA));
        let bad = |path: &Path, why: &str| CliError::Certificates(format!("{}: {why}", path.display()));
        if !certificate_path.exists() {
            return Err(bad(&certificate_path, "not found; `leaseway certs init` creates a CA"));
        }
        if !key_path.exists() {
            return Err(bad(&key_path, "not found; issue certificates on the machine that has the key of the CA"));
        }
        let certificate = leaseway_tls::certificates(&certificate_path, "CA certificate")?.swap_remove(0);
        let malformed = |error: MalformedCertificate| bad(&certificate_path, &error.to_string());
        let description = leaseway_tls::describe(&certificate).map_err(malformed)?;
        let name = description.common_name.unwrap_or_default();
        // A self-signed certificate has the name as subject and as issuer.
        if occurrences(&certificate, &encoded(&name)) < 2 {
            let why = "not created by `leaseway certs init`: issue certificates with the tool that created it";
            return Err(bad(&certificate_path, why));
        }
        let key = KeyPair::from_pem(&files::read(&key_path)?)
            .map_err(|_| bad(&key_path, "not a PEM private key (PKCS #8, -----BEGIN PRIVATE KEY-----)"))?;
        if occurrences(&certificate, key.public_key_raw()) == 0 {
            return Err(bad(
                &key_path,
                &format!("not the key of {}: use the two files of the same CA", certificate_path.display()),
            ));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&name);
        let ends = seconds(description.until);
        Ok(Authority { issuer: Issuer::new(params, key), ends, path: certificate_path.display().to_string() })
    }

    /// Signs a certificate. It expires with the CA at the latest.
    pub(super) fn issue(&self, subject: &Subject, now: SystemTime, days: u64) -> Result<Pair, CliError> {
        if self.ends <= seconds(now) {
            return Err(CliError::Certificates(format!(
                "{}: the CA has expired ({}): create another with `leaseway certs init --force`, and distribute it",
                self.path,
                utc(self.ends)
            )));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&subject.name);
        params.subject_alt_names = subject.names.iter().map(SubjectName::general_name).collect::<Result<_, _>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Peers and child nodes are both servers and clients.
        params.extended_key_usages = match subject.serves() {
            true => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            false => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        let ends = after(now, days).min(self.ends);
        limit(&mut params, now, ends);
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), ends })
    }
}

pub(super) fn after(now: SystemTime, days: u64) -> i64 {
    seconds(now + Duration::from_secs(days * DAY))
}

/// Seconds since the epoch.
pub(super) fn seconds(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Sets the validity, in whole seconds.
fn limit(params: &mut CertificateParams, now: SystemTime, ends: i64) {
    let at = |unix: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(unix).unwrap_or(0));
    params.not_before = at(seconds(now - SKEW)).into();
    params.not_after = at(ends).into();
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The DER encoding of a distinguished name that consists of a common name. Names have at most 64 bytes, so each length
/// fits a byte.
fn encoded(name: &str) -> Vec<u8> {
    let short = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let length = name.len();
    let mut bytes = vec![0x30, short(length + 11), 0x31, short(length + 9), 0x30, short(length + 7)];
    bytes.extend([0x06, 3, 0x55, 4, 3, 0x0c, short(length)]);
    bytes.extend(name.as_bytes());
    bytes
}

fn occurrences(whole: &[u8], part: &[u8]) -> usize {
    whole.windows(part.len()).filter(|window| *window == part).count()
}

fn new_key() -> Result<KeyPair, CliError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

#[cfg(test)]
mod tests {
    use super::{super::files::Existing, *};

    fn subject(name: &str, hosts: &[&str]) -> Subject {
        let names = hosts.iter().map(|host| SubjectName::host(host).expect("a host")).collect();
        Subject { name: name.into(), names }
    }

    #[test]
    fn a_certificate_has_its_names_its_issuer_and_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now();
        let ca = generate("my own \u{e4}", now, 10).expect("a CA");
        files::write(directory.path(), CA, &ca, Existing::Kept).expect("written");
        let authority = Authority::read(directory.path()).expect("it was just made");
        let pair = authority.issue(&subject("node", &["localhost", "127.0.0.1"]), now, 5).expect("a certificate");
        let [certificate, _] = files::write(directory.path(), "node", &pair, Existing::Kept).expect("written");
        let certificate =
            leaseway_tls::certificates(&certificate, "certificate").expect("a certificate").swap_remove(0);
        let description = leaseway_tls::describe(&certificate).expect("a certificate");
        assert_eq!(description.issuer.as_deref(), Some("my own \u{e4}"));
        assert_eq!((description.dns, description.common_name), (vec!["localhost".into()], Some("node".into())));
        assert_eq!(seconds(description.until), after(now, 5));
        assert!(description.from < now);
    }

    #[test]
    fn no_certificate_outlives_its_ca_and_an_expired_ca_signs_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now();
        let ca = generate("ca", now, 2).expect("a CA");
        files::write(directory.path(), CA, &ca, Existing::Kept).expect("written");
        let authority = Authority::read(directory.path()).expect("it was just made");
        assert_eq!(authority.issue(&subject("a", &[]), now, 365).expect("a certificate").ends, ca.ends);
        let later = now + Duration::from_secs(3 * DAY);
        let error = authority.issue(&subject("a", &[]), later, 1).map(|pair| pair.ends).expect_err("it is over");
        assert!(error.to_string().contains("the CA has expired"), "{error}");
    }

    #[test]
    fn a_key_of_another_ca_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let [one, other] = ["one", "other"].map(|name| generate(name, SystemTime::now(), 1).expect("a CA"));
        let mixed = Pair { certificate: one.certificate, key: other.key, ends: one.ends };
        files::write(directory.path(), CA, &mixed, Existing::Kept).expect("written");
        let error = Authority::read(directory.path()).map(|_| ()).expect_err("they do not match").to_string();
        assert!(error.contains("ca.key: not the key of") && error.contains("ca.pem"), "{error}");
    }
}
