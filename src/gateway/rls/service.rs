//! The gRPC service that Envoy calls.

use std::sync::Arc;

use leaseway_proto::envoy::ratelimit::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use leaseway_server::{ExtraMethod, GrpcCaller};
use tonic::{Request, Response, Status};

use super::{
    current::CurrentRules,
    decision::{Decision, decide},
};
use crate::lease_table::LeaseTable;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Debug, Clone)]
pub struct RlsService {
    rules: Arc<CurrentRules>,
    lease_table: Arc<LeaseTable>,
}

impl RlsService {
    pub fn new(rules: Arc<CurrentRules>, lease_table: Arc<LeaseTable>) -> RlsService {
        RlsService { rules, lease_table }
    }

    /// Answers `ShouldRateLimit` without tonic.
    pub fn extra_method(&self) -> ExtraMethod {
        let service = self.clone();
        ExtraMethod::new(PATH, move |caller, request| {
            let service = service.clone();
            async move { service.answer(&caller, &request).await }
        })
    }

    async fn answer(&self, caller: &GrpcCaller, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let decision = match self.decide(caller, request, true)? {
            Decision::Awaits(entries) => {
                for entry in entries {
                    entry.first_lease().await;
                }
                self.decide(caller, request, false)?
            }
            decided => decided,
        };
        match decision {
            Decision::Answered(answer) => Ok(answer),
            Decision::Awaits(_) => Err(Status::internal("the request is still undecided after its wait")),
        }
    }

    fn decide(&self, caller: &GrpcCaller, request: &RateLimitRequest, may_wait: bool) -> Result<Decision, Status> {
        self.rules.with(|rules| match rules.are_awaited() {
            // So that Envoy's `failure_mode_deny` decides. envoyproxy/ratelimit fails, too.
            true => Err(Status::unavailable("no rules yet: the xDS control plane has not sent any")),
            false => decide(rules, &self.lease_table, caller, request, may_wait),
        })
    }
}

#[tonic::async_trait]
impl RateLimitService for RlsService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let caller = GrpcCaller::of(request.extensions())?;
        Ok(Response::new(self.answer(&caller, request.get_ref()).await?))
    }
}
