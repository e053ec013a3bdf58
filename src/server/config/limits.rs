//! Bounds on everything that requests can make grow. docs/reference/limits.md has the answer beyond each.

use leaseway_core::PrincipalShare;

/// Bounds on everything that requests can make grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Resources alive at once.
    pub resources: usize,
    /// Clients and child nodes of one resource.
    pub clients_per_resource: usize,
    /// Clients and child nodes of all resources together: this bounds the memory.
    pub clients: usize,
    /// Resources in one request that are answered.
    pub resources_per_request: usize,
    /// Bands (slices) that a child node may report for one resource.
    pub bands: usize,
    /// Bytes of a client or resource id.
    pub id_bytes: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    pub connections: usize,
    /// Holders that listen for hints.
    pub watchers: usize,
    /// Requests waiting for one resource.
    pub queue: usize,
    /// Seconds after which a resource without holders is forgotten.
    pub idle_secs: u64,
    /// Resources with series of their own in `/metrics`.
    pub metrics_resources: usize,
    /// The part of any table that a lone identity, or address without one, may fill, in per cent.
    pub address_share: u8,
    /// Bytes that may wait to be read or sent, in all.
    pub waiting_bytes: usize,
    /// The same of one connection.
    pub connection_bytes: usize,
    /// Seconds within which a request must have come.
    pub request_secs: u64,
    /// Seconds for which a connection may have answers waiting without taking any.
    pub answer_secs: u64,
    /// Seconds for which a connection may have no request under way.
    pub idle_connection_secs: u64,
    /// Open connections of the HTTP listener, and of the operators'.
    pub page_connections: usize,
    /// Pages that are kept up to date at once.
    pub live_pages: usize,
    /// Resources whose last quarter of an hour is kept for pages.
    pub history_resources: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            resources: 10_000,
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
    /// The part of any table that a lone principal may fill.
    pub(crate) fn share(&self) -> PrincipalShare {
        PrincipalShare::new(f64::from(self.address_share) / 100.0).unwrap_or(PrincipalShare::ALL)
    }

    /// Bytes that may wait for one connection: at least a request of the longest message, and its answer.
    pub(crate) fn bytes_of_connection(&self) -> usize {
        self.connection_bytes.max(2 * self.message_bytes).min(MAX_CONNECTION_BYTES)
    }
}

/// Bytes of a connection are counted in 32 bits.
const MAX_CONNECTION_BYTES: usize = (1 << 31) - 1;
