//! The gRPC service that Envoy calls.

use std::{sync::Arc, time::Instant};

use leaseway_proto::envoy::ratelimit::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use leaseway_server::{ExtraMethod, GrpcCaller};
use tonic::{Request, Response, Status};

use super::{
    answer::AnswerOptions,
    current::CurrentRules,
    decision::{Decider, Decision},
    stats,
};
use crate::lease_table::LeaseTable;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Debug, Clone)]
pub struct RlsService {
    rules: Arc<CurrentRules>,
    lease_table: Arc<LeaseTable>,
    options: Arc<AnswerOptions>,
}

impl RlsService {
    pub fn new(rules: Arc<CurrentRules>, lease_table: Arc<LeaseTable>, options: AnswerOptions) -> RlsService {
        RlsService { rules, lease_table, options: Arc::new(options) }
    }

    /// Answers `ShouldRateLimit` without tonic.
    pub fn extra_method(&self) -> ExtraMethod {
        let service = self.clone();
        ExtraMethod::new(PATH, move |caller, request| {
            let service = service.clone();
            async move { service.answer(&caller, &request).await }
        })
    }

    pub(super) async fn answer(
        &self,
        caller: &GrpcCaller,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let Some(stats) = stats::kept() else { return self.decided(caller, request).await };
        let begun = Instant::now();
        let answer = self.decided(caller, request).await;
        stats.count_request(begun.elapsed(), answer.is_err());
        answer
    }

    async fn decided(&self, caller: &GrpcCaller, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let mut decision = self.decide(caller, request, true)?;
        if let Decision::Undeclared = decision {
            self.rules.declared(self.lease_table.options().first_wait).await;
            decision = self.decide(caller, request, true)?;
        }
        let decision = match decision {
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
            Decision::Awaits(_) | Decision::Undeclared => {
                Err(Status::internal("unexpected error: the request is undecided after its wait for a lease"))
            }
        }
    }

    fn decide(&self, caller: &GrpcCaller, request: &RateLimitRequest, may_wait: bool) -> Result<Decision, Status> {
        self.rules.with(|rules| match rules.not_loaded() {
            // So that Envoy's `failure_mode_deny` decides. envoyproxy/ratelimit fails, too.
            true => Err(Status::unavailable("no rules yet: the xDS control plane of this gateway has not sent any")),
            false => {
                let RlsService { rules: current, lease_table, options } = self;
                Decider { current, rules, lease_table, options }.decide(caller, request, may_wait)
            }
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
