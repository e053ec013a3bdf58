//! The demand reported to the parent.

use leaseway_client::session::{Ask, Body, Lease, Outgoing, StreamRequest};
use leaseway_core::{
    allocation::groups::GroupDemand,
    pool::Usage,
    resource::supply::DemandSummary,
    types::{Amount, Claim, Claims},
};

/// The total wants and leases of the holders of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Their wants, in slices of similar wants.
    pub claims: Claims,
    /// The same by group, if clients are grouped.
    pub groups: Vec<GroupDemand>,
    /// Capacity that the holders may still be using.
    pub outstanding: Amount,
    /// Whether some holders are still unknown to the node.
    pub learning: bool,
    /// Usage of the confirmed lease (PRIORITY_POOL only).
    pub usage: Option<Usage>,
    /// BUDGET: the start of the period in which `outstanding` was spent.
    pub period: Option<i64>,
}

/// The claim of a resource without holders. A parent that knows only the original protocol, which has no tokens,
/// divides by the number of clients.
const NO_DEMAND: Claim = Claim::new(Amount::ZERO, 1, 1);

impl Aggregate {
    fn of(summary: DemandSummary, has: Option<&Lease>) -> Aggregate {
        let DemandSummary { mut claims, groups, outstanding, usage, learning, period, .. } = summary;
        let has_token = has.is_some_and(|lease| lease.token.is_some());
        if claims.is_empty() && !has_token {
            claims.push(NO_DEMAND);
        }
        let usage = usage.map(|usage| Usage {
            recharging: usage.part_of(has.map_or(0.0, |lease| lease.capacity.get())),
            // Clamped, because the parent rejects a request whose cost exceeds the maximum of one report, and a sum
            // over all holders may exceed it.
            request_cost: Amount::clamped(usage.spent),
            interval: None,
        });
        Aggregate { claims, groups, outstanding, learning, usage, period }
    }
}

pub(super) fn outgoing(outgoing: Outgoing<DemandSummary>) -> Outgoing<Aggregate> {
    let Outgoing { number, target, deadline, body } = outgoing;
    let ask = |Ask { id, demand, has, had }: Ask<DemandSummary>| {
        let demand = Aggregate::of(demand, has.as_ref());
        Ask { id, demand, has, had }
    };
    let body = match body {
        Body::Ask(asks) => Body::Ask(asks.into_iter().map(ask).collect()),
        Body::Release(releases) => Body::Release(releases),
        Body::Stream(request) => {
            let StreamRequest { stream, sequence, stated, renewed } = request;
            let stated = stated.into_iter().map(|(index, stated)| (index, ask(stated))).collect();
            Body::Stream(StreamRequest { stream, sequence, stated, renewed })
        }
    };
    Outgoing { number, target, deadline, body }
}

#[cfg(test)]
mod tests {
    use leaseway_client::session::{Capacity, Wire};
    use leaseway_core::{pool::UsageBelow, types::Millis};

    use super::*;

    fn lease(capacity: f64, token: Option<u64>) -> Lease {
        let wire = Wire { expiry_time: 60, refresh_interval: 5, capacity };
        Lease { capacity: Capacity::of(capacity), end: Millis(1), refresh: Millis(1), token, wire, budget: None }
    }

    #[test]
    fn usage_is_reported_as_a_part_of_the_confirmed_lease() {
        let reported = |used, spent, has: Option<Lease>| {
            let usage = Some(UsageBelow { used: Amount::clamped(used), spent });
            Aggregate::of(DemandSummary { usage, ..DemandSummary::default() }, has.as_ref())
                .usage
                .expect("it is a pool")
        };
        assert_eq!(reported(20.0, 7.0, Some(lease(80.0, Some(1)))).recharging, 0.25);
        let alone = reported(20.0, 7.0, None);
        assert_eq!((alone.recharging, alone.request_cost.get(), alone.interval), (1.0, 7.0, None));
        assert_eq!(reported(20.0, 2e15, None).request_cost, Amount::MAX, "clamped");
        assert_eq!(Aggregate::of(DemandSummary::default(), None).usage, None);
    }

    #[test]
    fn a_parent_without_tokens_gets_at_least_one_claim() {
        let claims = |has: Option<Lease>| Aggregate::of(DemandSummary::default(), has.as_ref()).claims.len();
        assert_eq!((claims(None), claims(Some(lease(1.0, None))), claims(Some(lease(1.0, Some(1))))), (1, 1, 0));
    }
}
