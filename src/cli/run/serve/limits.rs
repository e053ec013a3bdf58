//! The flags for limits of a server.

use clap::Args;
use leaseway_server::config::limits::Limits;

use crate::run::value_parsers::{at_least_one, idle_secs, message_bytes, seconds};

/// Bounds on everything that requests can make grow.
#[derive(Args)]
#[command(next_help_heading = "Limits (beyond them RESOURCE_EXHAUSTED, unless it says otherwise)")]
pub(super) struct LimitFlags {
    /// Resources alive at once
    #[arg(long, default_value_t = Limits::default().resources, value_name = "N", value_parser = at_least_one())]
    max_resources: usize,
    /// Clients and child nodes of one resource; each band of a child node beyond its first counts as one more
    #[arg(
        long,
        default_value_t = Limits::default().clients_per_resource,
        value_name = "N",
        value_parser = at_least_one()
    )]
    max_clients_per_resource: usize,
    /// Clients and child nodes of all resources together; each takes about 400 bytes
    #[arg(long, default_value_t = Limits::default().clients, value_name = "N", value_parser = at_least_one())]
    max_clients: usize,
    /// Resources in one request
    #[arg(
        long,
        default_value_t = Limits::default().resources_per_request,
        value_name = "N",
        value_parser = at_least_one()
    )]
    max_resources_per_request: usize,
    /// Bands that a child node may report for one resource
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_bands: u16,
    /// Bytes of an id (INVALID_ARGUMENT beyond)
    #[arg(long, default_value_t = Limits::default().id_bytes, value_name = "BYTES", value_parser = at_least_one())]
    max_id_bytes: usize,
    /// Bytes of a message (OUT_OF_RANGE beyond)
    #[arg(
        long,
        default_value_t = Limits::default().message_bytes,
        value_name = "BYTES",
        value_parser = message_bytes()
    )]
    max_message_bytes: usize,
    /// Open connections (closed at once beyond)
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N", value_parser = at_least_one())]
    max_connections: usize,
    /// Clients and child nodes that listen for hints; 0: none may
    #[arg(long, default_value_t = Limits::default().watchers, value_name = "N")]
    max_watchers: usize,
    /// Requests waiting for one resource
    #[arg(long, default_value_t = Limits::default().queue, value_name = "N", value_parser = at_least_one())]
    max_queue: usize,
    /// Seconds after which a resource without holders is forgotten
    #[arg(long, default_value_t = Limits::default().idle_secs, value_name = "SECONDS", value_parser = idle_secs())]
    idle_secs: u64,
    /// Maximum number of resources with series of their own in /metrics: those under the most pressure. The others are
    /// counted and summed. 0: none
    #[arg(long, default_value_t = Limits::default().metrics_resources, value_name = "N")]
    metrics_resources: usize,
    /// The part of any table (connections, clients, resources, watchers, waiting bytes and requests, places of a pool)
    /// that a lone identity, or address without one, may fill, in per cent; the rest is there for others. 100: there
    /// are no shares
    #[arg(
        long,
        default_value_t = Limits::default().address_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    address_share: u8,
    /// Bytes that may wait in all, to be read (requests that have not come in full) or to be sent (answers)
    #[arg(long, default_value_t = Limits::default().waiting_bytes, value_name = "BYTES", value_parser = at_least_one())]
    max_waiting_bytes: usize,
    /// The same of one connection; at least twice --max-message-bytes
    #[arg(
        long,
        default_value_t = Limits::default().connection_bytes,
        value_name = "BYTES",
        value_parser = at_least_one()
    )]
    max_connection_bytes: usize,
    /// Seconds within which a request must have come in full (DEADLINE_EXCEEDED beyond)
    #[arg(long, default_value_t = Limits::default().request_secs, value_name = "SECONDS", value_parser = seconds())]
    request_secs: u64,
    /// Seconds after which a connection is closed that has answers waiting and takes none
    #[arg(long, default_value_t = Limits::default().answer_secs, value_name = "SECONDS", value_parser = seconds())]
    answer_secs: u64,
    /// Seconds after which a connection is closed that has no request under way; a watch is one
    #[arg(
        long,
        default_value_t = Limits::default().idle_connection_secs,
        value_name = "SECONDS",
        value_parser = seconds()
    )]
    idle_connection_secs: u64,
    /// Open connections of the HTTP listener; of the operators' and the peers' as many
    #[arg(long, default_value_t = Limits::default().page_connections, value_name = "N", value_parser = at_least_one())]
    max_page_connections: usize,
    /// Pages in browsers that are kept up to date at once (503 beyond: they show what was so when they were loaded)
    #[arg(long, default_value_t = Limits::default().live_pages, value_name = "N")]
    max_live_pages: usize,
    /// Maximum number of resources whose last quarter of an hour is kept for pages: those under the most pressure. Each
    /// takes 9 KB. 0: none
    #[arg(long, default_value_t = Limits::default().history_resources, value_name = "N")]
    history_resources: usize,
}

impl LimitFlags {
    pub(super) fn limits(&self) -> Limits {
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
            metrics_resources: self.metrics_resources,
            address_share: self.address_share,
            waiting_bytes: self.max_waiting_bytes,
            connection_bytes: self.max_connection_bytes,
            request_secs: self.request_secs,
            answer_secs: self.answer_secs,
            idle_connection_secs: self.idle_connection_secs,
            page_connections: self.max_page_connections,
            live_pages: self.max_live_pages,
            history_resources: self.history_resources,
        }
    }
}
