//! Conversion and validation of the messages of the pool service. Errors name the field.

use std::sync::Arc;

use leaseway_core::{
    policy::overrides::Load,
    pool::{Assigned, PoolCursor, PoolEventFilter, PoolEventKind, PoolFilter, PoolMember, PoolReport, PoolStanding},
    types::{Amount, HolderKind, Millis, Sum},
};
use leaseway_proto::pools::{
    self as wire, Client, EventClient, EventKind, Filter, GetPoolResponse, Holder, PoolEvent, Standing,
    SubscribeRequest, Totals, assigned::Amount as Portion, report_load_request::Load as Reported,
};

use super::super::{
    convert::{amount, id},
    problems::{Invalid, invalid, required},
};
use crate::{config::limits::Limits, node::assignment_store::HolderName, runtime::clock::Clock};

pub(in crate::api::grpc) fn resource(value: String, limits: &Limits) -> Result<Arc<str>, Invalid> {
    id(Some(value), limits, || "resource_id".into()).map(Into::into)
}

pub(in crate::api::grpc) fn holder(holder: Option<Holder>, limits: &Limits) -> Result<HolderName, Invalid> {
    let holder = required(holder, || "holder".into())?;
    let kind = if holder.is_server { HolderKind::Node } else { HolderKind::Client };
    Ok((kind, id(Some(holder.id), limits, || "holder.id".into())?.into()))
}

/// `None` removes the assignment.
pub(in crate::api::grpc) fn assigned(assigned: Option<wire::Assigned>) -> Result<Option<Assigned>, Invalid> {
    let portion = required(assigned.and_then(|assigned| assigned.amount), || "assigned".into())?;
    match portion {
        Portion::Capacity(0.0) => Ok(None),
        Portion::Capacity(capacity) => {
            let capacity = amount(capacity, || "assigned.capacity".into())?;
            Ok(Some(Assigned::Capacity(capacity)))
        }
        Portion::Share(share) if share > 0.0 && share <= 1.0 => Ok(Some(Assigned::Share(share))),
        Portion::Share(share) => Err(invalid(
            "assigned.share",
            format!("is {share}, expected a fraction of the total, more than 0 and at most 1"),
        )),
    }
}

pub(in crate::api::grpc) fn to_assigned(assigned: Assigned) -> wire::Assigned {
    let amount = match assigned {
        Assigned::Capacity(capacity) => Portion::Capacity(capacity.get()),
        Assigned::Share(share) => Portion::Share(share),
    };
    wire::Assigned { amount: Some(amount) }
}

pub(in crate::api::grpc) fn load(load: Option<&Reported>) -> Result<Option<Load>, Invalid> {
    let load = match load {
        None => return Ok(None),
        Some(Reported::Capacity(capacity)) => Load::Capacity(amount(*capacity, || "capacity".into())?),
        Some(Reported::Factor(factor)) if factor.is_finite() && *factor >= 0.0 => Load::Factor(*factor),
        Some(Reported::Factor(factor)) => {
            return Err(invalid("factor", format!("is {factor}, expected a finite number that is not negative")));
        }
    };
    Ok(Some(load))
}

pub(in crate::api::grpc) fn mark(mark: Option<f64>) -> Result<Option<f64>, Invalid> {
    mark.map(|mark| amount(mark, || "mark".into()).map(Amount::get)).transpose()
}

pub(in crate::api::grpc) fn filter(filter: Filter) -> PoolFilter {
    match filter {
        Filter::Known => PoolFilter::Known,
        Filter::Connected => PoolFilter::Connected,
        Filter::Assigned => PoolFilter::Assigned,
        Filter::PriorityConnected => PoolFilter::PriorityConnected,
    }
}

/// The token of the next page: `s` and a slot, or the last holder after `c` (client) or `n` (node).
pub(in crate::api::grpc) fn page_token(start: &PoolCursor) -> String {
    match start {
        PoolCursor::Slot(slot) => format!("s{slot}"),
        PoolCursor::After(HolderKind::Client, id) => format!("c{id}"),
        PoolCursor::After(HolderKind::Node, id) => format!("n{id}"),
    }
}

pub(in crate::api::grpc) fn page_start(token: &str) -> Result<Option<PoolCursor>, Invalid> {
    let unknown = || invalid("page_token", "invalid; use next_page_token of the previous page");
    let Some(first) = token.chars().next() else { return Ok(None) };
    let rest = &token[first.len_utf8()..];
    let start = match first {
        's' => PoolCursor::Slot(rest.parse().map_err(|_| unknown())?),
        'c' => PoolCursor::After(HolderKind::Client, rest.into()),
        'n' => PoolCursor::After(HolderKind::Node, rest.into()),
        _ => return Err(unknown()),
    };
    Ok(Some(start))
}

pub(in crate::api::grpc) fn event_filter(request: &SubscribeRequest) -> Result<PoolEventFilter, Invalid> {
    let kinds: Result<Vec<_>, Invalid> = request.kind().map(event_kind).collect();
    Ok(PoolEventFilter { priority_only: request.priority_only, only_underrun: request.underrun_only, kinds: kinds? })
}

const EVENT_KINDS: [(EventKind, PoolEventKind); 9] = [
    (EventKind::ConnectedNow, PoolEventKind::Connected),
    (EventKind::Disconnected, PoolEventKind::Disconnected),
    (EventKind::Update, PoolEventKind::Update),
    (EventKind::Total, PoolEventKind::Total),
    (EventKind::Underrun, PoolEventKind::Underrun),
    (EventKind::Relieved, PoolEventKind::Relieved),
    (EventKind::Downgraded, PoolEventKind::Downgraded),
    (EventKind::Alarm, PoolEventKind::Alarm),
    (EventKind::Gap, PoolEventKind::Gap),
];

/// `Begin` and `Gap` are always sent. They map to `Gap`, because a filter without any kind would select all kinds.
fn event_kind(kind: EventKind) -> Result<PoolEventKind, Invalid> {
    let kind = if kind == EventKind::Begin { EventKind::Gap } else { kind };
    let known = EVENT_KINDS.into_iter().find(|(wire, _)| *wire == kind);
    known.map(|(_, kind)| kind).ok_or_else(|| invalid("kind", "unknown to this server"))
}

fn to_event_kind(kind: PoolEventKind) -> EventKind {
    EVENT_KINDS.into_iter().find(|(_, known)| *known == kind).map(|(wire, _)| wire).unwrap_or_default()
}

fn totals(total: Amount, connected: Sum, priority: Sum, deadline: Option<Millis>, now: Millis) -> Totals {
    Totals {
        total: total.get(),
        connected: connected.get(),
        priority_connected: priority.get(),
        underrun_ms: deadline.map(|deadline| deadline.since(now).0),
    }
}

pub(in crate::api::grpc) fn pool(resource: &str, pool: &PoolReport, now: Millis) -> GetPoolResponse {
    GetPoolResponse {
        resource_id: resource.to_owned(),
        totals: Some(totals(pool.total, pool.connected, pool.priority_connected, pool.deadline, now)),
        min_capacity: pool.min_capacity.get(),
        free_capacity: pool.free_capacity.get(),
        base_capacity: pool.base.get(),
        max_capacity: pool.max.get(),
        priority_assigned: pool.priority_assigned.get(),
        recharging: pool.used.get(),
        overloads: pool.overloads,
        overloaded: pool.is_overloaded,
        learning: pool.is_learning,
        free_waiting: pool.free_waiting as u64,
        priority_waiting: pool.priority_waiting as u64,
        revoking: pool.revoking as u64,
        remembered: pool.remembered as u64,
        ..GetPoolResponse::default()
    }
}

fn to_holder(kind: HolderKind, id: &str) -> Option<Holder> {
    Some(Holder { id: id.to_owned(), is_server: kind == HolderKind::Node })
}

pub(in crate::api::grpc) fn client(member: &PoolMember) -> Client {
    let standing = match member.standing {
        PoolStanding::Waiting => Standing::Waiting,
        PoolStanding::Free => Standing::Free,
        PoolStanding::Priority => Standing::Priority,
        PoolStanding::Revoking => Standing::Revoking,
    };
    Client {
        holder: to_holder(member.kind, &member.id),
        standing: standing.into(),
        capacity: member.capacity.get(),
        due: member.due.get(),
        assigned: member.assigned.map(to_assigned),
        balance: member.balance,
        time_cost: member.time_cost,
        request_cost: member.request_cost,
    }
}

/// The first event of a stream: the state of the pool.
pub(in crate::api::grpc) fn begin(pool: &PoolReport, now: Millis, clock: &Clock) -> PoolEvent {
    PoolEvent {
        kind: EventKind::Begin.into(),
        seq: pool.newest_event,
        at_unix_ms: unix_ms(now, clock),
        totals: Some(totals(pool.total, pool.connected, pool.priority_connected, pool.deadline, now)),
        ..PoolEvent::default()
    }
}

/// `deadline`: when priority clients will be cut off, as of this event.
pub(in crate::api::grpc) fn event(
    event: &leaseway_core::pool::PoolEvent,
    deadline: Option<Millis>,
    clock: &Clock,
) -> PoolEvent {
    let client = event.client.as_ref().map(|client| EventClient {
        holder: to_holder(client.kind, &client.id),
        capacity: client.capacity.get(),
        is_priority: client.is_priority,
        time_cost: client.time_cost,
        request_cost: client.request_cost,
    });
    PoolEvent {
        kind: to_event_kind(event.kind).into(),
        seq: event.seq,
        at_unix_ms: unix_ms(event.at, clock),
        // Relative to now, because the event may have been queued.
        totals: Some(totals(event.total, event.connected, event.priority_connected, deadline, clock.at())),
        client,
        cause: event.cause.map(|cause| cause.name().to_owned()).unwrap_or_default(),
    }
}

/// The moment in milliseconds since the epoch, as if the wall clock had not been adjusted since.
fn unix_ms(at: Millis, clock: &Clock) -> i64 {
    clock.unix_ms().saturating_sub(clock.at().since(at).0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(portion: Portion) -> Option<wire::Assigned> {
        Some(wire::Assigned { amount: Some(portion) })
    }

    #[test]
    fn assignments_are_validated() {
        let ten = Assigned::Capacity(Amount::clamped(10.0));
        for (given, expected) in [
            (Portion::Capacity(10.0), Some(ten)),
            (Portion::Capacity(0.0), None),
            (Portion::Capacity(-0.0), None),
            (Portion::Share(0.25), Some(Assigned::Share(0.25))),
            (Portion::Share(1.0), Some(Assigned::Share(1.0))),
        ] {
            let read = assigned(portion(given));
            assert_eq!(read, Ok(expected), "{given:?}");
            if let Ok(Some(read)) = read {
                assert_eq!(assigned(Some(to_assigned(read))), Ok(Some(read)), "round trip");
            }
        }
        for bad in [Portion::Capacity(-1.0), Portion::Capacity(f64::NAN), Portion::Share(0.0), Portion::Share(1.1)] {
            assert!(assigned(portion(bad)).expect_err("invalid").to_string().starts_with("assigned."), "{bad:?}");
        }
        assert!(assigned(portion(Portion::Share(f64::NAN))).is_err());
        assert!(assigned(None).is_err() && assigned(Some(wire::Assigned { amount: None })).is_err());
    }

    #[test]
    fn load_reports_are_validated() {
        assert_eq!(load(None), Ok(None));
        assert_eq!(load(Some(&Reported::Factor(0.5))), Ok(Some(Load::Factor(0.5))));
        assert_eq!(load(Some(&Reported::Capacity(80.0))), Ok(Some(Load::Capacity(Amount::clamped(80.0)))));
        for bad in [Reported::Factor(-0.1), Reported::Factor(f64::INFINITY), Reported::Capacity(f64::NAN)] {
            assert!(load(Some(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn page_tokens_round_trip() {
        for at in [
            PoolCursor::Slot(17),
            PoolCursor::After(HolderKind::Client, "ä:1 s".into()),
            PoolCursor::After(HolderKind::Node, "".into()),
        ] {
            assert_eq!(page_start(&page_token(&at)), Ok(Some(at)));
        }
        assert_eq!(page_start(""), Ok(None));
        for unknown in ["17", "sx", "ä"] {
            assert!(page_start(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn every_kind_of_event_can_be_subscribed_to() {
        for number in 1..=10 {
            let kind = EventKind::try_from(number).expect("kinds are numbered from 1");
            let known = event_kind(kind).expect("known");
            let expected = if kind == EventKind::Begin { EventKind::Gap } else { kind };
            assert_eq!(to_event_kind(known), expected);
        }
        assert!(event_kind(EventKind::Unspecified).is_err());
    }

    #[test]
    fn a_subscription_to_kinds_that_are_always_sent_selects_no_others() {
        let asks = |kind: &[EventKind]| {
            let kind = kind.iter().map(|kind| (*kind).into()).collect();
            event_filter(&SubscribeRequest { kind, ..SubscribeRequest::default() }).expect("known").kinds
        };
        assert_eq!(asks(&[]), [], "all");
        assert_eq!(asks(&[EventKind::Begin]), [PoolEventKind::Gap]);
        assert_eq!(asks(&[EventKind::Gap, EventKind::Alarm]), [PoolEventKind::Gap, PoolEventKind::Alarm]);
    }
}
