//! Gateways: callers that speak a protocol of others are let in to a cluster.
//!
//! A gateway is a client of the cluster: it holds leases, and decides by them in its own process. What a protocol's
//! requests mean is said in a module of its own ([`rls`], [`rlqs`], [`http`]); [`bridge`] is what they share: which
//! resources are open, who holds them, and what is given back when none asks any more. Deliberately absent: anything
//! that divides, or that knows what others hold.

mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
pub mod lease_table;
mod metrics;
mod pages;
pub mod resource_id;
pub mod rlqs;
pub mod rls;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leaseway_proto::envoy::ratelimit::rate_limit_service_server::RateLimitServiceServer;
use leaseway_server::{ExtraServices, ListenOption};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

pub use self::{
    error::GatewayError,
    http::{HttpOptions, LongWindow},
    metrics::install as install_metrics,
    rls::file::RulesError,
};
use self::{
    http::HttpGateway,
    lease_table::{LeaseTable, LeaseTableOptions},
    rlqs::{RlqsOptions, RlqsService},
    rls::{CurrentRules, RlsService, file},
};

/// What a gateway is to do.
#[derive(Debug)]
pub struct Options {
    /// The cluster, and what may be open.
    pub lease_table: LeaseTableOptions,
    /// Where Envoys ask for each request, and by which rules.
    pub rls: Option<RlsOptions>,
    /// Where Envoys report and are assigned quotas, and how.
    pub rlqs: Option<RlqsOptions>,
    /// Where everything else asks, by HTTP; metrics and health are served there, too.
    pub http: Option<HttpOptions>,
    /// Where metrics and health are served.
    pub metrics: Option<ListenOption>,
}

/// A gateway for RLS.
#[derive(Debug)]
pub struct RlsOptions {
    listen: ListenOption,
    rules: Arc<CurrentRules>,
}

impl RlsOptions {
    /// Reads the rules: files, or directories of them, which are read again when they change. Must be called within a
    /// tokio runtime.
    pub fn read(listen: ListenOption, rules: &[PathBuf]) -> Result<RlsOptions, RulesError> {
        let watched = rls::reload::watch(rules.to_owned());
        let loaded = file::load(rules)?;
        loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let rules = Arc::new(CurrentRules::new(loaded.rules));
        tokio::spawn(rls::reload::reload(watched, Arc::downgrade(&rules)));
        Ok(RlsOptions { listen, rules })
    }
}

impl Options {
    /// All addresses to listen on.
    pub fn listeners(&self) -> Vec<ListenOption> {
        let rls = self.rls.as_ref().map(|rls| rls.listen);
        let rlqs = self.rlqs.as_ref().map(|rlqs| rlqs.listen);
        let http = self.http.as_ref().map(|http| http.listen);
        [rls, rlqs, http, self.metrics].into_iter().flatten().collect()
    }
}

/// Where a running gateway can be reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Addresses {
    pub rls: Option<SocketAddr>,
    pub rlqs: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
}

/// How long requests under way may take when a gateway stops.
const DRAIN: Duration = Duration::from_secs(5);
/// The names that health checkers may ask for: the gateway as a whole, or a service of it.
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
}

impl Gateway {
    /// Starts all that is asked for, or nothing. `prometheus` is the recorder of the process. Must be called within a
    /// tokio runtime.
    pub async fn start(
        options: Options,
        services: ExtraServices,
        prometheus: PrometheusHandle,
    ) -> Result<Gateway, GatewayError> {
        let Options { lease_table, rls, rlqs, http, metrics } = options;
        metrics::describe();
        let lease_table = LeaseTable::start(lease_table)?;
        let health = HealthReporter::new();
        let mut addresses = Addresses::default();
        if let Some(RlsOptions { listen, rules }) = rls {
            let service = RlsService::new(rules, Arc::clone(&lease_table));
            let shortcuts = vec![service.shortcut()];
            let routes = Routes::new(RateLimitServiceServer::new(service));
            addresses.rls = Some(services.serve_grpc(listen, routes, shortcuts, health.clone()).await?);
        }
        let mut quotas = None;
        if let Some(rlqs) = rlqs {
            let listen = rlqs.listen;
            let service = RlqsService::new(rlqs, &lease_table);
            addresses.rlqs = Some(services.serve_grpc(listen, service.routes(), Vec::new(), health.clone()).await?);
            quotas = Some(service);
        }
        let (closing, to_close) = watch::channel(false);
        let pages = pages::routes(prometheus, Arc::clone(&lease_table));
        if let Some(options) = http {
            let listen = options.listen;
            let gateway = HttpGateway::new(options, Arc::clone(&lease_table), to_close);
            let routes = gateway.routes(pages.clone());
            addresses.http = Some(services.serve_http(listen, routes, http::MAX_BODY_BYTES).await?);
            tokio::spawn(gateway.run_sweeps());
        }
        if let Some(listen) = metrics {
            addresses.metrics = Some(services.serve_http(listen, pages, 0).await?);
        }
        for service in HEALTH {
            health.set_service_status(service, ServingStatus::Serving).await;
        }
        Ok(Gateway { lease_table, rlqs: quotas, services, closing, health, addresses })
    }

    /// Where it can be reached.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Finishes what is under way, and gives everything back.
    pub async fn stop(self) {
        tracing::info!("stopping");
        for service in HEALTH {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
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
