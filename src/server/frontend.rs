//! Listeners for protocols that another crate serves: connections are bounded and opened here, callers are known by
//! certificate or token, and a policy says what they may do, all as at a server's own listeners.

mod grpc;

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
    Principal,
    access::{AccessRequest, Action, Policy},
};
use tokio::{
    sync::watch,
    task::spawn,
    time::{Instant, sleep},
};
use tonic::{Code, Status};

use crate::{
    access::{Admitted, CredentialFiles, Gate, Visitor},
    accounts::Accounts,
    audit::Event,
    config::{self, LoadError},
    error::ServeError,
    http::{HostNames, Serving, certified, serve},
    limits::Limits,
    listen::{Caller, Listener, bind, local},
    metrics::CallKind,
    open_connections::{OpenConnections, look_after},
    reload::{Reload, reload_credentials},
    run::{AccessOptions, ListenerSet, gate},
    tls::{self, Tls, TlsOptions},
};

/// How listeners are protected.
#[derive(Debug, Clone, Default)]
pub struct FrontendOptions {
    /// A configuration whose `access:` says who may do what; its templates mean nothing here.
    pub config: Option<PathBuf>,
    /// How callers prove who they are.
    pub access: AccessOptions,
    /// Certificates of the listeners; without any, all is in the clear.
    pub tls: TlsOptions,
    /// Bounds on connections and on what waits for them.
    pub limits: Limits,
}

/// Listeners of one process, under one policy.
pub struct Frontend {
    gate: Arc<Gate>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    /// Those of HTTP in the clear.
    names: HostNames,
    listeners: ListenerSet,
    stop: watch::Sender<bool>,
}

impl Frontend {
    /// Reads what the listeners are protected with. `listeners` are where they will be, each with the flag that says
    /// so: what others reach and is not protected is refused.
    pub fn open(options: FrontendOptions, listeners: &[(&'static str, SocketAddr)]) -> Result<Frontend, ServeError> {
        let FrontendOptions { config, access, tls, limits } = options;
        let files = CredentialFiles { tokens: access.tokens.clone(), jwt: access.jwt.clone(), operator: None };
        // Before files are read, so that no change is missed.
        let reload = Reload::prepare(config.clone(), &files).map_err(ServeError::Signals)?;
        let hangup = tls::hangup().map_err(ServeError::Signals)?;
        let policy = config.as_deref().map(read_policy).transpose()?.flatten();
        let tls = tls.load(true)?.map(Arc::new);
        let has_tls = tls.as_ref().is_some_and(|tls| tls.is_of_listeners());
        let accounts = Arc::<Accounts>::default();
        let gate = gate(listeners, policy.is_some(), has_tls, &access, &files, &accounts)?;
        gate.set_policy(policy);
        let budget = Arc::new(limits.budget());
        let listeners = ListenerSet::new(tls.as_deref(), &limits, &accounts, &budget)?;
        spawn(look_after(listeners.open(), accounts));
        if let Some(tls) = &tls {
            spawn(tls::reload(Arc::clone(tls), hangup));
        }
        spawn(reload_on_change(reload, Arc::clone(&gate), files));
        let (stop, _) = watch::channel(false);
        let names = HostNames::new(&access.http_names, None);
        Ok(Frontend { gate, tls, limits, names, listeners, stop })
    }

    /// Serves HTTP; answers where. Requests carry a [`Guest`]. Where certificates are required, /healthz and /readyz
    /// are for callers without one, too. No body is larger than `body_bytes`, which the routes have to see to.
    pub async fn serve_http(
        &self,
        flag: &'static str,
        address: SocketAddr,
        routes: Router,
        body_bytes: usize,
    ) -> Result<SocketAddr, ServeError> {
        let tcp = bind(address, flag).await?;
        let address = local(&tcp, address);
        let requires_certificates = self.tls.as_ref().is_some_and(|tls| tls.requires_certificates());
        let pages = routes
            .layer(middleware::from_fn(admit))
            .layer(middleware::from_fn_with_state(requires_certificates, certified));
        let listener = Listener::new(tcp, self.listeners.pages.clone());
        let patience = Duration::from_secs(self.limits.request_secs);
        let names = (!self.has_tls()).then(|| self.names.clone());
        let serving = Serving { pages, gate: Arc::clone(&self.gate), body_bytes, names };
        spawn(serve(listener, serving, patience, self.stop.subscribe()));
        Ok(address)
    }

    /// Whether what the listeners speak is TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_of_listeners())
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.listeners.open().iter().map(OpenConnections::count).sum()
    }

    /// Accepts no more, and waits until what is under way is done, but not for longer than this.
    pub async fn drain(&self, patience: Duration) {
        self.stop.send_replace(true);
        self.listeners.open().iter().for_each(OpenConnections::end_all);
        let deadline = Instant::now() + patience;
        while self.connections() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        self.gate.audit().close();
    }
}

/// Rules, if the file has any.
fn read_policy(path: &Path) -> Result<Option<Arc<Policy>>, LoadError> {
    let loaded = config::load(path)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.access)
}

/// Puts rules and tokens in force that have changed.
async fn reload_on_change(mut reload: Reload, gate: Arc<Gate>, files: CredentialFiles) {
    while let Some(changed) = reload.next().await {
        if changed.credentials {
            reload_credentials(&files, &gate);
        }
        let Some(path) = changed.config else { continue };
        let file = path.display().to_string();
        let read = read_policy(&path).map_err(|error| error.to_string());
        let outcome = match read.and_then(|policy| gate.check_policy(&file, policy.as_ref()).map(|()| policy)) {
            Ok(policy) => {
                tracing::info!(%file, "access policy reloaded");
                gate.set_policy(policy);
                "done".to_owned()
            }
            Err(error) => {
                tracing::error!("access policy refused, the one before stays in force:\n{error}");
                error
            }
        };
        gate.record(Event::of_server("config_reloaded", outcome, serde_json::json!({ "source": file })));
    }
}

/// Adds to a request what is known of its caller.
async fn admit(mut request: Request, next: Next) -> Response {
    let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
    if let Some(visitor) = visitor {
        let admitted = visitor.admit(request.headers(), CallKind::Http).map_err(GuestRefusal::from);
        let origin = match &admitted {
            Ok(admitted) => admitted.origin(),
            Err(_) => request.extensions().get::<Caller>().map(Caller::origin),
        };
        let principal = origin.map_or(Principal::NONE, |origin| origin.principal);
        request.extensions_mut().insert(Guest { admitted, principal });
    }
    next.run(request).await
}

/// The caller of a request, and what it may do.
#[derive(Clone)]
pub struct Guest {
    admitted: Result<Admitted, GuestRefusal>,
    principal: Principal,
}

/// Why a caller may not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestRefusal {
    /// It is not known who it is.
    #[error("{0}")]
    Unknown(String),
    /// No rule lets it; the nearest is named.
    #[error("{0}")]
    Denied(String),
}

impl From<Status> for GuestRefusal {
    fn from(status: Status) -> GuestRefusal {
        let why = status.message().to_owned();
        if status.code() == Code::PermissionDenied { GuestRefusal::Denied(why) } else { GuestRefusal::Unknown(why) }
    }
}

impl Guest {
    /// Whether it may do this.
    pub fn check(&self, request: &AccessRequest<'_>) -> Result<(), GuestRefusal> {
        Ok(self.admitted()?.check(CallKind::Http, request)?)
    }

    /// Whether it may do this to a resource, under any name: remembered, for what is asked again and again.
    pub fn check_resource(&self, action: Action, resource: &str) -> Result<(), GuestRefusal> {
        Ok(self.admitted()?.check_remembered(CallKind::Gateway, &AccessRequest::on(action, resource))?)
    }

    /// Whether it may read all there is.
    pub fn check_reads_everything(&self) -> Result<(), GuestRefusal> {
        Ok(self.admitted()?.check_reads_everything(CallKind::Http)?)
    }

    /// To whom what it leaves behind is counted.
    pub fn principal(&self) -> Principal {
        self.principal
    }

    fn admitted(&self) -> Result<&Admitted, GuestRefusal> {
        self.admitted.as_ref().map_err(Clone::clone)
    }
}

/// A request that did not come in by a [`Frontend`] has none.
impl<S: Sync> FromRequestParts<S> for Guest {
    type Rejection = http::StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Guest, http::StatusCode> {
        parts.extensions.get().cloned().ok_or(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl std::fmt::Debug for Frontend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frontend").field("connections", &self.connections()).finish_non_exhaustive()
    }
}
