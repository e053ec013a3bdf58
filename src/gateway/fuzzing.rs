//! Entry points for fuzzing the decoders of gateways. Each function panics if decoding breaks an invariant.

use leaseway_proto::envoy::{discovery::DiscoveryResponse, quota::RateLimitQuotaUsageReports};
use prost::Message as _;

use crate::{
    resource_id,
    rlqs::report,
    rls::{file, xds},
};

pub use crate::http::fuzzing::{fields, lease_token};

/// Parses a file of rules in the format of envoyproxy/ratelimit.
pub fn rules(bytes: &[u8]) {
    if let Err(error) = file::parse("fuzz.yaml", bytes) {
        let error = error.to_string();
        assert!(error.starts_with("fuzz.yaml"), "{error}");
    }
}

/// Decodes a response of a control plane, and reads the rules in it.
pub fn discovery(bytes: &[u8]) {
    let Ok(response) = DiscoveryResponse::decode(bytes) else { return };
    match xds::config::load(&response.resources, false) {
        Ok(loaded) => drop(loaded.rules.dump()),
        Err(why) => assert!(why.starts_with("resource") && !why.ends_with('\n'), "{why}"),
    }
}

/// Decodes a usage report of an Envoy.
pub fn reports(bytes: &[u8]) {
    let Ok(reports) = RateLimitQuotaUsageReports::decode(bytes) else { return };
    for (at, usage) in reports.bucket_quota_usages.into_iter().enumerate() {
        match report::read(&reports.domain, at, &usage) {
            Ok((bucket, _)) => assert!(!bucket.resource.is_empty() && bucket.resource.len() <= resource_id::MAX_BYTES),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
