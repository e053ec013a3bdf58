//! The wire format only: the Doorman protocol ([`doorman`]), Leaseway's own services, and Envoy's as far as gateways
//! speak them.
//!
//! `generated/` is committed, so that building needs no protobuf compiler of any kind; `tests/generated.rs` regenerates
//! it and fails if it differs. Messages are validated where they are parsed: requests in `src/server/api/grpc` and
//! `src/gateway`, answers in `src/client/transport`.

#![warn(missing_docs)]

/// `package doorman`: what Go clients and servers speak.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod doorman {
    include!("generated/doorman.rs");
}

/// Envoy's protocols, as far as gateways speak them.
#[cfg(feature = "envoy")]
pub mod envoy {
    /// `package envoy.service.rate_limit_quota.v3`: Envoy reports what it lets through and is assigned what it may.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod quota {
        include!("generated/envoy.service.rate_limit_quota.v3.rs");
    }

    /// `package envoy.service.ratelimit.v3`: Envoy asks for each request.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod ratelimit {
        include!("generated/envoy.service.ratelimit.v3.rs");
    }
}

/// `package leaseway.admin.v1`: what operators change.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod admin {
    include!("generated/leaseway.admin.v1.rs");

    /// The metadata that names the master's admin address when a call needed the master and another peer was asked.
    pub const MASTER_METADATA: &str = "leaseway-master";

    /// The metadata that names the parent's addresses when a node that has one was asked for configurations.
    pub const PARENT_METADATA: &str = "leaseway-parent";
}

/// `package leaseway.peer.v1`: what the peers of a node say to each other.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod peer {
    include!("generated/leaseway.peer.v1.rs");
}

/// `package leaseway.pools.v1`: how pools are managed.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod pools {
    include!("generated/leaseway.pools.v1.rs");
}

/// `package leaseway.push.v1`: when to ask again.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod push {
    include!("generated/leaseway.push.v1.rs");
}

/// `package leaseway.status.v1`: what a server says about itself.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod status {
    include!("generated/leaseway.status.v1.rs");
}

/// The compiled `.proto` files, with `required` as it is written there: for gRPC reflection and dynamic clients.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");
