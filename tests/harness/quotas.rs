//! A stream of an Envoy (RLQS).

use std::{collections::HashMap, sync::Once, time::Duration};

use leaseway_proto::envoy::quota::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_response::bucket_action::BucketAction,
    rate_limit_quota_service_client::RateLimitQuotaServiceClient,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
    rate_limit_strategy::{BlanketRule, Strategy},
};
use prost::Message as _;
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming, transport::Channel};

use super::wait::{block_on, runtime};

/// Opens the stream of an Envoy with this name.
pub(crate) fn stream(gateway: Channel, name: Option<&str>) -> QuotaStream {
    let (reports, sent) = mpsc::channel(16);
    let mut request = Request::new(ReceiverStream::new(sent));
    if let Some(name) = name {
        request.metadata_mut().insert("leaseway-client", name.parse().unwrap());
    }
    let mut service = RateLimitQuotaServiceClient::new(gateway);
    let told = block_on(service.stream_rate_limit_quotas(request)).unwrap().into_inner();
    QuotaStream { reports, told, has_begun: Once::new() }
}

pub(crate) struct QuotaStream {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    told: Streaming<RateLimitQuotaResponse>,
    has_begun: Once,
}

/// An action for a bucket: an assigned rate with its duration in seconds, or abandonment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Told {
    Assigned(f64, i64),
    Abandoned,
}

impl QuotaStream {
    /// Reports usage of the bucket `route`: requests in `secs` seconds.
    pub(crate) fn report(&self, domain: &str, route: &str, secs: i64, allowed: u64, denied: u64) {
        let bucket: HashMap<_, _> = [("route".to_owned(), route.to_owned())].into();
        let usage = BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket }),
            time_elapsed: Some(prost_types::Duration { seconds: secs, nanos: 0 }),
            num_requests_allowed: allowed,
            num_requests_denied: denied,
        };
        self.send(RateLimitQuotaUsageReports {
            domain: domain.to_owned(),
            bucket_quota_usages: vec![usage.encode_to_vec()],
        });
    }

    pub(crate) fn send(&self, reports: RateLimitQuotaUsageReports) {
        // If sending fails, the stream returns the reason.
        let _ = block_on(self.reports.send(reports));
        // Keeps the stream alive, as a real Envoy does.
        self.has_begun.call_once(|| {
            let reports = self.reports.downgrade();
            runtime().spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    let Some(reports) = reports.upgrade() else { return };
                    if reports.send(RateLimitQuotaUsageReports::default()).await.is_err() {
                        return;
                    }
                }
            });
        });
    }

    /// The next response by bucket, or the status that ended the stream.
    pub(crate) fn next(&mut self) -> Result<Vec<(String, Told)>, Status> {
        let response = block_on(self.told.message())?.ok_or_else(|| Status::ok("the stream has ended"))?;
        let told = response.bucket_action.into_iter().map(|action| {
            let route = action.bucket_id.unwrap().bucket["route"].clone();
            let told = match action.bucket_action.unwrap() {
                BucketAction::AbandonAction(_) => Told::Abandoned,
                BucketAction::QuotaAssignmentAction(quota) => {
                    let secs = quota.assignment_time_to_live.unwrap().seconds;
                    let rate = match quota.rate_limit_strategy.unwrap().strategy.unwrap() {
                        Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::DenyAll) => 0.0,
                        Strategy::BlanketRule(_) => f64::INFINITY,
                        Strategy::TokenBucket(bucket) => {
                            let interval = bucket.fill_interval.unwrap().seconds as f64;
                            f64::from(bucket.tokens_per_fill.unwrap()) / interval
                        }
                    };
                    Told::Assigned(rate, secs)
                }
            };
            (route, told)
        });
        Ok(told.collect())
    }

    /// The next assignment of a bucket.
    pub(crate) fn assigned(&mut self, route: &str) -> (f64, i64) {
        loop {
            let told = self.next().unwrap();
            if let Some((_, Told::Assigned(rate, secs))) = told.into_iter().find(|(bucket, _)| bucket == route) {
                return (rate, secs);
            }
        }
    }
}
