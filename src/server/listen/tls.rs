//! TLS of this server: one certificate for all its listeners and connections.

use std::{path::PathBuf, sync::Arc, time::Duration};

use leaseway_tls::{ClientCertificates, ClientTls, Credentials, Files, Reload, ServerTls, TlsError};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{config::listeners::Service, observe::metrics};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of a server, and the CAs that it trusts.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// The certificate of this server, and the CA of clients, operators, peers and the parent.
    pub files: Files,
    /// Whether clients are asked for certificates. By default they must present one if there is a CA.
    pub clients: Option<ClientCertificates>,
    /// The CA of peers, if it differs from that of the others.
    pub peer_ca: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub(crate) struct Tls {
    credentials: Credentials,
    clients: ClientCertificates,
    /// The same certificate with the CA of the peers. `None` if peers are not authenticated by certificates.
    of_peers: Option<Credentials>,
}

impl TlsOptions {
    /// Reads the files, if any are named. A CA alone is accepted if this process connects to others (`asks_others`).
    pub(crate) fn load(&self, asks_others: bool) -> Result<Option<Tls>, TlsError> {
        if !self.files.are_given() {
            return Ok(None);
        }
        let credentials = Credentials::load(self.files.clone())?;
        let shows_one = self.files.certificate.is_some();
        if !shows_one && !asks_others {
            return Err(TlsError::NoCertificate);
        }
        let clients = match (&self.files.ca, self.clients) {
            (None, Some(_)) => return Err(TlsError::NoCa),
            (None, None) => ClientCertificates::Ignored,
            (Some(_), asked) => asked.unwrap_or(ClientCertificates::Required),
        };
        let of_peers = match &self.peer_ca {
            Some(_) if !shows_one => return Err(TlsError::NoCertificate),
            Some(ca) => Some(Credentials::load(Files { ca: Some(ca.clone()), ..self.files.clone() })?),
            None => (shows_one && self.files.ca.is_some()).then(|| credentials.clone()),
        };
        Ok(Some(Tls { credentials, clients, of_peers }))
    }
}

impl Tls {
    /// TLS of a listener. `None` if there is only a CA.
    pub(crate) fn listener(&self, service: Service) -> Result<Option<ServerTls>, TlsError> {
        let (credentials, clients) = match (service, &self.of_peers) {
            (Service::Peers, Some(credentials)) => (credentials, ClientCertificates::Required),
            // Without certificates peers are authenticated by a secret.
            (Service::Peers, None) => return Ok(None),
            // Probes have no certificate. Each page decides whether it needs one.
            (Service::Pages, _) if self.clients == ClientCertificates::Required => {
                (&self.credentials, ClientCertificates::Optional)
            }
            _ => (&self.credentials, self.clients),
        };
        if credentials.files().certificate.is_none() {
            return Ok(None);
        }
        ServerTls::new(credentials, clients, service.protocol()).map(Some)
    }

    /// TLS of connections to the parent.
    pub(crate) fn to_parent(&self) -> Result<ClientTls, TlsError> {
        ClientTls::new(&self.credentials, None)
    }

    /// TLS of connections to peers, if they are authenticated by certificates.
    pub(crate) fn to_peers(&self) -> Result<Option<ClientTls>, TlsError> {
        self.of_peers.as_ref().map(|credentials| ClientTls::new(credentials, None)).transpose()
    }

    /// Whether pages require a certificate.
    pub(crate) fn requires_certificates(&self) -> bool {
        self.clients == ClientCertificates::Required && self.is_of_listeners()
    }

    /// Whether listeners use TLS. They do not if there is a CA without a certificate.
    pub(crate) fn is_of_listeners(&self) -> bool {
        self.credentials.files().certificate.is_some()
    }

    /// Whether there is a CA.
    pub(crate) fn has_ca(&self) -> bool {
        self.credentials.files().ca.is_some()
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn all(&self) -> impl Iterator<Item = &Credentials> {
        let of_peers = self.of_peers.as_ref().filter(|of_peers| of_peers.files() != self.credentials.files());
        std::iter::once(&self.credentials).chain(of_peers)
    }
}

/// Reloads certificates when a file has changed, and on SIGHUP.
pub(crate) async fn reload(tls: Arc<Tls>, mut hangup: Signal) {
    let mut interval = tokio::time::interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let look: fn(&Credentials) -> Reload = tokio::select! {
            received = hangup.recv() => match received {
                Some(()) => Credentials::reload,
                None => return,
            },
            _ = interval.tick() => Credentials::check,
        };
        for credentials in tls.all() {
            if let Reload::Failed(_) = look(credentials) {
                metrics::certificates_refused();
            }
        }
    }
}

/// Listens for SIGHUP from now on.
pub(crate) fn hangup() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
