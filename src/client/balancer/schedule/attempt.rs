//! A pick that has begun: everybody has accrued, nobody has paid.
//!
//! Those who are skipped leave the tournament meanwhile, so that the next in turn comes up. Whichever way it ends, also
//! by a panic of whoever is asked, they come back with the status they had; and if nobody has paid, nobody has accrued.

use super::{Member, Schedule};

pub(super) struct Attempt<'a> {
    schedule: &'a mut Schedule,
    skipped: Vec<(Member, i128)>,
    charged: bool,
}

impl<'a> Attempt<'a> {
    /// `None` if nobody is enabled.
    pub(super) fn begin(schedule: &'a mut Schedule) -> Option<Attempt<'a>> {
        schedule.tournament.leader()?;
        schedule.tournament.advance();
        Some(Attempt { schedule, skipped: Vec::new(), charged: false })
    }

    /// Whose turn it is.
    pub(super) fn candidate(&self) -> Option<Member> {
        self.schedule.member(self.schedule.tournament.leader()?)
    }

    /// The candidate does not take part in this pick.
    pub(super) fn skip(&mut self, candidate: Member) {
        let Some(slot) = self.schedule.slot(candidate) else { return };
        let accrued = self.schedule.leave(candidate, slot.factor);
        self.skipped.push((candidate, accrued - i128::from(slot.factor.get())));
    }

    /// The candidate pays.
    pub(super) fn charge(&mut self, candidate: Member) {
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
