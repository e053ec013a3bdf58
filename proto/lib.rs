//! The messages on the wire: the Doorman protocol ([`doorman`]), Leaseway's own services, and the parts of Envoy's
//! services that gateways use.
//!
//! `generated/` is committed, so that building needs no protobuf compiler; `tests/generated.rs` regenerates it and
//! fails if it differs. Receivers validate the messages: requests in `src/server/api/grpc` and `src/gateway`, answers
//! in `src/client/transport`.

#![warn(missing_docs)]

/// `package doorman`: the Doorman protocol, with Leaseway's extensions.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod doorman {
    include!("generated/doorman.rs");
}

/// The parts of Envoy's protocols that gateways use.
#[cfg(feature = "envoy")]
pub mod envoy {
    /// `package envoy.service.discovery.v3` (xDS): a control plane sends resources to its subscribers.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod discovery {
        include!("generated/envoy.service.discovery.v3.rs");
    }

    /// `package envoy.service.rate_limit_quota.v3` (RLQS): Envoy reports usage and gets quota assignments.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod quota {
        include!("generated/envoy.service.rate_limit_quota.v3.rs");
    }

    /// `package envoy.service.ratelimit.v3` (RLS): Envoy asks for a decision on each request.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod ratelimit {
        include!("generated/envoy.service.ratelimit.v3.rs");
    }

    /// `package ratelimit.service.ratelimit.v3`: a control plane sends rules of envoyproxy/ratelimit.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
    pub mod ratelimit_discovery {
        include!("generated/ratelimit.service.ratelimit.v3.rs");

        /// The type of [`RateLimitConfig`] in discovery requests and responses.
        pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
    }
}

/// `package leaseway.admin.v1`: configurations, peers, overrides and backups, for operators.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod admin {
    include!("generated/leaseway.admin.v1.rs");

    /// Metadata key of errors from peers that are not the master: the master's admin address.
    pub const MASTER_METADATA: &str = "leaseway-master";

    /// Metadata key of errors from nodes with a parent, which have no templates: the parent's addresses.
    pub const PARENT_METADATA: &str = "leaseway-parent";
}

/// `package leaseway.peer.v1`: the protocol between the peers of a node.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod peer {
    include!("generated/leaseway.peer.v1.rs");
}

/// `package leaseway.pools.v1`: management of pools.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod pools {
    include!("generated/leaseway.pools.v1.rs");
}

/// `package leaseway.push.v1`: hints to refresh early.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod push {
    include!("generated/leaseway.push.v1.rs");
}

/// `package leaseway.session.v1`: renewal by a stream.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod session {
    include!("generated/leaseway.session.v1.rs");
}

/// `package leaseway.status.v1`: status reports of a server.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
pub mod status {
    include!("generated/leaseway.status.v1.rs");
}

/// The compiled `.proto` files for gRPC reflection and dynamic clients. Required fields are still `required` here.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");
