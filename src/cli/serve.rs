//! `leaseway serve`.

use std::{io::IsTerminal as _, net::SocketAddr, path::PathBuf};

use clap::Args;
use leaseway_server::{Options, limits::Limits};
use tracing_subscriber::EnvFilter;

use crate::{Outcome, output::say};

/// Runs a server. Without --config it is a development server.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where to serve gRPC: the Doorman protocol, status, push hints, health, reflection
    #[arg(long, env = "LEASEWAY_LISTEN", default_value = "127.0.0.1:5100", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where to serve HTTP: /metrics, /healthz, /readyz, /debug/status, /debug/resources
    #[arg(long, env = "LEASEWAY_HTTP", default_value = "127.0.0.1:5150", value_name = "ADDRESS")]
    http: SocketAddr,
    /// The configuration: YAML, as Doorman has it. `leaseway config example` prints one
    #[arg(long, env = "LEASEWAY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the server calls itself [default: the address it advertises]
    #[arg(long, env = "LEASEWAY_ID")]
    id: Option<String>,
    /// Where clients reach it, if that is not where it listens
    #[arg(long, env = "LEASEWAY_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Threads that serve requests [default: one for each core]
    #[arg(long, env = "LEASEWAY_THREADS", value_name = "N")]
    threads: Option<usize>,
    /// What to log: a level (error, warn, info, debug), or a filter like info,leaseway_server=debug
    #[arg(long, env = "LEASEWAY_LOG", default_value = "info", value_name = "FILTER")]
    log: EnvFilter,
    #[command(flatten)]
    limits: LimitFlags,
}

/// What strangers can make grow, and how far.
#[derive(Args)]
#[command(next_help_heading = "Limits (beyond them RESOURCE_EXHAUSTED, unless it says otherwise)")]
struct LimitFlags {
    /// Resources alive at once
    #[arg(long, env = "LEASEWAY_MAX_RESOURCES", default_value_t = Limits::default().resources, value_name = "N")]
    max_resources: usize,
    /// Clients and child nodes of one resource; each band of a child node beyond its first counts as one more
    #[arg(long, env = "LEASEWAY_MAX_CLIENTS_PER_RESOURCE", default_value_t = Limits::default().clients_per_resource, value_name = "N")]
    max_clients_per_resource: usize,
    /// Clients and child nodes of all resources together; each takes about 400 bytes
    #[arg(long, env = "LEASEWAY_MAX_CLIENTS", default_value_t = Limits::default().clients, value_name = "N")]
    max_clients: usize,
    /// Resources in one request
    #[arg(long, env = "LEASEWAY_MAX_RESOURCES_PER_REQUEST", default_value_t = Limits::default().resources_per_request, value_name = "N")]
    max_resources_per_request: usize,
    /// Bands that a child node may report for one resource
    #[arg(long, env = "LEASEWAY_MAX_BANDS", default_value_t = 1024, value_name = "N")]
    max_bands: u16,
    /// Bytes of an id (INVALID_ARGUMENT beyond)
    #[arg(long, env = "LEASEWAY_MAX_ID_BYTES", default_value_t = Limits::default().id_bytes, value_name = "BYTES")]
    max_id_bytes: usize,
    /// Bytes of a message (OUT_OF_RANGE beyond)
    #[arg(long, env = "LEASEWAY_MAX_MESSAGE_BYTES", default_value_t = Limits::default().message_bytes, value_name = "BYTES")]
    max_message_bytes: usize,
    /// Open connections (closed at once beyond)
    #[arg(long, env = "LEASEWAY_MAX_CONNECTIONS", default_value_t = Limits::default().connections, value_name = "N")]
    max_connections: usize,
    /// Clients and child nodes that listen for hints
    #[arg(long, env = "LEASEWAY_MAX_WATCHERS", default_value_t = Limits::default().watchers, value_name = "N")]
    max_watchers: usize,
    /// Requests waiting for one resource
    #[arg(long, env = "LEASEWAY_MAX_QUEUE", default_value_t = Limits::default().queue, value_name = "N")]
    max_queue: usize,
    /// Seconds after which a resource that nobody holds is forgotten
    #[arg(long, env = "LEASEWAY_IDLE_SECS", default_value_t = Limits::default().idle_secs, value_name = "SECONDS")]
    idle_secs: u64,
}

impl LimitFlags {
    fn limits(&self) -> Limits {
        Limits {
            resources: self.max_resources,
            clients_per_resource: self.max_clients_per_resource,
            clients: self.max_clients,
            resources_per_request: self.max_resources_per_request,
            bands: self.max_bands.into(),
            id_bytes: self.max_id_bytes,
            message_bytes: self.max_message_bytes,
            connections: self.max_connections,
            watchers: self.max_watchers,
            queue: self.max_queue,
            idle_secs: self.idle_secs,
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> Outcome {
        let colours = std::io::stderr().is_terminal();
        tracing_subscriber::fmt().with_env_filter(self.log).with_writer(std::io::stderr).with_ansi(colours).init();
        let options = Options {
            listen: self.listen,
            http: self.http,
            config: self.config,
            id: self.id,
            advertise: self.advertise,
            threads: self.threads,
            limits: self.limits.limits(),
        };
        leaseway_server::run(options, |addresses| {
            let grpc = addresses.grpc;
            // Without a reader of standard output the server serves all the same.
            let _ = say(format_args!(
                "serving gRPC on {grpc}, HTTP on {}\n  ask it:   leaseway get alice mysql 40 --server {grpc}\n  look:     http://{}/debug/status",
                addresses.http, addresses.http
            ));
        })?;
        Ok(())
    }
}
