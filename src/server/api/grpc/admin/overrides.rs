//! Overrides: capacities that operators set for a limited time.

use std::sync::Arc;

use leaseway_core::{
    policy::{
        access::{AccessRequest, Action},
        overrides::Load,
        settings::{AlgorithmKind, Settings},
    },
    types::{Amount, Glob, escaped, readable},
};
use leaseway_proto::admin::{
    OverriddenResource, Override, SetOverrideRequest, SetOverrideResponse, r#override,
    set_override_request::{Capacity, End},
};
use leaseway_raft::{Command, KeptOverride};
use serde_json::{Value, json};
use tonic::{Request, Status};

use super::AdminService;
use crate::{
    api::grpc::{admitted, convert, problems::invalid, proposal_failed},
    auth::Admitted,
    node::{self, NodeHandle},
    observe::metrics::CallKind,
};

/// Maximum number of overrides in force.
const MAX_OVERRIDES: usize = 100;
/// Seven days.
const MAX_OVERRIDE_MS: u64 = 7 * 86_400_000;
const MIN_OVERRIDE_MS: u64 = 1000;
const MAX_WHY_BYTES: usize = 500;
/// Maximum number of resources listed in an answer.
const MAX_LISTED: usize = 20;

impl AdminService {
    /// A pattern may match resources that do not exist yet, so it requires permission for all resources.
    pub(super) fn may_override(&self, request: &Request<SetOverrideRequest>) -> Result<Admitted, Status> {
        let (admitted, pattern) = (admitted(request, self.node.authorizer()), &request.get_ref().pattern);
        match is_pattern(pattern) {
            true => admitted.check_everything(CallKind::Config, Action::Override)?,
            false => admitted.check(CallKind::Config, &AccessRequest::on(Action::Override, pattern))?,
        }
        Ok(admitted)
    }

    pub(super) async fn put_override(
        &self,
        request: SetOverrideRequest,
        by: String,
    ) -> Result<SetOverrideResponse, Status> {
        let lease = self.master_lease()?;
        let now = self.node.clock.unix_ms();
        let set = self.read_override(&request, by, now)?;
        let pattern: Arc<str> = request.pattern.into();
        let _alone = self.applying.lock().await;
        let (replaced, others) = self.raft.read(|state| {
            let mut in_force = state.overrides_in_force(now);
            let others = in_force.clone().filter(|(other, _)| *other != pattern).count();
            (in_force.any(|(one, _)| *one == pattern), others)
        });
        match &set {
            None if !replaced => {
                let pattern = escaped(&pattern);
                return Err(Status::not_found(format!(
                    "no override for `{pattern}`: `leaseway capacity` lists all overrides"
                )));
            }
            Some(_) if others >= MAX_OVERRIDES => {
                return Err(Status::resource_exhausted(format!(
                    "{MAX_OVERRIDES} overrides are in force, the maximum: remove some with `leaseway capacity RESOURCE --clear`, or change the configuration"
                )));
            }
            _ => {}
        }
        if let Some(set) = &set {
            self.check_effect(&pattern, set).await?;
        }
        let command = Command::Override { pattern: Arc::clone(&pattern), set: set.clone().map(Box::new) };
        self.raft.propose(&lease, vec![command]).await.map_err(|error| proposal_failed(&error))?;
        // If the node is gone, the process is ending.
        let _ = self.node.apply_raft_state().await;
        let (resource, resources) = affected(&self.node, &pattern).await;
        Ok(SetOverrideResponse {
            r#override: set.as_ref().map(|set| to_wire(&pattern, set, now)),
            replaced,
            resource,
            resources,
        })
    }

    /// Validates the request. `None` removes the override.
    fn read_override(
        &self,
        request: &SetOverrideRequest,
        by: String,
        now: u64,
    ) -> Result<Option<KeptOverride>, Status> {
        let pattern = convert::id(Some(request.pattern.clone()), &self.node.limits, || "pattern".into())?;
        Glob::new(&pattern).map_err(|error| Status::invalid_argument(format!("pattern: {error}")))?;
        let Some(capacity) = request.capacity else { return Ok(None) };
        let capacity = match capacity {
            Capacity::Amount(amount) => Load::Capacity(convert::amount(amount, || "amount".into())?),
            Capacity::Factor(factor) if factor.is_finite() && factor >= 0.0 => Load::Factor(factor),
            Capacity::Factor(factor) => {
                return Err(expected("factor", &factor.to_string(), "a finite number that is not negative"));
            }
        };
        let length = match request.end {
            None => return Err(expected("end", "missing", "a duration or an end time")),
            Some(End::LengthMs(length)) => length,
            Some(End::UntilUnix(until)) => {
                u64::try_from(until).unwrap_or_default().saturating_mul(1000).saturating_sub(now)
            }
        };
        if !(MIN_OVERRIDE_MS..=MAX_OVERRIDE_MS).contains(&length) {
            let length = humantime::format_duration(std::time::Duration::from_millis(length / 1000 * 1000));
            return Err(expected(
                "end",
                &format!("{length} from now"),
                "1 s to 7 days; for a permanent change, edit the configuration",
            ));
        }
        if request.why.trim().is_empty() || request.why.len() > MAX_WHY_BYTES {
            let length = format!("{} bytes", request.why.len());
            return Err(expected("why", &length, "a reason of 1 to 500 bytes"));
        }
        Ok(Some(KeptOverride {
            capacity,
            above: request.above,
            from_unix_ms: now,
            until_unix_ms: now.saturating_add(length),
            by: by.into(),
            why: request.why.trim().into(),
        }))
    }

    /// Refuses an override without effect, and one that raises a capacity without `above`.
    async fn check_effect(&self, pattern: &str, set: &KeptOverride) -> Result<(), Status> {
        if self.node.parent().is_some() {
            if set.above {
                let pattern = escaped(pattern);
                return Err(Status::aborted(format!(
                    "the capacity of `{pattern}` is lent by a parent and cannot be raised here: set the override at the root of the tree"
                )));
            }
            return Ok(());
        }
        if !is_pattern(pattern) {
            let settings = self.node.settings(pattern);
            let Some(settings) = settings.filter(|settings| settings.kind != AlgorithmKind::NoAlgorithm) else {
                let pattern = escaped(pattern);
                return Err(Status::aborted(format!(
                    "the capacity of `{pattern}` is not divided, so an override has no effect: all its requests are \
                     granted; add a template with another algorithm than NO_ALGORITHM"
                )));
            };
            return check_above(set, pattern, &settings);
        }
        for id in self.node.ids_matching(pattern) {
            if let Some(settings) = self.node.settings(&id) {
                check_above(set, &id, &settings)?;
            }
        }
        Ok(())
    }
}

fn check_above(set: &KeptOverride, id: &str, settings: &Settings) -> Result<(), Status> {
    let capacity = match set.capacity {
        Load::Capacity(capacity) => capacity,
        Load::Factor(factor) => Amount::clamped(settings.capacity.get() * factor),
    };
    if set.above || capacity <= settings.capacity {
        return Ok(());
    }
    let (id, capacity, template) = (escaped(id), readable(capacity.get()), readable(settings.capacity.get()));
    Err(Status::aborted(format!(
        "the template of `{id}` sets {template}, and {capacity} is more: pass --above if the resource can serve that"
    )))
}

/// Up to [`MAX_LISTED`] active resources that match a pattern, and the number of all that match.
async fn affected(node: &NodeHandle, pattern: &str) -> (Vec<OverriddenResource>, u64) {
    let ids = node.ids_matching(pattern);
    let mut named = Vec::new();
    for id in ids.iter().take(MAX_LISTED) {
        named.extend(node.resource_status(id, 0, 0).await.as_ref().map(overridden_resource));
    }
    (named, ids.len() as u64)
}

fn overridden_resource(status: &node::Status) -> OverriddenResource {
    let capacity = status.report.settings.capacity;
    let overridden = status.report.overridden.as_ref();
    OverriddenResource {
        resource_id: status.id.to_string(),
        template_capacity: overridden.map_or(capacity, |overridden| overridden.template).get(),
        capacity: capacity.get(),
    }
}

/// Whether the text may match more than one id.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

fn expected(field: &str, got: &str, expected: &str) -> Status {
    invalid(field, format!("is {got}, expected {expected}")).into()
}

/// `now`: milliseconds since the epoch.
pub(super) fn to_wire(pattern: &str, set: &KeptOverride, now: u64) -> Override {
    Override {
        pattern: pattern.to_owned(),
        capacity: Some(match set.capacity {
            Load::Capacity(capacity) => r#override::Capacity::Amount(capacity.get()),
            Load::Factor(factor) => r#override::Capacity::Factor(factor),
        }),
        above: set.above,
        from_unix_ms: set.from_unix_ms,
        until_unix_ms: set.until_unix_ms,
        remaining_ms: set.until_unix_ms.saturating_sub(now),
        by: set.by.to_string(),
        why: set.why.to_string(),
    }
}

/// Details for the audit log.
pub(super) fn in_words(request: &SetOverrideRequest) -> Value {
    let capacity = match request.capacity {
        None => Value::Null,
        Some(Capacity::Amount(amount)) => json!(amount),
        Some(Capacity::Factor(factor)) => json!(format!("{}%", 100.0 * factor)),
    };
    let (length, until) = match request.end {
        Some(End::LengthMs(length)) => (Some(length), None),
        Some(End::UntilUnix(until)) => (None, Some(until)),
        None => (None, None),
    };
    json!({
        "resource": request.pattern, "capacity": capacity, "length_ms": length, "until_unix": until,
        "above": request.above, "why": request.why,
    })
}
