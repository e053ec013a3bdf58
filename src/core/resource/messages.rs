//! The inputs and outputs of a round.

use std::{num::NonZeroU64, sync::Arc};

use crate::{
    allocation::{
        division::Terms,
        groups::{GroupDemand, GroupSupply},
    },
    lease::{confirm::LeaseStatement, holder::ShownLease, ledger::HolderMode},
    planted::{self, Fault},
    policy::{
        access::{AccessRequest, Action},
        period::Span,
        settings::Settings,
    },
    pool::{PoolFields, PoolState},
    types::{Amount, ChargedTo, Claims, HolderKind, Millis, Token},
};

#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Client or child node. The two have separate ids.
    pub kind: HolderKind,
    pub id: Arc<str>,
    /// Its wants, by priority.
    pub claims: Claims,
    /// A child node: the same wants by group. Empty if it does not know groups.
    pub groups: Vec<GroupDemand>,
    /// The newest lease that it knows.
    pub has: Option<ShownLease>,
    /// If it has none: the newest lease that it had, which has ended and was not given back.
    pub had: Option<ShownLease>,
    /// The amount that it, or the holders below it, may still be using. A child node that does not report this amount
    /// does not understand terms either.
    pub outstanding: Option<Amount>,
    /// A child node in learning mode: its `has` confirms nothing.
    pub learning: bool,
    /// The holder ignores an answer if the lease that its request named has ended when the answer comes, and any answer
    /// but that to its latest request (rule 6).
    pub drops_late: bool,
    /// It limits others with its lease. For reports.
    pub is_gateway: bool,
    /// A child node: its instance.
    pub instance: Option<NodeInstance>,
    /// PRIORITY_POOL: its account, and its usage.
    pub pool_fields: Option<Box<PoolFields>>,
    /// BUDGET: what it has spent. Requests without it get nothing from a budget.
    pub spent: Option<Box<Spent>>,
    /// The principal that its record is charged to if it is new.
    pub charged_to: ChargedTo,
}

/// The report of a holder of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// All that this incarnation has spent in the period.
    pub amount: Amount,
    /// The start of the period, in Unix seconds.
    pub period: i64,
    /// Drawn at random when a client opens the budget, and again when it is told to start over.
    pub incarnation: u64,
    /// The smallest useful slice, for example the cost of the call that waits.
    pub need: Amount,
}

/// What the lease of a budget says besides its capacity, which is the allowance for the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLease {
    pub period: Span,
    /// All that the holder had is consumed. It goes on as another incarnation that has spent nothing.
    pub starts_over: bool,
}

impl Ask {
    /// A request of a client that wants nothing and has no lease.
    pub fn of_nothing(client: Arc<str>) -> Ask {
        Ask {
            kind: HolderKind::Client,
            id: client,
            claims: Claims::new(),
            has: None,
            had: None,
            outstanding: None,
            learning: false,
            drops_late: true,
            is_gateway: false,
            instance: None,
            pool_fields: None,
            groups: Vec::new(),
            spent: None,
            charged_to: ChargedTo::default(),
        }
    }

    /// Whether the sender is a child node that understands `Terms`, a Leaseway extension.
    pub(crate) fn understands_terms(&self) -> bool {
        self.mode() == HolderMode::UnderstandsTerms
    }

    #[inline]
    pub(crate) fn lease_statement(&self) -> LeaseStatement {
        let Ask { kind, has, had, outstanding, learning, drops_late, .. } = *self;
        LeaseStatement { kind, has, had, outstanding, learning, drops_late }
    }

    pub(crate) fn mode(&self) -> HolderMode {
        match self.kind {
            HolderKind::Node if self.outstanding.is_some() => HolderMode::UnderstandsTerms,
            HolderKind::Client if self.is_gateway => HolderMode::Gateway,
            HolderKind::Node | HolderKind::Client => HolderMode::Plain,
        }
    }
}

/// The process behind a node's name. The number is drawn at random when the node first starts and kept in its data
/// directory. A node without a directory draws another with each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInstance {
    pub node: NonZeroU64,
    /// The term of the node's master. Later masters have higher numbers.
    pub term: u64,
}

impl NodeInstance {
    /// From the wire. A node of zero means that none was sent.
    pub fn new(node: u64, term: u64) -> Option<NodeInstance> {
        NonZeroU64::new(node).map(|node| NodeInstance { node, term })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    pub kind: HolderKind,
    pub id: Arc<str>,
    /// The newest lease to give back. Absent (Doorman clients): all leases of the holder.
    pub token: Option<Token>,
    /// As in [`Ask`].
    pub instance: Option<NodeInstance>,
    /// BUDGET: the last report of a client that spends nothing from now on.
    pub spent: Option<Box<Spent>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    Ask(Ask),
    /// Like `Ask`, but the wants could not be read, so the last known wants stay. If the holder is unknown but has a
    /// lease, `claims` count. If it is unknown and has none, it gets nothing.
    Renew(Ask),
    Release(Release),
}

/// A lease, as it goes to its holder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    pub token: Token,
    pub capacity: Amount,
    pub length: Millis,
    pub refresh: Millis,
    /// The end in Unix seconds.
    pub expiry_time: i64,
    /// Capacity that the holder may use after the lease has ended without a new one. Negative: unlimited.
    pub safe_capacity: f64,
    /// The priority of its first claim.
    pub priority: i16,
    /// Whether the resource has no limit, so that every request is granted.
    pub is_unlimited: bool,
    /// PRIORITY_POOL: its standing.
    pub pool: Option<PoolState>,
    pub budget: Option<BudgetLease>,
}

/// A lease for a child node, with the terms and settings by which the node divides it.
#[derive(Debug, Clone, PartialEq)]
pub struct Supplied {
    pub lease: Lease,
    /// The terms for each priority in its request; empty if it reported groups.
    pub terms: Vec<(i16, Terms)>,
    /// Its part of each group that it reported.
    pub groups: Vec<GroupSupply>,
    pub settings: Arc<Settings>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A lease, possibly with a capacity of zero.
    Granted(Lease),
    Supplied(Box<Supplied>),
    /// It cannot be decided yet: the holder keeps its lease, and asks again in a second.
    NotYet,
    /// The request came too soon after the last, and nothing has changed. It is left out of the answer, and the lease
    /// stays as it is.
    TooSoon,
    /// The request names an older lease than a later request of its holder. No client waits for the answer any more.
    Stale,
    /// The resource has its maximum number of holders.
    Full,
    /// The principal of the request has its share of all slots.
    ShareFull,
    /// The wants could not be read, and nothing is known of the holder.
    Unknown,
    /// Another instance holds leases under this name.
    NameTaken,
    /// BUDGET: the request does not say what its sender has spent, so it can get nothing.
    NeedsReport,
    /// BUDGET: this node has a parent and keeps no promises, so a restart would forget what was spent.
    NeedsStorage,
    Released,
}

impl Answer {
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Answer::Granted(lease) => Some(lease),
            Answer::Supplied(supplied) => Some(&supplied.lease),
            Answer::NotYet | Answer::TooSoon | Answer::Stale | Answer::Full | Answer::NameTaken => None,
            Answer::ShareFull | Answer::Unknown | Answer::Released => None,
            Answer::NeedsReport | Answer::NeedsStorage => None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub rounds: u64,
    pub granted: u64,
    pub too_soon: u64,
    pub stale: u64,
    /// Requests refused because of the maximum number of holders.
    pub full: u64,
    /// Requests refused because another instance holds leases under their name.
    pub name_taken: u64,
    /// Requests refused because their principal has its share of all slots.
    pub share_full: u64,
    /// Holders removed because their leases ended.
    pub expired: u64,
    /// Requests outside learning mode that showed an unknown lease.
    pub unaccounted: u64,
    /// Requests in learning mode that showed more than was left unclaimed.
    pub learning_excess: u64,
}

impl Counters {
    fn each(&self, other: &Counters, of: impl Fn(u64, u64) -> u64) -> Counters {
        Counters {
            rounds: of(self.rounds, other.rounds),
            granted: of(self.granted, other.granted),
            too_soon: of(self.too_soon, other.too_soon),
            stale: of(self.stale, other.stale),
            full: of(self.full, other.full),
            name_taken: of(self.name_taken, other.name_taken),
            share_full: of(self.share_full, other.share_full),
            expired: of(self.expired, other.expired),
            unaccounted: of(self.unaccounted, other.unaccounted),
            learning_excess: of(self.learning_excess, other.learning_excess),
        }
    }

    pub fn add(&mut self, more: &Counters) {
        *self = self.each(more, u64::saturating_add);
    }

    /// The increase since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        self.each(before, u64::saturating_sub)
    }
}

impl<'a> AccessRequest<'a> {
    /// The access that a request needs. A release needs the same as asking, because whoever may act as a client may end
    /// its leases.
    pub fn of(resource: &'a str, request: &'a Request) -> AccessRequest<'a> {
        let (kind, id, priority) = match request {
            Request::Ask(ask) | Request::Renew(ask) => {
                (ask.kind, &ask.id, ask.claims.iter().map(|claim| claim.priority).max())
            }
            Request::Release(release) if planted::is(Fault::ReleasesUnasked) => {
                return AccessRequest::on(Action::of(release.kind), resource);
            }
            Request::Release(release) => (release.kind, &release.id, None),
        };
        AccessRequest { holder: Some(id), priority, ..AccessRequest::on(Action::of(kind), resource) }
    }
}
