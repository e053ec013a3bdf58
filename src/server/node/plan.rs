//! What a configuration would change, from what clients want at this moment: which resources would be run otherwise,
//! who would gain and who would lose, and which leases would have to end first.

use std::sync::Arc;

use futures_util::future::join_all;
use leaseway_core::{AlgorithmKind, FieldChange, Foreseen, Settings, Sum};
use tokio::task::spawn_blocking;

use crate::{
    config::{self, Loaded},
    node::{ConfigInForce, NodeHandle, NotMaster},
};

/// Resources that are divided at the same time: their holders are in memory twice.
const TOGETHER: usize = 4;
/// About so many bytes a plan has at the most; what does not fit is counted.
const MAX_BYTES: usize = 3 << 20;
/// What a row takes besides its names.
const ROW: usize = 128;

/// A configuration that is considered.
#[derive(Debug, Clone)]
pub(crate) struct PlanRequest {
    pub(crate) text: String,
    /// What complaints call it.
    pub(crate) source: String,
    /// Only this resource; empty: all.
    pub(crate) resource: String,
    /// Holders that are named, of each resource.
    pub(crate) holders: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    /// The version that is in force now.
    pub(crate) in_force: u64,
    /// Everything that is wrong with the text; then nothing else is said.
    pub(crate) mistakes: Vec<String>,
    /// What is allowed but probably not meant.
    pub(crate) warnings: Vec<String>,
    /// Resources that would be run otherwise: those of which the largest part would change hands first.
    pub(crate) resources: Vec<ResourcePlan>,
    /// Those that are alive and would be run as before.
    pub(crate) unchanged: usize,
    /// Those that would change and are not named, for want of room.
    pub(crate) left_out: usize,
}

/// What would become of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourcePlan {
    pub(crate) id: Arc<str>,
    /// The template that it follows and would follow; `None` where none matches.
    pub(crate) template: (Option<String>, Option<String>),
    /// How it is divided and would be.
    pub(crate) algorithm: (AlgorithmKind, AlgorithmKind),
    /// Everything that its settings would have otherwise; nothing where only the template has another name.
    pub(crate) changes: Vec<FieldChange>,
    /// What holders would be due. `None`: nothing but the template's name changes, or it was too busy to say, or is
    /// gone.
    pub(crate) foreseen: Option<Foreseen>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unplanned {
    /// Another peer knows what is wanted.
    NotMaster(NotMaster),
    /// The templates are those of the parent, which is there.
    HasParent(Vec<String>),
}

/// Plans it: parts of `node` that `is_shown` does not show are neither named nor counted.
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
    let checked = loaded.and_then(|loaded| loaded.check_place(&request.source, has_parent).map(|()| loaded));
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
    // Plans take turns, so that they do not fill the memory together.
    let _turn = node.planning().await;
    let drafts = spawn_blocking(move || drafts(&ids, &in_force, &loaded)).await.unwrap_or_default();
    plan.unchanged = alive - drafts.len();
    let mut planned = Vec::with_capacity(drafts.len());
    let mut drafts = drafts.into_iter().peekable();
    while drafts.peek().is_some() {
        let part = drafts.by_ref().take(TOGETHER).map(|draft| foresee(node, draft, request.holders));
        planned.extend(join_all(part).await);
    }
    plan.fill(planned);
    Ok(plan)
}

/// A resource that would be run otherwise, and the settings if they would be others.
type PlanDraft = (ResourcePlan, Option<Settings>);

/// Finds out which resources would be. Many patterns and many resources take long.
fn drafts(ids: &[Arc<str>], before: &ConfigInForce, after: &Loaded) -> Vec<PlanDraft> {
    let after = &after.repository;
    let draft = |id: &Arc<str>| {
        let found = [before.repository.find(id), after.find(id)];
        let [was, is] = found.map(|found| found.map_or_else(Settings::unmatched, |template| template.settings.clone()));
        let [old, new] = found.map(|found| found.map(|template| template.identifier_glob.clone()));
        let changes = was.changes(&is);
        let settings = (was != is).then_some(is.clone());
        if old == new && settings.is_none() {
            return None;
        }
        let algorithm = (was.kind, is.kind);
        Some((ResourcePlan { id: Arc::clone(id), template: (old, new), algorithm, changes, foreseen: None }, settings))
    };
    ids.iter().filter_map(draft).collect()
}

async fn foresee(node: &NodeHandle, (mut plan, settings): PlanDraft, most: usize) -> ResourcePlan {
    if let Some(settings) = settings {
        plan.foreseen = node.foresee(&plan.id, settings, most).await;
    }
    plan
}

impl Plan {
    /// Takes up what has room: all resources before any holder.
    fn fill(&mut self, mut planned: Vec<ResourcePlan>) {
        planned
            .sort_by(|one, other| other.part_moved().total_cmp(&one.part_moved()).then_with(|| one.id.cmp(&other.id)));
        let mut room = Room(MAX_BYTES);
        let kept = planned.iter().take_while(|plan| room.take(plan.bytes())).count();
        self.left_out = planned.len() - kept;
        planned.truncate(kept);
        for foreseen in planned.iter_mut().filter_map(|plan| plan.foreseen.as_mut()) {
            let named = foreseen.changes.iter().take_while(|change| room.take(ROW + change.id.len())).count();
            foreseen.changes.truncate(named);
        }
        self.resources = planned;
    }
}

/// Bytes that are left.
struct Room(usize);

impl Room {
    /// Takes some; what does not fit ends it.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl ResourcePlan {
    /// The part of what is due that would change hands, or come, or go.
    fn part_moved(&self) -> f64 {
        let Some(foreseen) = &self.foreseen else { return 0.0 };
        let most = foreseen.due.0.max(foreseen.due.1.unwrap_or(Sum::ZERO)).get();
        if most > 0.0 { (foreseen.gains.amount.get() + foreseen.losses.amount.get()) / most } else { 0.0 }
    }

    /// Without its holders.
    fn bytes(&self) -> usize {
        let templates = [&self.template.0, &self.template.1].into_iter().flatten().map(String::len).sum::<usize>();
        let changes = self.changes.iter().map(|change| change.field.len() + change.from.len() + change.to.len() + 16);
        3 * ROW + self.id.len() + templates + changes.sum::<usize>()
    }
}
