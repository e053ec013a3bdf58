//! The service that does nothing: one fixed lease for every resource asked for, with every field a real answer has.

use std::time::{Duration, SystemTime};

use leaseway_proto::doorman::{
    DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
    GetServerCapacityResponse, Lease, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse, ResourceResponse,
    capacity_server::Capacity,
};
use tonic::{Request, Response, Status};

/// As no lease is ever renewed to a later time than the first one's, it must not end while anything is measured.
const LEASE: Duration = Duration::from_secs(7 * 24 * 3600);

/// As long on the wire as a token made of a term and a counter.
const TOKEN: u64 = (1 << 40) | 1_000_000;

/// Grants the same lease to every client. Nothing is looked up, counted or kept.
#[derive(Clone, Copy)]
pub(crate) struct Fixed {
    lease: Lease,
}

impl Fixed {
    pub(crate) fn new() -> Fixed {
        // Fixed from the start on: reading the clock is logic. The size on the wire is the same.
        let expiry = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + LEASE;
        Fixed {
            lease: Lease {
                expiry_time: Some(expiry.as_secs().cast_signed()),
                refresh_interval: Some(16),
                capacity: Some(25.0),
                token: Some(TOKEN),
                remaining_ms: Some(60_000),
            },
        }
    }
}

#[tonic::async_trait]
impl Capacity for Fixed {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        Ok(Response::new(DiscoveryResponse {
            mastership: Some(Mastership::default()),
            is_master: Some(true),
            ..DiscoveryResponse::default()
        }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let granted = |asked: leaseway_proto::doorman::ResourceRequest| ResourceResponse {
            resource_id: asked.resource_id,
            gets: Some(self.lease),
            safe_capacity: Some(1.0),
            pool: None,
            priority: asked.priority,
        };
        let response = request.into_inner().resource.into_iter().map(granted).collect();
        Ok(Response::new(GetCapacityResponse { response, ..Default::default() }))
    }

    async fn get_server_capacity(
        &self,
        _: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        Err(Status::unimplemented("the ceiling serves clients only, not child nodes"))
    }

    async fn release_capacity(
        &self,
        _: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        Ok(Response::new(ReleaseCapacityResponse::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leases_outlast_any_measurement() {
        let asked = GetCapacityRequest { resource: vec![Default::default()], ..Default::default() };
        let answer = Fixed::new().get_capacity(Request::new(asked)).await.expect("it always answers").into_inner();
        let expiry = answer.response[0].gets.and_then(|lease| lease.expiry_time).expect("it has one");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        // A run may last for a day, and a comparison has several.
        assert!(expiry.unsigned_abs() > now.as_secs() + 3 * 24 * 3600);
    }
}
