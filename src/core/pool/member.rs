//! Members: the pool's record of a holder.

pub(super) mod sorted;

use std::{cmp::Reverse, sync::Arc};

use super::{
    accounts::{BalanceKey, ConnectedBalance},
    events::Cause,
};
use crate::types::{Amount, Claim, Claims, HolderKind, Millis, Principal, Token};

/// The sort key of priority clients: more important clients first, then in the order of arrival.
pub(super) type Rank = (Reverse<i16>, u64, u32);
/// The sort key of free clients: smaller balances first, then in the order of arrival.
pub(super) type QueueKey = (BalanceKey, u64, u32);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Free {
    /// Not a free client, or a free client without wants.
    No,
    Waiting(BalanceKey),
    /// It has a place and waits for free capacity.
    Pending(BalanceKey),
    /// It has capacity and may keep it.
    Served(ConnectedBalance),
    /// It has capacity and will lose it with its next request.
    Revoking(ConnectedBalance),
}

/// The wants of a member as the pool counts them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Demand {
    /// Wants as a priority client.
    pub(super) wanted: Amount,
    pub(super) rank: i16,
    /// The total from which a proportional assignment was computed.
    pub(super) computed_from: Option<Amount>,
    /// Wants as free clients, in places.
    pub(super) places: u64,
    pub(super) reported_claims: Claims,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) kind: HolderKind,
    pub(super) id: Arc<str>,
    /// The principal that the record is charged to.
    pub(super) principal: Principal,
    /// The order of arrival.
    pub(super) seq: u64,
    pub(super) claims: Claims,
    pub(super) demand: Demand,
    /// The capacity that the member may have as a priority client.
    pub(super) target: Amount,
    pub(super) free: Free,
    /// The account; present while the member is a free client.
    pub(super) account: Option<u32>,
    pub(super) granted: Amount,
    /// Whether the capacity is from an earlier master and the member has not asked this master yet.
    pub(super) inherited: bool,
    /// Why the member has no more capacity.
    pub(super) cause: Cause,
    /// The fraction of its capacity that the member uses.
    pub(super) fraction: f64,
    /// Child nodes: the lease that `fraction` refers to. The leases of nodes change often, those of clients rarely.
    pub(super) fraction_of: Option<Amount>,
    pub(super) asked: Millis,
    /// When the usage report expires.
    pub(super) reported_until: Option<Millis>,
    /// Whether the usage report has expired, so that all of the capacity may be in use.
    pub(super) is_silent: bool,
    /// Usage that counts against the base, and possible additional usage.
    pub(super) used: Amount,
    /// All usage, including that of capacity about to be lost.
    pub(super) uses: Amount,
    /// Capacity reported as unused.
    pub(super) idle: Amount,
    pub(super) possible_use: Amount,
    pub(super) costs: Costs,
    /// Whether the member has been connected without a break since an earlier master, so that its costs continue.
    pub(super) continues: bool,
    pub(super) note: Note,
}

/// The costs of a member in the last note.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Note {
    pub(super) is_noted: bool,
    /// When the next note is due.
    pub(super) due: Option<Millis>,
    /// Costs since the last note.
    pub(super) moved: f64,
}

/// The cost of a member since it connected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    pub(super) time: f64,
    pub(super) request: f64,
    /// The time up to which time cost has been counted.
    pub(super) until: Millis,
    /// The cost in the last event.
    pub(super) announced: f64,
    /// The usage counted for this lease, so that a repeated request is not charged twice.
    pub(super) reported: Option<(Option<Token>, f64)>,
}

impl Member {
    pub(super) fn new(kind: HolderKind, id: Arc<str>, seq: u64, now: Millis) -> Member {
        Member {
            kind,
            id,
            principal: Principal::NONE,
            seq,
            claims: Claims::new(),
            demand: Demand::default(),
            target: Amount::ZERO,
            free: Free::No,
            account: None,
            granted: Amount::ZERO,
            inherited: false,
            cause: Cause::Full,
            fraction: 1.0,
            fraction_of: None,
            asked: now,
            reported_until: None,
            is_silent: false,
            used: Amount::ZERO,
            uses: Amount::ZERO,
            idle: Amount::ZERO,
            possible_use: Amount::ZERO,
            costs: Costs { until: now, ..Costs::default() },
            continues: false,
            note: Note::default(),
        }
    }

    /// Treats a holder that has not asked yet as a free client.
    pub(super) fn assume_free(&mut self, minimum: Amount) {
        self.claims = [Claim::of_client(self.granted, 0)].into_iter().collect();
        (self.demand, self.target) = (Demand::of_free_client(minimum), Amount::ZERO);
    }

    pub(super) fn rank(&self, slot: u32) -> Rank {
        (Reverse(self.demand.rank), self.seq, slot)
    }

    pub(super) fn place(&self, key: BalanceKey, slot: u32) -> QueueKey {
        (key, self.seq, slot)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.granted > Amount::ZERO
    }

    /// Capacity that the member may have as a priority client and does not have yet.
    pub(super) fn owed(&self) -> Amount {
        self.target.saturating_sub(self.granted)
    }

    pub(super) fn is_placed(&self) -> bool {
        matches!(self.free, Free::Pending(_) | Free::Served(_))
    }

    pub(super) fn is_priority(&self) -> bool {
        self.demand.wanted > Amount::ZERO
    }

    /// Whether the member is a victim of an overload and has not asked since.
    pub(super) fn is_victim(&self) -> bool {
        matches!(self.free, Free::Revoking(_)) && self.cause == Cause::Overload
    }

    /// Whether the usage is unknown, because the lease is from an earlier master and the holder has not asked yet.
    pub(super) fn is_unseen(&self) -> bool {
        self.inherited && self.granted > Amount::ZERO
    }

    /// Whether the member stands for the unclaimed inherited leases.
    pub(super) fn is_inherited(&self) -> bool {
        self.inherited && self.id.is_empty()
    }

    /// Lets the member keep this amount until its next request.
    pub(super) fn keep(&mut self, amount: Amount) {
        (self.demand.wanted, self.demand.rank, self.target) = (amount, i16::MAX, amount);
    }

    /// Whether the member's usage counts. The usage of a victim does not, because it ends with the next request and no
    /// other client has to be disconnected for it. The usage of a client that has not asked this master yet is unknown.
    pub(super) fn counts(&self) -> bool {
        !self.inherited
            && (self.target > Amount::ZERO || matches!(self.free, Free::Served(_)) || self.node_places() > 0)
    }

    /// The current usage according to the last report. Capacity that a child node has received since then counts as
    /// used, because its clients have not reported yet. If the node has given up capacity, the same fraction of the
    /// rest is used.
    pub(super) fn in_use(&self) -> Amount {
        let of = self.fraction_of.map_or(self.granted, |of| of.min(self.granted));
        Amount::clamped(of.get() * self.fraction).saturating_add(self.granted.saturating_sub(of))
    }

    /// Places that a child node asks for. The node distributes them among its clients.
    pub(super) fn node_places(&self) -> u64 {
        if self.kind == HolderKind::Node { self.demand.places } else { 0 }
    }

    /// The capacity that the member may keep: less than its lease if its due has fallen since its last request. The
    /// places of child nodes are computed for all nodes together instead.
    pub(super) fn kept(&self) -> Amount {
        let has_places = self.free != Free::No || self.node_places() > 0;
        if has_places { self.granted } else { self.granted.min(self.target) }
    }

    /// Usage within [`kept`](Self::kept). Usage beyond it ends with the next request, so no other client has to be
    /// disconnected for it.
    pub(super) fn used_of_kept(&self) -> Amount {
        let (in_use, kept) = (self.in_use(), self.kept());
        if kept >= self.granted { in_use } else { Amount::clamped(in_use.get() * kept.get() / self.granted.get()) }
    }

    /// Counts the time cost until now.
    pub(super) fn accrue(&mut self, now: Millis) {
        self.costs.time += self.granted.get() * now.since(self.costs.until).0 as f64 / 1000.0;
        self.costs.until = self.costs.until.max(now);
    }

    /// The part of a report that has not been counted yet.
    pub(super) fn news_of(&mut self, lease: Option<Token>, cost: f64) -> f64 {
        let counted = self.costs.reported.filter(|(of, _)| *of == lease).map_or(0.0, |(_, counted)| counted);
        self.costs.reported = Some((lease, cost.max(counted)));
        (cost - counted).max(0.0)
    }
}

impl Demand {
    /// The wants of a priority client: at least the minimum capacity, at most the assignment.
    pub(super) fn of_assigned_client(claim: &Claim, assigned: Amount, minimum: Amount) -> Demand {
        let wanted = assigned.min(claim.wants.max(minimum));
        let rank = claim.priority.max(1);
        Demand { wanted, rank, reported_claims: claims_of(Claim::new(wanted, 1, rank)), ..Demand::default() }
    }

    /// The wants of a free client: one place, regardless of its claimed priority.
    pub(super) fn of_free_client(minimum: Amount) -> Demand {
        Demand { places: 1, reported_claims: claims_of(Claim::new(minimum, 1, 0)), ..Demand::default() }
    }

    /// The wants of a child node: those of its priority clients, up to its assignment, and places.
    pub(super) fn of_node(claims: &[Claim], assigned: Option<Amount>, minimum: Amount) -> Demand {
        let mut left = assigned.unwrap_or(Amount::MAX);
        let mut demand = Demand::default();
        let mut bands: Vec<&Claim> = claims.iter().filter(|claim| claim.wants > Amount::ZERO).collect();
        bands.sort_by_key(|claim| Reverse(claim.priority));
        for claim in bands {
            if claim.priority <= 0 {
                demand.places += u64::from(claim.subclients);
                let wants = Amount::clamped(minimum.get() * f64::from(claim.subclients));
                demand.reported_claims.push(Claim { wants, priority: 0, ..*claim });
            } else if left > Amount::ZERO {
                let wants = claim.wants.min(left);
                left = left.saturating_sub(wants);
                demand.wanted = demand.wanted.saturating_add(wants);
                demand.rank = demand.rank.max(claim.priority);
                demand.reported_claims.push(Claim { wants, ..*claim });
            }
        }
        demand
    }
}

fn claims_of(claim: Claim) -> Claims {
    Claims::from_slice(&[claim])
}
