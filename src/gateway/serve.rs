//! Starts and stops a gateway, and describes its metrics.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leaseway_client::BuildError;
use leaseway_proto::envoy::ratelimit::rate_limit_service_server::RateLimitServiceServer;
use leaseway_server::{ExtraServices, ListenOption, ReadinessProbe, ServeError};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    http::{self, HttpGateway, HttpOptions, pages, prices},
    lease_table::{LeaseTable, LeaseTableOptions},
    rlqs::{RlqsOptions, RlqsService},
    rls::{
        self,
        answer::AnswerOptions,
        current::{self, CurrentRules},
        declare::{self, DeclareOptions, DeclareStatus},
        file::{self, RulesError},
        rules::Rules,
        service::RlsService,
        stats::{self, StatsOptions},
        xds::{self, XdsOptions},
    },
};

#[derive(Debug)]
pub struct Options {
    pub lease_table: LeaseTableOptions,
    pub rls: Option<RlsOptions>,
    pub rlqs: Option<RlqsOptions>,
    /// This listener also serves metrics and health checks.
    pub http: Option<HttpOptions>,
    /// A listener for metrics and health checks only.
    pub metrics: Option<ListenOption>,
    /// Whether that listener is without TLS even if the others have it.
    pub plain_metrics: bool,
    /// A listener for health checks only, without TLS.
    pub probes: Option<ListenOption>,
}

#[derive(Debug)]
pub struct RlsOptions {
    listen: ListenOption,
    rules: Arc<CurrentRules>,
    xds: Option<XdsOptions>,
    answers: AnswerOptions,
    /// Whether and where the templates that follow from the rules are declared.
    pub declare: Option<DeclareOptions>,
    /// The listener for `/json` and `/healthcheck`.
    pub http: Option<ListenOption>,
    /// Another listener for the pages of `metrics`, such as `/rlconfig`.
    pub debug: Option<ListenOption>,
    /// Statistics under the names of envoyproxy/ratelimit, too.
    pub stats: Option<StatsOptions>,
}

impl RlsOptions {
    /// Reads the rules from files or directories, and reloads them when they change. Must be called within a tokio
    /// runtime. With `merge_domains` several files may have the same domain.
    pub fn read(listen: ListenOption, rules: &[PathBuf], merge_domains: bool) -> Result<RlsOptions, RulesError> {
        let watched = current::watch(rules.to_owned());
        let loaded = file::load(rules, merge_domains)?;
        loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let rules = Arc::new(CurrentRules::new(loaded.rules));
        tokio::spawn(current::reload(watched, Arc::downgrade(&rules), merge_domains));
        Ok(RlsOptions::new(listen, rules, None))
    }

    /// Takes the rules from a control plane. Requests fail until the first rules arrive.
    pub fn subscribe(listen: ListenOption, xds: XdsOptions) -> RlsOptions {
        let rules = Arc::new(CurrentRules::new(Rules::awaited()));
        RlsOptions::new(listen, rules, Some(xds))
    }

    fn new(listen: ListenOption, rules: Arc<CurrentRules>, xds: Option<XdsOptions>) -> RlsOptions {
        let answers = AnswerOptions::default();
        RlsOptions { listen, rules, xds, answers, declare: None, http: None, debug: None, stats: None }
    }

    #[must_use]
    pub fn answering(self, answers: AnswerOptions) -> RlsOptions {
        RlsOptions { answers, ..self }
    }

    /// Declares the templates that follow from the rules to the cluster.
    #[must_use]
    pub fn declaring(self, options: DeclareOptions) -> RlsOptions {
        RlsOptions { declare: Some(options), ..self }
    }
}

impl Options {
    /// Whether the gateway has rules, for the readiness probe of a server in this process.
    pub fn readiness(&self) -> Option<ReadinessProbe> {
        let rules = Arc::clone(&self.rls.as_ref()?.rules);
        Some(ReadinessProbe::new(move || rules.with(Rules::problem)))
    }

    /// The listeners that need protection beyond loopback.
    pub fn listeners(&self) -> Vec<ListenOption> {
        let of_rls = self.rls.iter().flat_map(|rls| [Some(rls.listen), rls.http, rls.debug]);
        let rlqs = self.rlqs.as_ref().map(|rlqs| rlqs.listen);
        let http = self.http.as_ref().map(|http| http.listen);
        of_rls.chain([rlqs, http, self.metrics]).flatten().collect()
    }
}

/// The listening addresses of a running gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct Addresses {
    pub rls: Option<SocketAddr>,
    pub rlqs: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub rls_http: Option<SocketAddr>,
    pub rls_debug: Option<SocketAddr>,
    pub probes: Option<SocketAddr>,
}

/// The time that pending requests get to finish when the gateway stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Service names in the gRPC health protocol. The empty name stands for the gateway as a whole.
const HEALTH: [&str; 3] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];

#[derive(Debug)]
pub struct Gateway {
    lease_table: Arc<LeaseTable>,
    rlqs: Option<RlqsService>,
    services: ExtraServices,
    closing: watch::Sender<bool>,
    health: HealthReporter,
    addresses: Addresses,
    /// Aborted when the gateway is dropped.
    tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts all listeners, or none. `prometheus` renders the metrics of the process. Must be called within a tokio
    /// runtime.
    pub async fn start(
        options: Options,
        services: ExtraServices,
        prometheus: PrometheusHandle,
    ) -> Result<Gateway, GatewayError> {
        describe_metrics();
        let Options { lease_table, rls, rlqs, http, metrics, plain_metrics, probes } = options;
        let lease_table = LeaseTable::start(lease_table)?;
        let health = HealthReporter::new();
        let (mut addresses, mut tasks) = (Addresses::default(), JoinSet::new());
        let (mut first_rules, mut rules_in_force, mut declaring) = (None, None, None);
        let (closing, to_close) = watch::channel(false);
        let rls_debug = rls.as_ref().and_then(|rls| rls.debug);
        if let Some(RlsOptions { listen, rules, xds, answers, declare, http, debug: _, stats }) = rls {
            if let Some(options) = stats {
                stats::enable(options, rules.with(Rules::problem).is_none());
            }
            if let Some(xds) = xds {
                set_health(&health, ServingStatus::NotServing).await;
                let (first, arrival) = oneshot::channel();
                tasks.spawn(xds::run(xds, Arc::clone(&rules), first));
                first_rules = Some(arrival);
            }
            if let Some(declare) = declare {
                let status = Arc::new(DeclareStatus::default());
                tasks.spawn(declare::run(declare, Arc::clone(&rules), Arc::clone(&status)));
                declaring = Some(status);
            }
            rules_in_force = Some(Arc::clone(&rules));
            let service = RlsService::new(rules, Arc::clone(&lease_table), answers);
            if let Some(listen) = http {
                let routes = rls::http::routes(service.clone(), to_close.clone());
                addresses.rls_http = Some(services.serve_http(listen, routes, rls::http::MAX_BODY_BYTES).await?);
            }
            let extra_methods = vec![service.extra_method()];
            let routes = Routes::new(RateLimitServiceServer::new(service));
            addresses.rls = Some(services.serve_grpc(listen, routes, extra_methods, health.clone()).await?);
        }
        let mut quotas = None;
        if let Some(rlqs) = rlqs {
            let listen = rlqs.listen;
            let service = RlqsService::new(rlqs, &lease_table);
            addresses.rlqs = Some(services.serve_grpc(listen, service.routes(), Vec::new(), health.clone()).await?);
            quotas = Some(service);
        }
        let pages = pages::routes(prometheus, Arc::clone(&lease_table), rules_in_force, declaring);
        if let Some(options) = http {
            let listen = options.listen;
            let gateway = HttpGateway::new(options, Arc::clone(&lease_table), to_close);
            let routes = gateway.routes(pages.all.clone());
            addresses.http = Some(services.serve_http(listen, routes, http::MAX_BODY_BYTES).await?);
            tokio::spawn(gateway.run_sweeps());
        }
        if let Some(listen) = rls_debug {
            addresses.rls_debug = Some(services.serve_http(listen, pages.all.clone(), 0).await?);
        }
        if let Some(listen) = metrics {
            addresses.metrics = Some(match plain_metrics {
                true => services.serve_plain_http(listen, pages.all).await?,
                false => services.serve_http(listen, pages.all, 0).await?,
            });
        }
        if let Some(listen) = probes {
            addresses.probes = Some(services.serve_plain_http(listen, pages.probes).await?);
        }
        serve_with_rules(first_rules, &health, &mut tasks).await;
        Ok(Gateway { lease_table, rlqs: quotas, services, closing, health, addresses, tasks })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Waits for pending requests, and releases all leases.
    pub async fn stop(mut self) {
        tracing::info!("stopping");
        self.tasks.shutdown().await;
        set_health(&self.health, ServingStatus::NotServing).await;
        self.closing.send_replace(true);
        let drain_rlqs = async {
            if let Some(rlqs) = &self.rlqs {
                rlqs.drain().await;
            }
        };
        tokio::join!(self.services.drain(DRAIN), drain_rlqs);
        self.lease_table.close().await;
    }
}

/// Reports that the gateway serves: at once, or when its first rules have arrived.
async fn serve_with_rules(
    first_rules: Option<oneshot::Receiver<()>>,
    health: &HealthReporter,
    tasks: &mut JoinSet<()>,
) {
    let Some(arrival) = first_rules else { return set_health(health, ServingStatus::Serving).await };
    let health = health.clone();
    tasks.spawn(async move {
        if arrival.await.is_ok() {
            set_health(&health, ServingStatus::Serving).await;
        }
    });
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in HEALTH {
        health.set_service_status(service, status).await;
    }
}

/// Why a gateway cannot start. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Client(#[from] BuildError),
}

impl GatewayError {
    /// Whether the options or their files are at fault, so that a retry cannot help.
    pub fn is_configuration(&self) -> bool {
        match self {
            GatewayError::Rules(_) | GatewayError::Client(_) => true,
            GatewayError::Serve(error) => error.is_configuration(),
        }
    }
}

/// Values of the label `kind` of `leaseway_rlqs_actions_total`.
const ACTIONS: [&str; 3] = ["assign", "deny", "abandon"];

/// Values of the label `outcome` of `leaseway_rls_reloads_total`.
const RELOADS: [&str; 2] = ["applied", "rejected"];

/// Values of the label `outcome` of `leaseway_rls_declarations_total`.
const DECLARATIONS: [&str; 2] = ["accepted", "failed"];

const GAUGES: [(&str, &str); 6] = [
    ("leaseway_gateway_resources", "Open resources of this gateway."),
    ("leaseway_rls_declared", "1 if the cluster has the templates for the rules in force (--declare)."),
    ("leaseway_rls_xds_connected", "1 while the gateway is connected to its xDS control plane."),
    ("leaseway_rlqs_streams", "Open RLQS streams."),
    ("leaseway_rlqs_envoys", "Envoys, including disconnected ones whose quota is still valid."),
    ("leaseway_rlqs_buckets", "RLQS buckets of all Envoys."),
];

/// Counters without labels.
const COUNTERS: [(&str, &str); 6] = [
    ("leaseway_rlqs_reports_total", "RLQS usage reports from Envoys."),
    ("leaseway_rlqs_buckets_refused_total", "Reported buckets that get no quota because of a limit or the policy."),
    ("leaseway_rls_unknown_domains_total", "RLS requests for a domain without rules; they are allowed."),
    ("leaseway_gateway_resources_opened_total", "Resources opened for requests."),
    ("leaseway_gateway_resources_released_total", "Resources released because they were unused."),
    ("leaseway_gateway_resources_refused_total", "Resources not opened because of the limit."),
];

/// Histogram buckets in seconds, the same as Doorman's. Only the client library has histograms.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How often histograms are drained, so that they do not grow without scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Installs a recorder for this process, which renders `/metrics`. Must be called within a tokio runtime.
pub fn install_metrics() -> PrometheusHandle {
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS).expect("there is at least one bucket");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // Fails for a second gateway in this process, which uses the recorder of the first.
    let _ = metrics::set_global_recorder(recorder);
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    handle
}

/// Counters of the client library.
const OF_CLIENT: [(&str, &str); 6] = [
    ("doorman_client_requests", "Requests to the cluster, by method and server."),
    ("doorman_client_request_errors", "Requests to the cluster that failed, by method and server."),
    ("leaseway_client_redirects_total", "Requests redirected to the master."),
    (
        "leaseway_client_refused_resources_total",
        "Resources left out of an answer because the cluster has no room for them.",
    ),
    ("leaseway_client_leases_ended_total", "Leases that expired without renewal."),
    ("leaseway_client_hints_total", "Hints received to refresh early."),
];

/// Describes all metrics, and starts counters at zero.
fn describe_metrics() {
    for (name, help) in OF_CLIENT {
        describe_counter!(name, help);
    }
    describe_histogram!("doorman_client_request_durations", Unit::Seconds, "Time until the cluster answers a request.");
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
        counter!(name).absolute(0);
    }
    describe_counter!("leaseway_rlqs_actions_total", "RLQS actions sent to Envoys, by kind.");
    for kind in ACTIONS {
        counter!("leaseway_rlqs_actions_total", "kind" => kind).absolute(0);
    }
    describe_counter!("leaseway_rls_reloads_total", "Attempts to reload the rules, by outcome.");
    for outcome in RELOADS {
        counter!("leaseway_rls_reloads_total", "outcome" => outcome).absolute(0);
    }
    describe_counter!("leaseway_rls_declarations_total", "Attempts to declare the templates of a domain, by outcome.");
    for outcome in DECLARATIONS {
        counter!("leaseway_rls_declarations_total", "outcome" => outcome).absolute(0);
    }
    prices::describe_metrics();
    describe_counter!("leaseway_gateway_without_lease_total", "Limits decided without a lease, by reason.");
    describe_counter!("leaseway_rls_requests_total", "RLS requests, by domain and result.");
    describe_counter!("leaseway_rls_decisions_total", "Descriptors matched by a rule, by rule and result.");
}
