//! Groups of clients in the requests of child nodes, and in their answers.

use leaseway_core::{
    allocation::groups::{GroupBound, GroupDemand, GroupLimit, GroupSupply},
    policy::groups::GroupSettings,
};
use leaseway_proto::doorman as wire;

use super::{Invalid, Limits, amount, claims_and_minimums, invalid, wire_terms};

/// The groups of a report: those with a path, [`OTHER_GROUP`](leaseway_core::policy::groups::OTHER_GROUP), and the
/// unknown ones.
const MAX_GROUPS: usize = GroupSettings::MAX_GROUPS_OF_CHILD + 2;
/// Slices of wants, and as many of minimums. Each group has at least one of both.
const MAX_SLICES: usize = 2 * (GroupSettings::MAX_GROUP_SLICES + MAX_GROUPS);

/// The demand of a child node by group.
pub(super) fn demands(at: usize, groups: Vec<wire::GroupDemand>, limits: &Limits) -> Result<Vec<GroupDemand>, Invalid> {
    let list = format!("resource[{at}].group");
    let slices: usize = groups.iter().map(|group| group.wants.len() + group.minimums.len()).sum();
    for (count, most, what) in [(groups.len(), MAX_GROUPS, "groups"), (slices, MAX_SLICES, "slices in its groups")] {
        if count > most {
            return Err(invalid(list, format!("has {count} {what}, at most {most} are allowed")));
        }
    }
    let demand = |(n, group): (usize, wire::GroupDemand)| {
        let field = |name: &str| format!("{list}[{n}].{name}");
        let path = group.group.unwrap_or_default();
        if path.len() > limits.id_bytes {
            let problem = format!("is {} bytes long, at most {} are allowed", path.len(), limits.id_bytes);
            return Err(invalid(field("group"), problem));
        }
        let claims = claims_and_minimums(field, group.wants, group.minimums, limits)?;
        let held = amount(group.outstanding.unwrap_or_default(), || format!("{list}[{n}].outstanding"))?;
        Ok(GroupDemand { path: path.into(), claims, held })
    };
    groups.into_iter().enumerate().map(demand).collect()
}

/// A child node's part of a group.
pub(super) fn share(supply: &GroupSupply) -> wire::GroupShare {
    wire::GroupShare {
        group: Some(supply.path.to_string()),
        capacity: Some(supply.capacity.get()),
        terms: supply.terms.iter().map(|(priority, terms)| wire_terms(*priority, terms)).collect(),
        limit: supply.limit.as_ref().map(limit),
    }
}

fn limit(limit: &GroupLimit) -> wire::GroupLimit {
    let mut wire = wire::GroupLimit {
        share: Some(limit.share.get()),
        wants: Some(limit.wants.get()),
        binding: Some(limit.binding.to_string()),
        binding_weight: Some(limit.binding_weight.into()),
        binding_share: Some(limit.binding_share.get()),
        binding_wants: Some(limit.binding_wants.get()),
        ..wire::GroupLimit::default()
    };
    match &limit.because {
        GroupBound::Maximum(most) => wire.maximum = Some(most.get()),
        GroupBound::Minimum(least) => wire.minimum = Some(least.get()),
        GroupBound::Share(terms) => wire.terms = Some(wire_terms(0, terms)),
        GroupBound::Lease => wire.lease = Some(true),
        GroupBound::Unreported => wire.unreported = Some(true),
    }
    wire
}
