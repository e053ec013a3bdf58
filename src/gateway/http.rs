//! HTTP and JSON: for what speaks neither gRPC nor Envoy's protocols.
//!
//! One table of [operations](operation::Operation) says what there is: routes, checks, metrics and the OpenAPI document
//! are made from it. [`leases`] are the callers' own and are passed on to the cluster; [`permits`] and [`reservations`]
//! are of resources whose lease this gateway holds.

mod cluster;
mod counters;
mod fields;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lease_token;
mod leases;
mod openapi;
mod operation;
mod permits;
mod problem;
mod rate_limit_fields;
mod request;
mod reservations;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, get, on},
};
use leaseway_server::{CallerRefusal, ListenOption};
use serde_json::Value;
use tokio::sync::watch;

use self::{
    cluster::Cluster,
    counters::RequestCounters,
    operation::Operation,
    problem::{Problem, ProblemKind},
    request::Read,
    reservations::Reservations,
};
use crate::lease_table::LeaseTable;

pub use self::permits::LongWindow;
pub(crate) use self::request::MAX_BODY_BYTES;

/// Reservations that have ended are looked for so often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What a gateway for HTTP is to do.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where callers ask.
    pub listen: ListenOption,
    /// Reservations that may wait to be settled.
    pub max_reservations: usize,
    /// Resources with windows longer than a second; the first pattern that matches counts.
    pub windows: Vec<LongWindow>,
}

/// What requests by HTTP are answered from.
pub(crate) struct HttpGateway {
    cluster: Cluster,
    lease_table: Arc<LeaseTable>,
    reservations: Reservations,
    windows: Vec<LongWindow>,
    counters: RequestCounters,
    /// The document is the same for all.
    document: String,
    closing: watch::Receiver<bool>,
}

impl HttpGateway {
    /// A gateway whose permits come from `bridge`. It closes when `closing` says so.
    pub(crate) fn new(
        options: HttpOptions,
        lease_table: Arc<LeaseTable>,
        closing: watch::Receiver<bool>,
    ) -> Arc<HttpGateway> {
        Arc::new(HttpGateway {
            cluster: Cluster::new(lease_table.options()),
            lease_table,
            reservations: Reservations::new(options.max_reservations),
            windows: options.windows,
            counters: RequestCounters::new(),
            document: format!("{:#}\n", openapi::document()),
            closing,
        })
    }

    /// What it serves, besides pages for operators.
    pub(crate) fn routes(self: &Arc<HttpGateway>, pages: Router) -> Router {
        let mut routes = Router::new();
        for operation in Operation::ALL {
            let filter = MethodFilter::try_from(operation.method()).expect("one of HTTP's own");
            let serve =
                move |State(gateway): State<Arc<HttpGateway>>, request: Request| serve(gateway, operation, request);
            routes = routes.route(operation.path(), on(filter, serve));
        }
        routes
            .route(openapi::PATH, get(document))
            .with_state(Arc::clone(self))
            .merge(pages)
            .fallback(|| async { nothing_here() })
            .method_not_allowed_fallback(|| async { no_such_method() })
    }

    /// Ends reservations whose time is over, until the gateway closes.
    pub(crate) async fn run_sweeps(self: Arc<HttpGateway>) {
        let mut closing = self.closing.clone();
        loop {
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => return,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
            self.reservations.end_late();
            counters::reservations(self.reservations.count());
        }
    }

    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    async fn carry_out(&self, operation: Operation, request: Request) -> Result<HttpAnswer, Problem> {
        if self.is_closing() {
            return Err(closing());
        }
        let Read { caller, parameter, fields } = request::read(operation, request).await?;
        match operation {
            Operation::GetLease | Operation::KeepLease => leases::get(&self.cluster, &caller, &fields).await,
            Operation::ReleaseLease => leases::release(&self.cluster, &caller, &fields).await,
            Operation::Acquire => permits::acquire(self, &caller, &parameter, &fields).await,
            Operation::Charge => permits::charge(self, &caller, &parameter, &fields).await,
            Operation::Standing => permits::standing(self, &caller, &parameter),
            Operation::Reserve => reservations::reserve(self, &caller, &parameter, &fields).await,
            Operation::Settle => reservations::settle(self, &caller, &parameter, &fields),
        }
    }
}

async fn serve(gateway: Arc<HttpGateway>, operation: Operation, request: Request) -> Response {
    let response = match gateway.carry_out(operation, request).await {
        Ok(answer) => answer.into_response(),
        Err(problem) => problem.into_response(),
    };
    gateway.counters.count(operation, response.status());
    response
}

/// What a request that was carried out is answered with.
struct HttpAnswer {
    status: StatusCode,
    json: Value,
    headers: HeaderMap,
}

impl HttpAnswer {
    fn of(status: StatusCode, json: Value) -> HttpAnswer {
        HttpAnswer { status, json, headers: HeaderMap::new() }
    }

    fn empty() -> HttpAnswer {
        HttpAnswer::of(StatusCode::NO_CONTENT, Value::Null)
    }

    fn with(self, headers: HeaderMap) -> HttpAnswer {
        HttpAnswer { headers, ..self }
    }
}

impl IntoResponse for HttpAnswer {
    fn into_response(self) -> Response {
        let mut response = match &self.json {
            Value::Null => self.status.into_response(),
            json => {
                let json = json.to_string() + "\n";
                (self.status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
            }
        };
        response.headers_mut().extend(self.headers);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl From<CallerRefusal> for Problem {
    fn from(refusal: CallerRefusal) -> Problem {
        match refusal {
            CallerRefusal::Unknown(why) => Problem::new(ProblemKind::Unauthenticated, why),
            CallerRefusal::Denied(why) => Problem::new(ProblemKind::Denied, why),
        }
    }
}

fn closing() -> Problem {
    let why = "this gateway is being stopped: ask another, or this one in a moment";
    Problem::new(ProblemKind::Closing, why).retry_after(Duration::from_secs(1))
}

fn nothing_here() -> Problem {
    Problem::new(ProblemKind::NotFound, format!("nothing is served at this path: {} has all there are", openapi::PATH))
}

fn no_such_method() -> Problem {
    Problem::new(ProblemKind::NoSuchMethod, format!("`Allow` names what is served here; {} has more", openapi::PATH))
}

async fn document(State(gateway): State<Arc<HttpGateway>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], gateway.document.clone())
}
