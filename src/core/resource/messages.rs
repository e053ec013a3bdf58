//! The input and output of a round.

use std::sync::Arc;

use crate::{
    planted::{self, Fault},
    policy::access::{AccessRequest, Action},
    allocation::division::Terms,
    lease::{leases::Has, ledger::HolderMode},
    policy::settings::Settings,
    pool::{News, PoolState},
    resource::names::NodeInstance,
    types::{
        amount::Amount,
        claim::{Claims, HolderKind},
        principal::ChargedTo,
        time::Millis,
        token::Token,
    },
};

/// A request for capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Client or child node; the two have separate names.
    pub kind: HolderKind,
    pub id: Arc<str>,
    /// What it wants, by priority.
    pub claims: Claims,
    /// The newest lease it knows.
    pub has: Option<Has>,
    /// If it has none: the newest that it had, which has ended and was not given back.
    pub had: Option<Has>,
    /// All that it, or those below it, may still be using; a child node that does not say does not heed terms either.
    pub outstanding: Option<Amount>,
    /// A child node that does not know all its holders yet: its `has` confirms nothing.
    pub learning: bool,
    /// An answer counts at this holder only if the lease that its request named has not ended when the answer comes,
    /// and only the answer to its latest request counts.
    pub drops_late: bool,
    /// It limits others with what it is given: for reports.
    pub is_gateway: bool,
    /// A child node: which of all that may be called so.
    pub instance: Option<NodeInstance>,
    /// PRIORITY_POOL: its account, and what it has used.
    pub news: Option<Box<News>>,
    /// To whom its record is counted, if it is new.
    pub charged_to: ChargedTo,
}

impl Ask {
    /// Whether it comes from a child node that knows our additions to the protocol.
    pub(crate) fn heeds_terms(&self) -> bool {
        self.mode() == HolderMode::HeedsTerms
    }

    pub(crate) fn mode(&self) -> HolderMode {
        match self.kind {
            HolderKind::Node if self.outstanding.is_some() => HolderMode::HeedsTerms,
            HolderKind::Client if self.is_gateway => HolderMode::Gateway,
            HolderKind::Node | HolderKind::Client => HolderMode::Plain,
        }
    }
}

/// Gives leases back.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// Client or child node.
    pub kind: HolderKind,
    pub id: Arc<str>,
    /// The newest lease given back. Absent (Doorman clients): everything that the holder has by now.
    pub token: Option<Token>,
    /// As in [`Ask`].
    pub instance: Option<NodeInstance>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Asks for capacity.
    Ask(Ask),
    /// The same, but its wants could not be read: the last known wants stay. If the holder is not known but has a
    /// lease, the claims count; if it has none, it gets nothing.
    Renew(Ask),
    /// Gives it back.
    Release(Release),
}

/// A lease, as it goes to its holder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    pub token: Token,
    pub capacity: Amount,
    /// How long, counted from when the request was sent.
    pub length: Millis,
    /// Ask again after so long.
    pub refresh: Millis,
    /// The end in seconds since the epoch.
    pub expiry_time: i64,
    /// What to use once it has ended unrenewed; negative: no limit.
    pub safe_capacity: f64,
    /// The priority it was counted at (the first claim's).
    pub priority: i16,
    /// PRIORITY_POOL: its standing.
    pub pool: Option<PoolState>,
}

/// A lease for a child node, and how to divide it.
#[derive(Debug, Clone, PartialEq)]
pub struct Supplied {
    pub lease: Lease,
    /// The terms for each priority in its request.
    pub terms: Vec<(i16, Terms)>,
    /// How the resource is run.
    pub settings: Settings,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A lease, possibly of nothing.
    Granted(Lease),
    /// The same for a child node.
    Supplied(Box<Supplied>),
    /// This node has no lease of its own yet: the holder keeps what it has, and asks again in a second.
    NotYet,
    /// Too soon after the last one, and nothing has changed: left out of the answer, the lease stays as it is.
    TooSoon,
    /// Older than what the holder has confirmed since: no client waits for the answer any more.
    Stale,
    /// The resource has as many holders as it may.
    Full,
    /// The principal of the request has its share of all holders.
    ShareFull,
    /// What it wants could not be read, and nothing is known of it.
    Unknown,
    /// Another node of its name holds leases.
    NameTaken,
    Released,
}

impl Answer {
    /// The lease, if it is one.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Answer::Granted(lease) => Some(lease),
            Answer::Supplied(supplied) => Some(&supplied.lease),
            Answer::NotYet | Answer::TooSoon | Answer::Stale | Answer::Full | Answer::NameTaken => None,
            Answer::ShareFull | Answer::Unknown | Answer::Released => None,
        }
    }
}

/// Counters since the resource was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub rounds: u64,
    pub granted: u64,
    /// Requests ignored because they came too soon.
    pub too_soon: u64,
    /// Requests dropped because they were older than what their holder has confirmed.
    pub stale: u64,
    /// Requests refused because there are too many holders.
    pub full: u64,
    /// Requests refused because another node of their name holds leases.
    pub name_taken: u64,
    /// Requests refused because their principal has its share of all holders.
    pub share_full: u64,
    /// Holders forgotten because their leases ended.
    pub expired: u64,
    /// Requests outside learning mode that named a lease unknown here.
    pub unaccounted: u64,
    /// Times a holder came to a learning resource with more than was left of what was lent before.
    pub learning_excess: u64,
}

impl<'a> AccessRequest<'a> {
    /// What a request for a resource takes. A release is as much as asking: who may be a client may end its leases.
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
