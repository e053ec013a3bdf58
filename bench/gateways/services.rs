//! Baselines for gateways: a service that allows everything, a service that counts in Redis like envoyproxy/ratelimit,
//! and a service with an even share of the limit.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{StatusCode, header},
    routing::post,
};
use leaseway_process::tether;
use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use crate::{
    common::{error::Error, output::print, redis::Redis, server::Signals},
    gateways::Protocol,
};

/// Run a baseline service to compare gateways with.
///
/// Prints `listening on ADDRESS` once it accepts connections; stops on Ctrl-C or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct ServiceArgs {
    /// The listen address. Port 0 picks a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The protocol.
    #[arg(long, value_enum, default_value_t = Protocol::Rls)]
    protocol: Protocol,
    /// Count requests in this Redis, and allow --limit requests per second.
    #[arg(long, value_name = "ADDRESS", requires = "limit", conflicts_with = "even")]
    redis: Option<SocketAddr>,
    /// Allow this number of requests per second, counted in this process instead of in Redis.
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    even: Option<u32>,
    /// The limit per second, with --redis.
    #[arg(long, value_name = "N", requires = "redis")]
    limit: Option<u32>,
}

pub(crate) fn main(args: &ServiceArgs) -> Result<(), Error> {
    tether::obey();
    // Gateways use the same runtime, which is the usual one for tonic and axum.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Error::io("start a runtime"))?.block_on(serve(args))
}

async fn serve(args: &ServiceArgs) -> Result<(), Error> {
    let listening = || Error::io(format!("listen on {}", args.listen));
    let mut signals = Signals::new().map_err(Error::io("watch for signals"))?;
    let listener = TcpListener::bind(args.listen).await.map_err(listening())?;
    let address = listener.local_addr().map_err(listening())?;
    let verdicts = match (args.redis, args.limit, args.even) {
        (Some(redis), Some(limit), _) => {
            let connected = Redis::connect(redis).await;
            Verdicts::Counted { redis: connected.map_err(Error::io(format!("connect to {redis}")))?, limit }
        }
        (_, _, Some(limit)) => Verdicts::Even { limit, bucket: Arc::new(Mutex::new((limit.into(), Instant::now()))) },
        _ => Verdicts::Ok,
    };
    match args.protocol {
        Protocol::Rls => {
            let service = RateLimitServiceServer::new(PlainService { verdicts });
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        }
        Protocol::Http => {
            let routes = Router::new().route("/v1/resources/{resource}/acquire", post(acquire));
            tokio::spawn(async move { axum::serve(listener, routes).await });
        }
    }
    print(&format!("listening on {address}"))?;
    signals.any().await;
    Ok(())
}

/// How a service decides on a request.
#[derive(Clone)]
enum Verdicts {
    /// Allows everything.
    Ok,
    Counted {
        redis: Redis,
        limit: u32,
    },
    Even {
        limit: u32,
        bucket: Arc<Mutex<(f64, Instant)>>,
    },
}

impl Verdicts {
    async fn passes(&self, request: &RateLimitRequest) -> Result<bool, Status> {
        match self {
            Verdicts::Ok => Ok(true),
            Verdicts::Counted { redis, limit } => {
                let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let mut passes = true;
                for descriptor in &request.descriptors {
                    let counted = redis.count(key(request, descriptor, second), 1).await;
                    let counted = counted.ok_or_else(|| Status::unavailable("the connection to Redis is lost"))?;
                    passes &= counted <= i64::from(*limit);
                }
                Ok(passes)
            }
            Verdicts::Even { limit, bucket } => {
                let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
                let (limit, now) = (f64::from(*limit), Instant::now());
                let there = (bucket.0 + (now - bucket.1).as_secs_f64() * limit).min(limit);
                let passes = there >= 1.0;
                *bucket = (there - f64::from(u8::from(passes)), now);
                Ok(passes)
            }
        }
    }
}

fn key(request: &RateLimitRequest, descriptor: &RateLimitDescriptor, second: u64) -> String {
    let mut key = request.domain.clone();
    for entry in &descriptor.entries {
        key.extend(["_", &entry.key, "_", &entry.value]);
    }
    format!("{key}_{second}")
}

/// Baseline for RLS. Its answers are as large as a gateway's.
struct PlainService {
    verdicts: Verdicts,
}

#[tonic::async_trait]
impl RateLimitService for PlainService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let code = if self.verdicts.passes(&request).await? { Code::Ok } else { Code::OverLimit };
        let status = |_: &RateLimitDescriptor| DescriptorStatus {
            code: code.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: 1_000_000,
                unit: Unit::Second.into(),
                name: String::new(),
            }),
            limit_remaining: 1_000_000,
            duration_until_reset: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: code.into(),
            statuses: request.descriptors.iter().map(status).collect(),
            ..RateLimitResponse::default()
        }))
    }
}

#[derive(Deserialize)]
struct Wanted {
    permits: u32,
}

#[derive(Serialize)]
struct Acquired {
    resource: String,
    permits: u32,
    remaining: f64,
    capacity: f64,
}

/// Baseline for `acquire` over HTTP: always grants, with a body as large as a gateway's.
async fn acquire(
    Path(resource): Path<String>,
    body: Bytes,
) -> Result<([(header::HeaderName, &'static str); 1], Vec<u8>), StatusCode> {
    let Wanted { permits } = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let acquired = Acquired { resource, permits, remaining: 1_000_000.0, capacity: 1_000_000.0 };
    let body = serde_json::to_vec(&acquired).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body))
}
