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

/// Says that somebody else is the master, or itself, which it is not.
pub(super) struct Elsewhere {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl Elsewhere {
    pub(super) fn start(master: Option<SocketAddr>) -> Elsewhere {
        let (address, runtime) =
            serve(|own| Odd { delay: Duration::ZERO, names: Some(master.unwrap_or(own)), answers: u64::MAX.into() });
        Elsewhere { address, _runtime: runtime }
    }
}

/// Takes its time.
pub(super) struct Slow {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl Slow {
    pub(super) fn start(delay: Duration) -> Slow {
        let (address, runtime) = serve(|_| Odd { delay, names: None, answers: u64::MAX.into() });
        Slow { address, _runtime: runtime }
    }
}

/// Answers so many requests, and then none.
pub(super) struct Hanging {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl Hanging {
    pub(super) fn start(answers: u64) -> Hanging {
        let (address, runtime) = serve(|_| Odd { delay: Duration::ZERO, names: None, answers: answers.into() });
        Hanging { address, _runtime: runtime }
    }
}

struct Odd {
    delay: Duration,
    names: Option<SocketAddr>,
    /// So many more, and then none.
    answers: AtomicU64,
}

fn serve(odd: impl FnOnce(SocketAddr) -> Odd) -> (SocketAddr, Runtime) {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let service = CapacityServer::from_arc(Arc::new(odd(address)));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    runtime.spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    (address, runtime)
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
