//! A pick that has begun: all members have accrued, none has paid.
//!
//! Those that are skipped leave the tournament meanwhile, so that the next in turn comes up. However it ends, also by a
//! panic of the caller's `accept`, they come back with the status they had; and if none has paid, none has accrued.

use super::{Member, Schedule};

impl Schedule {
    /// The member that is next among those that are accepted.
    ///
    /// A member that would have been picked and is not accepted counts as disabled for this pick: it neither accrues
    /// nor pays, and the sum of the factors is without it. One that would not have been picked is not asked about, and
    /// accrues.
    ///
    /// Costs as much as `pick` for the member that is picked and as much again, twice, for each that is not accepted.
    /// If none is, all have been asked about, and nothing changes.
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

    /// The member that is next.
    fn candidate(&self) -> Option<Member> {
        self.schedule.member(self.schedule.tournament.leader()?)
    }

    /// The candidate does not take part in this pick.
    fn skip(&mut self, candidate: Member) {
        let Some(slot) = self.schedule.slot(candidate) else { return };
        let accrued = self.schedule.leave(candidate, slot.factor);
        self.skipped.push((candidate, accrued - i128::from(slot.factor.get())));
    }

    /// The candidate pays.
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
