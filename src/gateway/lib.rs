//! Gateways: callers that speak a protocol of others are let in to a cluster.
//!
//! A gateway is a client of the cluster: it holds leases, and decides by them in its own process. What a protocol's
//! requests mean is said in a module of its own ([`rls`], [`rlqs`], [`http`]); [`bridge`] is what they share: which
//! resources are open, who holds them, and what is given back when none asks any more. Deliberately absent: anything
//! that divides, or that knows what others hold.

pub mod bridge;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
mod metrics;
mod pages;
pub mod resource_id;
pub mod rlqs;
pub mod rls;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leaseway_proto::envoy::ratelimit::rate_limit_service_server::RateLimitServiceServer;
use leaseway_server::{Frontend, FrontendOptions};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use self::{
    bridge::{Bridge, BridgeOptions},
    http::HttpGateway,
    rlqs::{RlqsOptions, RlqsService},
    rls::{CurrentRules, RlsService, file},
};
pub use self::{
    error::GatewayError,
    http::{HttpOptions, LongWindow},
    rls::file::RulesError,
};

/// What a gateway is to do.
#[derive(Debug)]
pub struct Options {
    /// The cluster, and what may be open.
    pub bridge: BridgeOptions,
    /// How listeners are protected.
    pub frontend: FrontendOptions,
    /// Where Envoys ask for each request, and by which rules.
    pub rls: Option<RlsOptions>,
    /// Where Envoys report and are assigned quotas, and how.
    pub rlqs: Option<RlqsOptions>,
    /// Where everything else asks, by HTTP; metrics and health are served there, too.
    pub http: Option<HttpOptions>,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
}

/// What a gateway for RLS is to do.
#[derive(Debug, Clone)]
pub struct RlsOptions {
    /// Where Envoys ask.
    pub listen: SocketAddr,
    /// The files of rules, or directories of them.
    pub rules: Vec<PathBuf>,
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
/// How often histograms are folded, so that they do not grow without scrapes.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// The names that health checkers may ask for: the gateway as a whole, or a service of it.
const HEALTH: [&str; 3] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];

#[derive(Debug)]
pub struct Gateway {
    bridge: Arc<Bridge>,
    rlqs: Option<RlqsService>,
    frontend: Frontend,
    closing: watch::Sender<bool>,
    health: HealthReporter,
    /// Read again for as long as they are here.
    _rules: Option<Arc<CurrentRules>>,
    addresses: Addresses,
}

impl Gateway {
    /// Starts all that is asked for, or nothing. Must be called within a tokio runtime.
    pub async fn start(options: Options) -> Result<Gateway, GatewayError> {
        let Options { bridge, frontend, rls, rlqs, http, metrics } = options;
        let prometheus = metrics::install();
        let listeners = [
            ("--rls", rls.as_ref().map(|rls| rls.listen)),
            ("--rlqs", rlqs.as_ref().map(|rlqs| rlqs.listen)),
            ("--http", http.as_ref().map(|http| http.listen)),
            ("--metrics", metrics),
        ];
        let listeners: Vec<_> = listeners.into_iter().filter_map(|(flag, address)| Some((flag, address?))).collect();
        // Before anything listens, so that a gateway with bad rules answers no request.
        let rules = rls.as_ref().map(|rls| read_rules(&rls.rules)).transpose()?;
        let frontend = Frontend::open(frontend, &listeners)?;
        let bridge = Bridge::start(bridge)?;
        let health = HealthReporter::new();
        let mut addresses = Addresses::default();
        if let (Some(rls), Some(rules)) = (&rls, &rules) {
            let service = RlsService::new(Arc::clone(rules), Arc::clone(&bridge));
            let shortcuts = vec![service.shortcut()];
            let routes = Routes::new(RateLimitServiceServer::new(service));
            addresses.rls = Some(frontend.serve_grpc("--rls", rls.listen, routes, shortcuts, health.clone()).await?);
        }
        let mut quotas = None;
        if let Some(rlqs) = rlqs {
            let listen = rlqs.listen;
            let service = RlqsService::new(rlqs, &bridge);
            let routes = service.routes();
            addresses.rlqs = Some(frontend.serve_grpc("--rlqs", listen, routes, Vec::new(), health.clone()).await?);
            quotas = Some(service);
        }
        let (closing, to_close) = watch::channel(false);
        let pages = pages::routes(prometheus.clone(), Arc::clone(&bridge));
        if let Some(options) = http {
            let listen = options.listen;
            let gateway = HttpGateway::new(options, Arc::clone(&bridge), to_close);
            let routes = gateway.routes(pages.clone());
            addresses.http = Some(frontend.serve_http("--http", listen, routes, http::MOST_BODY_BYTES).await?);
            tokio::spawn(gateway.look_after());
        }
        if let Some(address) = metrics {
            addresses.metrics = Some(frontend.serve_http("--metrics", address, pages, 0).await?);
        }
        for service in HEALTH {
            health.set_service_status(service, ServingStatus::Serving).await;
        }
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(METRICS_UPKEEP).await;
                prometheus.run_upkeep();
            }
        });
        Ok(Gateway { bridge, rlqs: quotas, frontend, closing, health, _rules: rules, addresses })
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
        let farewell = async {
            if let Some(rlqs) = &self.rlqs {
                rlqs.drain().await;
            }
        };
        tokio::join!(self.frontend.drain(DRAIN), farewell);
        self.bridge.close().await;
    }
}

/// The rules of these files, kept up to date.
fn read_rules(paths: &[PathBuf]) -> Result<Arc<CurrentRules>, GatewayError> {
    let watched = rls::Watched::new(paths.to_owned());
    let loaded = file::load(paths)?;
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let rules = Arc::new(CurrentRules::new(loaded.rules));
    tokio::spawn(watched.reload(Arc::downgrade(&rules)));
    Ok(rules)
}
