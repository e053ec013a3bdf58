//! Division: what everyone should end up with. A pure function of capacity and claims; it knows nothing about leases.
//!
//! The function is kept in a form that can be asked about one claim at a time: the claims stand in an
//! [`index`](self::index) with sums over any prefix, from which the [`Terms`] of a band (the level, or the equal share
//! and the top-up ratio) follow in a single walk. What a claim is due follows from the terms and the claim alone. So a
//! request costs the same whoever else there is, and a child node that is told the terms can apply them to its own
//! clients.

mod index;
mod order;
mod priorities;
mod reserve;
mod slices;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::slices::IN_ALL;
use self::{
    index::{Index, Key, Totals},
    order::Order,
    priorities::Priorities,
    reserve::Reserve,
};
use crate::{Amount, Claim, Claims, Settings, Sum};

/// How a resource is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Everybody gets what they want; capacity means nothing.
    NoAlgorithm,
    /// Everybody gets what they want up to the capacity, which is per client.
    Static,
    /// What everybody wants if it fits; else an equal share, and what is left over in proportion to unmet wants.
    ProportionalShare,
    /// Max-min: no one can get more without somebody who has less getting even less.
    FairShare,
    /// What is assigned to those who are vouched for, and the least useful capacity to strangers, see [`crate::pool`].
    PriorityPool,
}

impl Kind {
    /// All of them, in the order of their numbers on the wire.
    pub const ALL: [Kind; 5] =
        [Kind::NoAlgorithm, Kind::Static, Kind::ProportionalShare, Kind::FairShare, Kind::PriorityPool];

    /// Its number on the wire and in configuration files.
    pub fn number(self) -> i32 {
        match self {
            Kind::NoAlgorithm => 0,
            Kind::Static => 1,
            Kind::ProportionalShare => 2,
            Kind::FairShare => 3,
            // What is ours is numbered from 100.
            Kind::PriorityPool => 100,
        }
    }

    /// The algorithm of a number.
    pub fn from_number(number: i32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The name it has in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NoAlgorithm => "NO_ALGORITHM",
            Kind::Static => "STATIC",
            Kind::ProportionalShare => "PROPORTIONAL_SHARE",
            Kind::FairShare => "FAIR_SHARE",
            Kind::PriorityPool => "PRIORITY_POOL",
        }
    }

    /// Whether the capacity is one sum that all share, so that what one gets another cannot.
    pub fn divides(self) -> bool {
        matches!(self, Kind::ProportionalShare | Kind::FairShare | Kind::PriorityPool)
    }

    /// Whether what is due follows from the claims alone, so that claims have to stand in order.
    fn is_indexed(self) -> bool {
        matches!(self, Kind::ProportionalShare | Kind::FairShare)
    }
}

/// What an algorithm makes of priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    /// Nothing, as Doorman.
    #[default]
    Ignore,
    /// A band gets what the bands above it leave, and its part of the reserve.
    Strict,
    /// A client of priority 3 counts as three. What is not above 1 counts as one.
    Weighted,
}

impl Priority {
    /// All of them, in the order in which they are explained.
    pub const ALL: [Priority; 3] = [Priority::Ignore, Priority::Strict, Priority::Weighted];

    /// The name it has in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Ignore => "ignore",
            Priority::Strict => "strict",
            Priority::Weighted => "weighted",
        }
    }
}

/// What the claims of one band are divided by. Enough to say what any claim of the band is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Terms {
    /// Everybody gets what they want.
    Wants,
    /// Every claim gets what it wants up to so much (STATIC).
    Each(Amount),
    /// Everybody gets what they want up to so much per subclient (FAIR_SHARE).
    Level(f64),
    /// An equal share per subclient; above it, this part of what is wanted beyond it.
    Share {
        /// Capacity over subclients.
        equal: f64,
        /// From 0 to 1.
        top_up: f64,
    },
}

impl Terms {
    /// Whether any division comes to this. A parent is not ours to check, and what it says is not refused.
    fn can_be(&self) -> bool {
        let numbers = match *self {
            Terms::Wants | Terms::Each(_) => [0.0, 0.0],
            Terms::Level(level) => [level, 0.0],
            Terms::Share { equal, top_up } => [equal, top_up],
        };
        numbers.iter().all(|number| number.is_finite() && number.is_sign_positive())
    }

    /// What a claim should end up with, if each of its subclients counts as one. Never more than it wants.
    pub fn due(&self, claim: &Claim) -> Amount {
        let (wants, subclients) = (claim.wants.get(), f64::from(claim.subclients));
        match *self {
            Terms::Wants => claim.wants,
            Terms::Each(most) => claim.wants.min(most),
            Terms::Level(level) => Amount::clamped(wants.min(level * subclients)),
            Terms::Share { equal, top_up } => {
                let mine = equal * subclients;
                if wants <= mine { claim.wants } else { Amount::clamped((mine + (wants - mine) * top_up).min(wants)) }
            }
        }
    }
}

/// The claims of one resource, and how its capacity is divided among them.
pub(crate) struct Division {
    kind: Kind,
    order: Order,
    capacity: Amount,
    /// Claims are kept in order for a parent to be told, whether the algorithm needs that or not.
    condenses: bool,
    /// What the parent divided by.
    guide: Vec<(i16, Terms)>,
    index: Index,
    /// Where bands have one.
    reserve: Option<Box<Reserve>>,
    /// Where a parent is told of priorities that mean nothing here.
    priorities: Option<Box<Priorities>>,
}

impl Division {
    pub(crate) fn new(settings: &Settings) -> Division {
        let mut division = Division {
            kind: settings.kind,
            order: Order::OneBand,
            capacity: settings.capacity,
            condenses: false,
            guide: Vec::new(),
            index: Index::new(),
            reserve: None,
            priorities: None,
        };
        division.begin_anew(settings);
        division
    }

    /// One whose claims will be told to a parent.
    pub(crate) fn condensing(self) -> Division {
        let mut division = Division { condenses: true, ..self };
        division.priorities = division.unheeded_priorities();
        division
    }

    /// The parent says what it divided by; what cannot be is not heeded. Returns whether that is something new.
    pub(crate) fn follow(&mut self, mut terms: Vec<(i16, Terms)>) -> bool {
        terms.retain(|(_, terms)| terms.can_be());
        let is_new = self.guide != terms;
        self.guide = terms;
        self.share_anew();
        is_new
    }

    /// What the parent said that it divided by.
    pub(crate) fn guide(&self) -> &[(i16, Terms)] {
        &self.guide
    }

    fn is_indexed(&self) -> bool {
        self.indexes(self.kind)
    }

    /// A pool says itself what its parent is told.
    fn indexes(&self, kind: Kind) -> bool {
        kind.is_indexed() || self.condenses && kind != Kind::PriorityPool
    }

    fn unheeded_priorities(&self) -> Option<Box<Priorities>> {
        (self.condenses && self.is_indexed() && self.order == Order::OneBand).then(Box::default)
    }

    pub(crate) fn set_capacity(&mut self, capacity: Amount) {
        self.capacity = capacity;
        self.share_anew();
    }

    fn share_anew(&mut self) {
        if let Some(reserve) = &mut self.reserve {
            reserve.begin_anew();
        }
    }

    /// Whether claims kept for other settings can be used under these.
    pub(crate) fn same_order(&self, settings: &Settings) -> bool {
        self.is_indexed() == self.indexes(settings.kind) && self.order == Order::of(settings)
    }

    /// Divides by settings of the same order.
    pub(crate) fn run_by(&mut self, settings: &Settings) {
        debug_assert!(self.same_order(settings), "claims would have to be sorted anew");
        self.kind = settings.kind;
        if let Some(reserve) = &mut self.reserve {
            reserve.set_part(settings.reserve);
        }
    }

    /// Forgets all claims, to take them in anew under other settings.
    pub(crate) fn begin_anew(&mut self, settings: &Settings) {
        (self.kind, self.order) = (settings.kind, Order::of(settings));
        self.index = Index::new();
        self.reserve = (self.order == Order::ReservedBands).then(|| Box::new(Reserve::new(settings.reserve)));
        self.priorities = self.unheeded_priorities();
    }

    /// Takes in the claims of the holder in `slot`.
    pub(crate) fn insert(&mut self, slot: u32, claims: &[Claim]) {
        if self.is_indexed() {
            for (ordinal, claim) in claims.iter().enumerate() {
                let (key, weight) = self.entry(slot, ordinal, claim);
                if let Some(priorities) = &mut self.priorities {
                    priorities.insert(claim.priority, key, weight, &self.index);
                }
                self.index.insert(key, weight);
                if let Some(reserve) = &mut self.reserve {
                    reserve.insert(key, weight);
                }
            }
        }
    }

    /// Forgets them.
    pub(crate) fn remove(&mut self, slot: u32, claims: &[Claim]) {
        if self.is_indexed() {
            for (ordinal, claim) in claims.iter().enumerate() {
                let (key, weight) = self.entry(slot, ordinal, claim);
                self.index.remove(key, weight);
                if let Some(priorities) = &mut self.priorities {
                    priorities.remove(claim.priority, key, weight);
                }
                if let Some(reserve) = &mut self.reserve {
                    reserve.remove(key, weight);
                }
            }
        }
    }

    fn entry(&self, slot: u32, ordinal: usize, claim: &Claim) -> (Key, u32) {
        let claim = self.order.weighed(claim);
        let ratio = claim.wants.get() / f64::from(claim.subclients);
        (Key::new(self.band(claim.priority), ratio, slot, ordinal as u16), claim.subclients)
    }

    /// The band that claims of this priority are divided in.
    pub(crate) fn band(&self, priority: i16) -> i16 {
        self.order.band(priority)
    }

    /// What a claim is due by terms of its band.
    pub(crate) fn due(&self, terms: &Terms, claim: &Claim) -> Amount {
        terms.due(&self.order.weighed(claim))
    }

    /// The terms for claims of a band.
    pub(crate) fn terms(&self, band: i16) -> Terms {
        match self.kind {
            // A pool says itself what is due.
            Kind::NoAlgorithm | Kind::PriorityPool => Terms::Wants,
            Kind::Static => Terms::Each(self.per_client()),
            Kind::ProportionalShare | Kind::FairShare => self.shared_terms(band),
        }
    }

    /// STATIC: what one client may have is the same wherever it asks.
    fn per_client(&self) -> Amount {
        let said = self.guide.iter().find_map(|(_, terms)| match terms {
            Terms::Each(most) => Some(*most),
            _ => None,
        });
        said.unwrap_or(self.capacity)
    }

    /// What the parent divided this band by. Nothing, if to the parent these are bands that are not due the same.
    fn said(&self, band: i16) -> Option<Terms> {
        let mut said = self.guide.iter().filter(|(priority, _)| self.band(*priority) == band).map(|(_, terms)| terms);
        let first = said.next()?;
        said.all(|terms| terms == first).then_some(*first)
    }

    /// What everybody's equal share is according to the parent, if it had to share in this band.
    fn equal_share(&self, band: i16) -> Option<f64> {
        match self.said(band) {
            Some(Terms::Share { equal, .. }) => Some(equal),
            _ => None,
        }
    }

    /// All claims in few slices of similar wants and the same priority, see [`slices`].
    pub(crate) fn condense(&self) -> Claims {
        self.priorities
            .as_ref()
            .map_or_else(|| slices::condense(&self.index), |priorities| priorities.condense(&self.index))
    }

    fn shared_terms(&self, band: i16) -> Terms {
        let (below, members, capacity) = match &self.reserve {
            None => self.left_for(band),
            Some(reserve) => {
                let share = reserve.share(band, &self.index, self.capacity, |band| self.said(band));
                let Some(share) = share else { return Terms::Wants };
                (share.below, share.members, share.capacity)
            }
        };
        if members.wants <= capacity {
            return Terms::Wants;
        }
        match self.kind {
            Kind::FairShare => level(&self.index, band, below, members, capacity),
            _ => self.share(band, below, members, capacity),
        }
    }

    /// The sums over all bands below this one, and over its own claims; and what the bands above leave.
    fn left_for(&self, band: i16) -> (Totals, Totals, Sum) {
        let (below, through) = match self.order {
            Order::OneBand | Order::Weighted => (Totals::default(), self.index.totals()),
            Order::Bands | Order::ReservedBands => {
                (self.index.before(Key::band_start(band)), self.index.before(Key::band_end(band)))
            }
        };
        let above = self.index.totals().minus(through);
        (below, through.minus(below), (Sum::from(self.capacity) - above.wants).max(Sum::ZERO))
    }

    /// The equal share, and which part of the wants beyond it can be paid for: by the shares that are not used. Below a
    /// parent the share is everybody's in the whole tree, and its lease pays; if that does not even pay for the shares,
    /// they sink.
    fn share(&self, band: i16, below: Totals, members: Totals, capacity: Sum) -> Terms {
        let equal = self.equal_share(band).unwrap_or_else(|| capacity.get() / members.weight as f64);
        let modest = self.index.before(Key::after(band, equal)).minus(below);
        let greedy = members.minus(modest);
        let shares = equal * greedy.weight as f64;
        let extra = capacity.get() - modest.wants.get() - shares;
        if extra < 0.0 && !self.guide.is_empty() {
            return match level(&self.index, band, below, members, capacity) {
                Terms::Level(equal) => Terms::Share { equal, top_up: 0.0 },
                other => other,
            };
        }
        let need = greedy.wants.get() - shares;
        let top_up = if need > 0.0 { (extra / need).clamp(0.0, 1.0) } else { 0.0 };
        Terms::Share { equal, top_up }
    }

    /// Bytes in use, for the benchmarks.
    pub(crate) fn bytes(&self) -> usize {
        let reserve = self.reserve.as_ref().map_or(0, |reserve| reserve.bytes());
        self.index.bytes() + reserve + self.priorities.as_ref().map_or(0, |priorities| priorities.bytes())
    }
}

/// The level λ with Σ min(wants, λ·weight) = capacity, over the `members` of a band. Claims that want less per weight
/// than λ come first in the index: walk down to where the next claim no longer fits, and share what is left among the
/// weights from there on.
fn level(index: &Index, band: i16, below: Totals, members: Totals, capacity: Sum) -> Terms {
    let (start, end) = (Key::band_start(band), Key::band_end(band));
    let satisfied = index.prefix_where(|key, before| {
        if key < start || key >= end {
            return key < start;
        }
        let before = before.minus(below);
        let left = (capacity - before.wants).get();
        Index::ratio(key) * (members.weight - before.weight) as f64 <= left
    });
    let satisfied = satisfied.minus(below);
    let above = members.weight - satisfied.weight;
    if above == 0 {
        // They want more than there is by less than a float can tell; settlement sees to the difference.
        return Terms::Wants;
    }
    let left = (capacity - satisfied.wants).get();
    Terms::Level((left / above as f64).max(0.0))
}
