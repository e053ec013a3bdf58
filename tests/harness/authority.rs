//! A CA that issues valid and invalid certificates.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leaseway_tls::Files;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

#[derive(Clone, Copy)]
pub(crate) enum Valid {
    Now,
    Past,
    Future,
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Authority { issuer: Issuer::new(params, key), directory: tempfile::tempdir().unwrap() };
        fs::write(authority.path("ca.pem"), pem).unwrap();
        authority
    }

    /// A CA with a server certificate `node` for loopback and a client certificate `alice`.
    pub(crate) fn with_node_and_alice() -> Authority {
        let authority = Authority::new("ours");
        authority.issue("node", &["localhost", "127.0.0.1"], Valid::Now);
        authority.issue("alice", &["alice"], Valid::Now);
        authority
    }

    /// The certificate issued under this name.
    pub(crate) fn issued(&self, name: &str) -> Files {
        let file = |kind: &str| Some(self.path(&format!("{name}.{kind}")));
        Files { certificate: file("pem"), key: file("key"), ..self.trust() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The CA only, without a client certificate.
    pub(crate) fn trust(&self) -> Files {
        Files { ca: Some(self.path("ca.pem")), ..Files::default() }
    }

    /// Issues a certificate for these names and addresses. Returns it with its key and the CA.
    pub(crate) fn issue(&self, name: &str, alternative: &[&str], valid: Valid) -> Files {
        let mut params = CertificateParams::default();
        params.subject_alt_names = alternative.iter().map(|name| alternative_name(name)).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let day = Duration::from_secs(86_400);
        let (from, until) = match valid {
            Valid::Now => (now - day, now + day),
            Valid::Past => (now - 2 * day, now - day),
            Valid::Future => (now + day, now + 2 * day),
        };
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + from;
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + until;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = self.issued(name);
        // Certificate renewal tools also replace files atomically.
        for (path, text) in [(&files.certificate, certificate.pem()), (&files.key, key.serialize_pem())] {
            let path = path.as_ref().unwrap();
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, path).unwrap();
        }
        files
    }
}

fn alternative_name(name: &str) -> SanType {
    if name.contains("://") {
        return SanType::URI(name.try_into().unwrap());
    }
    name.parse().map_or_else(|_| SanType::DnsName(name.try_into().unwrap()), SanType::IpAddress)
}
