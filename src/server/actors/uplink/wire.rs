//! What a parent is asked, and what it answers. As in `grpc::convert`: what passes here is valid, and what is not is
//! left out by name.

use std::{sync::Arc, time::Duration};

use leaseway_client::{
    session::{Ask, Lease, Release},
    uplink::Granted,
    wire as shared,
};
use leaseway_core::{Amount, Claim, Condensed, Terms, UsageBelow, clamp_priority};
use leaseway_proto::doorman as wire;

use super::settings::{Instructed, instructed};

/// Asks for what those below want.
pub(super) fn get_server_capacity(node: &str, asks: &[Ask<Condensed>]) -> wire::GetServerCapacityRequest {
    let resource = asks.iter().map(|ask| wire::ServerCapacityResourceRequest {
        resource_id: Some(ask.id.to_string()),
        has: ask.has.as_ref().map(shared::echo),
        wants: bands(ask),
        outstanding: Some(ask.demand.outstanding.get()),
        learning: Some(ask.demand.learning),
        usage: ask.demand.usage.map(|usage| usage_of(&usage, ask.has.as_ref())),
    });
    wire::GetServerCapacityRequest { server_id: Some(node.to_owned()), resource: resource.collect() }
}

/// It is about the lease that is echoed with it.
fn usage_of(usage: &UsageBelow, has: Option<&Lease>) -> wire::Usage {
    wire::Usage {
        recharging_fraction: Some(usage.part_of(has.map_or(0.0, |lease| lease.capacity.get()))),
        // A sum over all that are below, which may be more than one report may say: then the whole request would be
        // refused, for what two strangers say.
        request_cost: Some(usage.spent.min(Amount::MAX.get())),
        interval_ms: None,
    }
}

/// One that speaks only the original protocol divides by the number of clients, of which there must be some; it gives
/// leases no names.
fn bands(ask: &Ask<Condensed>) -> Vec<wire::PriorityBandAggregate> {
    let nobody = [Claim { wants: Amount::ZERO, subclients: 1, priority: 1 }];
    let knows_us = ask.has.is_some_and(|lease| lease.token.is_some());
    let claims = if ask.demand.claims.is_empty() && !knows_us { &nobody[..] } else { &ask.demand.claims };
    let band = |claim: &Claim| wire::PriorityBandAggregate {
        priority: Some(claim.priority.into()),
        num_clients: Some(claim.subclients.into()),
        wants: Some(claim.wants.get()),
    };
    claims.iter().map(band).collect()
}

/// Gives back what nobody below needs any more.
pub(super) fn release_capacity(node: &str, releases: Vec<Release>) -> wire::ReleaseCapacityRequest {
    wire::ReleaseCapacityRequest { is_server: Some(true), ..shared::release_capacity(node, releases) }
}

/// An answer, as far as it makes sense.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// The leases, and how each resource is run.
    pub(super) granted: Vec<(Granted, Instructed)>,
    /// The names of those that make no sense.
    pub(super) malformed: Vec<String>,
}

/// `sent` is when the request left, since the epoch.
pub(super) fn parsed(answer: Vec<wire::ServerCapacityResourceResponse>, sent: Duration) -> Parsed {
    let mut parsed = Parsed::default();
    for response in answer {
        let id: Arc<str> = response.resource_id.as_deref().unwrap_or_default().into();
        let given = response.gets.as_ref().and_then(|gets| shared::lease(&id, gets, response.safe_capacity, sent));
        let terms: Option<Vec<_>> = response.terms.iter().map(terms).collect();
        match (given, terms) {
            (Some(given), Some(terms)) => {
                let instructed = instructed(response.algorithm.as_ref(), response.safe_capacity);
                parsed.granted.push((Granted { given, terms }, instructed));
            }
            _ => parsed.malformed.push(id.to_string()),
        }
    }
    parsed
}

fn terms(wire: &wire::Terms) -> Option<(i16, Terms)> {
    let part = |part: f64| (part.is_finite() && part >= 0.0).then_some(part);
    let terms = match (wire.level, wire.equal_share, wire.each) {
        (Some(level), None, None) => Terms::Level(part(level)?),
        (None, Some(equal), None) => {
            let top_up = wire.top_up.and_then(part).filter(|top_up| *top_up <= 1.0)?;
            Terms::Share { equal: part(equal)?, top_up }
        }
        (None, None, Some(each)) => Terms::Each(Amount::new(each).ok()?),
        (None, None, None) => Terms::Wants,
        _ => return None,
    };
    Some((clamp_priority(wire.priority?), terms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: &str) -> wire::ServerCapacityResourceResponse {
        wire::ServerCapacityResourceResponse {
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
        }
    }

    fn with_terms(terms: wire::Terms) -> Option<(i16, Terms)> {
        let parsed =
            parsed(vec![wire::ServerCapacityResourceResponse { terms: vec![terms], ..response("r") }], Duration::ZERO);
        parsed.granted.into_iter().next()?.0.terms.into_iter().next()
    }

    #[test]
    fn what_makes_no_sense_is_left_out_by_name_and_the_rest_is_taken() {
        let mut endless = response("endless");
        endless.gets.as_mut().expect("a lease").capacity = Some(f64::INFINITY);
        let absent = wire::ServerCapacityResourceResponse { gets: None, ..response("absent") };
        let parsed = parsed(vec![response("good"), endless, absent], Duration::ZERO);
        assert_eq!(parsed.malformed, ["endless", "absent"]);
        let [(granted, _)] = &parsed.granted[..] else { panic!("one is good") };
        assert_eq!((&*granted.given.id, granted.given.token), ("good", Some(7)));
    }

    #[test]
    fn terms_say_one_thing_with_numbers_that_can_be() {
        let priority = Some(3);
        let said = wire::Terms { priority, ..wire::Terms::default() };
        assert_eq!(with_terms(said), Some((3, Terms::Wants)));
        assert_eq!(with_terms(wire::Terms { level: Some(2.5), ..said }), Some((3, Terms::Level(2.5))));
        assert_eq!(
            with_terms(wire::Terms { equal_share: Some(2.0), top_up: Some(0.5), ..said }),
            Some((3, Terms::Share { equal: 2.0, top_up: 0.5 }))
        );
        assert_eq!(with_terms(wire::Terms { each: Some(9.0), ..said }), Some((3, Terms::Each(Amount::clamped(9.0)))));
        for bad in [
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
    fn what_is_used_below_is_a_part_of_the_lease_that_is_echoed() {
        let usage = UsageBelow { used: Amount::clamped(20.0), spent: 7.0 };
        let ask = |demand| Ask { id: "r".into(), demand, has: None };
        let pool = Condensed { usage: Some(usage), ..Condensed::default() };
        let request = get_server_capacity("leaf", &[ask(pool), ask(Condensed::default())]);
        let told = request.resource[0].usage.expect("it is a pool");
        assert_eq!((told.recharging_fraction, told.request_cost, told.interval_ms), (Some(1.0), Some(7.0), None));
        assert_eq!(request.resource[1].usage, None);
        let usage = UsageBelow { spent: 2e15, ..usage };
        let request = get_server_capacity("leaf", &[ask(Condensed { usage: Some(usage), ..Condensed::default() })]);
        let told = request.resource[0].usage.and_then(|usage| usage.request_cost).expect("it is a pool");
        assert!(Amount::new(told).is_ok(), "a parent refuses {told}");
    }

    #[test]
    fn a_release_is_one_of_a_node() {
        let request = release_capacity("leaf", vec![Release { id: "r".into(), token: Some(7) }]);
        assert_eq!((request.client_id.as_deref(), request.is_server), (Some("leaf"), Some(true)));
        assert_eq!((request.resource_id, request.token), (vec!["r".to_owned()], vec![7]));
    }
}
