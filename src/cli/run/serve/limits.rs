//! The flags for limits of a server.

use clap::Args;
use leaseway_server::config::limits::Limits;

use crate::run::value_parsers::{at_least_one, idle_secs, message_bytes, seconds};

/// Limits on everything that requests can allocate.
#[derive(Args)]
#[command(next_help_heading = "Limits (requests beyond them fail with RESOURCE_EXHAUSTED, unless noted)")]
pub(super) struct LimitFlags {
    /// Maximum number of active resources; one with one client takes about 650 bytes of memory
    #[arg(long, default_value_t = Limits::default().resources, value_name = "N", value_parser = at_least_one())]
    max_resources: usize,
    /// Maximum number of clients and child nodes per resource; a child node counts once for each priority that it
    /// reports
    #[arg(
        long,
        default_value_t = Limits::default().clients_per_resource,
        value_name = "N",
        value_parser = at_least_one()
    )]
    max_clients_per_resource: usize,
    /// Maximum number of clients and child nodes over all resources; each takes about 400 bytes of memory
    #[arg(long, default_value_t = Limits::default().clients, value_name = "N", value_parser = at_least_one())]
    max_clients: usize,
    /// Maximum number of resources per request
    #[arg(
        long,
        default_value_t = Limits::default().resources_per_request,
        value_name = "N",
        value_parser = at_least_one()
    )]
    max_resources_per_request: usize,
    /// Maximum number of priorities that a child node may report per resource
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_bands: u16,
    /// Maximum length of a client, server or resource id (longer ones fail with INVALID_ARGUMENT or `bad_id`)
    #[arg(long, default_value_t = Limits::default().id_bytes, value_name = "BYTES", value_parser = at_least_one())]
    max_id_bytes: usize,
    /// Maximum size of a gRPC message (larger ones fail with OUT_OF_RANGE)
    #[arg(
        long,
        default_value_t = Limits::default().message_bytes,
        value_name = "BYTES",
        value_parser = message_bytes()
    )]
    max_message_bytes: usize,
    /// Maximum number of open gRPC connections; beyond it, the server closes the new connection or one that has been
    /// idle for long
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N", value_parser = at_least_one())]
    max_connections: usize,
    /// Maximum number of clients and child nodes that receive refresh hints over a stream. The same maximum applies,
    /// separately, to streams that renew leases. 0 disables both kinds of stream
    #[arg(long, default_value_t = Limits::default().watchers, value_name = "N")]
    max_watchers: usize,
    /// Maximum number of queued requests per resource
    #[arg(long, default_value_t = Limits::default().queue, value_name = "N", value_parser = at_least_one())]
    max_queue: usize,
    /// Time after which a resource without holders is removed
    #[arg(long, default_value_t = Limits::default().idle_secs, value_name = "SECONDS", value_parser = idle_secs())]
    idle_secs: u64,
    /// Maximum number of resources with their own series in /metrics. Those with the highest demand relative to
    /// capacity are chosen, and the others are summed. 0 disables the series
    #[arg(long, default_value_t = Limits::default().metrics_resources, value_name = "N")]
    metrics_resources: usize,
    /// Maximum percentage that one caller may use of the limits on connections, clients, resources, watchers, queues
    /// and pool places. A caller is an identity, or an address without one. 100 disables this limit
    #[arg(
        long,
        default_value_t = Limits::default().address_share,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    address_share: u8,
    /// Maximum size of all buffered requests and responses together
    #[arg(long, default_value_t = Limits::default().waiting_bytes, value_name = "BYTES", value_parser = at_least_one())]
    max_waiting_bytes: usize,
    /// Maximum size of buffered requests and responses per connection; at least twice --max-message-bytes
    #[arg(
        long,
        default_value_t = Limits::default().connection_bytes,
        value_name = "BYTES",
        value_parser = at_least_one()
    )]
    max_connection_bytes: usize,
    /// Time limit for receiving a request (slower ones fail with DEADLINE_EXCEEDED)
    #[arg(long, default_value_t = Limits::default().request_secs, value_name = "SECONDS", value_parser = seconds())]
    request_secs: u64,
    /// Time after which a connection is closed if its client does not read pending responses
    #[arg(long, default_value_t = Limits::default().answer_secs, value_name = "SECONDS", value_parser = seconds())]
    answer_secs: u64,
    /// Time after which a connection without requests is closed; a watch counts as a request
    #[arg(
        long,
        default_value_t = Limits::default().idle_connection_secs,
        value_name = "SECONDS",
        value_parser = seconds()
    )]
    idle_connection_secs: u64,
    /// Maximum number of open connections per listener, for the HTTP, admin and peer listeners
    #[arg(long, default_value_t = Limits::default().page_connections, value_name = "N", value_parser = at_least_one())]
    max_page_connections: usize,
    /// Maximum number of live-updating browser pages; beyond it, pages are static
    #[arg(long, default_value_t = Limits::default().live_pages, value_name = "N")]
    max_live_pages: usize,
    /// Maximum number of resources whose history of 15 minutes, 6 hours and 7 days is kept for pages. Those with the
    /// highest demand relative to capacity are chosen. Each takes 7 KB; 0 disables the history
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
