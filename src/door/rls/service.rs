//! The service that Envoy calls.

use std::sync::Arc;

use leaseway_core::Principal;
use leaseway_proto::envoy::ratelimit::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use leaseway_server::GrpcGuest;
use tonic::{Request, Response, Status};

use super::{
    current::CurrentRules,
    decision::{Asking, Decision, decide},
};
use crate::bridge::Bridge;

/// Decides requests.
#[derive(Debug, Clone)]
pub struct RlsService {
    rules: Arc<CurrentRules>,
    bridge: Arc<Bridge>,
}

impl RlsService {
    /// By these rules, and what the bridge holds.
    pub fn new(rules: Arc<CurrentRules>, bridge: Arc<Bridge>) -> RlsService {
        RlsService { rules, bridge }
    }

    fn decide(&self, guest: &GrpcGuest, request: &RateLimitRequest, may_wait: bool) -> Result<Decision, Status> {
        self.rules.with(|rules| decide(rules, &self.bridge, guest, request, may_wait))
    }
}

#[tonic::async_trait]
impl RateLimitService for RlsService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let guest = GrpcGuest::of(request.extensions())?;
        let request = request.into_inner();
        let decision = match self.decide(&guest, &request, true)? {
            Decision::Awaits(slots) => {
                for slot in slots {
                    slot.first_lease().await;
                }
                self.decide(&guest, &request, false)?
            }
            decided => decided,
        };
        match decision {
            Decision::Answered(answer) => Ok(Response::new(answer)),
            Decision::Awaits(_) => Err(Status::internal("it has waited already")),
        }
    }
}

impl Asking for GrpcGuest {
    fn may_ask(&self, resource: &str) -> Result<(), Status> {
        GrpcGuest::may_ask(self, resource)
    }

    fn principal(&self) -> Principal {
        GrpcGuest::principal(self)
    }
}
