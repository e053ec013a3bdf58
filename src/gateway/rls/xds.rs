//! Takes the rules from a control plane, as envoyproxy/ratelimit does with `CONFIG_TYPE=GRPC_XDS_SOTW`: xDS, state of
//! the world. Each response has all rules. Valid ones replace the rules in force; others are rejected.
//!
//! While the control plane is away, the rules in force stay.

pub(crate) mod config;
mod subscription;

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};

use leaseway_client::{Transport, transport::Channel};
use leaseway_proto::envoy::{
    discovery::{
        DiscoveryRequest, DiscoveryResponse, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    ratelimit_discovery::rate_limit_config_discovery_service_client::RateLimitConfigDiscoveryServiceClient,
};
use metrics::{counter, gauge};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Endpoint};

use self::subscription::{Received, Subscription};
use super::{BACKOFF_MAX, backoff, current::CurrentRules, root_cause, unix_ms};

/// The control plane, and how the gateway presents itself.
#[derive(Debug)]
pub struct XdsOptions {
    /// `host:port`.
    pub address: String,
    pub transport: Transport,
    /// The id of the node. Control planes choose the rules by it.
    pub node: String,
    /// Keys and values of the node's metadata.
    pub metadata: Vec<(String, String)>,
    /// Several resources may have the same domain.
    pub merge_domains: bool,
}

/// Includes the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Detects a control plane that vanished. Servers in Go close connections with pings more often than each 5 minutes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(310);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A response has all rules. Larger ones end the stream.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The services that carry the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// For resources of any type (ADS). envoyproxy/ratelimit uses it.
    Aggregated,
    /// For rules only.
    Dedicated,
}

/// The maximum pause before a response is rejected again. Some servers send it again at once after each rejection, and
/// send nothing else before.
const REJECTION_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Follows the control plane. `first` is told of the first rules.
pub(crate) async fn run(options: XdsOptions, rules: Arc<CurrentRules>, first: oneshot::Sender<()>) {
    let node = subscription::node(options.node, options.metadata);
    let mut follower = Follower {
        address: options.address,
        transport: options.transport,
        service: Service::Aggregated,
        subscription: Subscription::new(node, options.merge_domains),
        rules,
        first: Some(first),
    };
    tracing::info!("waiting for rules from the xDS control plane at {}", follower.address);
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let ended = follower.follow().await;
        gauge!("leaseway_rls_xds_connected").set(0.0);
        failures = if ended.had_response || began.elapsed() > BACKOFF_MAX { 1 } else { failures + 1 };
        let pause = backoff(failures, fastrand::f64());
        let Follower { address, .. } = &follower;
        tracing::warn!(
            "xDS control plane at {address}: {}; {}, retrying in {:.1} s",
            ended.why,
            follower.in_force(),
            pause.as_secs_f64()
        );
        sleep(pause).await;
    }
}

struct Follower {
    address: String,
    transport: Transport,
    service: Service,
    subscription: Subscription,
    rules: Arc<CurrentRules>,
    /// None after the first rules.
    first: Option<oneshot::Sender<()>>,
}

/// The end of a stream.
struct Ended {
    had_response: bool,
    why: String,
}

impl Follower {
    fn in_force(&self) -> &'static str {
        if self.first.is_none() { "the last good rules stay in force" } else { "there are no rules yet" }
    }

    /// Connects, and follows one stream to its end.
    async fn follow(&mut self) -> Ended {
        let mut had_response = false;
        let why = match self.stream(&mut had_response).await {
            Ok(()) => "the stream ended".to_owned(),
            Err(why) => why,
        };
        Ended { had_response, why }
    }

    async fn stream(&mut self, had_response: &mut bool) -> Result<(), String> {
        let tune = |endpoint: Endpoint| {
            let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
            endpoint.http2_keep_alive_interval(KEEP_ALIVE_INTERVAL).keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        };
        let channel = self.transport.connect(&self.address, tune).await.map_err(|error| root_cause(&error))?;
        gauge!("leaseway_rls_xds_connected").set(1.0);
        let mut opened = self.open(channel.clone()).await;
        if opened.as_ref().is_err_and(|status| status.code() == Code::Unimplemented) {
            self.service = self.service.other();
            opened = self.open(channel).await;
        }
        let (requests, mut responses) = opened.map_err(|status| explain(&status))?;
        tracing::info!("subscribed to rules at the xDS control plane {} ({})", self.address, self.service.name());
        while let Some(response) = responses.message().await.map_err(|status| explain(&status))? {
            *had_response = true;
            let Some((request, pause)) = self.apply(&response) else { continue };
            sleep(pause).await;
            if requests.send(request).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Opens a stream and subscribes. A server may send its headers with the first response only.
    async fn open(
        &self,
        channel: Channel,
    ) -> Result<(mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>), Status> {
        let (requests, queue) = mpsc::channel(1);
        let _ = requests.try_send(self.subscription.subscribe());
        let queue = ReceiverStream::new(queue);
        let responses = match self.service {
            Service::Aggregated => {
                let client = AggregatedDiscoveryServiceClient::new(channel);
                client.max_decoding_message_size(MAX_RESPONSE_BYTES).stream_aggregated_resources(queue).await?
            }
            Service::Dedicated => {
                let client = RateLimitConfigDiscoveryServiceClient::new(channel);
                client.max_decoding_message_size(MAX_RESPONSE_BYTES).stream_rls_configs(queue).await?
            }
        };
        Ok((requests, responses.into_inner()))
    }

    /// Applies or rejects a response. Returns the answer, and the pause before it.
    fn apply(&mut self, response: &DiscoveryResponse) -> Option<(DiscoveryRequest, Duration)> {
        let version = leaseway_core::types::escaped(&response.version_info);
        let (request, outcome) = match self.subscription.receive(response) {
            Received::OfOtherType => {
                let type_url = leaseway_core::types::escaped(&response.type_url);
                tracing::warn!("ignored resources of type `{type_url}` from the xDS control plane {}", self.address);
                return None;
            }
            Received::Accepted { request, mut loaded } => {
                loaded.rules.written_unix_ms = unix_ms(SystemTime::now());
                loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                let domains = loaded.rules.domains().count();
                self.rules.replace(loaded.rules);
                if let Some(first) = self.first.take() {
                    let _ = first.send(());
                }
                tracing::info!("rules of version `{version}` applied (domains: {domains}); leases stay as they are");
                (request, "applied")
            }
            Received::Rejected { request, repeats: repeats @ 1.., .. } => {
                return Some((request, backoff(repeats, fastrand::f64()).min(REJECTION_PAUSE_MAX)));
            }
            Received::Rejected { request, why, .. } => {
                tracing::error!("rules of version `{version}` rejected, {}:\n{why}", self.in_force());
                (request, "rejected")
            }
        };
        counter!("leaseway_rls_reloads_total", "outcome" => outcome).increment(1);
        Some((request, Duration::ZERO))
    }
}

impl Service {
    fn other(self) -> Service {
        match self {
            Service::Aggregated => Service::Dedicated,
            Service::Dedicated => Service::Aggregated,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Service::Aggregated => "AggregatedDiscoveryService",
            Service::Dedicated => "RateLimitConfigDiscoveryService",
        }
    }
}

fn explain(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => {
            "it has no AggregatedDiscoveryService and no RateLimitConfigDiscoveryService: is this its xDS port?".into()
        }
        _ if status.source().is_some() => root_cause(status),
        code => format!("{} ({code:?})", leaseway_core::types::escaped(status.message())),
    }
}
