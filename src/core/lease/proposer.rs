//! The proposals of a master to the quorum about the leases of one resource: when its total rises and falls, and when
//! its horizon moves (rule E1, see [`crate::lease`]).
//!
//! The total must rise before more may be in use than the quorum knows. It is raised in advance, to somewhat more than
//! is held or wanted. So it rises a few times while a resource fills, and no more once it covers the whole capacity. It
//! falls only together with a horizon. The *room* is the difference between the total and the held amount. The next
//! master cannot grant the room to anyone before its horizon, so it should be small; it is proportional to the changes
//! of the held amount since the last horizon.
//!
//! A horizon is proposed every half lease length, an eighth of a lease length before it is needed. So in a steady state
//! no answer waits for the log. While nothing changes, each horizon is twice as far away as the one before, up to 64
//! lease lengths, so that a million quiet resources write little. A late horizon does not delay the next master: it
//! also knows how long leases were, and when the last one can have been granted.
//!
//! With each horizon, `high_water_mark` moves to the first lease granted since the previous horizon was proposed.
//! Leases of the last half lease length are above it, and so is every lease whose holder refreshes on time. If a lease
//! above it expires anyway, `high_water_mark` rises above that lease before anything else is granted (rule E12).
//!
//! While there are inherited leases, the quorum also stores their parts ([`StoredParts`]).

mod stored_parts;

use std::collections::VecDeque;

use crate::{
    lease::promises::{Changes, Inherited, Part, StoredPeriod, total_at},
    planted::{self, Fault},
    types::{Amount, Claims, ClusterClock, ClusterTime, Epoch, Millis, Sum, Token},
};
use stored_parts::StoredParts;

/// The initial room in a total, as a fraction of the capacity, so that a resource fills with few changes. If holders
/// share no capacity, it is a fraction of the held or wanted amount.
const ROOM: f64 = 1.0 / 8.0;
/// Minimum room. With less, each newcomer would wait for the log.
const MIN_ROOM: f64 = 1.0 / 64.0;
/// The room as a multiple of the change of the held amount since the last horizon.
const HEADWAY: f64 = 1.5;
/// The room in the total of a budget, as a fraction of its amount.
const BUDGET_STEP: f64 = 1.0 / 1000.0;
/// The total is raised when this fraction of its room is left. That covers grants until the change is stored.
const RAISE_BELOW: f64 = 1.0 / 8.0;

/// A horizon moves by half a lease length. While nothing changes, this step doubles up to this many times.
const MAX_DOUBLINGS: u8 = 7;

/// Changes to propose, and what waits for them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Proposal {
    /// To be proposed after all earlier changes.
    pub changes: Option<Changes>,
    /// Leases granted since the last call must wait until changes up to this number are acknowledged; `None`: no wait.
    pub awaits: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromiseReport {
    /// The newest bound on all leases, acknowledged by the quorum or not.
    pub total: Amount,
    pub unclaimed: Amount,
    /// When the last lease of earlier masters ends.
    pub inherited_until: Millis,
    /// When nothing is unclaimed but the headroom that masters leave in a total.
    pub unclaimed_until: Millis,
    pub horizon: Millis,
    /// The number of changes that are not acknowledged yet.
    pub under_way: u64,
}

/// The epoch of an incarnation, above all inherited epochs.
pub(super) fn begin_epoch(epoch: Epoch, inherited: Option<&Inherited>) -> Epoch {
    let least = match inherited {
        // The first token must not be the one that stands for inherited leases.
        Some(Inherited { newest: None, .. }) => 1,
        Some(Inherited { newest: Some(newest), .. }) => newest.0.saturating_add(Inherited::EPOCHS_APART),
        None => 0,
    };
    Epoch(epoch.0.max(least))
}

pub(super) struct Proposer {
    epoch: Epoch,
    clock: ClusterClock,
    inherited_until: Millis,
    /// The numbers of the last proposed change, and of the last change known to be stored.
    taken: u64,
    acknowledged: u64,
    stored: Bound,
    /// Proposed bounds that are not acknowledged yet.
    under_way: VecDeque<(u64, Bound)>,
    /// The latest end of leases granted since the last call of [`take`](Self::take).
    latest_end: Millis,
    /// The first lease granted since the last proposed horizon; before that, the inherited `high_water_mark`.
    next_mark: Token,
    /// The sum of the wants that were last proposed.
    proposed_wants: Sum,
    /// The newest total suffices while no more than this is held.
    covered_up_to: Sum,
    /// The minimum and the maximum held amount since the last proposed horizon. Absent before the first.
    held_range: Option<(Sum, Sum)>,
    /// When the last horizon was proposed.
    horizon_proposed: Millis,
    /// How often its step was doubled.
    doublings: u8,
    stored_parts: StoredParts,
}

/// A bound on the leases in use: their total, their latest end and their maximum length. Leases from `high_water_mark`
/// on are in the total even if they have expired.
#[derive(Debug, Clone)]
struct Bound {
    total: Amount,
    /// The part of the total that was free at the time of the proposal.
    room: Amount,
    until: Millis,
    lease: Millis,
    high_water_mark: Token,
    /// Parts of the total that end before the rest.
    parts: Vec<Part>,
}

impl Bound {
    fn covers(&self, round: &RoundState, end: Millis, moment: ClusterTime) -> bool {
        round.held <= Sum::from(total_at(self.total, &self.parts, moment))
            && end <= self.until
            && round.lease <= self.lease
            && self.is_above(round.lapsed)
            && stored_parts::covers_stored(&self.parts, &round.parts)
    }

    /// Whether the capacity of expired leases may be granted to others.
    fn is_above(&self, lapsed: Option<Token>) -> bool {
        Some(self.high_water_mark) > lapsed || planted::is(Fault::HighWaterMarkStays)
    }

    /// Whether leases that end at `latest_end` are not covered by this bound, or less than `lead` longer than they
    /// last.
    fn needs_horizon(&self, latest_end: Millis, lead: Millis, round: &RoundState) -> bool {
        latest_end > round.now && (self.until < latest_end.plus(lead) || self.lease < round.lease)
    }
}

/// The state of a resource at the end of a round.
#[derive(Debug)]
pub(super) struct RoundState {
    /// The amount that may be in use, including inherited leases.
    pub(super) held: Sum,
    /// The part of `held` that no holder has claimed.
    pub(super) unclaimed: Amount,
    pub(super) wants: Sum,
    /// Absent if holders share no capacity.
    pub(super) capacity: Option<Amount>,
    pub(super) lease: Millis,
    /// Present in a budget, whose horizon is that of the period, and whose total never falls before.
    pub(super) period: Option<StoredPeriod>,
    /// The token of the next lease.
    pub(super) next: Token,
    /// The newest lease that has ended.
    pub(super) lapsed: Option<Token>,
    /// The parts of the inherited leases.
    pub(super) parts: Vec<Part>,
    pub(super) now: Millis,
}

impl RoundState {
    /// At least `high_water_mark`, and above every expired lease.
    fn raised(&self, high_water_mark: Token) -> Token {
        self.lapsed.map_or(high_water_mark, |lapsed| high_water_mark.max(lapsed.next()))
    }

    /// The held amount up to which `total` suffices. Beyond it, most of the room is used up, and the total must rise.
    fn covered_up_to(&self, total: Amount) -> Sum {
        if self.capacity.is_some_and(|capacity| capacity <= total) {
            return total.into();
        }
        let held = self.held.get();
        Amount::clamped(held + (total.get() - held) * (1.0 - RAISE_BELOW)).min(total).into()
    }

    /// The total to propose: the held or wanted amount plus room. The room is at most half of the free capacity, so
    /// that the next master can grant the rest to new holders immediately. `changed`: the recent change of the held
    /// amount, if known.
    fn total(&self, changed: Option<f64>) -> Amount {
        if let Some(capacity) = self.capacity.filter(|_| self.period.is_some()) {
            // What lies between the total and the held amount is spent for the next master.
            let total = Amount::clamped(self.held.get() + capacity.get() * BUDGET_STEP);
            return total.min(capacity).max(self.held.ceil());
        }
        let needed = self.held.max(self.wants).get();
        let whole = self.capacity.map_or(needed, Amount::get);
        let (least, most) = (whole * MIN_ROOM, whole * ROOM);
        let room = changed.map_or(most, |changed| (changed * HEADWAY).clamp(least, most));
        let Some(capacity) = self.capacity else { return Amount::clamped(needed + room).max(self.held.ceil()) };
        let free = (capacity.get() - needed).max(0.0);
        // The unclaimed amount already acts as room. If more were added, a few masters in a row would promise the whole
        // capacity.
        let room = (room - self.unclaimed.get()).max(least);
        let total = Amount::clamped(needed + room.min(free / 2.0));
        total.min(capacity).max(self.held.ceil())
    }
}

impl Proposer {
    /// Starts an incarnation from these inherited promises.
    pub(super) fn new(epoch: Epoch, inherited: &Inherited) -> Proposer {
        let Inherited { total, until, high_water_mark, clock, .. } = *inherited;
        let mark = high_water_mark.unwrap_or(Token::first(epoch));
        let parts = inherited.parts.clone();
        Proposer {
            epoch,
            clock,
            inherited_until: until,
            taken: 0,
            acknowledged: 0,
            // No lease is covered before the first horizon of this epoch, because the quorum knows none of its tokens.
            stored: Bound {
                total,
                room: Amount::ZERO,
                until: Millis(0),
                lease: Millis(0),
                high_water_mark: mark,
                parts,
            },
            under_way: VecDeque::new(),
            latest_end: Millis(0),
            next_mark: mark,
            proposed_wants: Sum::ZERO,
            covered_up_to: Sum::ZERO,
            held_range: None,
            horizon_proposed: Millis(0),
            doublings: 0,
            stored_parts: StoredParts::default(),
        }
    }

    /// Makes the next horizon cover a lease that ends at `end`.
    pub(super) fn cover_until(&mut self, end: Millis) {
        self.latest_end = self.latest_end.max(end);
    }

    pub(super) fn acknowledge(&mut self, number: u64) {
        while self.under_way.front().is_some_and(|(taken, _)| *taken <= number) {
            let Some((taken, bound)) = self.under_way.pop_front() else { return };
            (self.acknowledged, self.stored) = (taken, bound);
        }
    }

    pub(super) fn report(&self, unclaimed: Amount, until: Option<Millis>) -> PromiseReport {
        PromiseReport {
            total: self.newest().total,
            unclaimed,
            inherited_until: self.inherited_until,
            unclaimed_until: until.unwrap_or(self.inherited_until),
            horizon: self.stored.until,
            under_way: self.taken - self.acknowledged,
        }
    }

    /// Whether the end of a lease may move to `end` without a proposal: as at [`take`](Self::take), but for a round
    /// that changes neither the held amount nor the wants, while nothing is inherited. Only the stored bound counts.
    /// The lease must not be older than `high_water_mark`, else it could not be claimed after it has ended (rule E12).
    pub(super) fn covers_renewal(
        &self,
        token: Token,
        end: Millis,
        lease: Millis,
        lapsed: Option<Token>,
        now: Millis,
    ) -> bool {
        let stored = &self.stored;
        self.under_way.is_empty()
            && stored.parts.is_empty()
            && stored.is_above(lapsed)
            && stored.high_water_mark <= token
            && now >= self.inherited_until
            && stored.until >= end.plus(self.lead(lease))
            && stored.lease >= lease
    }

    /// True if held amount and wants are unchanged since the last horizon.
    pub(super) fn is_quiet(&self, wants: Sum) -> bool {
        self.held_range.is_some_and(|(least, most)| least == most) && wants == self.proposed_wants
    }

    /// Returns the changes to propose, and the number of the change that answers since the last call must wait for.
    /// Most rounds have neither.
    pub(super) fn take(&mut self, mut round: RoundState, wants: impl FnOnce() -> Claims) -> Proposal {
        let (held, now) = (round.held, round.now);
        let moment = self.clock.at(now);
        self.held_range = self.held_range.map(|(least, most)| (least.min(held), most.max(held)));
        self.stored_parts.observe(&round.parts, now);
        let is_stored = self.under_way.is_empty() && self.stored.is_above(round.lapsed);
        let are_parts_stored = self.stored_parts.is_quiet(&self.stored.parts, &round.parts, moment);
        if held <= self.covered_up_to
            && is_stored
            && are_parts_stored
            && !self.needs_horizon(&self.stored, &round, self.latest_end)
        {
            self.latest_end = Millis(0);
            return Proposal::default();
        }
        let latest_end = std::mem::take(&mut self.latest_end);
        // If holders share no capacity, the held amount may exceed the range of an amount.
        round.held = held.min(Amount::MAX.into());
        let changes = self.next(&round, latest_end, moment).map(|(bound, moves_on)| {
            self.taken += 1;
            let have_doubled = round.wants.get() > self.proposed_wants.get() * 2.0;
            let wants = (moves_on || have_doubled).then(|| {
                self.proposed_wants = round.wants;
                wants()
            });
            let horizon = moves_on.then(|| self.clock.end(bound.until, now));
            let (total, lease, high_water_mark) = (bound.total, Some(bound.lease), Some(bound.high_water_mark));
            let (parts, period) = (bound.parts.clone(), round.period);
            self.under_way.push_back((self.taken, bound));
            let (epoch, number) = (self.epoch, self.taken);
            Changes { epoch, number, total, horizon, lease, high_water_mark, wants, parts, period }
        });
        let newest = self.newest();
        self.covered_up_to = round.covered_up_to(total_at(newest.total, &newest.parts, moment));
        Proposal { changes, awaits: if latest_end > now { self.awaited(&round, latest_end, moment) } else { None } }
    }

    /// The bound to propose now, if any, and whether its horizon moves.
    fn next(&mut self, round: &RoundState, latest_end: Millis, moment: ClusterTime) -> Option<(Bound, bool)> {
        let (newest, now) = (self.newest().clone(), round.now);
        let (lease, held) = (round.lease, round.held);
        let spare = |total: Amount| Amount::clamped(total.get() - held.get());
        if self.needs_horizon(&newest, round, latest_end) {
            let is_quiet = !self.has_changed(round) && self.held_range.is_some();
            self.doublings = if is_quiet { (self.doublings + 1).min(MAX_DOUBLINGS) } else { 0 };
            self.horizon_proposed = now;
            let until = match round.period.is_some() {
                true => latest_end,
                false => latest_end.plus(self.lead(lease)).plus(self.step(lease)),
            };
            let until = until.max(self.inherited_until).max(newest.until);
            let high_water_mark = round.raised(std::mem::replace(&mut self.next_mark, round.next));
            let held_range = self.held_range.replace((held, held));
            let total = round.total(held_range.map(|(least, most)| (most - least).get()));
            let parts = self.stored_parts.next_parts(&newest.parts, &round.parts, now);
            return Some((Bound { total, room: spare(total), until, lease, high_water_mark, parts }, true));
        }
        let high_water_mark =
            if newest.is_above(round.lapsed) { newest.high_water_mark } else { round.raised(newest.high_water_mark) };
        let (known, forecast) = (total_at(newest.total, &newest.parts, moment), round.total(None));
        let is_short = held > Sum::from(known);
        // The total is raised before it is needed, when most of its room is used up.
        let is_foreseen = spare(known).get() < spare(forecast).min(newest.room).get() * RAISE_BELOW;
        let has_given = latest_end > now;
        let is_given_over = has_given && high_water_mark != newest.high_water_mark;
        let is_claimed = has_given && !stored_parts::covers_stored(&newest.parts, &round.parts);
        let needs_tightening = self.taken > 0 && self.stored_parts.needs_tightening(&newest.parts, &round.parts);
        if !(is_short || is_foreseen || is_given_over || is_claimed || needs_tightening) {
            return None;
        }
        let (total, given) = if is_short || is_foreseen { (forecast, spare(forecast)) } else { (known, newest.room) };
        let parts = self.stored_parts.next_parts(&newest.parts, &round.parts, now);
        Some((Bound { total, room: given, high_water_mark, parts, ..newest }, false))
    }

    /// Whether a horizon must be proposed beyond `bound`: to cover the leases, or because something has changed during
    /// the last half lease length, so that the total may fall.
    fn needs_horizon(&self, bound: &Bound, round: &RoundState, latest_end: Millis) -> bool {
        let (lease, now) = (round.lease, round.now);
        let is_over = now.since(self.horizon_proposed) >= Millis(lease.0 / 2);
        let lead = if round.period.is_some() { Millis(0) } else { self.lead(lease) };
        bound.needs_horizon(latest_end, lead, round) || latest_end > now && is_over && self.has_changed(round)
    }

    /// Whether the held amount or the wants have changed since the last horizon.
    fn has_changed(&self, round: &RoundState) -> bool {
        self.held_range.is_some_and(|(least, most)| least != most) || round.wants != self.proposed_wants
    }

    /// How long before it is needed a horizon is proposed: longer than the usual refresh interval, so that no answer
    /// waits for the log.
    fn lead(&self, lease: Millis) -> Millis {
        Millis(lease.0 / if self.doublings == 0 { 8 } else { 2 })
    }

    /// How far a horizon moves. After doublings, it is shortened by up to a half that depends on the epoch, so that
    /// resources that began together do not all write at the same time.
    fn step(&self, lease: Millis) -> Millis {
        let step = (lease.0 / 2) << self.doublings;
        let spread = (self.epoch.0 / Inherited::EPOCHS_APART).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        Millis(if self.doublings == 0 { step } else { step - step / 128 * spread })
    }

    /// The bound that was proposed last, or the stored one.
    fn newest(&self) -> &Bound {
        self.under_way.back().map_or(&self.stored, |(_, bound)| bound)
    }

    /// The number that must be stored before leases may be sent: no pending change after it withdraws their cover.
    fn awaited(&self, round: &RoundState, end: Millis, moment: ClusterTime) -> Option<u64> {
        let covers = |bound: &Bound| bound.covers(round, end, moment);
        if round.period.is_some() && planted::is(Fault::BudgetBoundFollows) {
            return None;
        }
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
