//! Request counting, the schedule of httpd's `mod_lbmethod_byrequests`: which member is next, so that each gets
//! the documented share and turns are spread out.
//!
//! In words: at each pick the status of every enabled member grows by its factor; the member with the largest status is
//! picked, of several the one configured first; and its status falls by the sum of the factors handed out. Written so
//! it looks at all members in each pick. Here a tournament does the looking, and a pick among `n` members
//! replays about `log n` matches. The picks are the same, and so are the statuses.
//!
//! Pure: there is no clock, no lock and nothing random. Why a member is disabled, and where factors come from, is for
//! [`Balancer`](super::Balancer) to know.

mod attempt;
mod factor;
#[cfg(test)]
mod tests;
mod tournament;

pub use factor::Factor;
use factor::{Totals, scaled};
use tournament::Tournament;

/// A member of a [`Schedule`]. One that was removed is never taken for one that was added later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member {
    slot: u32,
    order: u64,
}

impl Member {
    /// Its place: 0 for the first that was added, and so on. The places of removed members are given away again.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Which is next among members with shares.
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
/// Operations on a member that was removed do nothing.
#[derive(Debug, Clone)]
pub struct Schedule {
    slots: Vec<Option<Slot>>,
    vacant: Vec<u32>,
    /// The statuses of those that are enabled.
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
    /// The status it had, and will have again.
    Disabled(i128),
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::new()
    }
}

impl Schedule {
    /// So many members fit. With [`Factor::MAX`] this keeps the sum of factors below 2^63, so that no status overflows
    /// in 2^60 picks, with anything else done between them.
    pub const MAX_MEMBERS: usize = 1 << 16;

    /// Without members.
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
    /// If there are [`Schedule::MAX_MEMBERS`].
    pub fn add(&mut self, factor: Factor) -> Member {
        self.add_with_status(factor, 0)
    }

    /// Adds an enabled member after all others, as if it had been owed this before.
    ///
    /// # Panics
    ///
    /// If there are [`Schedule::MAX_MEMBERS`].
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

    /// Takes a member out, and its status with it: the others' may have another sum from now on, which no pick depends
    /// on.
    pub fn remove(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        self.disable(member);
        self.totals.all -= slot.factor.get();
        self.slots[member.index()] = None;
        self.vacant.push(member.slot);
    }

    /// The member that is next: one step of the schedule. `None` if none is enabled, and then nothing changes.
    pub fn pick(&mut self) -> Option<Member> {
        self.tournament.leader()?;
        self.tournament.advance();
        let slot = self.tournament.leader()?;
        self.tournament.charge(slot, self.totals.enabled);
        self.member(slot)
    }

    /// Picks this member, as for a session that sticks to it: a step in which it pays, even if it was not its turn. The
    /// others catch up afterwards. Whether it was picked: one that is disabled is not, and then nothing changes.
    pub fn force(&mut self, member: Member) -> bool {
        let enabled = self.is_enabled(member);
        if enabled {
            self.tournament.advance();
            self.tournament.charge(member.slot, self.totals.enabled);
        }
        enabled
    }

    /// Leaves a member out of picks. It neither accrues nor pays until it is enabled again.
    pub fn disable(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        if let SlotState::Enabled = slot.state {
            let status = self.leave(member, slot.factor);
            self.set_slot(member, Slot { state: SlotState::Disabled(status), ..slot });
        }
    }

    /// Takes a disabled member back into picks, with the status it had.
    pub fn enable(&mut self, member: Member) {
        let Some(slot) = self.slot(member) else { return };
        if let SlotState::Disabled(status) = slot.state {
            self.set_slot(member, Slot { state: SlotState::Enabled, ..slot });
            self.enter(member, slot.factor, status);
        }
    }

    /// Changes a member's factor. All statuses stay as they are, and with them what members are owed in units of
    /// factors: after factors have become much smaller it takes many picks to pay off. See [`reset`](Self::reset) and
    /// [`rescale`](Self::rescale).
    pub fn set_factor(&mut self, member: Member, factor: Factor) {
        let Some(slot) = self.slot(member) else { return };
        self.set_slot(member, Slot { factor, ..slot });
        self.totals.all = self.totals.all - slot.factor.get() + factor.get();
        if let SlotState::Enabled = slot.state {
            let status = self.leave(member, slot.factor);
            self.enter(member, factor, status);
        }
    }

    /// Changes a member's factor, and all statuses with it, so that each is owed as many picks as before: a status
    /// is multiplied by the new sum of factors and divided by the old one, and rounded toward 0. What rounding takes
    /// from the sum of the enabled members' statuses goes to the first of them.
    ///
    /// For those that are enabled it is the sum over them. A disabled member's status dates from when others were
    /// enabled; for it, it is the sum over all. If a sum was 0, those statuses stay as they are.
    ///
    /// Looks at all members.
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

    /// Begins anew: every status becomes 0, also of those that are disabled.
    pub fn reset(&mut self) {
        self.tournament.revalue(|_| 0);
        for slot in self.slots.iter_mut().flatten() {
            if let SlotState::Disabled(status) = &mut slot.state {
                *status = 0;
            }
        }
    }

    /// How urgently a member has to be picked: what it is owed, in units of factors. `None` if it was removed.
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

    /// Whether a member can be picked.
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
