//! Plans a configuration: which resources it would change, and what their holders would gain and lose at their present
//! demand.

use std::sync::Arc;

use futures_util::future::join_all;
use leaseway_core::{
    policy::settings::{AlgorithmKind, FieldChange, Settings},
    resource::report::forecast::ForecastReport,
    types::{Amount, Sum},
};
use tokio::task::spawn_blocking;

use crate::{
    config::{self, Loaded},
    node::{ConfigInForce, NodeHandle, NotMaster},
};

/// Number of resources that are divided concurrently. Bounds the memory, because their holders are copied.
const TOGETHER: usize = 4;
/// Approximate maximum size of a plan. Further resources are only counted.
const MAX_BYTES: usize = 3 << 20;
/// Estimated bytes of a row without its names.
const ROW: usize = 128;

/// A request for the plan of a configuration.
#[derive(Debug, Clone)]
pub(crate) struct PlanRequest {
    pub(crate) text: String,
    /// Its name in messages.
    pub(crate) source: String,
    /// Plans only this resource. Empty for all.
    pub(crate) resource: String,
    /// Maximum number of holders per resource.
    pub(crate) holders: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// The version in force.
    pub(crate) in_force: u64,
    /// The errors in the text. If there are any, the other fields are empty.
    pub(crate) mistakes: Vec<String>,
    /// Valid settings that are probably mistakes.
    pub(crate) warnings: Vec<String>,
    /// The resources that would change, sorted by the fraction that would be redistributed.
    pub(crate) resources: Vec<ResourcePlan>,
    /// The number of resources that would not change.
    pub(crate) unchanged: usize,
    /// The number of resources that do not fit into the plan.
    pub(crate) left_out: usize,
}

/// The plan of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourcePlan {
    pub(crate) id: Arc<str>,
    /// The present and the planned template. `None` if none matches.
    pub(crate) template: (Option<String>, Option<String>),
    /// The present and the planned algorithm.
    pub(crate) algorithm: (AlgorithmKind, AlgorithmKind),
    /// The changed settings. Empty if only the name of the template changes.
    pub(crate) changes: Vec<FieldChange>,
    /// The dues of holders. `None` if the settings do not change, or if the resource is busy or gone.
    pub(crate) forecast: Option<ForecastReport>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unplanned {
    /// This peer is not the master, which alone knows the demand.
    NotMaster(NotMaster),
    /// The templates come from the parent at these addresses.
    HasParent(Vec<String>),
}

/// Plans a configuration. Resources that `is_shown` hides are neither named nor counted.
pub(crate) async fn plan(
    node: &NodeHandle,
    request: &PlanRequest,
    is_shown: impl Fn(&str) -> bool,
) -> Result<Plan, Unplanned> {
    node.check().map_err(Unplanned::NotMaster)?;
    let has_parent = node.parent().is_some();
    let loaded = config::parse(&request.source, &request.text);
    if let (true, Some(parent)) = (loaded.as_ref().is_ok_and(Loaded::has_templates), node.parent()) {
        return Err(Unplanned::HasParent(parent.addresses.iter().map(ToString::to_string).collect()));
    }
    let in_force = node.config();
    let mut plan = Plan { in_force: in_force.version, ..Plan::default() };
    let checked = loaded.and_then(|loaded| loaded.check_templates(&request.source, has_parent).map(|()| loaded));
    let loaded = match checked {
        Ok(loaded) => loaded,
        Err(error) => {
            plan.mistakes = error.to_string().lines().map(str::to_owned).collect();
            return Ok(plan);
        }
    };
    plan.mistakes.extend(node.authorizer().check_policy(&request.source, loaded.access.as_ref()).err());
    plan.warnings = loaded.warnings.iter().map(ToString::to_string).collect();
    if !plan.mistakes.is_empty() || has_parent {
        return Ok(plan);
    }
    let is_asked = |id: &str| request.resource.is_empty() || request.resource == id;
    let ids: Vec<Arc<str>> = node.living().into_iter().filter(|id| is_asked(id) && is_shown(id)).collect();
    let alive = ids.len();
    // One plan at a time, to bound the memory.
    let _turn = node.planning().await;
    let limits = node.clone();
    let limit = move |id: &str| limits.limit(id).map(|limit| limit.capacity);
    let drafts = spawn_blocking(move || drafts(&ids, &in_force, loaded, limit)).await.unwrap_or_default();
    plan.unchanged = alive - drafts.len();
    let mut planned = Vec::with_capacity(drafts.len());
    let mut drafts = drafts.into_iter().peekable();
    while drafts.peek().is_some() {
        let part = drafts.by_ref().take(TOGETHER).map(|draft| forecast(node, draft, request.holders));
        planned.extend(join_all(part).await);
    }
    plan.fill(planned);
    Ok(plan)
}

/// The plan of a resource, and its settings if they change.
type PlanDraft = (ResourcePlan, Option<Settings>);

/// The resources that would change. Takes long for many patterns and resources.
fn drafts(
    ids: &[Arc<str>],
    before: &ConfigInForce,
    after: Loaded,
    limit: impl Fn(&str) -> Option<Amount>,
) -> Vec<PlanDraft> {
    let (repository, declared) = (after.repository, Arc::clone(&before.declared));
    let after = ConfigInForce { repository, declared, ..ConfigInForce::default() };
    let draft = |id: &Arc<str>| {
        let (configs, limit) = ([before, &after], limit(id));
        let [was, is] = configs.map(|config| config.settings_for(id, limit));
        let [old, new] = configs.map(|config| config.template_of(id));
        let changes = was.changes(&is);
        let settings = (was != is).then(|| Settings::clone(&is));
        if old == new && settings.is_none() {
            return None;
        }
        let algorithm = (was.kind, is.kind);
        Some((ResourcePlan { id: Arc::clone(id), template: (old, new), algorithm, changes, forecast: None }, settings))
    };
    ids.iter().filter_map(draft).collect()
}

async fn forecast(node: &NodeHandle, (mut plan, settings): PlanDraft, most: usize) -> ResourcePlan {
    if let Some(settings) = settings {
        plan.forecast = node.forecast(&plan.id, settings, most).await;
    }
    plan
}

impl Plan {
    /// Adds what fits into [`MAX_BYTES`]: first the resources, then their holders.
    fn fill(&mut self, mut planned: Vec<ResourcePlan>) {
        planned
            .sort_by(|one, other| other.part_moved().total_cmp(&one.part_moved()).then_with(|| one.id.cmp(&other.id)));
        let mut budget = ByteBudget(MAX_BYTES);
        let kept = planned.iter().take_while(|plan| budget.take(plan.bytes())).count();
        self.left_out = planned.len() - kept;
        planned.truncate(kept);
        for forecast in planned.iter_mut().filter_map(|plan| plan.forecast.as_mut()) {
            let named = forecast.changes.iter().take_while(|change| budget.take(ROW + change.id.len())).count();
            forecast.changes.truncate(named);
        }
        self.resources = planned;
    }
}

/// The number of bytes left.
struct ByteBudget(usize);

impl ByteBudget {
    /// Takes bytes. Returns `false` if they do not fit; then no bytes are left, so later ones do not fit either.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl ResourcePlan {
    /// The fraction of the due amounts that would change.
    fn part_moved(&self) -> f64 {
        let Some(forecast) = &self.forecast else { return 0.0 };
        let most = forecast.due.0.max(forecast.due.1.unwrap_or(Sum::ZERO)).get();
        if most > 0.0 { (forecast.gains.amount.get() + forecast.losses.amount.get()) / most } else { 0.0 }
    }

    /// The estimated size without holders.
    fn bytes(&self) -> usize {
        let templates = [&self.template.0, &self.template.1].into_iter().flatten().map(String::len).sum::<usize>();
        let changes = self.changes.iter().map(|change| change.field.len() + change.from.len() + change.to.len() + 16);
        3 * ROW + self.id.len() + templates + changes.sum::<usize>()
    }
}
