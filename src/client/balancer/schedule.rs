//! Request counting: the scheduler of httpd's `mod_lbmethod_byrequests`. Every member gets its share of picks, spread
//! out evenly.
//!
//! At each pick the status of every enabled member grows by its factor. The member with the largest status is picked
//! (the first one, if several are equal), and its status falls by the sum of the factors. Implemented literally, a pick
//! visits all members. Here a tournament tree finds the maximum, and a pick among `n` members replays about `log n`
//! matches, with the same picks and the same statuses.
//!
//! The schedule has no clock, no lock and no randomness. [`Balancer`](super::Balancer) decides which members are
//! disabled, and where factors come from.

#[cfg(test)]
mod tests;
mod tournament;

use self::tournament::Tournament;

/// A member's share of the picks, relative to the factors of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u64);

impl Factor {
    /// No share. Such a member accrues nothing. It is picked only due to an earlier status, or if no enabled member has a
    /// share.
    pub const ZERO: Factor = Factor(0);
    /// The maximum. The sum of the factors of a full schedule is below 2^63.
    pub const MAX: Factor = Factor((1 << 47) - 1);

    /// A factor, at most [`Factor::MAX`].
    pub fn of(share: u64) -> Factor {
        Factor(share.min(Factor::MAX.0))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u32> for Factor {
    fn from(share: u32) -> Factor {
        Factor(u64::from(share))
    }
}

/// A member of a [`Schedule`]. A removed member is never confused with one that was added later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member {
    slot: u32,
    order: u64,
}

impl Member {
    /// Its index: 0 for the first member. Indexes of removed members are reused.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Decides which member is next.
///
/// ```
/// use leaseway_client::balancer::{Factor, Schedule};
///
/// let mut schedule = Schedule::new();
/// let a = schedule.add(Factor::of(7));
/// let b = schedule.add(Factor::of(3));
/// let mut picks = |count| -> String {
///     (0..count).map(|_| if schedule.pick() == Some(a) { 'a' } else { 'b' }).collect()
/// };
/// assert_eq!(picks(10), "abaaabaaba");
/// assert_eq!(schedule.status(a), Some(0));
///
/// schedule.disable(b);
/// assert_eq!(schedule.pick(), Some(a));
/// ```
///
/// Operations on a removed member do nothing.
#[derive(Debug, Clone)]
pub struct Schedule {
    slots: Vec<Option<Slot>>,
    vacant: Vec<u32>,
    /// The statuses of enabled members.
    tournament: Tournament,
    totals: Totals,
    next_order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    order: u64,
    factor: Factor,
    state: SlotState,
}

#[derive(Debug, Clone, Copy)]
enum SlotState {
    /// The status is in the tournament.
    Enabled,
    /// The status that it will have when it is enabled again.
    Disabled(i128),
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::new()
    }
}

impl Schedule {
    /// The maximum number of members. With [`Factor::MAX`] it keeps the sum of factors below 2^63, so that no status
    /// overflows in 2^60 picks, whatever happens in between.
    pub const MAX_MEMBERS: usize = 1 << 16;

    /// Creates a schedule without members.
    pub fn new() -> Schedule {
        Schedule {
            slots: Vec::new(),
            vacant: Vec::new(),
            tournament: Tournament::new(),
            totals: Totals::default(),
            next_order: 0,
        }
    }

    /// Adds an enabled member after all others, with status 0.
    ///
    /// # Panics
    ///
    /// Panics if there are [`Schedule::MAX_MEMBERS`].
    pub fn add(&mut self, factor: Factor) -> Member {
        self.add_with_status(factor, 0)
    }

    /// Adds an enabled member after all others, with this status.
    ///
    /// # Panics
    ///
    /// Panics if there are [`Schedule::MAX_MEMBERS`].
    pub fn add_with_status(&mut self, factor: Factor, status: i64) -> Member {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            assert!(
                self.slots.len() < Schedule::MAX_MEMBERS,
                "a schedule has at most {} members",
                Schedule::MAX_MEMBERS
            );
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let member = Member { slot, order: self.next_order };
        self.next_order += 1;
        self.slots[slot as usize] = Some(Slot { order: member.order, factor, state: SlotState::Enabled });
        self.totals.all += factor.get();
        self.enter(member, factor, i128::from(status));
        member
    }

    /// Removes a member and its status. This may change the sum of the other statuses, which does not affect picks.
    pub fn remove(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        self.disable(member);
        self.totals.all -= slot.factor.get();
        self.slots[member.index()] = None;
        self.vacant.push(member.slot);
    }

    /// Picks the next member. `None`, without any change, if no member is enabled.
    pub fn pick(&mut self) -> Option<Member> {
        self.tournament.leader()?;
        self.tournament.advance();
        let slot = self.tournament.leader()?;
        self.tournament.charge(slot, self.totals.enabled);
        self.member(slot)
    }

    /// Picks the next member that `accept` accepts.
    ///
    /// A rejected member counts as disabled for this pick: it does not accrue, and the sum of factors excludes it.
    /// `accept` is not called for members behind the picked one; they accrue.
    ///
    /// Costs as much as `pick`, plus twice that for each rejected member. If all are rejected, nothing changes.
    pub fn pick_where(&mut self, accept: impl FnMut(Member) -> bool) -> Option<Member> {
        let mut attempt = Attempt::begin(self)?;
        let member = attempt.find(accept)?;
        attempt.charge(member);
        Some(member)
    }

    /// The member that [`pick_where`](Self::pick_where) would pick. Changes nothing. Takes time linear in the number of
    /// members.
    pub fn peek_where(&mut self, accept: impl FnMut(Member) -> bool) -> Option<Member> {
        Attempt::begin(self)?.find(accept)
    }

    /// Picks a certain member, for sticky sessions. It is charged as if it were next, and the others catch up afterwards.
    /// Returns false, without any change, if it is disabled.
    pub fn force(&mut self, member: Member) -> bool {
        let enabled = self.is_enabled(member);
        if enabled {
            self.tournament.advance();
            self.tournament.charge(member.slot, self.totals.enabled);
        }
        enabled
    }

    /// Disables a member. It neither accrues nor is charged until it is enabled again.
    pub fn disable(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        if let SlotState::Enabled = slot.state {
            let status = self.leave(member, slot.factor);
            self.set_slot(member, Slot { state: SlotState::Disabled(status), ..slot });
        }
    }

    /// Enables a member again, with the status it had.
    pub fn enable(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        if let SlotState::Disabled(status) = slot.state {
            self.set_slot(member, Slot { state: SlotState::Enabled, ..slot });
            self.enter(member, slot.factor, status);
        }
    }

    /// Changes a member's factor but no status. Statuses are in units of factors, so after factors have become much
    /// smaller they take many picks to level out. See [`reset`](Self::reset) and [`rescale`](Self::rescale).
    pub fn set_factor(&mut self, member: Member, factor: Factor) {
        let Some(slot) = self.slot(member) else { return };
        self.set_slot(member, Slot { factor, ..slot });
        self.totals.all = self.totals.all - slot.factor.get() + factor.get();
        if let SlotState::Enabled = slot.state {
            let status = self.leave(member, slot.factor);
            self.enter(member, factor, status);
        }
    }

    /// Changes a member's factor and rescales all statuses, so that each stands for as many picks as before: a status
    /// is multiplied by the new sum of factors, divided by the old one, and rounded toward 0. The rounding error of the
    /// sum of enabled members' statuses goes to the first of them.
    ///
    /// For enabled members the sum is that of enabled members, for disabled members it is that of all members. If the
    /// old sum is 0, statuses do not change.
    ///
    /// Takes time linear in the number of members.
    pub fn rescale(&mut self, member: Member, factor: Factor) {
        if self.factor(member).is_none_or(|old| old == factor) {
            return;
        }
        let before = self.totals;
        self.set_factor(member, factor);
        self.rescale_enabled(before);
        let after = self.totals;
        for slot in self.slots.iter_mut().flatten() {
            if let SlotState::Disabled(status) = &mut slot.state {
                *status = scaled(*status, after.all, before.all);
            }
        }
    }

    /// Sets all statuses to 0, including those of disabled members.
    pub fn reset(&mut self) {
        self.tournament.revalue(|_| 0);
        for slot in self.slots.iter_mut().flatten() {
            if let SlotState::Disabled(status) = &mut slot.state {
                *status = 0;
            }
        }
    }

    /// The status of a member: how urgently it has to be picked, in units of factors. `None` if it was removed.
    pub fn status(&self, member: Member) -> Option<i128> {
        Some(match self.slot(member)?.state {
            SlotState::Enabled => self.tournament.value(member.slot),
            SlotState::Disabled(status) => status,
        })
    }

    /// A member's factor. `None` if it was removed.
    pub fn factor(&self, member: Member) -> Option<Factor> {
        Some(self.slot(member)?.factor)
    }

    /// Whether a member is enabled.
    pub fn is_enabled(&self, member: Member) -> bool {
        self.slot(member).is_some_and(|slot| matches!(slot.state, SlotState::Enabled))
    }

    fn rescale_enabled(&mut self, before: Totals) {
        let (new, old) = (self.totals.enabled, before.enabled);
        if new == old {
            return;
        }
        let sum = self.sum_of_enabled();
        self.tournament.revalue(|status| scaled(status, new, old));
        let rest = scaled(sum, new, old) - self.sum_of_enabled();
        let first = self.enabled().min_by_key(|member| member.order);
        if let Some((member, slot)) = first.and_then(|member| Some((member, self.slot(member)?))) {
            let status = self.leave(member, slot.factor);
            self.enter(member, slot.factor, status + rest);
        }
    }

    fn enabled(&self) -> impl Iterator<Item = Member> {
        let enabled = |slot: &Option<Slot>| slot.is_some_and(|slot| matches!(slot.state, SlotState::Enabled));
        let slots = self.slots.iter().enumerate().filter(move |(_, slot)| enabled(slot));
        slots.filter_map(|(slot, _)| self.member(slot as u32))
    }

    fn sum_of_enabled(&self) -> i128 {
        self.enabled().map(|member| self.tournament.value(member.slot)).sum()
    }

    fn enter(&mut self, member: Member, factor: Factor, status: i128) {
        self.tournament.enter(member.slot, status, factor.get(), member.order);
        self.totals.enabled += factor.get();
    }

    fn leave(&mut self, member: Member, factor: Factor) -> i128 {
        self.totals.enabled -= factor.get();
        self.tournament.leave(member.slot)
    }

    fn slot(&self, member: Member) -> Option<Slot> {
        (*self.slots.get(member.index())?).filter(|slot| slot.order == member.order)
    }

    fn set_slot(&mut self, member: Member, slot: Slot) {
        self.slots[member.index()] = Some(slot);
    }

    fn member(&self, slot: u32) -> Option<Member> {
        self.slots[slot as usize].map(|of| Member { slot, order: of.order })
    }
}

/// A pick in progress: all members have accrued, and no member was charged yet.
///
/// Skipped members leave the tournament, so that the next member leads. When the pick ends, even by a panic in `accept`,
/// they return with the status they had. If no member was charged, the accrual is undone.
struct Attempt<'a> {
    schedule: &'a mut Schedule,
    skipped: Vec<(Member, i128)>,
    charged: bool,
}

impl<'a> Attempt<'a> {
    /// `None` if no member is enabled.
    fn begin(schedule: &'a mut Schedule) -> Option<Attempt<'a>> {
        schedule.tournament.leader()?;
        schedule.tournament.advance();
        Some(Attempt { schedule, skipped: Vec::new(), charged: false })
    }

    /// The first member that is accepted. Skips those before it.
    fn find(&mut self, mut accept: impl FnMut(Member) -> bool) -> Option<Member> {
        while let Some(slot) = self.schedule.tournament.leader() {
            let member = self.schedule.member(slot)?;
            if accept(member) {
                return Some(member);
            }
            self.skip(member);
        }
        None
    }

    fn skip(&mut self, candidate: Member) {
        let Some(slot) = self.schedule.slot(candidate) else { return };
        let accrued = self.schedule.leave(candidate, slot.factor);
        self.skipped.push((candidate, accrued - i128::from(slot.factor.get())));
    }

    fn charge(&mut self, candidate: Member) {
        self.schedule.tournament.charge(candidate.slot, self.schedule.totals.enabled);
        self.charged = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.charged {
            self.schedule.tournament.retreat();
        }
        for (member, status) in std::mem::take(&mut self.skipped) {
            if let Some(slot) = self.schedule.slot(member) {
                self.schedule.enter(member, slot.factor, status);
            }
        }
    }
}

/// Sums of factors.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    enabled: u64,
    all: u64,
}

/// The maximum of scaled statuses, which prevents overflows in any sequence of changes. It takes a lead of 2^37 picks to
/// reach it.
const LIMIT: i128 = 1 << 100;

/// `status · new / old`, rounded toward 0; unchanged if `old` is 0.
fn scaled(status: i128, new: u64, old: u64) -> i128 {
    if old == 0 {
        return status;
    }
    let (new, old) = (i128::from(new), i128::from(old));
    // In two parts, because the product may overflow. Sums of factors are below 2^63, so the second part cannot. Both
    // parts have the sign of the status, so rounding the second rounds the whole.
    let whole = (status / old).saturating_mul(new);
    let part = status % old * new / old;
    whole.saturating_add(part).clamp(-LIMIT, LIMIT)
}
