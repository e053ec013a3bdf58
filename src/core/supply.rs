//! Between a node and its parent: the supply from the parent, and the report to it.
//!
//! A node with a parent divides what the parent lends it. *How much* is the parent's lease; *by what rule* are the
//! parent's [`Terms`]: what a node cannot know, such as the equal share of the whole tree or the part of one client,
//! comes with the lease, and what it can know, where the level lies, follows from the lease itself. So a client of a
//! leaf gets what one server that knew all clients would give it.
//!
//! The report has all claims in slices of similar wants, and what the holders below may still believe in
//! (`outstanding`): the parent counts the larger of that and the node's lease as held.
//!
//! Deliberately absent: when the parent is asked (the session), and the wire format.

use crate::{Amount, Claims, Millis, Sum, Terms};

/// Where a resource's capacity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Its settings say how much there is.
    #[default]
    Own,
    /// A parent lends it. Before the first [`Supply`] nothing is decided.
    Parent,
}

/// A parent's lease, as a resource needs it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Supply {
    pub capacity: Amount,
    pub until: Millis,
    /// What the parent divided by, for each priority; empty if it does not say.
    pub terms: Vec<(i16, Terms)>,
    /// Its name among the supplies of this node: never zero.
    pub version: u64,
}

/// The use of a node's capacity by its holders.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageBelow {
    /// How much is in use: leases of holders that do not report use count in full, capacity that no holder has does
    /// not.
    pub used: Amount,
    /// Units used since the resource was created here, as reported. The uplink computes from that what the parent has
    /// not been told yet.
    pub spent: f64,
}

impl UsageBelow {
    /// The use as a part of the lease that the request names; without a lease, full use.
    pub fn part_of(&self, lease: f64) -> f64 {
        if lease > 0.0 { (self.used.get() / lease).min(1.0) } else { 1.0 }
    }
}

/// What a node tells its parent about one resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandSummary {
    /// The wants of all holders, as slices of similar wants; then their minimums.
    pub claims: Claims,
    /// What holders may still believe in.
    pub outstanding: Amount,
    /// PRIORITY_POOL: the use of this node's capacity.
    pub usage: Option<UsageBelow>,
    /// Not all holders are known yet.
    pub learning: bool,
    /// The supply in force at that time; zero before the first. A request with this report must confirm no newer
    /// supply: `outstanding` is only true under this one.
    pub version: u64,
}

/// Wants or leases that moved by less than this part of themselves are reported with the next refresh.
const MOVED: f64 = 0.005;

/// What the parent was told last.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LastReport {
    pub(crate) wants: Sum,
    pub(crate) held: Sum,
}

impl LastReport {
    /// Whether `now` should be reported before the next refresh (rule 10): wants have changed, or holders have given up
    /// what the parent waits for, as it was told of more than it has `lent`.
    pub(crate) fn is_outdated(&self, now: &LastReport, lent: Amount) -> bool {
        let (told, wants) = (self.wants.get(), now.wants.get());
        let wants_moved = (wants - told).abs() > told.max(wants) * MOVED;
        let (told, held) = (self.held.get(), now.held.get().max(lent.get()));
        wants_moved || told - held > told * MOVED
    }
}
