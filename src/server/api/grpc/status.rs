//! The status service: reports about this server and its resources, in pages.

use std::sync::Arc;

use leaseway_core::{
    self as core,
    allocation::groups::GroupReport,
    lease::proposer::PromiseReport,
    policy::{
        access::{AccessRequest, Action},
        overrides::Override,
    },
    pool::PoolReport,
    resource::{
        HolderReport, Overridden, OverriddenGroup, SupplyReport, budget::report::BudgetReport,
        report::explain::Explanation,
    },
    types::{Amount, HolderKind, Millis},
};
use leaseway_proto::status::{
    self as wire, ExplainRequest, ExplainResponse, GetStatusRequest, GetStatusResponse, Group, Holder,
    ListUsageRequest, ListUsageResponse, Pool, Promises, Resource, ResourceLimit, Supply, Terms,
    status_server::Status as Service,
};
use leaseway_raft::Limit;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

mod usage;

use super::{admitted, page_size};
use crate::{
    api::status::{HealthSources, own_status},
    auth::Admitted,
    listen::waiting_bytes::{Charge, ConnectionBytes},
    node::{self, NodeHandle, addresses::ServerInfo},
    observe::metrics::CallKind,
};

/// Bytes charged per row while a page is made.
const ROW_BYTES: usize = 512;
/// Maximum number of pages made at the same time.
const MAX_CONCURRENT: usize = 4;

#[derive(Clone)]
pub(crate) struct StatusService {
    node: NodeHandle,
    info: ServerInfo,
    health: HealthSources,
    page_permits: Arc<Semaphore>,
}

impl StatusService {
    pub(crate) fn new(node: NodeHandle, info: ServerInfo, health: HealthSources) -> StatusService {
        StatusService { node, info, health, page_permits: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }

    /// The rows that the caller may read.
    async fn rows(&self, request: &GetStatusRequest, admitted: &Admitted) -> Result<(Vec<Resource>, String), Status> {
        let limit = page_size(request.page_size);
        if request.resource_id.is_empty() {
            let is_shown = |id: &str| admitted.may(&AccessRequest::on(Action::Read, id));
            let (statuses, next) = self.node.statuses_of(&request.page_token, limit, is_shown).await;
            let next = next.map(|next| next.to_string()).unwrap_or_default();
            let row = |status| Resource { group: Vec::new(), ..resource(status) };
            return Ok((statuses.iter().map(row).collect(), next));
        }
        admitted.check(CallKind::GetStatus, &AccessRequest::on(Action::Read, &request.resource_id))?;
        let from = match request.page_token.as_str() {
            "" => 0,
            token => token.parse().map_err(|_| {
                Status::invalid_argument("page_token: invalid; use next_page_token of the previous page")
            })?,
        };
        let status = self.node.resource_status(&request.resource_id, from, limit).await;
        let next = status.as_ref().and_then(|status| status.next).map(|next| next.to_string());
        Ok((status.iter().map(resource).collect(), next.unwrap_or_default()))
    }
}

/// Replaces error texts that may name resources, for callers that may not read all.
const WITHHELD: &str = "visible to callers that may read all resources";

fn withheld(text: String) -> String {
    if text.is_empty() { text } else { WITHHELD.to_owned() }
}

impl StatusService {
    /// Restricts the status for a caller that may not read all resources.
    fn limit(&self, status: &mut GetStatusResponse, admitted: &Admitted) {
        let resources = self.node.resources_shown(|id| admitted.may(&AccessRequest::on(Action::Read, id))) as u64;
        status.resources_total = resources;
        status.config_error = withheld(std::mem::take(&mut status.config_error));
        status.names_taken.clear();
        if let Some(uplink) = &mut status.uplink {
            uplink.resources = uplink.resources.min(resources);
            uplink.last_error = withheld(std::mem::take(&mut uplink.last_error));
        }
    }
}

fn resource(status: &node::Status) -> Resource {
    let report = &status.report;
    Resource {
        resource_id: status.id.to_string(),
        algorithm: report.settings.kind.name().to_owned(),
        capacity: report.settings.capacity.get(),
        wants: report.sums.wants.get(),
        held: report.sums.held.get(),
        granted: report.sums.granted.get(),
        holders: report.holders as u64,
        subclients: report.sums.subclients,
        gateways: report.sums.gateways,
        held_by_gateways: report.sums.held_by_gateways.get(),
        learning_ms: report.learning.0,
        template: status.template.clone().unwrap_or_default(),
        promises: status.promises.map(|report| promises(&report, status.at)),
        pool: status.pool.as_ref().map(pool),
        holder: status.holders.iter().map(|holder| self::holder(holder, status.at)).collect(),
        supply: report.supply.as_ref().map(supply),
        overridden: report.overridden.as_ref().map(|overridden| self::overridden(overridden, status.at)),
        limit: status.limit.as_ref().map(limit),
        group: report.groups.iter().map(group).collect(),
        groups: report.group_count as u64,
        overridden_group: overridden_groups(&report.overridden_groups, status.at),
        unbounded: !report.is_divided(),
        budget: report.budget.as_ref().map(budget),
    }
}

fn group(group: &GroupReport) -> Group {
    Group {
        path: group.path.to_string(),
        weight: group.weight,
        minimum: group.minimum.get(),
        maximum: group.maximum.map(Amount::get),
        lends: group.lends,
        share: group.share.get(),
        wants: group.wants.get(),
        held: group.held.get(),
        members: group.members as u64,
    }
}

fn limit(limit: &Limit) -> ResourceLimit {
    ResourceLimit { capacity: limit.capacity.get(), at_unix: limit.at_unix, by: limit.by.to_string() }
}

fn overridden(overridden: &Overridden, at: Millis) -> wire::Overridden {
    let Overridden { by, template, .. } = overridden;
    overriding(by, template.get(), at)
}

fn overridden_groups(overridden: &[OverriddenGroup], at: Millis) -> Vec<wire::Overridden> {
    overridden.iter().map(|overridden| overriding(&overridden.by, 0.0, at)).collect()
}

fn overriding(by: &Override, template_capacity: f64, at: Millis) -> wire::Overridden {
    wire::Overridden {
        pattern: by.target.pattern.to_string(),
        group: by.target.group.as_deref().unwrap_or_default().to_owned(),
        set_to: by.set_to(),
        template_capacity,
        remaining_ms: by.ends.since(at).0,
        by: by.by.to_string(),
        why: by.why.to_string(),
    }
}

fn budget(budget: &BudgetReport) -> wire::Budget {
    wire::Budget {
        period_start: budget.period.start,
        period_end: (!budget.period.is_unending()).then_some(budget.period.end),
        spent: budget.spent.get(),
        gone: budget.gone.get(),
        reserved: budget.reserved.get(),
        left: budget.left.get(),
        pace: budget.pace,
        forecast: budget.forecast.map(|forecast| forecast.spent),
        carried: budget.carried.get(),
        runs_out: budget.forecast.and_then(|forecast| forecast.runs_out),
    }
}

fn pool(pool: &PoolReport) -> Pool {
    Pool {
        total: pool.total.get(),
        connected: pool.connected.get(),
        priority_connected: pool.priority_connected.get(),
        priority_assigned: pool.priority_assigned.get(),
        recharging: pool.used.get(),
        waiting: (pool.free_waiting + pool.priority_waiting) as u64,
        overloads: pool.overloads,
    }
}

fn promises(report: &PromiseReport, at: Millis) -> Promises {
    Promises {
        total: report.total.get(),
        unclaimed: report.unclaimed.get(),
        inherited_ms: report.unclaimed_until.since(at).0,
        horizon_ms: report.horizon.since(at).0,
        under_way: report.under_way,
    }
}

fn supply(supply: &SupplyReport) -> Supply {
    Supply {
        version: supply.version,
        remaining_ms: supply.remaining.0,
        outstanding: supply.outstanding.map(Amount::get),
        terms: supply.terms.iter().map(|(priority, terms)| self::terms(*priority, terms)).collect(),
    }
}

fn terms(priority: i16, terms: &core::allocation::division::Terms) -> Terms {
    let mut wire = Terms { priority: priority.into(), ..Terms::default() };
    match *terms {
        core::allocation::division::Terms::Wants => {}
        core::allocation::division::Terms::Each(most) => wire.each = Some(most.get()),
        core::allocation::division::Terms::Level(level) => wire.level = Some(level),
        core::allocation::division::Terms::Share { equal, top_up } => {
            (wire.equal_share, wire.top_up) = (Some(equal), Some(top_up))
        }
        core::allocation::division::Terms::Minimums(level) => wire.minimum = Some(level),
    }
    wire
}

fn holder(holder: &HolderReport, at: Millis) -> Holder {
    Holder {
        id: holder.id.to_string(),
        is_server: holder.kind == HolderKind::Node,
        priority: holder.priority.into(),
        subclients: holder.subclients,
        wants: holder.wants.get(),
        due: holder.due.get(),
        granted: holder.granted.get(),
        held: holder.held.get(),
        remaining_ms: holder.end.since(at).0,
        is_gateway: holder.is_gateway,
    }
}

fn explained(explanation: &Explanation) -> ExplainResponse {
    let ahead = |at: Option<Millis>| at.map(|at| at.since(explanation.at).0);
    ExplainResponse {
        holder: Some(holder(&explanation.holder, explanation.at)),
        capacity: explanation.capacity.get(),
        free: explanation.free.get(),
        rule: explanation.rule.name().to_owned(),
        blocks: explanation.blocks.iter().map(|block| block.name().to_owned()).collect(),
        asks_ms: ahead(explanation.asks),
        latest_ms: ahead(explanation.latest),
        sentences: explanation.sentences(),
        overridden: explanation.overridden.as_ref().map(|overridden| self::overridden(overridden, explanation.at)),
        overridden_group: overridden_groups(&explanation.overridden_groups, explanation.at),
        ..ExplainResponse::default()
    }
}

/// Charges a page to the connection of the request. Before the page is made, so that a refusal costs nothing.
fn charge<T>(request: &Request<T>, bytes: usize) -> Result<Option<Charge>, Status> {
    let connection = request.extensions().get::<Arc<ConnectionBytes>>();
    Ok(connection.map(|connection| Charge::part(connection, bytes)).transpose()?)
}

#[tonic::async_trait]
impl Service for StatusService {
    async fn list_usage(&self, request: Request<ListUsageRequest>) -> Result<Response<ListUsageResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        admitted.check(CallKind::GetStatus, &AccessRequest::to(Action::Read))?;
        let _charge = charge(&request, ROW_BYTES * usage::PAGE)?;
        let _permit = self.page_permits.acquire().await;
        usage::list(&self.node, &admitted, request.get_ref()).map(Response::new)
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        let ExplainRequest { resource_id, holder_id, is_server } = request.into_inner();
        admitted.check(CallKind::GetStatus, &AccessRequest::on(Action::Read, &resource_id))?;
        // An explanation visits as many holders as a page.
        let _permit = self.page_permits.acquire().await;
        let kind = if is_server { HolderKind::Node } else { HolderKind::Client };
        let known = self.node.explain(&resource_id, kind, holder_id).await;
        let mut response = known.as_ref().map(explained).unwrap_or_default();
        if let Some(status) = self.node.resource_status(&resource_id, 0, 0).await {
            response.algorithm = status.report.settings.kind.name().to_owned();
            if known.is_some() {
                response.sentences.extend(status.declaration_sentence());
                response.sentences.extend(status.limit_sentence());
            }
            response.limit = status.limit.as_ref().map(limit);
            response.template = status.template.unwrap_or_default();
        }
        if let Some(parent) = self.node.parent() {
            response.node = parent.node.to_string();
            response.parent = parent.addresses.iter().map(ToString::to_string).collect();
        }
        Ok(Response::new(response))
    }

    async fn get_status(&self, request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        let admitted = admitted(&request, self.node.authorizer());
        admitted.check(CallKind::GetStatus, &AccessRequest::to(Action::Read))?;
        let _charge = charge(&request, ROW_BYTES * page_size(request.get_ref().page_size))?;
        let _permit = self.page_permits.acquire().await;
        let (resources, next_page_token) = self.rows(request.get_ref(), &admitted).await?;
        let health = match admitted.reads_everything() {
            true => Some(self.health.read(&self.node, &self.info).await),
            false => None,
        };
        let mut status = own_status(&self.node, &self.info, health);
        if !admitted.reads_everything() {
            self.limit(&mut status, &admitted);
        }
        Ok(Response::new(GetStatusResponse { resources, next_page_token, ..status }))
    }
}
