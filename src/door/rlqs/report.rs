//! What an Envoy reports, checked: nothing that a stranger sends gets further than this.

use std::{collections::BTreeMap, sync::Arc};

use leaseway_core::Millis;
use leaseway_proto::envoy::quota::{BucketId, RateLimitQuotaUsageReports};
use leaseway_proto::envoy::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;

use crate::resource_id;

/// What has passed at a bucket, and what was denied, since it was last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// As Envoy says it: whole seconds, cut.
    pub elapsed: Millis,
    /// Requests let through.
    pub allowed: u64,
    /// Requests turned away.
    pub denied: u64,
}
