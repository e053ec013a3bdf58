//! The admin service for operators: the configuration that the peers keep, and the membership. Served on an address of
//! its own, because clients that may ask for capacity need not be able to change it.
//!
//! Only the master makes changes; another peer answers with its admin address (`leaseway-master`).

mod backup;
mod overrides;
mod plan;
mod transfer;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use leaseway_core::access::{AccessRequest, Action};
use leaseway_proto::admin::{
    AddPeerRequest, AddPeerResponse, ApplyConfigRequest, ApplyConfigResponse, ConfigHeader, GetBackupRequest,
    GetConfigRequest, GetConfigResponse, ListConfigsRequest, ListConfigsResponse, ListOverridesRequest,
    ListOverridesResponse, ListPeersRequest, ListPeersResponse, PARENT_METADATA, PlanConfigRequest, PlanConfigResponse,
    RemovePeerRequest, RemovePeerResponse, SetOverrideRequest, SetOverrideResponse, TransferMastershipRequest,
    TransferMastershipResponse,
    node_server::{Node, NodeServer},
};
use leaseway_proto::pools::pools_server::PoolsServer;
use leaseway_raft::{ChangeError, Command, Configuration, MasterLease, RaftHandle, State};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Mutex, watch},
};
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Routes, interceptor::InterceptedService},
};

use super::{
    admitted,
    operators::{elsewhere, unsure},
    pools::PoolService,
    serve_here,
};
use crate::{
    api::status::peer_list::peer_list,
    auth::{Admitted, Authorizer, CallerCache},
    config::{self, TEMPLATES, error::ServeError, limits::Limits},
    listen::{Addresses, Caller, Listener, ListenerSettings, bind, local},
    node::{NodeHandle, server_info::ServerInfo},
    observe::metrics::CallKind,
};

/// The framing of a configuration on the wire, in bytes.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// Where operators are served.
#[derive(Debug, Clone)]
pub struct AdminOptions {
    pub listen: SocketAddr,
    /// The file with the operators' token; without it only loopback is served.
    pub token_file: Option<PathBuf>,
}

/// A port that is not served yet.
pub(crate) struct AdminPort {
    pub(crate) tcp: TcpListener,
}

impl AdminPort {
    /// Binds the address. Off loopback only with a token or a policy.
    pub(crate) async fn open(
        options: &AdminOptions,
        info: &mut ServerInfo,
        addresses: &mut Addresses,
        has_policy: bool,
    ) -> Result<AdminPort, ServeError> {
        if options.token_file.is_none() && !has_policy && !options.listen.ip().is_loopback() {
            return Err(ServeError::AdminOpen { address: options.listen });
        }
        let listener = bind(options.listen, "--admin").await?;
        let address = local(&listener, options.listen);
        info.admin = address.to_string().into();
        addresses.admin = Some(address);
        Ok(AdminPort { tcp: listener })
    }
}

/// Serves until `stop` says so. Without peers and data directory there are pools only.
pub(crate) async fn serve(
    AdminPort { tcp }: AdminPort,
    authorizer: Arc<Authorizer>,
    listener: ListenerSettings,
    pools: PoolService,
    service: Option<AdminService>,
    stop: watch::Receiver<bool>,
) {
    let guard = move |request: Request<()>| guard(&authorizer, request);
    let limits = Limits { message_bytes: config::MAX_BYTES + MESSAGE_OVERHEAD, ..pools.limits().clone() };
    let services = Routes::new(InterceptedService::new(PoolsServer::new(pools), guard.clone()));
    let services = match service {
        Some(service) => {
            let service = NodeServer::new(service).max_decoding_message_size(limits.message_bytes);
            services.add_service(InterceptedService::new(service, guard))
        }
        None => services,
    };
    serve_here(Listener::new(tcp, listener), services, &limits, stop).await;
}

/// Finds out who calls. Where no policy decides what a caller may do, the server's token does.
fn guard(authorizer: &Arc<Authorizer>, mut request: Request<()>) -> Result<Request<()>, Status> {
    let headers = request.metadata().clone().into_headers();
    if authorizer.is_open() && !authorizer.is_operators(&headers) {
        return Err(Status::unauthenticated(
            "the token is missing or wrong: give the file that this server has with --admin-token-file",
        ));
    }
    let caller = Caller::of(&request).cloned();
    let admitted = Arc::new(CallerCache::new(Arc::clone(authorizer), caller)).admit(&headers, CallKind::Other)?;
    request.extensions_mut().insert(admitted);
    Ok(request)
}

#[derive(Clone)]
pub(crate) struct AdminService {
    node: NodeHandle,
    quorum: RaftHandle,
    info: ServerInfo,
    /// Configurations are applied one after the other, so that the expected version stays in force meanwhile.
    applying: Arc<Mutex<()>>,
}

impl AdminService {
    pub(crate) fn new(node: NodeHandle, quorum: RaftHandle, info: ServerInfo) -> AdminService {
        AdminService { node, quorum, info, applying: Arc::default() }
    }

    /// Whether a call may read what some change.
    fn may_read<T>(&self, request: &Request<T>, call: CallKind, change: Action) -> Result<(), Status> {
        let reads = [Action::Read, change].map(AccessRequest::to);
        admitted(request, self.node.authorizer()).check_any(call, &reads)
    }

    fn may_change_peers<T>(&self, request: &Request<T>) -> Result<Admitted, Status> {
        let admitted = admitted(request, self.node.authorizer());
        admitted.check(CallKind::Peers, &AccessRequest::to(Action::Peers))?;
        Ok(admitted)
    }

    fn record(&self, admitted: &Admitted, what: &'static str, outcome: Result<(), String>, details: Value) {
        self.node.authorizer().record(admitted.event(what, outcome, details));
    }

    /// Refuses where the parent has the templates.
    fn has_configurations(&self) -> Result<(), Status> {
        let Some(parent) = self.node.parent() else { return Ok(()) };
        let addresses = parent.addresses.join(", ");
        let why =
            format!("{TEMPLATES}, and that is at {addresses}: what is in force is changed at the root of the tree");
        let mut status = Status::failed_precondition(why);
        if let Ok(addresses) = addresses.parse::<MetadataValue<Ascii>>() {
            status.metadata_mut().insert(PARENT_METADATA, addresses);
        }
        Err(status)
    }

    fn reign(&self) -> Result<MasterLease, Status> {
        let reign = self.node.reign().map_err(|why| elsewhere(&why))?;
        Ok(reign.expect("a server with peers is master only with a reign"))
    }

    async fn apply_and_record(
        &self,
        admitted: &Admitted,
        request: ApplyConfigRequest,
    ) -> Result<ApplyConfigResponse, Status> {
        let source = request.source.clone();
        let applied = self.apply(request).await;
        let outcome = match &applied {
            Ok(answer) if answer.version == 0 => Err(format!("refused: {}", answer.mistakes.join("; "))),
            Ok(_) => Ok(()),
            Err(status) => Err(status.message().to_owned()),
        };
        let version = applied.as_ref().map_or(0, |answer| answer.version);
        self.record(admitted, "config_applied", outcome, json!({ "source": source, "version": version }));
        applied
    }

    async fn apply(&self, request: ApplyConfigRequest) -> Result<ApplyConfigResponse, Status> {
        let reign = self.reign()?;
        let newest = self.quorum.read(|state| state.configuration().map_or(0, |newest| newest.version));
        if request.expected_version != 0 && request.expected_version != newest {
            let (expected, now) = (request.expected_version, newest);
            return Err(Status::aborted(format!(
                "version {now} is in force, not {expected}: it has been changed since"
            )));
        }
        let has_parent = self.node.parent().is_some();
        let loaded = config::parse(&request.source, &request.text);
        if has_parent && loaded.as_ref().is_ok_and(config::Loaded::has_templates) {
            self.has_configurations()?;
        }
        let checked = loaded.and_then(|loaded| loaded.check_place(&request.source, has_parent).map(|()| loaded));
        let loaded = match checked {
            Ok(loaded) => loaded,
            Err(error) => {
                let mistakes = error.to_string().lines().map(str::to_owned).collect();
                return Ok(ApplyConfigResponse { version: 0, mistakes, warnings: Vec::new() });
            }
        };
        if let Err(mistake) = self.node.authorizer().check_policy(&request.source, loaded.access.as_ref()) {
            return Ok(ApplyConfigResponse { version: 0, mistakes: vec![mistake], warnings: Vec::new() });
        }
        let version = newest + 1;
        let configuration = Configuration {
            version,
            text: request.text.into(),
            source: request.source.into(),
            at_unix: self.node.clock.now().unix,
            by: Arc::clone(&self.info.id),
        };
        self.quorum
            .propose(&reign, vec![Command::Configuration(configuration)])
            .await
            .map_err(|error| unsure(&error))?;
        // If the node is gone the process ends.
        let _ = self.node.look_at_facts().await;
        let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
        Ok(ApplyConfigResponse { version, mistakes: Vec::new(), warnings })
    }
}

fn header(configuration: &Configuration) -> ConfigHeader {
    ConfigHeader {
        version: configuration.version,
        source: configuration.source.to_string(),
        applied_at_unix: configuration.at_unix,
        applied_by: configuration.by.to_string(),
    }
}

fn not_changed(error: &ChangeError) -> Status {
    match error {
        ChangeError::NotMaster { .. } => Status::unavailable(error.to_string()),
        // This server has to be started differently, not the peer that is to be added.
        ChangeError::Lone { .. } => Status::not_found(error.to_string()),
        _ => Status::aborted(error.to_string()),
    }
}

#[tonic::async_trait]
impl Node for AdminService {
    async fn apply_config(
        &self,
        request: Request<ApplyConfigRequest>,
    ) -> Result<Response<ApplyConfigResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        admitted.check(CallKind::Config, &AccessRequest::to(Action::Configure))?;
        let alone = Arc::clone(&self.applying).lock_owned().await;
        let (service, request) = (self.clone(), request.into_inner());
        // A call may be cancelled while its proposal is under way: the next must not expect the same version.
        let applying = tokio::spawn(async move {
            let _alone = alone;
            service.apply_and_record(&admitted, request).await
        });
        let applied = applying.await.map_err(|error| Status::internal(format!("applying it ended early: {error}")))?;
        applied.map(Response::new)
    }

    async fn get_config(&self, request: Request<GetConfigRequest>) -> Result<Response<GetConfigResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Configure)?;
        let version = request.get_ref().version;
        let found = self.quorum.read(|state| match version {
            0 => state.configuration().cloned(),
            _ => state.configurations().find(|configuration| configuration.version == version).cloned(),
        });
        if found.is_none() {
            self.has_configurations()?;
            // A peer that has only just begun to follow may not know what is in force: only the master knows that there
            // is none.
            self.reign()?;
        }
        let found = found.ok_or_else(|| match version {
            0 => Status::not_found("there is no configuration yet: it is put in force by the first master"),
            _ => Status::not_found(format!(
                "there is no version {version}, or not any more: `leaseway config history` lists them"
            )),
        })?;
        Ok(Response::new(GetConfigResponse { header: Some(header(&found)), text: found.text.to_string() }))
    }

    async fn list_configs(
        &self,
        request: Request<ListConfigsRequest>,
    ) -> Result<Response<ListConfigsResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Configure)?;
        let header: Vec<ConfigHeader> = self.quorum.read(|state| state.configurations().map(header).collect());
        if header.is_empty() {
            self.has_configurations()?;
        }
        let in_force = header.last().map_or(0, |newest| newest.version);
        Ok(Response::new(ListConfigsResponse { header, in_force }))
    }

    type GetBackupStream = backup::BackupParts;

    async fn get_backup(&self, request: Request<GetBackupRequest>) -> Result<Response<Self::GetBackupStream>, Status> {
        let admitted = self.may_back_up(&request)?;
        // Another peer may lack what was last changed.
        if !request.get_ref().any_peer {
            self.reign()?;
        }
        let parts = self.backup();
        self.record(&admitted, "backup_made", Ok(()), Value::Null);
        Ok(Response::new(parts))
    }

    async fn plan_config(&self, request: Request<PlanConfigRequest>) -> Result<Response<PlanConfigResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Configure)?;
        let admitted = admitted(&request, self.node.authorizer());
        self.plan(&admitted, request.into_inner()).await.map(Response::new)
    }

    async fn list_peers(&self, request: Request<ListPeersRequest>) -> Result<Response<ListPeersResponse>, Status> {
        self.may_read(&request, CallKind::Peers, Action::Peers)?;
        Ok(Response::new(peer_list(&self.quorum, &self.info)))
    }

    async fn add_peer(&self, request: Request<AddPeerRequest>) -> Result<Response<AddPeerResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.reign()?;
        let AddPeerRequest { name, address } = request.into_inner();
        let added = self.quorum.add(&name, &address).await;
        let outcome = added.as_ref().map(|_| ()).map_err(ToString::to_string);
        self.record(&admitted, "peer_added", outcome, json!({ "peer": name, "peer_address": address }));
        added.map_err(|error| not_changed(&error))?;
        Ok(Response::new(AddPeerResponse {}))
    }

    async fn remove_peer(&self, request: Request<RemovePeerRequest>) -> Result<Response<RemovePeerResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.reign()?;
        let name = request.into_inner().name;
        let removed = self.quorum.remove(&name).await;
        let outcome = removed.as_ref().map(|_| ()).map_err(ToString::to_string);
        self.record(&admitted, "peer_removed", outcome, json!({ "peer": name }));
        removed.map_err(|error| not_changed(&error))?;
        Ok(Response::new(RemovePeerResponse {}))
    }

    async fn transfer_mastership(
        &self,
        request: Request<TransferMastershipRequest>,
    ) -> Result<Response<TransferMastershipResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.reign()?;
        let to = request.into_inner().to;
        let moved = self.transfer(&to).await;
        let outcome = moved.as_ref().map(|_| ()).map_err(|status| status.message().to_owned());
        let master = moved.as_ref().map_or("", |answer| &answer.master);
        self.record(&admitted, "mastership_transferred", outcome, json!({ "to": to, "master": master }));
        moved.map(Response::new)
    }

    async fn set_override(
        &self,
        request: Request<SetOverrideRequest>,
    ) -> Result<Response<SetOverrideResponse>, Status> {
        let admitted = self.may_override(&request)?;
        let request = request.into_inner();
        let (what, details) = match request.capacity {
            Some(_) => ("capacity_overridden", overrides::in_words(&request)),
            None => ("override_cleared", json!({ "resource": request.pattern })),
        };
        let set = self.put_override(request, admitted.name()).await;
        let outcome = set.as_ref().map(|_| ()).map_err(|status| status.message().to_owned());
        self.record(&admitted, what, outcome, details);
        set.map(Response::new)
    }

    async fn list_overrides(
        &self,
        request: Request<ListOverridesRequest>,
    ) -> Result<Response<ListOverridesResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Override)?;
        let now = self.node.clock.unix_ms();
        let in_force = |state: &State| {
            state.overrides_in_force(now).map(|(pattern, set)| overrides::to_wire(pattern, set, now)).collect()
        };
        Ok(Response::new(ListOverridesResponse { r#override: self.quorum.read(in_force) }))
    }
}
