//! Bounds on everything that requests can make grow. docs/reference/limits.md has the answer beyond each.

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
    /// Open connections.
    pub connections: usize,
    /// Holders that listen for hints.
    pub watchers: usize,
    /// Requests waiting for one resource.
    pub queue: usize,
    /// Seconds after which a resource without holders is forgotten.
    pub idle_secs: u64,
    /// Resources with series of their own in `/metrics`.
    pub metrics_resources: usize,
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
        }
    }
}
