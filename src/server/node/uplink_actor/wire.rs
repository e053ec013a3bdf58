//! Encodes requests to a parent, and decodes and validates its answers.

use std::{sync::Arc, time::Duration};

use leaseway_client::{
    session::{Ask, GrantedLease, Release},
    transport::wire as shared,
};
use leaseway_core::{
    allocation::{
        division::Terms,
        groups::{GroupBound, GroupDemand, GroupLimit, GroupSupply},
    },
    pool::Usage,
    resource::NodeInstance,
    types::{Amount, Claim, clamp_priority},
};
use leaseway_proto::doorman as wire;
use leaseway_uplink::{Aggregate, Granted};

use super::settings::{Complaint, instructed};

/// A request to the parent that reports the demand of this node's holders.
pub(super) fn get_server_capacity(
    node: &str,
    instance: NodeInstance,
    asks: &[Ask<Aggregate>],
) -> wire::GetServerCapacityRequest {
    let resource = asks.iter().map(|ask| wire::ServerCapacityResourceRequest {
        resource_id: Some(ask.id.to_string()),
        has: ask.has.as_ref().map(shared::echo),
        had: ask.had.as_ref().map(shared::echo),
        wants: ask.demand.claims.iter().filter(|claim| !claim.is_minimum).map(band).collect(),
        minimums: ask.demand.claims.iter().filter(|claim| claim.is_minimum).map(band).collect(),
        group: ask.demand.groups.iter().map(group_demand).collect(),
        outstanding: Some(ask.demand.outstanding.get()),
        learning: Some(ask.demand.learning),
        usage: ask.demand.usage.as_ref().map(usage),
        period: ask.demand.period,
    });
    wire::GetServerCapacityRequest {
        server_id: Some(node.to_owned()),
        resource: resource.collect(),
        // The session drops late answers.
        drops_late: Some(true),
        node: Some(instance.node.get()),
        term: Some(instance.term),
    }
}

fn group_demand(demand: &GroupDemand) -> wire::GroupDemand {
    let (minimums, wants): (Vec<&Claim>, Vec<&Claim>) = demand.claims.iter().partition(|claim| claim.is_minimum);
    wire::GroupDemand {
        group: Some(demand.path.to_string()),
        wants: wants.into_iter().map(band).collect(),
        minimums: minimums.into_iter().map(band).collect(),
        outstanding: Some(demand.held.get()),
    }
}

fn usage(usage: &Usage) -> wire::Usage {
    wire::Usage {
        recharging_fraction: Some(usage.recharging),
        request_cost: Some(usage.request_cost.get()),
        interval_ms: None,
    }
}

fn band(claim: &Claim) -> wire::PriorityBandAggregate {
    wire::PriorityBandAggregate {
        priority: Some(claim.priority.into()),
        num_clients: Some(claim.subclients.into()),
        wants: Some(claim.wants.get()),
    }
}

/// A request to the parent that releases leases.
pub(super) fn release_capacity(
    node: &str,
    instance: NodeInstance,
    releases: Vec<Release>,
) -> wire::ReleaseCapacityRequest {
    wire::ReleaseCapacityRequest {
        is_server: Some(true),
        node: Some(instance.node.get()),
        term: Some(instance.term),
        ..shared::release_capacity(node, releases)
    }
}

/// The valid part of an answer.
#[derive(Debug, Default)]
pub(super) struct ParentAnswer {
    /// The leases, each with the errors in its settings.
    pub(super) granted: Vec<(Granted, Complaint)>,
    /// The names of resources with invalid answers.
    pub(super) malformed: Vec<String>,
    /// The parent's message if another node has this node's name.
    pub(super) name_taken: Option<String>,
    /// The page of the parent's master.
    pub(super) page: Option<String>,
}

/// Decodes the valid part of an answer. `sent` is when the request was sent, since 1970.
pub(super) fn parsed(
    answer: Vec<wire::ServerCapacityResourceResponse>,
    problems: &[wire::Problem],
    sent: Duration,
) -> ParentAnswer {
    let taken = problems.iter().find(|problem| problem.reason() == "name_taken");
    let name_taken = taken.map(|problem| format!("{}: {}", problem.resource_id(), problem.message()));
    let mut parsed = ParentAnswer { name_taken, ..ParentAnswer::default() };
    for response in answer {
        let id: Arc<str> = response.resource_id.as_deref().unwrap_or_default().into();
        let given = response.gets.as_ref().and_then(|gets| shared::lease(&id, gets, response.safe_capacity, sent));
        let given = given.map(|given| GrantedLease { budget: shared::budget(response.budget.as_ref()), ..given });
        let terms: Option<Vec<_>> = response.terms.iter().map(terms).collect();
        let groups: Option<Vec<_>> = response.group.iter().map(group_supply).collect();
        match (given, terms, groups) {
            (Some(given), Some(terms), Some(groups)) => {
                let (settings, complaint) = instructed(response.algorithm.as_ref(), response.safe_capacity);
                parsed.granted.push((Granted { given, terms, groups, settings }, complaint));
            }
            _ => parsed.malformed.push(id.to_string()),
        }
    }
    parsed
}

fn group_supply(wire: &wire::GroupShare) -> Option<GroupSupply> {
    let terms: Option<Vec<_>> = wire.terms.iter().map(terms).collect();
    Some(GroupSupply {
        path: wire.group.as_deref()?.into(),
        capacity: Amount::new(wire.capacity?).ok()?,
        terms: terms?,
        // It explains only, so an invalid one is left out.
        limit: wire.limit.as_ref().and_then(|limit| group_limit(wire.group(), limit)),
    })
}

fn group_limit(group: &str, wire: &wire::GroupLimit) -> Option<GroupLimit> {
    let amount = |amount: f64| Amount::new(amount).ok();
    let because = match (wire.maximum, wire.minimum, &wire.terms) {
        (Some(most), None, None) => GroupBound::Maximum(amount(most)?),
        (None, Some(least), None) => GroupBound::Minimum(amount(least)?),
        (None, None, Some(wire)) => GroupBound::Share(terms(wire)?.1),
        (None, None, None) if wire.unreported() => GroupBound::Unreported,
        (None, None, None) if wire.lease() => GroupBound::Lease,
        _ => return None,
    };
    Some(GroupLimit {
        group: group.into(),
        share: amount(wire.share?)?,
        wants: amount(wire.wants?)?.into(),
        here: None,
        binding: wire.binding.as_deref()?.into(),
        binding_weight: u32::try_from(wire.binding_weight?).ok()?,
        binding_share: amount(wire.binding_share?)?,
        binding_wants: amount(wire.binding_wants?)?.into(),
        because,
    })
}

fn terms(wire: &wire::Terms) -> Option<(i16, Terms)> {
    let part = |part: f64| (part.is_finite() && part >= 0.0).then_some(part);
    let terms = match (wire.level, wire.equal_share, wire.each, wire.minimum) {
        (Some(level), None, None, None) => Terms::Level(part(level)?),
        (None, Some(equal), None, None) => {
            let top_up = wire.top_up.and_then(part).filter(|top_up| *top_up <= 1.0)?;
            Terms::Share { equal: part(equal)?, top_up }
        }
        (None, None, Some(each), None) => Terms::Each(Amount::new(each).ok()?),
        (None, None, None, Some(level)) => Terms::Minimums(part(level)?),
        (None, None, None, None) => Terms::Wants,
        _ => return None,
    };
    Some((clamp_priority(wire.priority?), terms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: &str) -> wire::ServerCapacityResourceResponse {
        wire::ServerCapacityResourceResponse {
            budget: None,
            resource_id: Some(id.into()),
            gets: Some(wire::Lease {
                expiry_time: Some(1_000),
                refresh_interval: Some(8),
                capacity: Some(50.0),
                token: Some(7),
                remaining_ms: Some(60_000),
            }),
            algorithm: None,
            safe_capacity: None,
            terms: Vec::new(),
            group: Vec::new(),
        }
    }

    fn with_terms(terms: wire::Terms) -> Option<(i16, Terms)> {
        let parsed = parsed(
            vec![wire::ServerCapacityResourceResponse { terms: vec![terms], ..response("r") }],
            &[],
            Duration::ZERO,
        );
        parsed.granted.into_iter().next()?.0.terms.into_iter().next()
    }

    #[test]
    fn invalid_answers_are_named_and_the_others_count() {
        let mut endless = response("endless");
        endless.gets.as_mut().expect("a lease").capacity = Some(f64::INFINITY);
        let absent = wire::ServerCapacityResourceResponse { gets: None, ..response("absent") };
        let parsed = parsed(vec![response("good"), endless, absent], &[], Duration::ZERO);
        assert_eq!(parsed.malformed, ["endless", "absent"]);
        let [(granted, _)] = &parsed.granted[..] else { panic!("one is good") };
        assert_eq!((&*granted.given.id, granted.given.token), ("good", Some(7)));
    }

    #[test]
    fn terms_have_exactly_one_kind_and_valid_numbers() {
        let priority = Some(3);
        let said = wire::Terms { priority, ..wire::Terms::default() };
        assert_eq!(with_terms(said), Some((3, Terms::Wants)));
        assert_eq!(with_terms(wire::Terms { level: Some(2.5), ..said }), Some((3, Terms::Level(2.5))));
        assert_eq!(
            with_terms(wire::Terms { equal_share: Some(2.0), top_up: Some(0.5), ..said }),
            Some((3, Terms::Share { equal: 2.0, top_up: 0.5 }))
        );
        assert_eq!(with_terms(wire::Terms { each: Some(9.0), ..said }), Some((3, Terms::Each(Amount::clamped(9.0)))));
        assert_eq!(with_terms(wire::Terms { minimum: Some(4.0), ..said }), Some((3, Terms::Minimums(4.0))));
        for bad in [
            wire::Terms { minimum: Some(4.0), level: Some(4.0), ..said },
            wire::Terms { level: Some(f64::NAN), ..said },
            wire::Terms { level: Some(-1.0), ..said },
            wire::Terms { equal_share: Some(2.0), ..said },
            wire::Terms { equal_share: Some(2.0), top_up: Some(1.5), ..said },
            wire::Terms { level: Some(1.0), each: Some(1.0), ..said },
            wire::Terms { priority: None, ..said },
        ] {
            assert_eq!(with_terms(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn parts_of_groups_are_read_with_the_reason_of_their_limit() {
        let limit = wire::GroupLimit {
            share: Some(20.0),
            wants: Some(100.0),
            binding: Some("acme".into()),
            binding_weight: Some(2),
            binding_share: Some(30.0),
            binding_wants: Some(200.0),
            maximum: Some(30.0),
            ..wire::GroupLimit::default()
        };
        let share = |limit| wire::GroupShare {
            group: Some("acme/web".into()),
            capacity: Some(5.0),
            terms: vec![wire::Terms { priority: Some(0), level: Some(2.5), ..wire::Terms::default() }],
            limit,
        };
        let supply = group_supply(&share(Some(limit.clone()))).expect("valid");
        assert_eq!(
            (&*supply.path, supply.capacity.get(), supply.terms),
            ("acme/web", 5.0, vec![(0, Terms::Level(2.5))])
        );
        let read = supply.limit.expect("valid");
        assert_eq!((&*read.group, &*read.binding, read.binding_weight), ("acme/web", "acme", 2));
        assert_eq!(read.because, GroupBound::Maximum(Amount::clamped(30.0)));
        let two = wire::GroupLimit { minimum: Some(1.0), ..limit };
        assert_eq!(group_supply(&share(Some(two))).expect("the rest is valid").limit, None);
        let wrong = wire::GroupShare { capacity: Some(f64::NAN), ..share(None) };
        assert_eq!(group_supply(&wrong), None);
    }

    #[test]
    fn a_release_names_the_node_instance() {
        let instance = NodeInstance::new(5, 3).expect("a node");
        let request = release_capacity("leaf", instance, vec![Release { id: "r".into(), token: Some(7), spent: None }]);
        assert_eq!((request.client_id.as_deref(), request.is_server), (Some("leaf"), Some(true)));
        assert_eq!((request.node, request.term), (Some(5), Some(3)));
        assert_eq!((request.resource_id, request.token), (vec!["r".to_owned()], vec![7]));
    }
}
