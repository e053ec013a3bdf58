//! Between a node and its parent: what the node has from it, and what it tells it of those below.
//!
//! A node with a parent divides what the parent lends it. *How much* is the parent's lease; *by what rule* are the
//! parent's [`Terms`]: what cannot be known below, an equal share of everybody's or the part of one client, comes down
//! with the lease, and what can be known, where the level lies, follows from the lease itself. So a client at the end
//! of a tree gets what one server that knew everybody would give it.
//!
//! Upwards goes what all claims amount to, in slices of similar wants, and what those below may still believe in
//! (`outstanding`): the parent counts the larger of that and the node's lease as held.
//!
//! Deliberately absent: who asks the parent and when (the client's session), and the wire.

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

/// A parent's lease, as far as a resource has to know of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Supply {
    /// How much.
    pub capacity: Amount,
    /// Until when.
    pub until: Millis,
    /// What the parent divided by, for each priority; empty if it does not say.
    pub terms: Vec<(i16, Terms)>,
    /// Its name among the supplies of this node: never zero.
    pub edition: u64,
}

/// What those below a node use of what it has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageBelow {
    /// So much is in use, as far as they say: what somebody has who does not say counts, and what nobody has does not.
    pub used: Amount,
    /// Units they say they have used since the resource came to life here. The uplink makes of that what the parent has
    /// not been told yet.
    pub spent: f64,
}

impl UsageBelow {
    /// What is in use as a part of the lease that the parent is reminded of; without one, all of whatever comes.
    pub fn part_of(&self, lease: f64) -> f64 {
        if lease > 0.0 { (self.used.get() / lease).min(1.0) } else { 1.0 }
    }
}

/// What a node tells its parent about one resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Condensed {
    /// What everybody below wants, as slices of similar wants.
    pub claims: Claims,
    /// What those below may still believe in.
    pub outstanding: Amount,
    /// PRIORITY_POOL: what those below use of what this node has.
    pub usage: Option<UsageBelow>,
    /// Not everybody below is known yet.
    pub learning: bool,
    /// The supply that was in force when this was so; zero before the first. Whoever sends this must confirm no newer
    /// one: what is outstanding is the truth only for as long as the supply is this one.
    pub edition: u64,
}

/// Wants or leases that moved by less than this part of themselves are told with the next refresh.
const MOVED: f64 = 0.005;

/// What the parent was told last.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Told {
    pub(crate) wants: Sum,
    pub(crate) held: Sum,
}

impl Told {
    /// Whether the parent should hear of `now` before it is asked anyway (rule 10): what is wanted has changed, or what
    /// it waits for has been given up below: it was told of more than it has `lent`.
    pub(crate) fn is_outdated(&self, now: &Told, lent: Amount) -> bool {
        let (told, wants) = (self.wants.get(), now.wants.get());
        let wants_moved = (wants - told).abs() > told.max(wants) * MOVED;
        let (told, held) = (self.held.get(), now.held.get().max(lent.get()));
        wants_moved || told - held > told * MOVED
    }
}
