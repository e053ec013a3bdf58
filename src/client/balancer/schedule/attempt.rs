//! A pick in progress: all members have accrued, and none was charged yet.
//!
//! Skipped members leave the tournament, so that the next one leads. However the pick ends, even by a panic in
//! `accept`, they return with the status they had. If no member was charged, the accrual is undone.

use super::{Member, Schedule};

impl Schedule {
    /// Picks the next member that `accept` accepts.
    ///
    /// A rejected member counts as disabled for this pick: it does not accrue, and the sum of factors excludes it.
    /// Members behind the picked one are not asked about, and accrue.
    ///
    /// Costs as much as `pick`, plus twice that for each rejected member. If all are rejected, nothing changes.
    pub fn pick_where(&mut self, mut accept: impl FnMut(Member) -> bool) -> Option<Member> {
        let mut attempt = Attempt::begin(self)?;
        while let Some(member) = attempt.candidate() {
            if accept(member) {
                attempt.charge(member);
                return Some(member);
            }
            attempt.skip(member);
        }
        None
    }
}

struct Attempt<'a> {
    schedule: &'a mut Schedule,
    skipped: Vec<(Member, i128)>,
    charged: bool,
}

impl<'a> Attempt<'a> {
    /// `None` if none is enabled.
    fn begin(schedule: &'a mut Schedule) -> Option<Attempt<'a>> {
        schedule.tournament.leader()?;
        schedule.tournament.advance();
        Some(Attempt { schedule, skipped: Vec::new(), charged: false })
    }

    /// The next member.
    fn candidate(&self) -> Option<Member> {
        self.schedule.member(self.schedule.tournament.leader()?)
    }

    /// Skips the candidate.
    fn skip(&mut self, candidate: Member) {
        let Some(slot) = self.schedule.slot(candidate) else { return };
        let accrued = self.schedule.leave(candidate, slot.factor);
        self.skipped.push((candidate, accrued - i128::from(slot.factor.get())));
    }

    /// Charges the candidate.
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
