//! Limits on all state that requests can create. docs/reference/limits.md lists the answers beyond them.

use leaseway_core::types::PrincipalShare;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Active resources.
    pub resources: usize,
    /// Clients and child nodes of one resource.
    pub clients_per_resource: usize,
    /// Clients and child nodes of all resources. Bounds the memory.
    pub clients: usize,
    /// Resources answered per request.
    pub resources_per_request: usize,
    /// Priority bands per resource in a request of a child node.
    pub bands: usize,
    /// Bytes of a client or resource id.
    pub id_bytes: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    pub connections: usize,
    /// Holders that watch for hints.
    pub watchers: usize,
    /// Queued requests per resource.
    pub queue: usize,
    /// Seconds until a resource without holders is removed.
    pub idle_secs: u64,
    /// Resources with series in `/metrics`.
    pub metrics_resources: usize,
    /// Percentage of any limit that one identity, or one anonymous address, may use.
    pub address_share: u8,
    /// Bytes buffered for reading and sending, in total.
    pub waiting_bytes: usize,
    /// Bytes buffered per connection.
    pub connection_bytes: usize,
    /// Seconds for a request to arrive.
    pub request_secs: u64,
    /// Seconds that a connection may leave answers unread.
    pub answer_secs: u64,
    /// Seconds that a connection may be idle.
    pub idle_connection_secs: u64,
    /// Connections of the HTTP and admin listeners, each.
    pub page_connections: usize,
    /// Open live pages.
    pub live_pages: usize,
    /// Resources with a history for pages.
    pub history_resources: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            resources: 2_000_000,
            clients_per_resource: 1_000_000,
            clients: 2_000_000,
            resources_per_request: 10_000,
            bands: 1_024,
            id_bytes: 256,
            message_bytes: 4 << 20,
            connections: 10_000,
            watchers: 100_000,
            queue: 10_000,
            idle_secs: 300,
            metrics_resources: 1_000,
            address_share: 75,
            waiting_bytes: 256 << 20,
            connection_bytes: 16 << 20,
            request_secs: 30,
            answer_secs: 60,
            idle_connection_secs: 600,
            page_connections: 256,
            live_pages: 100,
            history_resources: 1_000,
        }
    }
}

impl Limits {
    /// The fraction of any limit that one principal may use.
    pub(crate) fn share(&self) -> PrincipalShare {
        PrincipalShare::new(f64::from(self.address_share) / 100.0).unwrap_or(PrincipalShare::ALL)
    }

    /// Bytes buffered per connection: at least the longest request and its answer.
    pub(crate) fn bytes_of_connection(&self) -> usize {
        self.connection_bytes.max(2 * self.message_bytes).min(MAX_CONNECTION_BYTES)
    }
}

/// Bytes of a connection are counted in 32 bits.
const MAX_CONNECTION_BYTES: usize = (1 << 31) - 1;
