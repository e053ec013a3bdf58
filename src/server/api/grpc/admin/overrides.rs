//! Overrides: capacities and rules of groups that operators set for a limited time.

use std::sync::Arc;

use leaseway_core::{
    policy::{
        access::{AccessRequest, Action},
        client_rules::ClientRule,
        groups::{GroupChange, GroupError},
        overrides::{Load, OverrideTarget, OverrideValue, Overrides},
        settings::{AlgorithmKind, Settings},
    },
    types::{Amount, Glob, Millis, escaped, readable},
};
use leaseway_proto::admin::{
    GroupRule, OverriddenResource, Override, SetOverrideRequest, SetOverrideResponse, r#override,
    set_override_request::{End, Value},
};
use leaseway_raft::{Command, KeptOverride, Overriding};
use serde_json::{Value as Json, json};
use tonic::{Request, Status};

use super::AdminService;
use crate::{
    api::grpc::{admitted, convert, problems::invalid, proposal_failed},
    auth::Admitted,
    node::{self, NodeHandle, override_of},
    observe::metrics::CallKind,
};

/// Maximum number of overrides in force.
const MAX_OVERRIDES: usize = 100;
/// A month of 31 days and an hour more, because a change of a budget lasts until its period ends.
const MAX_OVERRIDE_MS: u64 = 32 * 86_400_000;
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
        let (target, set) = self.read_override(&request, by, now)?;
        let _alone = self.applying.lock().await;
        let mut others: Vec<Overriding> = self.raft.read(|state| state.overrides_in_force(now).cloned().collect());
        let in_force = others.len();
        others.retain(|(other, _)| *other != target);
        let replaced = others.len() < in_force;
        match &set {
            None if !replaced => {
                return Err(Status::not_found(format!(
                    "no override for {target}: `leaseway capacity` lists all overrides"
                )));
            }
            Some(_) if others.len() >= MAX_OVERRIDES => {
                return Err(Status::resource_exhausted(format!(
                    "{MAX_OVERRIDES} overrides are in force, the maximum: remove some with `leaseway capacity RESOURCE --clear`, or change the configuration"
                )));
            }
            _ => {}
        }
        match set.as_ref().map(|set| &set.value) {
            Some(OverrideValue::Capacity { load, above }) => self.check_capacity(&target.pattern, *load, *above)?,
            Some(OverrideValue::Group(change)) => {
                let new = set.clone().map(|set| (target.clone(), set));
                let all = others.iter().chain(&new).map(|one| override_of(one, now, Millis(0)));
                self.check_group(&target, change, &Overrides::new(all))?;
            }
            None => {}
        }
        let command = Command::Override { target: target.clone(), set: set.clone().map(Box::new) };
        self.raft.propose(&lease, vec![command]).await.map_err(|error| proposal_failed(&error))?;
        // If the node is gone, the process is ending.
        let _ = self.node.apply_raft_state().await;
        let (resource, resources) = affected(&self.node, &target).await;
        Ok(SetOverrideResponse {
            r#override: set.as_ref().map(|set| to_wire(&target, set, now)),
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
    ) -> Result<(OverrideTarget, Option<KeptOverride>), Status> {
        let pattern = convert::id(Some(request.pattern.clone()), &self.node.limits, || "pattern".into())?;
        Glob::new(&pattern).map_err(|error| Status::invalid_argument(format!("pattern: {error}")))?;
        let group = self.read_group(&request.group)?;
        let target = OverrideTarget { pattern: pattern.into(), group };
        let Some(value) = &request.value else { return Ok((target, None)) };
        let value = read_value(value, request.above, target.group.is_some())?;
        let length = read_length(request.end, now)?;
        if request.why.trim().is_empty() || request.why.len() > MAX_WHY_BYTES {
            let length = format!("{} bytes", request.why.len());
            return Err(expected("why", &length, "a reason of 1 to 500 bytes"));
        }
        let set = KeptOverride {
            value,
            from_unix_ms: now,
            until_unix_ms: now.saturating_add(length),
            by: by.into(),
            why: request.why.trim().into(),
        };
        Ok((target, Some(set)))
    }

    fn read_group(&self, group: &str) -> Result<Option<Arc<str>>, Status> {
        if group.is_empty() {
            return Ok(None);
        }
        let group = convert::id(Some(group.to_owned()), &self.node.limits, || "group".into())?;
        if is_pattern(&group) {
            let got = format!("the pattern `{}`", escaped(&group));
            return Err(expected("group", &got, "the path of one group; patterns of groups are for templates"));
        }
        if group.split('/').any(str::is_empty) {
            return Err(expected("group", &format!("`{}`", escaped(&group)), "a path of names, like acme/web"));
        }
        Ok(Some(group.into()))
    }

    /// Refuses an override without effect, and one that raises a capacity without `above`.
    fn check_capacity(&self, pattern: &str, load: Load, above: bool) -> Result<(), Status> {
        if self.node.parent().is_some() {
            if above {
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
                    "an override of `{pattern}` has no effect, because its capacity is not divided and every request \
                     is granted: add a template with another algorithm than NO_ALGORITHM"
                )));
            };
            return check_above(load, above, pattern, &settings);
        }
        for id in self.node.ids_matching(pattern) {
            if let Some(settings) = self.node.settings(&id) {
                check_above(load, above, &id, &settings)?;
            }
        }
        Ok(())
    }

    /// Refuses an override of a group that has no effect, or that contradicts a template. `all`: the overrides in
    /// force, with this one.
    fn check_group(&self, target: &OverrideTarget, change: &GroupChange, all: &Overrides) -> Result<(), Status> {
        let pattern = &*target.pattern;
        if self.node.parent().is_some() {
            return Err(Status::aborted(format!(
                "the root of the tree divides `{}` between groups: set the override there",
                escaped(pattern)
            )));
        }
        if is_pattern(pattern) {
            let ids = self.node.ids_matching(pattern);
            return ids.iter().try_for_each(|id| match self.node.settings(id) {
                Some(settings) => check_rules(id, change, all, &settings),
                None => Ok(()),
            });
        }
        let settings = self.node.settings(pattern).filter(|settings| settings.groups.is_some());
        let settings = settings.ok_or_else(|| {
            Status::aborted(format!(
                "the clients of `{}` are not grouped, so an override of a group has no effect: add `groups` to its template",
                escaped(pattern)
            ))
        })?;
        check_rules(pattern, change, all, &settings)
    }
}

/// `has_group`: whether the override names a group.
fn read_value(value: &Value, above: bool, has_group: bool) -> Result<OverrideValue, Status> {
    let load = match value {
        Value::Rule(rule) if has_group && !above => return read_rule(rule).map(OverrideValue::Group),
        Value::Rule(_) if has_group => return Err(expected("above", "true", "false with a group")),
        Value::Rule(_) => return Err(expected("group", "missing", "the path of the group that `rule` is for")),
        Value::Amount(_) | Value::Factor(_) if has_group => {
            return Err(expected("rule", "missing", "a weight, minimum or maximum of the group"));
        }
        Value::Amount(amount) => Load::Capacity(convert::amount(*amount, || "amount".into())?),
        Value::Factor(factor) if factor.is_finite() && *factor >= 0.0 => Load::Factor(*factor),
        Value::Factor(factor) => {
            return Err(expected("factor", &factor.to_string(), "a finite number that is not negative"));
        }
    };
    Ok(OverrideValue::Capacity { load, above })
}

fn read_rule(rule: &GroupRule) -> Result<GroupChange, Status> {
    if let Some(weight) = rule.weight.filter(|weight| !(1..=ClientRule::MAX_WEIGHT).contains(weight)) {
        return Err(expected("weight", &weight.to_string(), "a number from 1 to 1000"));
    }
    let amount =
        |amount: Option<f64>, field: &str| amount.map(|amount| convert::amount(amount, || field.into())).transpose();
    let (minimum, maximum) = (amount(rule.minimum, "minimum")?, amount(rule.maximum, "maximum")?);
    let change = GroupChange { weight: rule.weight, minimum, maximum };
    if change == GroupChange::default() {
        return Err(expected("rule", "empty", "a weight, minimum or maximum"));
    }
    Ok(change)
}

/// The length of an override in milliseconds.
fn read_length(end: Option<End>, now: u64) -> Result<u64, Status> {
    let length = match end {
        None => return Err(expected("end", "missing", "a duration or an end time")),
        Some(End::LengthMs(length)) => length,
        Some(End::UntilUnix(until)) => {
            u64::try_from(until).unwrap_or_default().saturating_mul(1000).saturating_sub(now)
        }
    };
    if (MIN_OVERRIDE_MS..=MAX_OVERRIDE_MS).contains(&length) {
        return Ok(length);
    }
    let length = humantime::format_duration(std::time::Duration::from_millis(length / 1000 * 1000));
    Err(expected(
        "end",
        &format!("{length} from now"),
        "1 s to 32 days; for a permanent change, edit the configuration",
    ))
}

/// Checks the rules for groups of a resource with all overrides.
fn check_rules(id: &str, change: &GroupChange, all: &Overrides, settings: &Settings) -> Result<(), Status> {
    let Err(error) = all.find(id).check_groups(settings) else { return Ok(()) };
    if settings.check().is_err() {
        // A limit lower than a minimum of the template, for example.
        return Ok(());
    }
    let id = escaped(id);
    let (field, problem) = match error {
        GroupError::TooMuch { group, minimum, most, .. } if change.minimum != Some(minimum) => (
            "maximum",
            format!("is {most}, less than the minimum of {group} in `{id}` ({minimum}): set a lower minimum, too"),
        ),
        GroupError::TooMuch { minimum, what, most, .. } => {
            ("minimum", format!("is {minimum}, more than {what} in `{id}` ({most})"))
        }
        GroupError::NotWhole { field, amount, .. } => (field, format!("is {amount}, but `{id}` has whole units")),
        GroupError::TooDeep { parts, levels, .. } => {
            ("group", format!("has {parts} parts, but the groups of `{id}` have only {levels} levels"))
        }
        GroupError::Oversubscribed { sum, capacity } => (
            "minimum",
            format!("raises the sum of the minimums in `{id}` to {sum}, more than its capacity of {capacity}"),
        ),
        other => return Err(Status::aborted(format!("`{id}`: {other}"))),
    };
    Err(invalid(field, problem).into())
}

fn check_above(load: Load, above: bool, id: &str, settings: &Settings) -> Result<(), Status> {
    let capacity = match load {
        Load::Capacity(capacity) => capacity,
        Load::Factor(factor) => Amount::clamped(settings.capacity.get() * factor),
    };
    if above || capacity <= settings.capacity {
        return Ok(());
    }
    let (id, capacity, template) = (escaped(id), readable(capacity.get()), readable(settings.capacity.get()));
    Err(Status::aborted(format!(
        "a capacity of {capacity} for `{id}` is above its template's, {template}: pass --above if the resource can \
         serve that"
    )))
}

/// Up to [`MAX_LISTED`] active resources that match the pattern, and the number of all that match.
async fn affected(node: &NodeHandle, target: &OverrideTarget) -> (Vec<OverriddenResource>, u64) {
    let ids = node.ids_matching(&target.pattern);
    let mut named = Vec::new();
    for id in ids.iter().take(MAX_LISTED) {
        let status = node.resource_status(id, 0, 0).await;
        named.extend(status.as_ref().map(|status| overridden_resource(status, target.group.as_deref())));
    }
    (named, ids.len() as u64)
}

fn overridden_resource(status: &node::Status, group: Option<&str>) -> OverriddenResource {
    let group = group.and_then(|path| status.report.groups.iter().find(|group| *group.path == *path));
    let capacity = status.report.settings.capacity;
    let overridden = status.report.overridden.as_ref();
    OverriddenResource {
        resource_id: status.id.to_string(),
        template_capacity: overridden.map_or(capacity, |overridden| overridden.template).get(),
        capacity: capacity.get(),
        group_wants: group.map(|group| group.wants.get()),
        group_share: group.map(|group| group.share.get()),
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
pub(super) fn to_wire(target: &OverrideTarget, set: &KeptOverride, now: u64) -> Override {
    let (value, above) = match &set.value {
        OverrideValue::Capacity { load: Load::Capacity(capacity), above } => {
            (r#override::Value::Amount(capacity.get()), *above)
        }
        OverrideValue::Capacity { load: Load::Factor(factor), above } => (r#override::Value::Factor(*factor), *above),
        OverrideValue::Group(GroupChange { weight, minimum, maximum }) => {
            let (minimum, maximum) = (minimum.map(Amount::get), maximum.map(Amount::get));
            (r#override::Value::Rule(GroupRule { weight: *weight, minimum, maximum }), false)
        }
    };
    Override {
        pattern: target.pattern.to_string(),
        group: target.group.as_deref().unwrap_or_default().to_owned(),
        value: Some(value),
        above,
        from_unix_ms: set.from_unix_ms,
        until_unix_ms: set.until_unix_ms,
        remaining_ms: set.until_unix_ms.saturating_sub(now),
        by: set.by.to_string(),
        why: set.why.to_string(),
    }
}

/// The event for the audit log, and its details.
pub(super) fn event(request: &SetOverrideRequest) -> (&'static str, Json) {
    let (length, until) = match request.end {
        Some(End::LengthMs(length)) => (Some(length), None),
        Some(End::UntilUnix(until)) => (None, Some(until)),
        None => (None, None),
    };
    let SetOverrideRequest { pattern, group, above, why, .. } = request;
    let set_to = |capacity: Json| {
        let details = json!({
            "resource": pattern, "capacity": capacity, "length_ms": length, "until_unix": until, "above": above,
            "why": why,
        });
        ("capacity_overridden", details)
    };
    match &request.value {
        None if group.is_empty() => ("override_cleared", json!({ "resource": pattern })),
        None => ("override_cleared", json!({ "resource": pattern, "group": group })),
        Some(Value::Amount(amount)) => set_to(json!(amount)),
        Some(Value::Factor(factor)) => set_to(json!(format!("{}%", 100.0 * factor))),
        Some(Value::Rule(GroupRule { weight, minimum, maximum })) => {
            let details = json!({
                "resource": pattern, "group": group, "weight": weight, "minimum": minimum, "maximum": maximum,
                "length_ms": length, "until_unix": until, "why": why,
            });
            ("group_overridden", details)
        }
    }
}
