//! What the quorum is told of an incarnation: when its total must rise and may fall, and when its horizon must move on.
//!
//! The total is raised when more may be believed than the quorum knows, and before that where it can be foreseen, to
//! somewhat more than is held or wanted: so it rises a few times while a resource fills, and never once all there is
//! may be believed. It falls only together with a horizon. The room that a horizon leaves follows from how much what is
//! held has changed since the horizon before: the next master cannot give that room to anyone before its horizon.
//!
//! A horizon is proposed again once in half a lease length, and an eighth of one before it would be needed: so in a
//! steady state no answer waits.
//!
//! The floor moves on with each horizon, to where the one before it was proposed: leases of the last half lease length
//! are above it, and so is each that a holder has which keeps to its refresh interval. Should one above it end all the
//! same, then before anything else is given the floor rises above that, too.
//!
//! While there is an estate the quorum is told of its parts ([`Told`]).

mod told;

use std::collections::VecDeque;

use super::{PromiseReport, Proposal};
use crate::{
    lease::promises::{Changes, Inherited, Part, total_at},
    planted::{self, Fault},
    types::{
        amount::{Amount, Sum},
        claim::Claims,
        cluster_clock::ClusterClock,
        time::Millis,
        token::{Epoch, Token},
    },
};
use told::Told;

/// A total exceeds what is held or wanted by so much of the capacity, so that few changes fill a resource; where
/// nothing is shared, by so much of that itself.
const ROOM: f64 = 1.0 / 8.0;
/// And at least by so much: else each newcomer would wait for the log.
const LEAST_ROOM: f64 = 1.0 / 64.0;
/// How much of what has changed since the last horizon a total leaves room for.
const HEADWAY: f64 = 1.5;
/// It is raised again when so much of that is left: enough for what is granted until then.
const LEFT: f64 = 1.0 / 8.0;

/// The promises of one incarnation of a resource.
pub(in crate::resource) struct Proposer {
    epoch: Epoch,
    clock: ClusterClock,
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
    /// The least and the most that was held since a horizon was last proposed. Absent before the first.
    swing: Option<(Sum, Sum)>,
    told: Told,
}

/// No more than this may be believed, not beyond that, and no lease is longer. Leases from the floor on count in the
/// total also once they have ended.
#[derive(Debug, Clone)]
struct Bound {
    total: Amount,
    /// What of it was free when it was proposed.
    room: Amount,
    until: Millis,
    lease: Millis,
    counted_from: Token,
    /// Parts of the total that end sooner.
    parts: Vec<Part>,
}

impl Bound {
    fn covers(&self, detail: &RoundDetail, end: Millis) -> bool {
        detail.held <= Sum::from(self.total_at(detail))
            && end <= self.until
            && detail.lease <= self.lease
            && self.is_above(detail.lapsed)
            && told::are_left(&self.parts, &detail.parts)
    }

    /// The total without the parts that have ended.
    fn total_at(&self, detail: &RoundDetail) -> Amount {
        total_at(self.total, &self.parts, detail.clock.at(detail.now))
    }

    /// Whether what was held under those that have ended may be given to others.
    fn is_above(&self, lapsed: Option<Token>) -> bool {
        Some(self.counted_from) > lapsed || planted::is(Fault::FloorStays)
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

/// What can be seen of a resource at the end of a round without looking closer.
#[derive(Debug)]
pub(super) struct RoundSummary {
    /// All that may be believed, what earlier masters promised included.
    pub(super) held: Sum,
    /// How long leases last.
    pub(super) lease: Millis,
    /// The newest lease that has ended.
    pub(super) lapsed: Option<Token>,
    /// The parts of the estate.
    pub(super) parts: Vec<Part>,
    pub(super) now: Millis,
}

/// What a resource holds and wants at the end of a round, and the settings that promises depend on.
#[derive(Debug, Clone)]
pub(super) struct RoundDetail {
    /// All that may be believed, what earlier masters promised included.
    pub(super) held: Sum,
    /// What of that no holder has named.
    pub(super) unclaimed: Amount,
    pub(super) wants: Sum,
    /// Absent where capacity is not shared.
    pub(super) capacity: Option<Amount>,
    /// How long leases last.
    pub(super) lease: Millis,
    /// The lease that is given next, and the newest that has ended.
    pub(super) next: Token,
    pub(super) lapsed: Option<Token>,
    /// The parts of the estate.
    pub(super) parts: Vec<Part>,
    pub(super) clock: ClusterClock,
    pub(super) now: Millis,
}

impl RoundDetail {
    /// No lower than `floor`, and above what has ended.
    fn raised(&self, counted_from: Token) -> Token {
        self.lapsed.map_or(counted_from, |lapsed| counted_from.max(lapsed.next()))
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
    /// master has the rest for new holders at once. `changed`: by how much what is held has changed of late, if that is
    /// known.
    fn total(&self, changed: Option<f64>) -> Amount {
        let needed = self.held.max(self.wants).get();
        let whole = self.capacity.map_or(needed, Amount::get);
        let (least, most) = (whole * LEAST_ROOM, whole * ROOM);
        let room = changed.map_or(most, |changed| (changed * HEADWAY).clamp(least, most));
        let Some(capacity) = self.capacity else { return Amount::clamped(needed + room).max(self.held.ceil()) };
        let free = (capacity.get() - needed).max(0.0);
        // What earlier masters promised and no holder has named is room that it had already. More, and a few masters in
        // a row would promise all there is.
        let room = (room - self.unclaimed.get()).max(least);
        let total = Amount::clamped(needed + room.min(free / 2.0));
        total.min(capacity).max(self.held.ceil())
    }
}

impl Proposer {
    /// Of an incarnation with what it inherits.
    pub(in crate::resource) fn new(epoch: Epoch, inherited: &Inherited) -> Proposer {
        let Inherited { total, until, counted_from, clock, .. } = *inherited;
        let mark = counted_from.unwrap_or(Token::first(epoch));
        let parts = inherited.parts.clone();
        Proposer {
            epoch,
            clock,
            inherited_until: until,
            taken: 0,
            acknowledged: 0,
            // No lease is covered before this epoch has a horizon: an epoch that nothing was stored of has no tokens.
            stored: Bound { total, room: Amount::ZERO, until: Millis(0), lease: Millis(0), counted_from: mark, parts },
            under_way: VecDeque::new(),
            furthest: Millis(0),
            mark,
            told_wants: Sum::ZERO,
            quiet_to: Sum::ZERO,
            swing: None,
            told: Told::default(),
        }
    }

    /// A lease may be believed until then.
    pub(in crate::resource) fn cover_until(&mut self, end: Millis) {
        self.furthest = self.furthest.max(end);
    }

    pub(in crate::resource) fn acknowledge(&mut self, number: u64) {
        while self.under_way.front().is_some_and(|(taken, _)| *taken <= number) {
            let Some((taken, bound)) = self.under_way.pop_front() else { return };
            (self.acknowledged, self.stored) = (taken, bound);
        }
    }

    pub(in crate::resource) fn report(&self, unclaimed: Amount, until: Option<Millis>) -> PromiseReport {
        PromiseReport {
            total: self.newest().total,
            unclaimed,
            inherited_until: self.inherited_until,
            unclaimed_until: until.unwrap_or(self.inherited_until),
            horizon: self.stored.until,
            under_way: self.taken - self.acknowledged,
        }
    }

    /// The clock of the cluster.
    pub(super) fn clock(&self) -> ClusterClock {
        self.clock
    }

    /// The changes to promise, and what the answers since the last call wait for. Most often there is neither, and that
    /// is seen at a glance.
    pub(super) fn take(
        &mut self,
        round: RoundSummary,
        detail: impl FnOnce() -> RoundDetail,
        wants: impl FnOnce() -> Claims,
    ) -> Proposal {
        let RoundSummary { held, lease, lapsed, parts, now } = round;
        self.swing = self.swing.map(|(least, most)| (least.min(held), most.max(held)));
        self.told.see(&parts, now);
        let is_stored = self.under_way.is_empty() && self.stored.is_above(lapsed);
        let is_told = self.told.is_quiet(&self.stored.parts, &parts, self.clock.at(now));
        if held <= self.quiet_to && is_stored && is_told && !self.stored.needs_horizon(self.furthest, lease, now) {
            self.furthest = Millis(0);
            return Proposal::default();
        }
        let furthest = std::mem::take(&mut self.furthest);
        // Where nothing is shared, more may be held than an amount can say.
        let detail = RoundDetail { held: held.min(Amount::MAX.into()), ..detail() };
        let changes = self.next(&detail, furthest).map(|(bound, moves_on)| {
            self.taken += 1;
            let have_doubled = detail.wants.get() > self.told_wants.get() * 2.0;
            let wants = (moves_on || have_doubled).then(|| {
                self.told_wants = detail.wants;
                wants()
            });
            let horizon = moves_on.then(|| self.clock.end(bound.until, now));
            let (total, lease, counted_from) = (bound.total, Some(bound.lease), Some(bound.counted_from));
            let parts = bound.parts.clone();
            self.under_way.push_back((self.taken, bound));
            Changes { epoch: self.epoch, number: self.taken, total, horizon, lease, counted_from, wants, parts }
        });
        self.quiet_to = detail.quiet_to(self.newest().total_at(&detail));
        Proposal { changes, awaits: if furthest > now { self.awaited(&detail, furthest) } else { None } }
    }

    /// The bound to propose now, if any, and whether its horizon moves on.
    fn next(&mut self, detail: &RoundDetail, furthest: Millis) -> Option<(Bound, bool)> {
        let (newest, now) = (self.newest().clone(), detail.now);
        let (lease, held) = (detail.lease, detail.held);
        let room = |total: Amount| Amount::clamped(total.get() - held.get());
        if newest.needs_horizon(furthest, lease, now) {
            let until = ahead_of(furthest, lease).plus(Millis(lease.0 / 2)).max(self.inherited_until).max(newest.until);
            let counted_from = detail.raised(std::mem::replace(&mut self.mark, detail.next));
            let swing = self.swing.replace((held, held));
            let total = detail.total(swing.map(|(least, most)| (most - least).get()));
            let parts = self.told.tell(&newest.parts, &detail.parts, now);
            return Some((Bound { total, room: room(total), until, lease, counted_from, parts }, true));
        }
        let counted_from =
            if newest.is_above(detail.lapsed) { newest.counted_from } else { detail.raised(newest.counted_from) };
        let (known, foreseen) = (newest.total_at(detail), detail.total(None));
        let is_short = held > Sum::from(known);
        // Before it is needed: when most of the room that it gave is used up.
        let is_foreseen = room(known).get() < room(foreseen).min(newest.room).get() * LEFT;
        let has_given = furthest > now;
        let is_given_over = has_given && counted_from != newest.counted_from;
        let is_claimed = has_given && !told::are_left(&newest.parts, &detail.parts);
        let is_loose = self.taken > 0 && self.told.is_loose(&newest.parts, &detail.parts);
        if !(is_short || is_foreseen || is_given_over || is_claimed || is_loose) {
            return None;
        }
        let (total, given) = if is_short || is_foreseen { (foreseen, room(foreseen)) } else { (known, newest.room) };
        let parts = self.told.tell(&newest.parts, &detail.parts, now);
        Some((Bound { total, room: given, counted_from, parts, ..newest }, false))
    }

    /// What is proposed last counts, or what is stored.
    fn newest(&self) -> &Bound {
        self.under_way.back().map_or(&self.stored, |(_, bound)| bound)
    }

    /// The changes that must be stored before so much may be believed until then: from these on, no change that is
    /// under way takes any of it back.
    fn awaited(&self, detail: &RoundDetail, end: Millis) -> Option<u64> {
        let covers = |bound: &Bound| bound.covers(detail, end);
        if planted::is(Fault::LoweringCountsLate) && covers(&self.stored) {
            return None;
        }
        let stored = std::iter::once((self.acknowledged, &self.stored));
        let under_way = self.under_way.iter().map(|(number, bound)| (*number, bound));
        let bounds: Vec<_> = stored.chain(under_way).collect();
        let first = bounds.into_iter().rev().take_while(|(_, bound)| covers(bound)).last();
        first.map(|(number, _)| number).filter(|number| *number > self.acknowledged)
    }
}
