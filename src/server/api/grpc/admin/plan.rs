//! A plan on the wire.

use leaseway_core::{
    self as core, HolderKind, Sum,
    access::{AccessRequest, Action},
};
use leaseway_proto::admin::{DueChange, Foreseen, PlanConfigRequest, PlanConfigResponse, ResourcePlan, SettingChange};
use tonic::Status;

use super::{super::operators::elsewhere, AdminService};
use crate::{
    auth::Admitted,
    node::plan::{self, Plan, PlanRequest, Unplanned},
};

impl AdminService {
    /// Plans, as far as the caller may read: what it may change it may look at.
    pub(super) async fn plan(
        &self,
        admitted: &Admitted,
        request: PlanConfigRequest,
    ) -> Result<PlanConfigResponse, Status> {
        let PlanConfigRequest { text, source, resource_id, holders } = request;
        let request = PlanRequest { text, source, resource: resource_id, holders: holders as usize };
        let may_change = admitted.may(&AccessRequest::to(Action::Configure));
        let is_shown = |id: &str| may_change || admitted.may(&AccessRequest::on(Action::Read, id));
        match plan::plan(&self.node, &request, is_shown).await {
            Ok(plan) => Ok(planned(plan)),
            Err(Unplanned::NotMaster(why)) => Err(elsewhere(&why)),
            Err(Unplanned::HasParent(_)) => Err(self
                .has_configurations()
                .err()
                .unwrap_or_else(|| Status::failed_precondition("the parent of this node decides"))),
        }
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
    let setting =
        |change: core::FieldChange| SettingChange { field: change.field.to_owned(), from: change.from, to: change.to };
    ResourcePlan {
        resource_id: plan.id.to_string(),
        template_before: plan.template.0.unwrap_or_default(),
        template_after: plan.template.1.unwrap_or_default(),
        algorithm_before: plan.algorithm.0.name().to_owned(),
        algorithm_after: plan.algorithm.1.name().to_owned(),
        setting: plan.changes.into_iter().map(setting).collect(),
        foreseen: plan.foreseen.as_ref().map(foreseen),
    }
}

fn foreseen(foreseen: &core::Foreseen) -> Foreseen {
    Foreseen {
        capacity_before: foreseen.capacity.0.get(),
        capacity_after: foreseen.capacity.1.get(),
        holders: foreseen.holders as u64,
        subclients: foreseen.subclients,
        wants: foreseen.wants.get(),
        held: foreseen.held.get(),
        due_before: foreseen.due.0.get(),
        due_after: foreseen.due.1.map(Sum::get),
        gaining: foreseen.gains.holders as u64,
        gained: foreseen.gains.amount.get(),
        losing: foreseen.losses.holders as u64,
        lost: foreseen.losses.amount.get(),
        over: foreseen.over.get(),
        beyond: foreseen.beyond.get(),
        until_ms: foreseen.until.0,
        learning_ms: foreseen.learning.0,
        change: foreseen.changes.iter().map(change).collect(),
        unnamed: foreseen.unnamed.get(),
        sentences: foreseen.sentences(),
    }
}

fn change(change: &core::DueChange) -> DueChange {
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
