//! Limits: the capacities that operators set for single resources.

use std::sync::Arc;

use leaseway_core::{
    policy::access::{AccessRequest, Action},
    types::Amount,
};
use leaseway_proto::admin::{
    Limit, LimitChange, ListLimitsRequest, ListLimitsResponse, SetLimitsRequest, SetLimitsResponse,
};
use serde_json::{Value, json};
use tonic::{Request, Status};

use super::AdminService;
use crate::{
    api::grpc::{admitted, convert, not_master_status, outcome, proposal_failed},
    auth::Admitted,
    node::{
        NodeHandle,
        limits::{Changed, Changes, LimitError, MAX_TOGETHER},
    },
    observe::metrics::CallKind,
};

/// Number of limits in a page if the caller does not say.
const PAGE: usize = 100;
/// Maximum number of ids in the audit log.
const MAX_NAMED: usize = 10;

impl AdminService {
    pub(super) async fn put_limits(&self, request: &Request<SetLimitsRequest>) -> Result<SetLimitsResponse, Status> {
        let admitted = admitted(request, self.node.authorizer());
        self.has_configurations()?;
        set(&self.node, &admitted, &request.get_ref().change).await
    }
}

/// Sets limits if the caller may set all of them, and audits that.
pub(crate) async fn set(
    node: &NodeHandle,
    admitted: &Admitted,
    changes: &[LimitChange],
) -> Result<SetLimitsResponse, Status> {
    let changes = read(node, admitted, changes)?;
    let details = in_words(&changes);
    let set = node.set_limits(changes, admitted.name().into()).await.map_err(|error| refusal(&error));
    node.authorizer().record(admitted.event("limits_set", outcome(&set), details));
    let Changed { added, replaced, removed } = set?;
    Ok(SetLimitsResponse { added, replaced, removed })
}

fn read(node: &NodeHandle, admitted: &Admitted, changes: &[LimitChange]) -> Result<Changes, Status> {
    if changes.len() > MAX_TOGETHER {
        return Err(refusal(&LimitError::TooMany(changes.len())));
    }
    if changes.is_empty() {
        admitted.check(CallKind::Config, &AccessRequest::to(Action::Limits))?;
    }
    let one = |(at, change): (usize, &LimitChange)| {
        let LimitChange { resource_id, capacity } = change;
        let id = convert::id(Some(resource_id.clone()), &node.limits, || format!("change[{at}].resource_id"))?;
        admitted.check(CallKind::Config, &AccessRequest::on(Action::Limits, &id))?;
        let amount = |value| convert::amount(value, || format!("change[{at}].capacity"));
        Ok((Arc::from(id), capacity.map(amount).transpose()?))
    };
    changes.iter().enumerate().map(one).collect()
}

/// Lists the limits that the caller may read or set.
pub(crate) fn list(
    node: &NodeHandle,
    admitted: &Admitted,
    request: &ListLimitsRequest,
) -> Result<ListLimitsResponse, Status> {
    admitted.check_any(CallKind::Config, &[Action::Read, Action::Limits].map(AccessRequest::to))?;
    let is_shown = |id: &str| {
        let mut reads = [Action::Read, Action::Limits].into_iter();
        admitted.reads_everything() || reads.any(|action| admitted.may(&AccessRequest::on(action, id)))
    };
    let ListLimitsRequest { prefix, after, page_size, resource_id } = request;
    let most = if *page_size == 0 { PAGE } else { (*page_size as usize).min(MAX_TOGETHER) };
    let page = node.read_limits(|limits| {
        let total = limits.len() as u64;
        let known = |(id, limit): (&Arc<str>, &leaseway_raft::Limit)| (Arc::clone(id), limit.clone());
        let mut page: Vec<_> = match resource_id.is_empty() {
            true => limits.page(prefix, after).take(most + 1).map(known).collect(),
            false => {
                limits.get(resource_id).map(|limit| (resource_id.as_str().into(), limit.clone())).into_iter().collect()
            }
        };
        let is_last = page.len() <= most;
        page.truncate(most);
        (page, is_last, total)
    });
    // A server without a data directory keeps none.
    let (page, is_last, total) = page.unwrap_or((Vec::new(), true, 0));
    let next_after = page.last().filter(|_| !is_last).map_or(String::new(), |(id, _)| id.to_string());
    let shown = page.iter().filter(|(id, _)| is_shown(id));
    let limit = |(id, limit): &(Arc<str>, leaseway_raft::Limit)| Limit {
        resource_id: id.to_string(),
        capacity: limit.capacity.get(),
        at_unix: limit.at_unix,
        by: limit.by.to_string(),
    };
    Ok(ListLimitsResponse { limit: shown.map(limit).collect(), next_after, total })
}

fn refusal(error: &LimitError) -> Status {
    match error {
        LimitError::NotMaster(why) => not_master_status(why),
        LimitError::HasParent(_) => Status::failed_precondition(error.to_string()),
        LimitError::NotKept => Status::unimplemented(error.to_string()),
        LimitError::TooMany(_) | LimitError::Twice(_) => Status::invalid_argument(error.to_string()),
        LimitError::NotDivided(_) => Status::aborted(error.to_string()),
        LimitError::Full(_) => Status::resource_exhausted(error.to_string()),
        LimitError::Proposal(error) => proposal_failed(error),
    }
}

/// Details for the audit log: one change, or the number of changes and the first few.
fn in_words(changes: &Changes) -> Value {
    let one =
        |(id, capacity): &(Arc<str>, Option<Amount>)| json!({ "resource": id, "capacity": capacity.map(Amount::get) });
    match changes.as_slice() {
        [change] => one(change),
        _ => {
            let first: Vec<_> = changes.iter().take(MAX_NAMED).map(one).collect();
            json!({ "changes": changes.len(), "first": first })
        }
    }
}
