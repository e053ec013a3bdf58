//! Listeners for services of another crate, such as a gateway. They have the limits, the authentication and the policy
//! of a server's own listeners, with or without a server in the process.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{FromRequestParts, Request},
    middleware::{self, Next},
    response::Response,
};
use http::request::Parts;
use leaseway_core::{
    policy::access::{AccessRequest, Action, Policy},
    types::Principal,
};
use tokio::{
    sync::watch,
    task::spawn,
    time::{Instant, sleep},
};
use tonic::{Code, Status, service::Routes};
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use crate::{
    api::{
        grpc::{ExtraMethod, GrpcCaller, serve_guarded},
        http::{HostNames, Serving, certified, serve},
    },
    auth::{Admitted, Authorizer, CallerCache, CredentialFiles},
    config::{self, LoadError, error::ServeError, limits::Limits},
    listen::{
        Caller, ListenOption, Listener, ListenerSettings,
        accounts::Accounts,
        bind, local,
        open_connections::{OpenConnections, sweep},
        tls::{self, TlsOptions},
        waiting_bytes::WaitingBytes,
    },
    observe::{audit::Event, metrics::CallKind},
    run::{
        guard::{AccessOptions, Guard, ListenerSet, authorizer},
        reload::{Reload, reload_credentials},
    },
};

/// The protection of listeners.
#[derive(Debug, Clone, Default)]
pub struct ExtraServicesOptions {
    /// A configuration with an `access:` policy. Its templates are ignored.
    pub config: Option<PathBuf>,
    pub access: AccessOptions,
    /// Certificates of the listeners. Without them connections are in plain text.
    pub tls: TlsOptions,
    /// Limits of connections and waiting bytes.
    pub limits: Limits,
}

/// Listeners with one policy.
pub struct ExtraServices {
    guard: Guard,
    listeners: ListenerSet,
    /// Whether the policy is its own instead of that of a server.
    owns_policy: bool,
    stop: watch::Sender<bool>,
}

impl ExtraServices {
    /// Reads the policy, credentials and certificates. Refuses `listeners` that are exposed without protection; they
    /// are bound later.
    pub fn open(options: ExtraServicesOptions, listeners: &[ListenOption]) -> Result<ExtraServices, ServeError> {
        let ExtraServicesOptions { config, access, tls, limits } = options;
        let files = CredentialFiles { tokens: access.tokens.clone(), jwt: access.jwt.clone(), operator: None };
        // Prepared before the files are read, so that no change is missed.
        let reload = Reload::prepare(config.clone(), &files).map_err(ServeError::Signals)?;
        let hangup = tls::hangup().map_err(ServeError::Signals)?;
        let policy = config.as_deref().map(read_policy).transpose()?.flatten();
        let tls = tls.load(true)?.map(Arc::new);
        let has_tls = tls.as_ref().is_some_and(|tls| tls.is_of_listeners());
        let accounts = Arc::<Accounts>::default();
        let listeners: Vec<_> = listeners.iter().map(|listener| (listener.flag, listener.address)).collect();
        let authorizer = authorizer(&listeners, policy.is_some(), has_tls, &access, &files, &accounts)?;
        authorizer.set_policy(policy);
        let (limits, waiting_bytes) = (Arc::new(limits.clone()), Arc::new(WaitingBytes::within(&limits)));
        let names = HostNames::new(&access.http_names, None);
        let guard = Guard { authorizer, tls, limits, accounts, waiting_bytes, names };
        let listeners = guard.listeners()?;
        spawn(sweep(listeners.open(), Arc::clone(&guard.accounts)));
        if let Some(tls) = &guard.tls {
            spawn(tls::reload(Arc::clone(tls), hangup));
        }
        spawn(reload_on_change(reload, Arc::clone(&guard.authorizer), files));
        Ok(ExtraServices { owns_policy: true, ..ExtraServices::within(guard, listeners) })
    }

    /// Listeners in the process of a server. The server reloads policy, credentials and certificates.
    pub(crate) fn within(guard: Guard, listeners: ListenerSet) -> ExtraServices {
        ExtraServices { guard, listeners, owns_policy: false, stop: watch::Sender::new(false) }
    }

    /// Serves HTTP and returns the bound address. Requests carry an [`HttpCaller`]. /healthz and /readyz never require
    /// a certificate. `body_bytes` are charged for the body of each request; the routes must enforce this limit.
    pub async fn serve_http(
        &self,
        listen: ListenOption,
        routes: Router,
        body_bytes: usize,
    ) -> Result<SocketAddr, ServeError> {
        let tls = self.guard.tls.as_ref();
        let requires_certificates = tls.is_some_and(|tls| tls.requires_certificates());
        let routes = routes
            .layer(middleware::from_fn(admit))
            .layer(middleware::from_fn_with_state(requires_certificates, certified));
        self.serve_pages(listen, routes, body_bytes, self.listeners.pages.clone(), self.guard.names()).await
    }

    /// Serves HTTP without TLS and without certificates, even if the other listeners have them. The policy applies.
    pub async fn serve_plain_http(&self, listen: ListenOption, routes: Router) -> Result<SocketAddr, ServeError> {
        let settings = ListenerSettings { tls: None, ..self.listeners.pages.clone() };
        let routes = routes.layer(middleware::from_fn(admit));
        self.serve_pages(listen, routes, 0, settings, Some(self.guard.names.clone())).await
    }

    async fn serve_pages(
        &self,
        listen: ListenOption,
        pages: Router,
        body_bytes: usize,
        settings: ListenerSettings,
        names: Option<HostNames>,
    ) -> Result<SocketAddr, ServeError> {
        let tcp = bind(listen.address, listen.flag).await?;
        let address = local(&tcp, listen.address);
        let listener = Listener::new(tcp, settings);
        let patience = Duration::from_secs(self.guard.limits.request_secs);
        let serving = Serving { pages, authorizer: Arc::clone(&self.guard.authorizer), body_bytes, names };
        spawn(serve(listener, serving, patience, self.stop.subscribe()));
        Ok(address)
    }

    /// Serves gRPC and returns the bound address. Requests carry a [`GrpcCaller`](crate::GrpcCaller), which extra
    /// methods receive. Anyone may call the health service.
    pub async fn serve_grpc(
        &self,
        listen: ListenOption,
        services: Routes,
        extra_methods: Vec<ExtraMethod>,
        health: HealthReporter,
    ) -> Result<SocketAddr, ServeError> {
        let tcp = bind(listen.address, listen.flag).await?;
        let address = local(&tcp, listen.address);
        let services = services.add_service(HealthServer::new(HealthService::from_health_reporter(health)));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(leaseway_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors are compiled in and tested");
        let services = services.add_service(reflection);
        let listener = Listener::new(tcp, self.listeners.clients.clone());
        let (authorizer, limits, stop) =
            (Arc::clone(&self.guard.authorizer), Arc::clone(&self.guard.limits), self.stop.subscribe());
        spawn(async move { serve_guarded(listener, services, extra_methods, authorizer, &limits, stop).await });
        Ok(address)
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.listeners.open().iter().map(OpenConnections::count).sum()
    }

    /// Stops accepting, and waits at most `patience` for requests under way.
    pub async fn drain(&self, patience: Duration) {
        self.stop.send_replace(true);
        self.listeners.open().iter().for_each(OpenConnections::end_all);
        let deadline = Instant::now() + patience;
        while self.connections() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        if self.owns_policy {
            self.guard.authorizer.audit().close();
        }
    }
}

/// The access policy of a configuration, if it has one.
fn read_policy(path: &Path) -> Result<Option<Arc<Policy>>, LoadError> {
    let loaded = config::load(path)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.access)
}

/// Reloads a changed policy and changed tokens.
async fn reload_on_change(mut reload: Reload, authorizer: Arc<Authorizer>, files: CredentialFiles) {
    while let Some(changed) = reload.next().await {
        if changed.credentials {
            reload_credentials(&files, &authorizer);
        }
        let Some(path) = changed.config else { continue };
        let file = path.display().to_string();
        let read = read_policy(&path).map_err(|error| error.to_string());
        let outcome = match read.and_then(|policy| authorizer.check_policy(&file, policy.as_ref()).map(|()| policy)) {
            Ok(policy) => {
                tracing::info!(%file, "access policy reloaded");
                authorizer.set_policy(policy);
                "done".to_owned()
            }
            Err(error) => {
                tracing::error!("access policy rejected, the previous one stays in force:\n{error}");
                error
            }
        };
        authorizer.record(Event::of_server("config_reloaded", outcome, serde_json::json!({ "source": file })));
    }
}

/// Adds the caller to a request.
async fn admit(mut request: Request, next: Next) -> Response {
    let caller_cache = request.extensions().get::<Arc<CallerCache>>().cloned();
    if let Some(caller_cache) = caller_cache {
        let admitted = caller_cache.admit(request.headers(), CallKind::Http).map_err(CallerRefusal::from);
        let origin = match &admitted {
            Ok(admitted) => admitted.origin(),
            Err(_) => request.extensions().get::<Caller>().map(Caller::origin),
        };
        let principal = origin.map_or(Principal::NONE, |origin| origin.principal);
        request.extensions_mut().insert(HttpCaller { admitted, principal });
    }
    next.run(request).await
}

/// The caller of a request, with its permissions.
#[derive(Clone)]
pub struct HttpCaller {
    admitted: Result<Admitted, CallerRefusal>,
    principal: Principal,
}

/// Why a caller is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallerRefusal {
    /// The caller is not authenticated.
    #[error("{0}")]
    Unknown(String),
    /// No rule allows the request. The text names the nearest rule.
    #[error("{0}")]
    Denied(String),
}

impl From<Status> for CallerRefusal {
    fn from(status: Status) -> CallerRefusal {
        let why = status.message().to_owned();
        if status.code() == Code::PermissionDenied { CallerRefusal::Denied(why) } else { CallerRefusal::Unknown(why) }
    }
}

impl HttpCaller {
    /// Checks whether the caller may make this request.
    pub fn check(&self, request: &AccessRequest<'_>) -> Result<(), CallerRefusal> {
        Ok(self.admitted()?.check(CallKind::Http, request)?)
    }

    /// Checks whether the caller may do this to a resource, for any holder. Cached.
    pub fn check_resource(&self, action: Action, resource: &str) -> Result<(), CallerRefusal> {
        Ok(self.admitted()?.check_remembered(CallKind::Gateway, &AccessRequest::on(action, resource))?)
    }

    /// Checks whether the caller may read everything.
    pub fn check_reads_everything(&self) -> Result<(), CallerRefusal> {
        Ok(self.admitted()?.check_reads_everything(CallKind::Http)?)
    }

    /// The caller as that of a gRPC method.
    pub fn as_grpc(&self) -> Result<GrpcCaller, CallerRefusal> {
        Ok(self.admitted()?.clone().into())
    }

    /// The principal that the caller's state is charged to.
    pub fn principal(&self) -> Principal {
        self.principal
    }

    fn admitted(&self) -> Result<&Admitted, CallerRefusal> {
        self.admitted.as_ref().map_err(Clone::clone)
    }
}

/// Fails for a request that did not come through [`ExtraServices`].
impl<S: Sync> FromRequestParts<S> for HttpCaller {
    type Rejection = http::StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<HttpCaller, http::StatusCode> {
        parts.extensions.get().cloned().ok_or(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl std::fmt::Debug for ExtraServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtraServices").field("connections", &self.connections()).finish_non_exhaustive()
    }
}
