//! Requests, answers and demand.

use std::{ops::Range, sync::Arc};

use leaseway_core::{
    resource::{BudgetLease, supply::DemandSummary},
    types::Millis,
};

use crate::session::{
    lease::{Capacity, Lease, Wire},
    pool::Usage,
};

/// The demand for one resource.
pub trait Demand: Clone {
    /// Whether it differs so much from `asked`, the demand in the last request, that it must not wait for the next
    /// refresh.
    fn is_urgent(&self, asked: &Self) -> bool;
    /// Whether a request with this demand says the same as one with `asked` that names the same lease.
    fn is_same(&self, asked: &Self) -> bool;
    /// The total amount, which optimistic mode uses.
    fn amount(&self) -> f64;
    /// How long before its end a lease must no longer be used, because what is used stays in use for as long.
    fn tail(&self) -> Millis {
        Millis(0)
    }
    /// What was spent of a budget.
    fn spent(&self) -> Option<BudgetUse> {
        None
    }
}

/// The demand of a child node: what its holders want in total.
impl Demand for DemandSummary {
    /// The resources of a child node decide themselves when to ask early.
    fn is_urgent(&self, _: &DemandSummary) -> bool {
        false
    }

    /// It also reports on the holders below, which a renewal cannot.
    fn is_same(&self, _: &DemandSummary) -> bool {
        false
    }

    fn amount(&self) -> f64 {
        self.claims.iter().map(|claim| claim.wants.get()).sum()
    }
}

/// The demand of a client for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wants {
    /// The amount.
    pub amount: f64,
    /// The claimed priority; its meaning depends on the resource.
    pub priority: i64,
    /// The amount in use, if that is more than the lease allows: of gauges, and of windows that slide.
    pub outstanding: f64,
    /// Windows that slide: their length.
    pub tail: Millis,
    /// Pools: usage of the lease that is echoed with this demand.
    pub usage: Option<Usage>,
    /// Budgets: what was spent.
    pub spent: Option<BudgetUse>,
}

/// The report of a client of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BudgetUse {
    /// All that this incarnation has spent in the period.
    pub spent: f64,
    /// The start of the period, in Unix seconds.
    pub period: i64,
    /// The incarnation.
    pub incarnation: u64,
    /// The smallest useful slice.
    pub need: f64,
    /// The lease that gave the allowance; `has` names no other.
    pub token: Option<u64>,
    /// Whether a larger allowance is needed soon.
    pub is_short: bool,
}

impl BudgetUse {
    fn is_urgent(&self, asked: &BudgetUse) -> bool {
        let has_moved = self.spent > asked.spent || self.need > asked.need;
        self.incarnation != asked.incarnation || self.period != asked.period || self.is_short && has_moved
    }
}

/// A change by more than this fraction is sent at once.
const CHANGE_THRESHOLD: f64 = 0.1;

impl Demand for Wants {
    fn is_urgent(&self, asked: &Wants) -> bool {
        if let Some(spent) = &self.spent {
            return asked.spent.is_none_or(|asked| spent.is_urgent(&asked));
        }
        changed(self.amount, asked.amount)
            || changed(self.outstanding, asked.outstanding)
            || self.priority != asked.priority
    }

    fn is_same(&self, asked: &Wants) -> bool {
        // What is outstanding or was used is reported with each request.
        self == asked && self.outstanding == 0.0 && self.usage.is_none()
    }

    fn amount(&self) -> f64 {
        self.amount
    }

    fn tail(&self) -> Millis {
        self.tail
    }

    fn spent(&self) -> Option<BudgetUse> {
        self.spent
    }
}

fn changed(is: f64, was: f64) -> bool {
    (is - was).abs() > was * CHANGE_THRESHOLD
}

/// A request to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing<D> {
    /// Identifies the request when its outcome is reported.
    pub number: u64,
    /// The server, as `host:port`.
    pub target: Arc<str>,
    /// When the session abandons it.
    pub deadline: Millis,
    /// What to send.
    pub body: Body<D>,
}

/// The contents of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Body<D> {
    /// Ask for capacity.
    Ask(Vec<Ask<D>>),
    /// Release leases.
    Release(Vec<Release>),
    /// Ask for capacity on a stream of renewals.
    Stream(StreamRequest<D>),
}

/// One resource of a request for capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask<D> {
    /// The resource.
    pub id: Arc<str>,
    /// The demand.
    pub demand: D,
    /// The newest lease, while it is live.
    pub has: Option<Lease>,
    /// The newest lease once it has expired: a new master may still find it among the stored promises.
    pub had: Option<Lease>,
}

/// One resource to release.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// The resource.
    pub id: Arc<str>,
    /// The name of the newest lease.
    pub token: Option<u64>,
    /// Budgets: the last report.
    pub spent: Option<BudgetUse>,
}

/// One lease of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantedLease {
    /// The resource.
    pub id: Arc<str>,
    /// The length, counted from when the request was sent.
    pub length: Millis,
    /// The refresh interval.
    pub refresh: Millis,
    /// The name of the lease, if it has one.
    pub token: Option<u64>,
    /// The fields to echo.
    pub wire: Wire,
    /// The safe capacity, to use after the lease has expired.
    pub safe: Option<f64>,
    /// Budgets: the period.
    pub budget: Option<BudgetLease>,
}

/// A message on a stream of renewals.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRequest<D> {
    /// Identifies the stream within its session.
    pub stream: u64,
    /// The number of the message. The first of a stream has number 1.
    pub sequence: u64,
    /// New and changed resources, with their indexes.
    pub stated: Vec<(u32, Ask<D>)>,
    /// The indexes of the resources to renew.
    pub renewed: Vec<Range<u32>>,
}

/// The answer to a [`StreamRequest`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamReply {
    /// The time of the answer in Unix seconds, from which renewed leases count on the wire.
    pub unix: i64,
    /// New leases, by index. Their ids are ignored.
    pub granted: Vec<(u32, GrantedLease)>,
    /// Resources that keep their leases.
    pub left_out: Vec<u32>,
    /// The server does not know this stream: everything has to be stated on another.
    pub restart: bool,
}

/// What may be used of a resource now, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usable {
    /// The amount.
    pub capacity: Capacity,
    /// Where it comes from.
    pub basis: Basis,
}

/// Where a capacity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Neither an answer nor a failure yet.
    Unknown,
    /// A live lease.
    Lease,
    /// The lease has expired, or none could be obtained: the [`Mode`](crate::Mode) decides.
    Fallback,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_more_than_a_tenth_is_urgent() {
        let asked = Wants { amount: 10.0, outstanding: 5.0, ..Wants::default() };
        let is_urgent = |amount, outstanding| Wants { amount, outstanding, ..asked }.is_urgent(&asked);
        assert!(!is_urgent(11.0, 5.0) && !is_urgent(9.0, 5.0));
        assert!(is_urgent(11.1, 5.0) && is_urgent(8.9, 5.0) && is_urgent(0.0, 5.0) && is_urgent(10.0, 4.0));
        assert!(Wants { priority: 1, ..asked }.is_urgent(&asked));
        assert!(Wants { amount: 1e-9, ..Wants::default() }.is_urgent(&Wants::default()));
    }
}
