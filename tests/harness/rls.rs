//! Requests to a gateway as Envoy makes them (RLS).

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    rate_limit_descriptor::Entry,
    rate_limit_response::{Code, DescriptorStatus},
    rate_limit_service_client::RateLimitServiceClient,
};
use tonic::{Request, Status, transport::Channel};

use super::wait::block_on;

/// The entries of a descriptor.
pub(crate) type Entries<'a> = &'a [(&'a str, &'a str)];

#[derive(Clone)]
pub(crate) struct RlsCaller(RateLimitServiceClient<Channel>);

impl RlsCaller {
    pub(crate) fn on(channel: Channel) -> RlsCaller {
        RlsCaller(RateLimitServiceClient::new(channel))
    }
}

/// A descriptor without limit or hits of its own.
pub(crate) fn descriptor(entries: Entries<'_>) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn request(domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

impl RlsCaller {
    pub(crate) async fn should_rate_limit(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(self.0.clone().should_rate_limit(request).await?.into_inner())
    }

    /// Sends this bearer token.
    pub(crate) fn ask_with_token(&self, token: &str, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let mut request = Request::new(request);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        Ok(block_on(self.0.clone().should_rate_limit(request))?.into_inner())
    }

    pub(crate) fn ask(&self, request: RateLimitRequest) -> RateLimitResponse {
        block_on(self.should_rate_limit(request)).unwrap()
    }

    /// Whether a request with one descriptor passes.
    pub(crate) fn passes(&self, domain: &str, entries: Entries<'_>) -> bool {
        self.ask(request(domain, &[descriptor(entries)])).passes()
    }

    /// Sends this number of requests and counts those that pass.
    pub(crate) fn count(&self, domain: &str, entries: Entries<'_>, requests: usize) -> usize {
        (0..requests).filter(|_| self.passes(domain, entries)).count()
    }
}

pub(crate) trait Answered {
    fn passes(&self) -> bool;
    fn all_pass(&self) -> Vec<bool>;
}

impl Answered for RateLimitResponse {
    fn passes(&self) -> bool {
        let code = self.overall_code();
        assert_ne!(code, Code::Unknown, "{self:?}");
        code == Code::Ok
    }

    fn all_pass(&self) -> Vec<bool> {
        self.statuses.iter().map(|status: &DescriptorStatus| status.code() == Code::Ok).collect()
    }
}
