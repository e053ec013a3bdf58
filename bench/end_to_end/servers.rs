//! Servers that are not as they should be.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use leaseway_proto::doorman::{
    DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
    GetServerCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse,
    capacity_server::{Capacity, CapacityServer},
};
use tokio::{net::TcpListener, runtime::Runtime, time::sleep};
use tonic::{Request, Response, Status, transport::Server, transport::server::TcpIncoming};

/// A server that says that another one is the master, or takes its time, or stops answering.
pub(super) struct OddServer {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl OddServer {
    /// Says that the master is there, or that it is this one itself, which it is not.
    pub(super) fn elsewhere(master: Option<SocketAddr>) -> OddServer {
        OddServer::start(|own| Odd { names: Some(master.unwrap_or(own)), ..Odd::default() })
    }

    pub(super) fn slow(delay: Duration) -> OddServer {
        OddServer::start(|_| Odd { delay, ..Odd::default() })
    }

    /// Answers so many requests, and then none.
    pub(super) fn hanging(answers: u64) -> OddServer {
        OddServer::start(|_| Odd { answers: answers.into(), ..Odd::default() })
    }

    fn start(odd: impl FnOnce(SocketAddr) -> Odd) -> OddServer {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let service = CapacityServer::from_arc(Arc::new(odd(address)));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        runtime.spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        OddServer { address, _runtime: runtime }
    }
}

struct Odd {
    delay: Duration,
    names: Option<SocketAddr>,
    /// So many more, and then none.
    answers: AtomicU64,
}

impl Default for Odd {
    fn default() -> Odd {
        Odd { delay: Duration::ZERO, names: None, answers: u64::MAX.into() }
    }
}

impl Odd {
    fn mastership(&self) -> Option<Mastership> {
        self.names.map(|master| Mastership { master_address: Some(master.to_string()) })
    }
}

#[tonic::async_trait]
impl Capacity for Odd {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        let is_master = Some(self.names.is_none());
        let mastership = Some(self.mastership().unwrap_or_default());
        Ok(Response::new(DiscoveryResponse { mastership, is_master, ..DiscoveryResponse::default() }))
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        if self.answers.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            pending::<()>().await;
        }
        sleep(self.delay).await;
        Ok(Response::new(GetCapacityResponse { mastership: self.mastership(), ..Default::default() }))
    }

    async fn get_server_capacity(
        &self,
        _: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        Err(Status::unimplemented("for clients only"))
    }

    async fn release_capacity(
        &self,
        _: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        Ok(Response::new(ReleaseCapacityResponse::default()))
    }
}
