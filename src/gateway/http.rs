//! HTTP and JSON, for callers that speak neither gRPC nor Envoy's protocols.
//!
//! Routes, validation, metrics and the OpenAPI document are made from one table of
//! [operations](operation::Operation). [`leases`] belong to the callers, whose requests the gateway forwards to the
//! cluster. [`permits`] and [`reservations`] are taken from leases that the gateway holds.

mod admission;
mod budgets;
mod cluster;
mod fields;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lease_token;
mod leases;
mod openapi;
mod operation;
pub(crate) mod pages;
mod permits;
pub(crate) mod prices;
mod problem;
mod rate_limit_fields;
mod request;
mod reservations;

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, get, on},
};
use leaseway_core::policy::access::Action;
use leaseway_server::{CallerRefusal, HttpCaller, ListenOption};
use metrics::{Counter, counter, describe_counter, describe_gauge, gauge};
use serde_json::Value;
use tokio::sync::watch;

use self::{
    cluster::Cluster,
    fields::Fields,
    operation::Operation,
    problem::{Problem, ProblemKind},
    request::Read,
    reservations::Reservations,
};
use crate::lease_table::LeaseTable;

pub(crate) use self::request::MAX_BODY_BYTES;
pub use self::{
    permits::LongWindow,
    prices::{PriceFile, PriceFileError},
};

/// How often expired reservations are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct HttpOptions {
    pub listen: ListenOption,
    /// The maximum number of unsettled reservations.
    pub max_reservations: usize,
    /// Resources with limits per window. The first pattern that matches counts.
    pub windows: Vec<LongWindow>,
    /// Prices of usage in place of amounts.
    pub prices: Option<PriceFile>,
}

pub(crate) struct HttpGateway {
    cluster: Cluster,
    lease_table: Arc<LeaseTable>,
    reservations: Reservations,
    windows: Vec<LongWindow>,
    prices: Option<PriceFile>,
    counters: RequestCounters,
    /// The OpenAPI document.
    document: String,
    closing: watch::Receiver<bool>,
}

impl HttpGateway {
    /// The gateway closes when `closing` becomes true.
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
            document: format!("{:#}\n", openapi::document(options.prices.is_some())),
            prices: options.prices,
            closing,
        })
    }

    /// Routes of all operations, the OpenAPI document, and `pages` for operators.
    pub(crate) fn routes(self: &Arc<HttpGateway>, pages: Router) -> Router {
        let mut routes = Router::new();
        for operation in Operation::ALL {
            let filter = MethodFilter::try_from(operation.method()).expect("a standard method");
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

    /// Removes expired reservations until the gateway closes.
    pub(crate) async fn run_sweeps(self: Arc<HttpGateway>) {
        let mut closing = self.closing.clone();
        loop {
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => return,
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
            self.reservations.remove_expired();
            gauge!("leaseway_gateway_reservations").set(self.reservations.count() as f64);
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
        // First, because a refusal of usage names models of the price table.
        self.check_rights(operation, &caller, &parameter, &fields)?;
        let fields = prices::price(fields, self.prices.as_ref())?;
        match operation {
            Operation::GetLease | Operation::KeepLease => leases::get(&self.cluster, &caller, &fields).await,
            Operation::ReleaseLease => leases::release(&self.cluster, &caller, &fields).await,
            Operation::Acquire => permits::acquire(self, &caller, &parameter, &fields).await,
            Operation::AcquireAll => permits::acquire_all(self, &caller, &fields).await,
            Operation::Charge => permits::charge(self, &caller, &parameter, &fields).await,
            Operation::Spend => budgets::spend(self, &caller, &parameter, &fields).await,
            Operation::Standing => permits::standing(self, &parameter),
            Operation::Reserve => reservations::reserve(self, &caller, &parameter, &fields).await,
            Operation::ReserveAll => reservations::reserve_all(self, &caller, &fields).await,
            Operation::Settle => reservations::settle(self, &parameter, &fields),
            Operation::SettleAll => reservations::settle_all(self, &parameter, &fields),
        }
    }

    /// Checks the rights of a caller. A denied one opens and changes nothing. Those to leases depend on more than the
    /// resource, so [`leases`] checks them.
    fn check_rights(
        &self,
        operation: Operation,
        caller: &HttpCaller,
        parameter: &str,
        fields: &Fields,
    ) -> Result<(), Problem> {
        match operation {
            Operation::GetLease | Operation::KeepLease | Operation::ReleaseLease => Ok(()),
            Operation::Acquire | Operation::Charge | Operation::Spend | Operation::Reserve => {
                admission::check(caller, parameter)
            }
            Operation::AcquireAll | Operation::ReserveAll => {
                fields.list("limits").iter().try_for_each(|limit| admission::check(caller, limit.id("resource")))
            }
            Operation::Standing => Ok(caller.check_resource(Action::Read, parameter)?),
            Operation::Settle | Operation::SettleAll => {
                let resources = self.reservations.named(parameter)?.1;
                resources.iter().try_for_each(|(resource, _)| admission::check(caller, resource))
            }
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

/// Counters of requests by operation and status, looked up once.
struct RequestCounters(HashMap<(Operation, StatusCode), Counter>);

fn counter_of(operation: Operation, code: StatusCode) -> Counter {
    let code = code.as_str().to_owned();
    counter!("leaseway_gateway_http_requests_total", "operation" => operation.name(), "code" => code)
}

impl RequestCounters {
    /// Creates a counter for each status in the table of operations, so that all start at zero.
    fn new() -> RequestCounters {
        describe_counter!("leaseway_gateway_http_requests_total", "HTTP requests, by operation and status code.");
        describe_gauge!("leaseway_gateway_reservations", "Unsettled permit reservations.");
        let mut counters = HashMap::new();
        for operation in Operation::ALL {
            let answered = StatusCode::from_u16(operation.answer().0).unwrap_or_default();
            for code in operation.problems().iter().map(|kind| kind.status()).chain([answered]) {
                counters.insert((operation, code), counter_of(operation, code));
            }
        }
        counters.values().for_each(|counter| counter.absolute(0));
        RequestCounters(counters)
    }

    fn count(&self, operation: Operation, code: StatusCode) {
        match self.0.get(&(operation, code)) {
            Some(counter) => counter.increment(1),
            None => counter_of(operation, code).increment(1),
        }
    }
}

/// The answer to a successful request.
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
    let why = "this gateway is stopping: use another one, or retry in a moment";
    Problem::new(ProblemKind::Closing, why).retry_after(Duration::from_secs(1))
}

fn nothing_here() -> Problem {
    Problem::new(ProblemKind::NotFound, format!("unknown path: {} lists all paths", openapi::PATH))
}

fn no_such_method() -> Problem {
    Problem::new(
        ProblemKind::NoSuchMethod,
        format!("use a method that the header `Allow` lists; see {}", openapi::PATH),
    )
}

async fn document(State(gateway): State<Arc<HttpGateway>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], gateway.document.clone())
}
