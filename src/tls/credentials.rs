//! A certificate, its key and CAs, from files that are read again when they change.
//!
//! Files are polled: that notices every way of replacing a file (rename, symlink swap, network mounts), which file
//! watches do not.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use tokio_rustls::rustls::{
    self, InconsistentKeys, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};

use crate::{
    certificate::{self, Description},
    error::TlsError,
};

/// The interval at which a client checks its files, when it connects.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Paths of PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The certificate and its intermediates (`--tls-cert`).
    pub certificate: Option<PathBuf>,
    /// The private key (`--tls-key`).
    pub key: Option<PathBuf>,
    /// The CAs that verify the certificates of others (`--tls-ca`).
    pub ca: Option<PathBuf>,
}

impl Files {
    /// Whether any path is set.
    pub fn are_given(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.ca.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key, &self.ca].into_iter().flatten().map(PathBuf::as_path)
    }

    fn pair(&self) -> Result<Option<(&Path, &Path)>, TlsError> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (Some(_), None) => Err(TlsError::HalfASet { given: "--tls-cert", missing: "--tls-key" }),
            (None, Some(_)) => Err(TlsError::HalfASet { given: "--tls-key", missing: "--tls-cert" }),
            (None, None) => Ok(None),
        }
    }
}

/// The content of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) own: Option<OwnCertificate>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
}

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct OwnCertificate {
    pub(crate) certified: CertifiedKey,
    pub(crate) until: SystemTime,
}

/// A certificate, its key and CAs. Clones share them.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

struct Shared {
    files: Files,
    current: RwLock<Arc<Loaded>>,
    seen: Mutex<CheckedFiles>,
}

/// Versions of the files.
struct CheckedFiles {
    /// At the last attempt to read them.
    read: Stamps,
    /// At the last check.
    newest: Stamps,
    at: Instant,
}

/// Modification time, size and inode of a file, which change when it does. `None` if it cannot be read.
pub type FileStamp = Option<(SystemTime, u64, u64)>;

type Stamps = Vec<FileStamp>;

/// The result of a check for changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reload {
    /// No file has changed, or one is still changing.
    Unchanged,
    Done,
    /// The new files cannot be used. The previous content stays in use.
    Failed(TlsError),
}

impl Credentials {
    /// Reads and checks the files.
    pub fn load(files: Files) -> Result<Credentials, TlsError> {
        // Read the stamps before the files, so that no change is missed.
        let stamps = stamps(&files);
        let loaded = Loaded::read(&files)?;
        let seen = CheckedFiles { read: stamps.clone(), newest: stamps, at: Instant::now() };
        let shared = Shared { files, current: RwLock::new(Arc::new(loaded)), seen: Mutex::new(seen) };
        Ok(Credentials(Arc::new(shared)))
    }

    /// Accepts an expired or future certificate, as a program with a wrong clock would.
    #[cfg(test)]
    pub(crate) fn load_without_validity_check(files: &Files) -> Credentials {
        let credentials = Credentials::load(Files { ca: files.ca.clone(), ..Files::default() }).expect("a CA");
        let (certificate, key) = files.pair().expect("a whole set").expect("a certificate");
        let (certified, Description { until, .. }) = certified(certificate, key).expect("they match");
        let roots = credentials.current().roots.clone();
        let loaded = Loaded { own: Some(OwnCertificate { certified, until }), roots };
        *credentials.0.current.write().expect("not poisoned") = Arc::new(loaded);
        credentials
    }

    pub fn files(&self) -> &Files {
        &self.0.files
    }

    /// The expiry of the own certificate, if there is one.
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().own.as_ref().map(|own| own.until)
    }

    /// Reads the files again once two consecutive checks see the same change; before that, a file may still be being
    /// written. A server calls this every second.
    pub fn check(&self) -> Reload {
        let mut seen = self.seen();
        let now = stamps(&self.0.files);
        let is_settled = now == seen.newest;
        seen.newest = now;
        seen.at = Instant::now();
        if !is_settled || seen.newest == seen.read {
            return Reload::Unchanged;
        }
        seen.read = seen.newest.clone();
        self.read_files()
    }

    /// Reads all files now.
    pub fn reload(&self) -> Reload {
        let mut seen = self.seen();
        seen.newest = stamps(&self.0.files);
        seen.read = seen.newest.clone();
        self.read_files()
    }

    fn read_files(&self) -> Reload {
        match Loaded::read(&self.0.files) {
            Ok(loaded) => {
                *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                tracing::info!(files = %self.0.files.list(), "certificates reloaded: new connections use them");
                Reload::Done
            }
            Err(error) => {
                tracing::error!("new certificates rejected, the previous ones stay in use: {error}");
                Reload::Failed(error)
            }
        }
    }

    pub(crate) fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Like [`current`](Self::current), but first checks the files if the last check is more than a second old. For
    /// clients, which have no task that checks the files.
    pub(crate) fn newest(&self) -> Arc<Loaded> {
        if self.seen().at.elapsed() >= CHECK_INTERVAL {
            self.check();
        }
        self.current()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, CheckedFiles> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TLS configuration that is derived from credentials, and derived again when they change.
pub(crate) struct Derived<C>(Mutex<(Arc<Loaded>, Arc<C>)>);

impl<C> Derived<C> {
    pub(crate) fn new(loaded: Arc<Loaded>, config: C) -> Derived<C> {
        Derived(Mutex::new((loaded, Arc::new(config))))
    }

    /// Keeps the previous configuration if `configure` fails.
    pub(crate) fn get(&self, newest: Arc<Loaded>, configure: impl FnOnce(&Loaded) -> Result<C, TlsError>) -> Arc<C> {
        let mut derived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&derived.0, &newest) {
            match configure(&newest) {
                Ok(config) => derived.1 = Arc::new(config),
                Err(error) => tracing::error!("new certificates rejected, the previous ones stay in use: {error}"),
            }
            derived.0 = newest;
        }
        Arc::clone(&derived.1)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Credentials").field(&self.0.files).finish()
    }
}

impl Files {
    fn list(&self) -> String {
        self.all().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn stamps(files: &Files) -> Stamps {
    files.all().map(file_stamp).collect()
}

/// The stamp of a file, or of the file that a symlink names.
pub fn file_stamp(path: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// The cryptography provider: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static RING: std::sync::LazyLock<Arc<CryptoProvider>> =
        std::sync::LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    Arc::clone(&RING)
}

impl Loaded {
    fn read(files: &Files) -> Result<Loaded, TlsError> {
        let own = match files.pair()? {
            Some((certificate, key)) => Some(own(certificate, key)?),
            None => None,
        };
        let roots = match &files.ca {
            Some(ca) => Some(Arc::new(roots(ca)?)),
            None => None,
        };
        Ok(Loaded { own, roots })
    }
}

/// Fails unless the certificate is valid now.
fn own(certificate: &Path, key: &Path) -> Result<OwnCertificate, TlsError> {
    let (certified, Description { from, until, .. }) = certified(certificate, key)?;
    let (now, file) = (SystemTime::now(), certificate.to_owned());
    if now > until {
        return Err(TlsError::Expired { file, until: certificate::moment(until) });
    }
    if now < from {
        return Err(TlsError::NotYetValid { file, from: certificate::moment(from) });
    }
    Ok(OwnCertificate { certified, until })
}

fn certified(certificate: &Path, key: &Path) -> Result<(CertifiedKey, Description), TlsError> {
    let chain = certificates(certificate, "certificate")?;
    let unusable = |file: &Path, why: String| TlsError::Unusable { file: file.to_owned(), why };
    let description = certificate::describe(&chain[0]).map_err(|error| unusable(certificate, error.to_string()))?;
    let certified = CertifiedKey::from_der(chain, private_key(key)?, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::KeyMismatch { certificate: certificate.to_owned(), key: key.to_owned() }
        }
        rustls::Error::InvalidCertificate(why) => unusable(certificate, format!("{why:?}")),
        error => unusable(key, error.to_string()),
    })?;
    Ok((certified, description))
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| not_pem(file, "private key", "PRIVATE KEY", &error))
}

/// Reads the certificates in a file, at least one. `expected` names the expected content in errors.
pub fn certificates(file: &Path, expected: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(not_pem(file, expected, "CERTIFICATE", &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(not_pem(file, expected, "CERTIFICATE", &error)),
    }
}

fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, "CA certificate")? {
        roots.add(certificate).map_err(|error| TlsError::Unusable { file: file.to_owned(), why: error.to_string() })?;
    }
    Ok(roots)
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| TlsError::Unreadable { file: file.to_owned(), why: error.to_string() })
}

fn not_pem(file: &Path, expected: &'static str, begin: &'static str, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::NoItemsFound => String::new(),
        error => error.to_string(),
    };
    TlsError::NotPem { file: file.to_owned(), expected, begin, why }
}
