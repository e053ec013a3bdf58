//! Protects the listeners of a process: authorization, certificates and limits.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use crate::{
    api::http::HostNames,
    auth::{Authorizer, CredentialFiles, JwtOptions},
    config::{
        error::ServeError,
        limits::Limits,
        listeners::{Exposure, Service},
    },
    listen::{
        ListenerSettings, PendingHandshakes,
        accounts::Accounts,
        open_connections::{ConnectionLimits, OpenConnections},
        tls::Tls,
        waiting_bytes::WaitingBytes,
    },
    observe::{
        audit::{Audit, AuditTarget},
        webhook::{Webhook, WebhookOptions},
    },
};

/// Maximum number of pending handshakes of all listeners.
const MAX_PENDING_HANDSHAKES: usize = 1024;

/// Options for authentication and auditing. The configuration has the access policy.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The file of keys for JWTs, and the requirements for JWTs.
    pub jwt: Option<JwtOptions>,
    /// The audit log, if there is one.
    pub audit: Option<AuditTarget>,
    /// Where to post events of budgets.
    pub webhook: Option<WebhookOptions>,
    /// Allows listening beyond loopback without TLS or a policy.
    pub insecure: bool,
    /// Additional host names that the HTTP port accepts without TLS.
    pub http_names: Vec<String>,
}

/// Protects the listeners of a process.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) waiting_bytes: Arc<WaitingBytes>,
    /// Host names of HTTP listeners without TLS.
    pub(crate) names: HostNames,
}

impl Guard {
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_of_listeners())
    }

    /// The host names that an HTTP listener accepts. `None` with TLS, because the certificate then protects them.
    pub(crate) fn names(&self) -> Option<HostNames> {
        (!self.has_tls()).then(|| self.names.clone())
    }

    /// Settings for one listener of each kind.
    pub(crate) fn listeners(&self) -> Result<ListenerSet, ServeError> {
        ListenerSet::new(self.tls.as_deref(), &self.limits, &self.accounts, &self.waiting_bytes)
    }
}

/// Creates the authorizer. Fails if a listener would be exposed without protection.
pub(crate) fn authorizer(
    listeners: &[(&'static str, SocketAddr)],
    has_policy: bool,
    has_tls: bool,
    access: &AccessOptions,
    files: &CredentialFiles,
    accounts: &Arc<Accounts>,
) -> Result<Arc<Authorizer>, ServeError> {
    let exposure = Exposure { listeners, has_tls, has_policy, insecure: access.insecure };
    exposure.check()?;
    if let Some((flag, address)) = exposure.exposed() {
        tracing::warn!(
            "--insecure: other machines can reach {flag} {address}. They can read and change all traffic, and do \
             everything that the policy allows; without a policy, they can do everything"
        );
    }
    let credentials = files.read().map_err(|error| ServeError::Credentials(error.to_string()))?;
    let audit = match &access.audit {
        None => Audit::none(),
        Some(target) => Audit::open(target).map_err(|error| {
            let path = if let AuditTarget::File(path) = target { path.clone() } else { "standard output".into() };
            ServeError::Audit { path, error }
        })?,
    };
    let webhook = access.webhook.as_ref().map(Webhook::start).transpose()?;
    let audit = audit.with_webhook(webhook);
    let (opens, is_exposed) = (exposure.opens_without_policy(), exposure.exposed().is_some());
    Ok(Arc::new(Authorizer::new(credentials, opens, is_exposed, audit, Arc::clone(accounts))))
}

/// The settings of each kind of listener.
#[derive(Clone)]
pub(crate) struct ListenerSet {
    pub(crate) clients: ListenerSettings,
    pub(crate) pages: ListenerSettings,
    pub(crate) operators: ListenerSettings,
    pub(crate) peers: ListenerSettings,
}

impl ListenerSet {
    pub(crate) fn new(
        tls: Option<&Tls>,
        limits: &Limits,
        accounts: &Arc<Accounts>,
        waiting_bytes: &Arc<WaitingBytes>,
    ) -> Result<ListenerSet, ServeError> {
        let pending_handshakes = PendingHandshakes::new(MAX_PENDING_HANDSHAKES, limits.share());
        let settings = |service: Service| {
            let limits = connection_limits(limits, service);
            Ok::<_, ServeError>(ListenerSettings {
                service,
                tls: tls.map(|tls| tls.listener(service)).transpose()?.flatten(),
                open: OpenConnections::new(limits, Arc::clone(accounts), Arc::clone(waiting_bytes)),
                pending_handshakes: pending_handshakes.clone(),
            })
        };
        Ok(ListenerSet {
            clients: settings(Service::Clients)?,
            pages: settings(Service::Pages)?,
            operators: settings(Service::Operators)?,
            peers: settings(Service::Peers)?,
        })
    }

    /// The open connections of each kind.
    pub(crate) fn open(&self) -> Vec<OpenConnections> {
        [&self.clients, &self.pages, &self.operators, &self.peers].map(|listener| listener.open.clone()).into()
    }
}

fn connection_limits(limits: &Limits, service: Service) -> ConnectionLimits {
    ConnectionLimits {
        most: if service == Service::Clients { limits.connections } else { limits.page_connections },
        share: limits.share(),
        // Requests between peers are not counted.
        idle: (service != Service::Peers).then(|| Duration::from_secs(limits.idle_connection_secs)),
        stalled: Duration::from_secs(limits.answer_secs),
    }
}
