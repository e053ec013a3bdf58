//! The answer to Envoy: a status for each descriptor, in order.
//!
//! Envoy makes its X-RateLimit headers from the limit, the remaining requests and the time until the reset. The
//! remaining requests are those of this gateway. Other gateways have their own shares of the same limit. The reset is
//! the time until another permit comes back.

use std::time::Duration;

use leaseway_client::limiter::Standing;
use leaseway_proto::envoy::ratelimit::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{Code, DescriptorStatus, HeaderValue, RateLimit},
};
use prost_types::Struct;

use super::{metadata, rules::Unit};

#[derive(Debug)]
pub(super) enum Descriptor<'r> {
    /// No rule applies.
    Free,
    Unlimited,
    Limited {
        is_over: bool,
        /// It is over a limit that lets it pass all the same.
        is_tolerated: bool,
        requests: u32,
        unit: Unit,
        name: Option<&'r str>,
        /// None if no resource is open for it.
        standing: Option<Standing>,
    },
}

/// What answers have, for all requests of a gateway.
#[derive(Debug, Clone, Default)]
pub struct AnswerOptions {
    /// All requests pass. The statuses say what the limits would have decided.
    pub shadow_mode: bool,
    /// All limits are quotas: a request is refused only if all of its limits refuse it.
    pub quota_mode: bool,
    /// Headers for the response to the client of Envoy.
    pub headers: Option<HeaderNames>,
    /// Data for later filters and access logs of Envoy.
    pub dynamic_metadata: bool,
}

/// The names of the headers about the limit that is closest to being reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    /// In seconds.
    pub reset: String,
}

impl Default for HeaderNames {
    fn default() -> HeaderNames {
        let [limit, remaining, reset] =
            ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(str::to_owned);
        HeaderNames { limit, remaining, reset }
    }
}

impl HeaderNames {
    /// The headers about the closest of these limits. A limit that refuses the request comes first.
    fn headers(&self, statuses: &[DescriptorStatus], refusing: &[usize]) -> Vec<HeaderValue> {
        let limited = statuses.iter().enumerate().filter(|(_, status)| status.current_limit.is_some());
        let closest = limited.min_by_key(|(index, status)| (!refusing.contains(index), status.limit_remaining));
        let Some((_, status)) = closest else { return Vec::new() };
        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
        let reset = status.duration_until_reset.map_or(0, |reset| reset.seconds + i64::from(reset.nanos > 0));
        let values = [(&self.limit, limit.to_string()), (&self.remaining, status.limit_remaining.to_string())];
        let all = values.into_iter().chain([(&self.reset, reset.to_string())]);
        all.map(|(key, value)| HeaderValue { key: key.clone(), value }).collect()
    }
}

/// A decided request.
pub(super) struct Decided<'a, 'r> {
    pub(super) request: &'a RateLimitRequest,
    /// One for each descriptor of the request.
    pub(super) descriptors: Vec<Descriptor<'r>>,
    /// The descriptors that refuse the request, in ascending order.
    pub(super) refusing: Vec<usize>,
    /// The metadata of the rules that let the request pass.
    pub(super) metadata: Vec<&'r Struct>,
    /// The descriptors that take hits if the request passes, and how many.
    pub(super) held: Vec<(usize, u32)>,
}

impl Decided<'_, '_> {
    pub(super) fn message(self, options: &AnswerOptions) -> RateLimitResponse {
        let Decided { request, descriptors, refusing, metadata, held } = self;
        let is_over = !refusing.is_empty() && !options.shadow_mode;
        let statuses: Vec<_> = descriptors.iter().map(status).collect();
        RateLimitResponse {
            overall_code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
            response_headers_to_add: match &options.headers {
                Some(names) => names.headers(&statuses, &refusing),
                None => Vec::new(),
            },
            dynamic_metadata: options.dynamic_metadata.then(|| {
                let held = if is_over { &[][..] } else { &held };
                metadata::of_answer(request, metadata.into_iter(), held)
            }),
            statuses,
            ..RateLimitResponse::default()
        }
    }
}

fn status(descriptor: &Descriptor<'_>) -> DescriptorStatus {
    let free = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    match *descriptor {
        Descriptor::Free => free,
        Descriptor::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..free },
        Descriptor::Limited { is_over, is_tolerated, requests, unit, name, standing } => {
            let current_limit = RateLimit {
                requests_per_unit: requests,
                unit: unit.on_the_wire().into(),
                name: name.unwrap_or_default().to_owned(),
            };
            // The conversion truncates, and a debt becomes 0.
            let remaining = standing.map_or(0, |standing| standing.available as u32);
            let next_in = standing.and_then(|standing| standing.next_in).unwrap_or(unit.length());
            DescriptorStatus {
                code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
                current_limit: Some(current_limit),
                limit_remaining: if is_over || is_tolerated { 0 } else { remaining },
                duration_until_reset: Some(on_the_wire(next_in.min(unit.length()))),
            }
        }
    }
}

fn on_the_wire(span: Duration) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: span.subsec_nanos() as i32 }
}
