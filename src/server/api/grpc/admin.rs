//! The admin service: configuration, membership, overrides, limits, declarations and backups. It has its own listener,
//! because clients must not reach it.
//!
//! Only the master makes changes. Other peers answer with its admin address (`leaseway-master`).

mod declarations;
pub(crate) mod limits;
mod overrides;

use std::{net::SocketAddr, path::PathBuf, pin::Pin, sync::Arc};

use leaseway_core::{
    self as core,
    policy::access::{AccessRequest, Action},
    types::{HolderKind, Millis, Sum},
};
use leaseway_proto::admin::{
    AddPeerRequest, AddPeerResponse, ApplyConfigRequest, ApplyConfigResponse, BackupPart, ConfigHeader,
    DeclareTemplatesRequest, DeclareTemplatesResponse, DueChange, Forecast, GetBackupRequest, GetConfigRequest,
    GetConfigResponse, GroupChange, ListConfigsRequest, ListConfigsResponse, ListDeclarationsRequest,
    ListDeclarationsResponse, ListLimitsRequest, ListLimitsResponse, ListOverridesRequest, ListOverridesResponse,
    ListPeersRequest, ListPeersResponse, PARENT_METADATA, PlanConfigRequest, PlanConfigResponse, RemovePeerRequest,
    RemovePeerResponse, ResourcePlan, SetLimitsRequest, SetLimitsResponse, SetOverrideRequest, SetOverrideResponse,
    SettingChange, TransferMastershipRequest, TransferMastershipResponse,
    node_server::{Node, NodeServer},
};
use leaseway_proto::pools::pools_server::PoolsServer;
use leaseway_raft::{ChangeError, Command, Configuration, MasterLease, RaftHandle, State, Transferred};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Mutex, watch},
};
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Routes, interceptor::InterceptedService},
};

use super::{admitted, not_master_status, pools::PoolService, proposal_failed, serve_here};
use crate::{
    api::status::peer_list,
    auth::{Admitted, Authorizer, CallerCache},
    config::{
        self, TEMPLATES,
        error::ServeError,
        initial_config::{believed, longest_lease},
        limits::Limits,
    },
    listen::{Addresses, Caller, Listener, ListenerSettings, bind, local},
    node::{
        NodeHandle,
        addresses::PeerEndpoints,
        addresses::ServerInfo,
        plan::{self, Plan, PlanRequest, Unplanned},
    },
    observe::metrics::CallKind,
};

/// Maximum size of the other fields of a message that contains a configuration, in bytes.
const MESSAGE_OVERHEAD: usize = 64 << 10;
const BACKUP_PART_BYTES: usize = 256 << 10;

type BackupParts = Pin<Box<dyn Stream<Item = Result<BackupPart, Status>> + Send>>;

/// The listener of the admin service.
#[derive(Debug, Clone)]
pub struct AdminOptions {
    pub listen: SocketAddr,
    /// File with the operators' token. Required off loopback unless there is a policy.
    pub token_file: Option<PathBuf>,
}

pub(crate) struct AdminPort {
    pub(crate) tcp: TcpListener,
}

impl AdminPort {
    /// Binds the address. Off loopback, a token or a policy is required.
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

/// Serves until `stop` is true. A server without a data directory has the pool service only.
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

/// Authenticates the caller. Without a policy, the operators' token is required.
fn guard(authorizer: &Arc<Authorizer>, mut request: Request<()>) -> Result<Request<()>, Status> {
    let headers = request.metadata().clone().into_headers();
    if authorizer.is_open() && !authorizer.is_operators(&headers) {
        return Err(Status::unauthenticated(
            "missing or wrong token: pass --admin-token-file with the token file of this server",
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
    raft: RaftHandle,
    info: ServerInfo,
    /// Serializes changes, so that the expected version cannot change meanwhile.
    applying: Arc<Mutex<()>>,
}

impl AdminService {
    pub(crate) fn new(node: NodeHandle, raft: RaftHandle, info: ServerInfo) -> AdminService {
        AdminService { node, raft, info, applying: Arc::default() }
    }

    /// Requires permission to read, or to `change`.
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

    /// Fails on a node with a parent, which takes its templates from the parent.
    fn has_configurations(&self) -> Result<(), Status> {
        let Some(parent) = self.node.parent() else { return Ok(()) };
        let addresses = parent.addresses.join(", ");
        let why = format!("{TEMPLATES} ({addresses}): change the configuration at the root of the tree");
        let mut status = Status::failed_precondition(why);
        if let Ok(addresses) = addresses.parse::<MetadataValue<Ascii>>() {
            status.metadata_mut().insert(PARENT_METADATA, addresses);
        }
        Err(status)
    }

    fn master_lease(&self) -> Result<MasterLease, Status> {
        let lease = self.node.master_lease().map_err(|why| not_master_status(&why))?;
        Ok(lease.expect("with peers, a master has a lease"))
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
            _ => super::outcome(&applied),
        };
        let version = applied.as_ref().map_or(0, |answer| answer.version);
        self.record(admitted, "config_applied", outcome, json!({ "source": source, "version": version }));
        applied
    }

    async fn apply(&self, request: ApplyConfigRequest) -> Result<ApplyConfigResponse, Status> {
        let lease = self.master_lease()?;
        let newest = self.raft.read(|state| state.configuration().map_or(0, |newest| newest.version));
        if request.expected_version != 0 && request.expected_version != newest {
            let (expected, now) = (request.expected_version, newest);
            return Err(Status::aborted(format!(
                "version {now} is in force, not {expected}: the configuration has changed since you read it; repeat your change on version {now}"
            )));
        }
        let has_parent = self.node.parent().is_some();
        let loaded = config::parse(&request.source, &request.text);
        if has_parent && loaded.as_ref().is_ok_and(config::Loaded::has_templates) {
            self.has_configurations()?;
        }
        let checked = loaded.and_then(|loaded| loaded.check_templates(&request.source, has_parent).map(|()| loaded));
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
        self.raft
            .propose(&lease, vec![Command::Configuration(configuration)])
            .await
            .map_err(|error| proposal_failed(&error))?;
        // If the node is gone, the process is ending.
        let _ = self.node.apply_raft_state().await;
        let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
        Ok(ApplyConfigResponse { version, mistakes: Vec::new(), warnings })
    }

    /// Requires permission to read everything, because a backup contains the policy and all resources.
    fn may_back_up(&self, request: &Request<GetBackupRequest>) -> Result<Admitted, Status> {
        let admitted = admitted(request, self.node.authorizer());
        admitted.check(CallKind::Config, &AccessRequest::to(Action::Configure))?;
        admitted.check_everything(CallKind::Config, Action::Read)?;
        Ok(admitted)
    }

    fn backup(&self) -> BackupParts {
        let (program, now) = (env!("CARGO_PKG_VERSION"), self.node.clock.now().unix);
        let bytes = self.raft.backup(program, now, self.believed()).to_bytes();
        let parts: Vec<_> =
            bytes.chunks(BACKUP_PART_BYTES).map(|part| Ok(BackupPart { bytes: part.to_vec() })).collect();
        Box::pin(tokio_stream::iter(parts))
    }

    /// The longest time that clients may trust leases granted under any known configuration.
    fn believed(&self) -> Millis {
        let texts: Vec<_> = self.raft.read(|state| state.configurations().cloned().collect());
        let loaded = texts.iter().filter_map(|one| config::parse(&one.source, &one.text).ok());
        let longest = loaded.map(|loaded| longest_lease(&loaded.repository)).max().unwrap_or(believed(Millis(0)));
        longest.max(self.node.config().longest_lease()).max(self.node.longest_loan())
    }

    /// Plans a configuration. Shows the resources that the caller may read; permission to change implies that.
    async fn plan(&self, admitted: &Admitted, request: PlanConfigRequest) -> Result<PlanConfigResponse, Status> {
        let PlanConfigRequest { text, source, resource_id, holders } = request;
        let request = PlanRequest { text, source, resource: resource_id, holders: holders as usize };
        let may_change = admitted.may(&AccessRequest::to(Action::Configure));
        let is_shown = |id: &str| may_change || admitted.may(&AccessRequest::on(Action::Read, id));
        match plan::plan(&self.node, &request, is_shown).await {
            Ok(plan) => Ok(planned(plan)),
            Err(Unplanned::NotMaster(why)) => Err(not_master_status(&why)),
            Err(Unplanned::HasParent(_)) => Err(self.has_configurations().err().unwrap_or_else(|| {
                Status::failed_precondition(
                    "the parent of this node sets the capacities: plan the configuration at the root of the tree",
                )
            })),
        }
    }

    /// Transfers the mastership to a peer. If `to` is empty, to the one with the longest log.
    async fn transfer(&self, to: &str) -> Result<TransferMastershipResponse, Status> {
        let moved = self.raft.transfer(Some(to).filter(|to| !to.is_empty())).await;
        let Transferred { master, took } = moved.map_err(|error| not_changed(&error))?;
        let PeerEndpoints { grpc, admin, .. } = PeerEndpoints::from(master.advertise.as_str());
        Ok(TransferMastershipResponse {
            master: master.name,
            master_grpc_address: grpc,
            master_admin_address: admin,
            took_ms: took.as_millis() as u64,
        })
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
        // The operator must first restart this server with other options.
        ChangeError::Lone { .. } => Status::not_found(error.to_string()),
        _ => Status::aborted(error.to_string()),
    }
}

fn planned(plan: Plan) -> PlanConfigResponse {
    PlanConfigResponse {
        in_force: plan.in_force,
        mistakes: plan.mistakes,
        warnings: plan.warnings,
        resource: plan.resources.into_iter().map(resource).collect(),
        unchanged: plan.unchanged as u64,
        left_out: plan.left_out as u64,
    }
}

fn resource(plan: plan::ResourcePlan) -> ResourcePlan {
    let setting = |change: core::policy::settings::FieldChange| SettingChange {
        field: change.field.to_owned(),
        from: change.from,
        to: change.to,
    };
    ResourcePlan {
        resource_id: plan.id.to_string(),
        template_before: plan.template.0.unwrap_or_default(),
        template_after: plan.template.1.unwrap_or_default(),
        algorithm_before: plan.algorithm.0.name().to_owned(),
        algorithm_after: plan.algorithm.1.name().to_owned(),
        setting: plan.changes.into_iter().map(setting).collect(),
        forecast: plan.forecast.as_ref().map(forecast),
    }
}

fn forecast(forecast: &core::resource::report::forecast::ForecastReport) -> Forecast {
    Forecast {
        capacity_before: forecast.capacity.0.get(),
        capacity_after: forecast.capacity.1.get(),
        holders: forecast.holders as u64,
        subclients: forecast.subclients,
        wants: forecast.wants.get(),
        held: forecast.held.get(),
        due_before: forecast.due.0.get(),
        due_after: forecast.due.1.map(Sum::get),
        gaining: forecast.gains.holders as u64,
        gained: forecast.gains.amount.get(),
        losing: forecast.losses.holders as u64,
        lost: forecast.losses.amount.get(),
        over_capacity: forecast.over_capacity.get(),
        over_due: forecast.over_due.get(),
        until_ms: forecast.until.0,
        learning_ms: forecast.learning.0,
        change: forecast.changes.iter().map(change).collect(),
        unclaimed: forecast.unclaimed.get(),
        sentences: forecast.sentences(),
        group: forecast.groups.iter().map(group_change).collect(),
    }
}

fn group_change(change: &core::resource::report::forecast::GroupChange) -> GroupChange {
    GroupChange {
        path: change.path.to_string(),
        wants: change.wants.get(),
        before: change.before.map(|share| share.get()),
        after: change.after.map(|share| share.get()),
    }
}

fn change(change: &core::resource::report::forecast::DueChange) -> DueChange {
    DueChange {
        id: change.id.to_string(),
        is_server: change.kind == HolderKind::Node,
        subclients: change.subclients,
        wants: change.wants.get(),
        held: change.held.get(),
        before: change.before.get(),
        after: change.after.get(),
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
        // Spawned, because a cancelled call must not release the lock while its proposal is under way.
        let applying = tokio::spawn(async move {
            let _alone = alone;
            service.apply_and_record(&admitted, request).await
        });
        let applied = applying
            .await
            .map_err(|error| Status::internal(format!("applying the configuration was interrupted: {error}")))?;
        applied.map(Response::new)
    }

    async fn get_config(&self, request: Request<GetConfigRequest>) -> Result<Response<GetConfigResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Configure)?;
        let version = request.get_ref().version;
        let found = self.raft.read(|state| match version {
            0 => state.configuration().cloned(),
            _ => state.configurations().find(|configuration| configuration.version == version).cloned(),
        });
        if found.is_none() {
            self.has_configurations()?;
            // A new follower may lag behind. Only the master can tell that there is no configuration.
            self.master_lease()?;
        }
        let found = found.ok_or_else(|| match version {
            0 => Status::not_found("no configuration yet: the first master applies it; try again in a moment"),
            _ => {
                Status::not_found(format!("no version {version}: `leaseway config history` lists the stored versions"))
            }
        })?;
        let declaration = self.node.declarations().keys().map(ToString::to_string).collect();
        let (header, text) = (Some(header(&found)), found.text.to_string());
        Ok(Response::new(GetConfigResponse { header, text, declaration }))
    }

    async fn list_configs(
        &self,
        request: Request<ListConfigsRequest>,
    ) -> Result<Response<ListConfigsResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Configure)?;
        let header: Vec<ConfigHeader> = self.raft.read(|state| state.configurations().map(header).collect());
        if header.is_empty() {
            self.has_configurations()?;
        }
        let in_force = header.last().map_or(0, |newest| newest.version);
        Ok(Response::new(ListConfigsResponse { header, in_force }))
    }

    type GetBackupStream = BackupParts;

    async fn get_backup(&self, request: Request<GetBackupRequest>) -> Result<Response<Self::GetBackupStream>, Status> {
        let admitted = self.may_back_up(&request)?;
        // Other peers may lack the latest changes.
        if !request.get_ref().any_peer {
            self.master_lease()?;
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
        Ok(Response::new(peer_list(&self.raft, &self.info)))
    }

    async fn add_peer(&self, request: Request<AddPeerRequest>) -> Result<Response<AddPeerResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.master_lease()?;
        let AddPeerRequest { name, address } = request.into_inner();
        let added = self.raft.add(&name, &address).await;
        self.record(
            &admitted,
            "peer_added",
            added.as_ref().map(drop).map_err(ToString::to_string),
            json!({ "peer": name, "peer_address": address }),
        );
        added.map_err(|error| not_changed(&error))?;
        Ok(Response::new(AddPeerResponse {}))
    }

    async fn remove_peer(&self, request: Request<RemovePeerRequest>) -> Result<Response<RemovePeerResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.master_lease()?;
        let name = request.into_inner().name;
        let removed = self.raft.remove(&name).await;
        self.record(
            &admitted,
            "peer_removed",
            removed.as_ref().map(drop).map_err(ToString::to_string),
            json!({ "peer": name }),
        );
        removed.map_err(|error| not_changed(&error))?;
        Ok(Response::new(RemovePeerResponse {}))
    }

    async fn transfer_mastership(
        &self,
        request: Request<TransferMastershipRequest>,
    ) -> Result<Response<TransferMastershipResponse>, Status> {
        let admitted = self.may_change_peers(&request)?;
        self.master_lease()?;
        let to = request.into_inner().to;
        let moved = self.transfer(&to).await;
        let outcome = super::outcome(&moved);
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
        let (what, details) = overrides::event(&request);
        let set = self.put_override(request, admitted.name()).await;
        self.record(&admitted, what, super::outcome(&set), details);
        set.map(Response::new)
    }

    async fn list_overrides(
        &self,
        request: Request<ListOverridesRequest>,
    ) -> Result<Response<ListOverridesResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Override)?;
        let now = self.node.clock.unix_ms();
        let in_force = |state: &State| {
            state.overrides_in_force(now).map(|(target, set)| overrides::to_wire(target, set, now)).collect()
        };
        Ok(Response::new(ListOverridesResponse { r#override: self.raft.read(in_force) }))
    }

    async fn set_limits(&self, request: Request<SetLimitsRequest>) -> Result<Response<SetLimitsResponse>, Status> {
        self.put_limits(&request).await.map(Response::new)
    }

    async fn list_limits(&self, request: Request<ListLimitsRequest>) -> Result<Response<ListLimitsResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        limits::list(&self.node, &admitted, request.get_ref()).map(Response::new)
    }

    async fn declare_templates(
        &self,
        request: Request<DeclareTemplatesRequest>,
    ) -> Result<Response<DeclareTemplatesResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        let alone = Arc::clone(&self.applying).lock_owned().await;
        let (service, request) = (self.clone(), request.into_inner());
        // Spawned, because a cancelled call must not release the lock while its proposal is under way.
        let declaring = tokio::spawn(async move {
            let _alone = alone;
            service.declare_and_record(&admitted, request).await
        });
        let declared = declaring
            .await
            .map_err(|error| Status::internal(format!("declaring templates was interrupted: {error}")))?;
        declared.map(Response::new)
    }

    async fn list_declarations(
        &self,
        request: Request<ListDeclarationsRequest>,
    ) -> Result<Response<ListDeclarationsResponse>, Status> {
        self.may_read(&request, CallKind::Config, Action::Declare)?;
        self.has_configurations()?;
        declarations::list(&self.node, request.get_ref()).map(Response::new)
    }
}
