//! The answer to Envoy: a status for each descriptor, in order.
//!
//! Envoy makes the X-RateLimit headers from the limit, the remaining requests and the time until the reset. The
//! remaining requests are those of this gateway. Other gateways have their own shares of the same limit.

use std::time::Duration;

use leaseway_client::limiter::Standing;
use leaseway_proto::envoy::ratelimit::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, RateLimit},
};

use super::rules::Unit;

#[derive(Debug)]
pub(super) enum Descriptor<'r> {
    /// No rule applies.
    Free,
    Unlimited,
    Limited {
        is_over: bool,
        requests: u32,
        unit: Unit,
        name: Option<&'r str>,
        /// None if no resource is open for it.
        standing: Option<Standing>,
    },
}

#[derive(Debug)]
pub(super) struct Answer {
    statuses: Vec<DescriptorStatus>,
    is_over: bool,
}

impl Answer {
    pub(super) fn of<'r>(request: &RateLimitRequest, mut describe: impl FnMut(usize) -> Descriptor<'r>) -> Answer {
        let mut is_over = false;
        let statuses = (0..request.descriptors.len()).map(|place| {
            let descriptor = describe(place);
            is_over |= matches!(descriptor, Descriptor::Limited { is_over: true, .. });
            status(&descriptor)
        });
        Answer { statuses: statuses.collect(), is_over }
    }

    pub(super) fn message(self) -> RateLimitResponse {
        let overall_code = if self.is_over { Code::OverLimit } else { Code::Ok };
        RateLimitResponse { overall_code: overall_code.into(), statuses: self.statuses, ..RateLimitResponse::default() }
    }
}

fn status(descriptor: &Descriptor<'_>) -> DescriptorStatus {
    let free = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    match *descriptor {
        Descriptor::Free => free,
        Descriptor::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..free },
        Descriptor::Limited { is_over, requests, unit, name, standing } => {
            let current_limit = RateLimit {
                requests_per_unit: requests,
                unit: unit.on_the_wire().into(),
                name: name.unwrap_or_default().to_owned(),
            };
            // The conversion truncates, and a debt becomes 0.
            let remaining = standing.map_or(0, |standing| standing.available as u32);
            let full_in = standing.and_then(|standing| standing.full_in()).unwrap_or(unit.length());
            DescriptorStatus {
                code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
                current_limit: Some(current_limit),
                limit_remaining: if is_over { 0 } else { remaining },
                duration_until_reset: Some(on_the_wire(full_in.min(unit.length()))),
            }
        }
    }
}

fn on_the_wire(span: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: span.subsec_nanos() as i32 }
}
