//! Takes the rules from a control plane, as envoyproxy/ratelimit does with `CONFIG_TYPE=GRPC_XDS_SOTW`: xDS, state of
//! the world, where each response has all rules, or delta, where a response has what has changed. Valid rules replace
//! those in force; others are rejected.
//!
//! While the control plane is away, the rules in force stay.

pub(crate) mod config;
mod delta;
mod subscription;

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};

use leaseway_client::{Transport, transport::Channel};
use leaseway_proto::envoy::{
    discovery::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    discovery::{DiscoveryRequest, DiscoveryResponse},
    ratelimit_discovery::rate_limit_config_discovery_service_client::RateLimitConfigDiscoveryServiceClient,
};
use metrics::{counter, gauge};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Endpoint};

use self::{
    delta::DeltaSubscription,
    subscription::{Received, Subscription},
};
use super::{BACKOFF_MAX, backoff, current::CurrentRules, stats, unix_ms};
use crate::root_cause;

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
    pub variant: XdsVariant,
}

/// How the rules are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum XdsVariant {
    /// Each response has all rules.
    #[default]
    StateOfTheWorld,
    /// A response has the rules that have changed. Over ADS only.
    Delta,
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
    /// Of resources of any type, what has changed.
    Delta,
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
        service: match options.variant {
            XdsVariant::StateOfTheWorld => Service::Aggregated,
            XdsVariant::Delta => Service::Delta,
        },
        subscription: Subscription::new(node.clone(), options.merge_domains),
        delta: DeltaSubscription::new(node, options.merge_domains),
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
    delta: DeltaSubscription,
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
        let channel =
            self.transport.connect(&self.address, tune).await.map_err(|error| with_own_flags(&root_cause(&error)))?;
        gauge!("leaseway_rls_xds_connected").set(1.0);
        if self.service == Service::Delta {
            let (requests, queue) = queue(self.delta.subscribe());
            let mut client =
                AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
            let opened = client.delta_aggregated_resources(queue).await.map_err(|status| explain(&status))?;
            return self
                .exchange(requests, opened.into_inner(), had_response, |follower, response| {
                    let received = follower.delta.receive(response);
                    follower.apply(&response.system_version_info, &response.type_url, received)
                })
                .await;
        }
        let mut opened = self.open(channel.clone()).await;
        if opened.as_ref().is_err_and(|status| status.code() == Code::Unimplemented) {
            self.service = self.service.other();
            opened = self.open(channel).await;
        }
        let (requests, responses) = opened.map_err(|status| explain(&status))?;
        self.exchange(requests, responses, had_response, |follower, response| {
            let received = follower.subscription.receive(response);
            follower.apply(&response.version_info, &response.type_url, received)
        })
        .await
    }

    /// Applies the responses of a stream, and answers them, until it ends.
    async fn exchange<Request, Response>(
        &mut self,
        requests: mpsc::Sender<Request>,
        mut responses: Streaming<Response>,
        had_response: &mut bool,
        apply: impl Fn(&mut Follower, &Response) -> Option<(Request, Duration)>,
    ) -> Result<(), String> {
        tracing::info!("subscribed to rules at the xDS control plane {} ({})", self.address, self.service.name());
        while let Some(response) = responses.message().await.map_err(|status| explain(&status))? {
            *had_response = true;
            let Some((request, pause)) = apply(self, &response) else { continue };
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
        let (requests, queue) = queue(self.subscription.subscribe());
        let responses = match self.service {
            Service::Dedicated => {
                let client = RateLimitConfigDiscoveryServiceClient::new(channel);
                client.max_decoding_message_size(MAX_RESPONSE_BYTES).stream_rls_configs(queue).await?
            }
            Service::Aggregated | Service::Delta => {
                let client = AggregatedDiscoveryServiceClient::new(channel);
                client.max_decoding_message_size(MAX_RESPONSE_BYTES).stream_aggregated_resources(queue).await?
            }
        };
        Ok((requests, responses.into_inner()))
    }

    /// Applies or rejects the rules of a response. Returns the answer, and the pause before it.
    fn apply<R>(&mut self, version: &str, type_url: &str, received: Received<R>) -> Option<(R, Duration)> {
        let version = leaseway_core::types::escaped(version);
        let (request, outcome) = match received {
            Received::OfOtherType => {
                let type_url = leaseway_core::types::escaped(type_url);
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
        stats::count_rules(outcome == "applied");
        Some((request, Duration::ZERO))
    }
}

/// A queue of requests that begins with this one.
fn queue<Request>(first: Request) -> (mpsc::Sender<Request>, ReceiverStream<Request>) {
    let (requests, queue) = mpsc::channel(1);
    let _ = requests.try_send(first);
    (requests, ReceiverStream::new(queue))
}

impl Service {
    fn other(self) -> Service {
        match self {
            Service::Aggregated => Service::Dedicated,
            Service::Dedicated => Service::Aggregated,
            Service::Delta => Service::Delta,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Service::Aggregated => "AggregatedDiscoveryService",
            Service::Dedicated => "RateLimitConfigDiscoveryService",
            Service::Delta => "AggregatedDiscoveryService, delta",
        }
    }
}

/// Names the flags of the control plane in an error of a connection.
fn with_own_flags(error: &str) -> String {
    // The name cannot be set.
    let error = error.replace(", or pass the expected name with --tls-server-name", "");
    error.replace("--tls-ca", "--rls-xds-ca")
}

fn explain(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => {
            "the server has neither AggregatedDiscoveryService nor RateLimitConfigDiscoveryService: check the address in --rls-xds".into()
        }
        _ if status.source().is_some() => with_own_flags(&root_cause(status)),
        code => format!("{} ({code:?})", leaseway_core::types::escaped(status.message())),
    }
}
