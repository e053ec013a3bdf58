//! A fake peer with nothing but an admin service, which stores configurations and changes of peers.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use leaseway_proto::admin::{
    AddPeerRequest, AddPeerResponse, ApplyConfigRequest, ApplyConfigResponse, BackupPart, ConfigHeader,
    GetBackupRequest, GetConfigRequest, GetConfigResponse, ListConfigsRequest, ListConfigsResponse,
    ListOverridesRequest, ListOverridesResponse, ListPeersRequest, ListPeersResponse, MASTER_METADATA, PeerReport,
    PlanConfigRequest, PlanConfigResponse, RemovePeerRequest, RemovePeerResponse, Role, SetOverrideRequest,
    SetOverrideResponse, TransferMastershipRequest, TransferMastershipResponse,
    node_server::{Node, NodeServer},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::wait::{block_on, runtime};

/// Whether it is the master.
#[derive(Debug, Clone)]
pub(crate) enum FakeRole {
    Master,
    /// The master has this admin address.
    FollowerOf(String),
    NoMaster,
}

/// The state that all peers share.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    configs: Vec<(ConfigHeader, String)>,
    peers: Vec<(String, String)>,
}

pub(crate) struct FakeAdmin {
    address: SocketAddr,
    service: FakeAdminService,
}

#[derive(Clone)]
struct FakeAdminService {
    standing: FakeRole,
    token: Option<&'static str>,
    kept: Arc<Mutex<Kept>>,
}

impl FakeAdmin {
    pub(crate) fn new(standing: FakeRole) -> FakeAdmin {
        FakeAdmin::start(FakeAdminService { standing, token: None, kept: Arc::default() })
    }

    /// Requires this token.
    pub(crate) fn with_token(token: &'static str) -> FakeAdmin {
        FakeAdmin::start(FakeAdminService { standing: FakeRole::Master, token: Some(token), kept: Arc::default() })
    }

    /// A follower of this peer.
    pub(crate) fn follower(&self) -> FakeAdmin {
        let standing = FakeRole::FollowerOf(self.address());
        FakeAdmin::start(FakeAdminService { standing, ..self.service.clone() })
    }

    fn start(service: FakeAdminService) -> FakeAdmin {
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Server::builder().add_service(NodeServer::new(service.clone()));
        runtime().spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        FakeAdmin { address, service }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The sources of applied configurations.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.service.kept.lock().unwrap().configs.iter().map(|(header, _)| header.source.clone()).collect()
    }
}

impl FakeAdminService {
    fn check(&self, request: &Request<impl Sized>) -> Result<(), Status> {
        let Some(token) = self.token else { return Ok(()) };
        let sent = request.metadata().get("authorization").and_then(|sent| sent.to_str().ok());
        let known = sent == Some(&format!("Bearer {token}"));
        known.then_some(()).ok_or_else(|| Status::unauthenticated("the token is missing or wrong"))
    }

    fn as_master(&self, request: &Request<impl Sized>) -> Result<(), Status> {
        self.check(request)?;
        match &self.standing {
            FakeRole::Master => Ok(()),
            FakeRole::NoMaster => Err(Status::unavailable("there is no master at the moment")),
            FakeRole::FollowerOf(master) => {
                let mut status = Status::failed_precondition("another peer is master");
                status.metadata_mut().insert(MASTER_METADATA, master.parse().unwrap());
                Err(status)
            }
        }
    }
}

#[tonic::async_trait]
impl Node for FakeAdminService {
    async fn apply_config(
        &self,
        request: Request<ApplyConfigRequest>,
    ) -> Result<Response<ApplyConfigResponse>, Status> {
        self.as_master(&request)?;
        let request = request.into_inner();
        let mut kept = self.kept.lock().unwrap();
        let newest = kept.configs.len() as u64;
        if ![0, newest].contains(&request.expected_version) {
            return Err(Status::aborted(format!("version {newest} is in force")));
        }
        if request.text.contains("only this server minds") {
            let mistakes = vec![format!("{}:1:1: minded", request.source)];
            return Ok(Response::new(ApplyConfigResponse { mistakes, ..Default::default() }));
        }
        let version = newest + 1;
        let header =
            ConfigHeader { version, source: request.source, applied_at_unix: 1_700_000_000, applied_by: "a".into() };
        kept.configs.push((header, request.text));
        let warnings = vec!["a warning of the server".to_owned()];
        Ok(Response::new(ApplyConfigResponse { version, warnings, ..Default::default() }))
    }

    async fn get_config(&self, request: Request<GetConfigRequest>) -> Result<Response<GetConfigResponse>, Status> {
        self.check(&request)?;
        let kept = self.kept.lock().unwrap();
        let version = request.get_ref().version;
        let found = match version {
            0 => kept.configs.last(),
            _ => kept.configs.iter().find(|(header, _)| header.version == version),
        };
        let (header, text) = found.ok_or_else(|| Status::not_found(format!("there is no version {version}")))?.clone();
        Ok(Response::new(GetConfigResponse { header: Some(header), text }))
    }

    async fn list_configs(
        &self,
        request: Request<ListConfigsRequest>,
    ) -> Result<Response<ListConfigsResponse>, Status> {
        self.check(&request)?;
        let kept = self.kept.lock().unwrap();
        let header: Vec<_> = kept.configs.iter().map(|(header, _)| header.clone()).collect();
        Ok(Response::new(ListConfigsResponse { in_force: header.len() as u64, header }))
    }

    async fn plan_config(&self, request: Request<PlanConfigRequest>) -> Result<Response<PlanConfigResponse>, Status> {
        self.check(&request)?;
        Err(Status::unimplemented("an older server"))
    }

    async fn list_peers(&self, request: Request<ListPeersRequest>) -> Result<Response<ListPeersResponse>, Status> {
        self.check(&request)?;
        let kept = self.kept.lock().unwrap();
        let peer = kept.peers.iter().map(|(name, peer_address)| PeerReport {
            name: name.clone(),
            peer_address: peer_address.clone(),
            role: Role::Learner.into(),
            ..Default::default()
        });
        Ok(Response::new(ListPeersResponse { name: "a".into(), peer: peer.collect(), ..Default::default() }))
    }

    async fn add_peer(&self, request: Request<AddPeerRequest>) -> Result<Response<AddPeerResponse>, Status> {
        self.as_master(&request)?;
        let AddPeerRequest { name, address } = request.into_inner();
        if address.ends_with(":1") {
            return Err(Status::aborted(format!("the peer {name} at {address} does not answer")));
        }
        self.kept.lock().unwrap().peers.push((name, address));
        Ok(Response::new(AddPeerResponse {}))
    }

    async fn remove_peer(&self, request: Request<RemovePeerRequest>) -> Result<Response<RemovePeerResponse>, Status> {
        self.as_master(&request)?;
        let mut kept = self.kept.lock().unwrap();
        if kept.peers.len() < 2 {
            return Err(Status::aborted("the rest would be no majority"));
        }
        kept.peers.retain(|(name, _)| *name != request.get_ref().name);
        Ok(Response::new(RemovePeerResponse {}))
    }

    async fn transfer_mastership(
        &self,
        _: Request<TransferMastershipRequest>,
    ) -> Result<Response<TransferMastershipResponse>, Status> {
        Err(not_here())
    }

    type GetBackupStream = tokio_stream::Empty<Result<BackupPart, Status>>;

    async fn get_backup(&self, _: Request<GetBackupRequest>) -> Result<Response<Self::GetBackupStream>, Status> {
        Err(not_here())
    }

    async fn set_override(&self, _: Request<SetOverrideRequest>) -> Result<Response<SetOverrideResponse>, Status> {
        Err(not_here())
    }

    async fn list_overrides(
        &self,
        _: Request<ListOverridesRequest>,
    ) -> Result<Response<ListOverridesResponse>, Status> {
        Err(not_here())
    }
}

/// Methods that no test calls.
fn not_here() -> Status {
    Status::unimplemented("a fake remembers configurations and peers alone")
}
