//! What the quorum is told of an incarnation: when its total must rise and may fall, and when its horizon must move on.
//!
//! The total is raised when more may be believed than the quorum knows, and before that where it can be foreseen, to
//! somewhat more than is held or wanted: so it rises a few times while a resource fills, and never once all there is
//! may be believed. It falls only together with a horizon.
//!
//! A horizon is proposed again once in half a lease length, and an eighth of one before it would be needed: so in a
//! steady state no answer waits.
//!
//! The floor moves on with each horizon, to where the one before it was proposed: leases of the last half lease length
//! are above it, and so is each that a holder has which keeps to its refresh interval. Should one above it end all the
//! same, then before anything else is given the floor rises above that, too.

use std::collections::VecDeque;

use super::{Pending, PromiseReport};
use crate::{
    Amount, Changes, Claims, Epoch, Inherited, Millis, Sum, Token,
    planted::{self, Fault},
};

/// The clocks that count a horizon may be faster than the one it was decided on by one part in this many.
const CLOCK_RATE_ALLOWANCE: u64 = 1000;
/// A total exceeds what is held or wanted by so much of the capacity, so that few changes fill a resource; where
/// nothing is shared, by so much of that itself.
const ROOM: f64 = 1.0 / 8.0;
/// What earlier masters promised and no holder has named is room that it had already. So much of the room is added all
/// the same: else each newcomer would wait for the log. More, and a few masters in a row would promise all there is.
const LEAST_ROOM: f64 = 1.0 / 64.0;
/// It is raised again when so much of that is left: enough for what is granted until then.
const LEFT: f64 = 1.0 / 8.0;

/// The promises of one incarnation of a resource.
pub(in crate::resource) struct Keeper {
    epoch: Epoch,
    inherited_until: Millis,
    /// The number of the last changes that were taken, and of the last that are known to be stored.
    taken: u64,
    acknowledged: u64,
    stored: Bound,
    /// Those that have not been acknowledged.
    under_way: VecDeque<(u64, Bound)>,
    /// The end of the longest lease given since changes were last taken.
    furthest: Millis,
    /// The first lease given since a horizon was last proposed; before that, the floor that was inherited.
    mark: Token,
    /// What was wanted when that was told last.
    told_wants: Sum,
    /// While no more is held, the newest total is high enough.
    quiet_to: Sum,
}

/// No more than this may be believed, not beyond that, and no lease is longer. Leases from the floor on count in the
/// total also once they have ended.
#[derive(Debug, Clone, Copy)]
struct Bound {
    total: Amount,
    until: Millis,
    lease: Millis,
    floor: Token,
}

impl Bound {
    fn covers(&self, standing: &Standing, end: Millis) -> bool {
        standing.held <= Sum::from(self.total)
            && end <= self.until
            && standing.lease <= self.lease
            && self.is_above(standing.lapsed)
    }

    /// Whether what was held under those that have ended may be given to others.
    fn is_above(&self, lapsed: Option<Token>) -> bool {
        Some(self.floor) > lapsed || planted::is(Fault::FloorStays)
    }

    /// Whether leases were given, the last of which ends then, that it does not cover, or soon will not.
    fn needs_horizon(&self, furthest: Millis, lease: Millis, now: Millis) -> bool {
        furthest > now && (self.until < ahead_of(furthest, lease) || self.lease < lease)
    }
}

/// A horizon is moved on when it is no later than this.
fn ahead_of(end: Millis, lease: Millis) -> Millis {
    end.plus(Millis(lease.0 / 8))
}

/// What a resource holds and wants at the end of a round, and the settings that promises depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// All that may be believed, what earlier masters promised included.
    pub(super) held: Sum,
    /// What of that no holder has named.
    pub(super) estate: Amount,
    pub(super) wants: Sum,
    /// Absent where capacity is not shared.
    pub(super) capacity: Option<Amount>,
    /// How long leases last.
    pub(super) lease: Millis,
    /// The lease that is given next, and the newest that has ended.
    pub(super) next: Token,
    pub(super) lapsed: Option<Token>,
}

impl Standing {
    /// No lower than `floor`, and above what has ended.
    fn raised(&self, floor: Token) -> Token {
        self.lapsed.map_or(floor, |lapsed| floor.max(lapsed.next()))
    }

    /// Up to so much may be held before it is looked at again whether a total is high enough: most of the room that it
    /// gives.
    fn quiet_to(&self, total: Amount) -> Sum {
        if self.capacity.is_some_and(|capacity| capacity <= total) {
            return total.into();
        }
        let held = self.held.get();
        Amount::clamped(held + (total.get() - held) * (1.0 - LEFT)).min(total).into()
    }

    /// The total to propose: what is held or wanted, and some more, but no more than half of what is free: the next
    /// master has the rest for new holders at once.
    fn total(&self) -> Amount {
        let needed = self.held.max(self.wants).get();
        let Some(capacity) = self.capacity else { return Amount::clamped(needed * (1.0 + ROOM)).max(self.held.ceil()) };
        let free = (capacity.get() - needed).max(0.0);
        let room = (capacity.get() * ROOM - self.estate.get()).max(capacity.get() * LEAST_ROOM);
        let total = Amount::clamped(needed + room.min(free / 2.0));
        total.min(capacity).max(self.held.ceil())
    }
}

impl Keeper {
    /// Of an incarnation with what it inherits.
    pub(in crate::resource) fn new(epoch: Epoch, inherited: &Inherited) -> Keeper {
        let Inherited { total: inherited, until, floor, .. } = *inherited;
        let mark = floor.unwrap_or(Token::first(epoch));
        Keeper {
            epoch,
            inherited_until: until,
            taken: 0,
            acknowledged: 0,
            // No lease is covered before this epoch has a horizon: an epoch that nothing was stored of has no tokens.
            stored: Bound { total: inherited, until: Millis(0), lease: Millis(0), floor: mark },
            under_way: VecDeque::new(),
            furthest: Millis(0),
            mark,
            told_wants: Sum::ZERO,
            quiet_to: Sum::ZERO,
        }
    }

    /// A lease may be believed until then.
    pub(in crate::resource) fn cover_until(&mut self, end: Millis) {
        self.furthest = self.furthest.max(end);
    }

    pub(in crate::resource) fn acknowledge(&mut self, number: u64) {
        while let Some((taken, bound)) = self.under_way.front().copied().filter(|(taken, _)| *taken <= number) {
            (self.acknowledged, self.stored) = (taken, bound);
            self.under_way.pop_front();
        }
    }

    pub(in crate::resource) fn report(&self, estate: Amount) -> PromiseReport {
        PromiseReport {
            total: self.newest().total,
            estate,
            inherited_until: self.inherited_until,
            horizon: self.stored.until,
            under_way: self.taken - self.acknowledged,
        }
    }

    /// The changes to promise, and what the answers since the last call wait for. Most often there is neither, and that
    /// is seen without looking at anything but what is `held`.
    pub(super) fn take(
        &mut self,
        held: Sum,
        lease: Millis,
        lapsed: Option<Token>,
        now: Millis,
        standing: impl FnOnce() -> Standing,
        wants: impl FnOnce() -> Claims,
    ) -> Pending {
        let is_stored = self.under_way.is_empty() && self.stored.is_above(lapsed);
        if held <= self.quiet_to && is_stored && !self.stored.needs_horizon(self.furthest, lease, now) {
            self.furthest = Millis(0);
            return Pending::default();
        }
        let furthest = std::mem::take(&mut self.furthest);
        // Where nothing is shared, more may be held than an amount can say.
        let standing = Standing { held: held.min(Amount::MAX.into()), ..standing() };
        let changes = self.next(&standing, furthest, now).map(|(bound, horizon)| {
            self.taken += 1;
            self.under_way.push_back((self.taken, bound));
            let have_doubled = standing.wants.get() > self.told_wants.get() * 2.0;
            let wants = (horizon.is_some() || have_doubled).then(|| {
                self.told_wants = standing.wants;
                wants()
            });
            let (total, lease, floor) = (bound.total, Some(bound.lease), Some(bound.floor));
            Changes { epoch: self.epoch, number: self.taken, total, horizon, lease, floor, wants }
        });
        self.quiet_to = standing.quiet_to(self.newest().total);
        Pending { changes, awaits: if furthest > now { self.awaited(&standing, furthest) } else { None } }
    }

    /// The bound to propose now, if any, and the length of its horizon if that moves on.
    fn next(&mut self, standing: &Standing, furthest: Millis, now: Millis) -> Option<(Bound, Option<Millis>)> {
        let newest = self.newest();
        if newest.needs_horizon(furthest, standing.lease, now) {
            let until = ahead_of(furthest, standing.lease)
                .plus(Millis(standing.lease.0 / 2))
                .max(self.inherited_until)
                .max(newest.until);
            let span = until.since(now);
            let length = span.plus(Millis(span.0.div_ceil(CLOCK_RATE_ALLOWANCE)));
            let floor = standing.raised(std::mem::replace(&mut self.mark, standing.next));
            let (total, lease) = (standing.total(), standing.lease);
            return Some((Bound { total, until, lease, floor }, Some(length)));
        }
        let floor = if newest.is_above(standing.lapsed) { newest.floor } else { standing.raised(newest.floor) };
        let foreseen = standing.total();
        let is_short = standing.held > Sum::from(newest.total);
        let room = |total: Amount| total.get() - standing.held.get();
        // Before it is needed: when most of the room that it gave is used up.
        let is_foreseen = room(newest.total) < room(foreseen) * LEFT;
        let total = if is_short || is_foreseen { foreseen } else { newest.total };
        let is_given_over = furthest > now && floor != newest.floor;
        (is_short || is_foreseen || is_given_over).then_some((Bound { total, floor, ..newest }, None))
    }

    /// What is proposed last counts, or what is stored.
    fn newest(&self) -> Bound {
        self.under_way.back().map_or(self.stored, |(_, bound)| *bound)
    }

    /// The changes that must be stored before so much may be believed until then: from these on, no change that is
    /// under way takes any of it back.
    fn awaited(&self, standing: &Standing, end: Millis) -> Option<u64> {
        let covers = |bound: &Bound| bound.covers(standing, end);
        if planted::is(Fault::LoweringCountsLate) && covers(&self.stored) {
            return None;
        }
        let stored = (self.acknowledged, self.stored);
        let bounds = std::iter::once(&stored).chain(&self.under_way).rev();
        let first = bounds.take_while(|(_, bound)| covers(bound)).last();
        first.map(|(number, _)| *number).filter(|number| *number > self.acknowledged)
    }
}
