//! Whole units: a holder that is due three tenths of a permit gets a whole one three times out of ten.
//!
//! Each due is rounded down, and the left-over units rotate by request counting, the method of Apache's load balancer.
//! In each rotation, each holder is credited with its fraction of a unit. The holders with the most credit get one unit
//! each and pay for it with credit. So each holder has its due rounded down or up, the sum never exceeds the capacity,
//! and the long-run average of each holder equals its due.
//!
//! A rotation lasts many refresh intervals, because a unit can move only after its holder has asked. If demand changes
//! within a rotation, the units are dealt again from the credits at its start.
//!
//! Groups of clients are dealt whole units, too, by the same rule at each level: each gets its due rounded down, and
//! the rest goes to the groups whose clients have the most credit. So no group is ever given more than its due rounded
//! up.
//!
//! Fractions of a unit are integers in units of 2⁻²⁰, so they do not drift.

use std::{cmp::Reverse, sync::Arc};

use crate::types::{Amount, Millis};

pub(crate) const UNIT: i64 = 1 << 20;

/// The credits of holders, and the current rotation.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// Indexed by ledger slot.
    credits: Vec<Credit>,
    /// The end of the current rotation; zero before the first.
    ends: Millis,
    /// The version of the claims at the last deal.
    dealt: Option<u64>,
    dealt_at: Millis,
}

#[derive(Debug, Clone, Copy, Default)]
struct Credit {
    /// Credit at the start of the current rotation, and at its end.
    before: i64,
    after: i64,
}

/// A holder whose due has a fractional part.
#[derive(Debug)]
pub(crate) struct UnitPart {
    pub(crate) slot: u32,
    pub(crate) id: Arc<str>,
    /// The fractional part of its due, in units of 2⁻²⁰.
    pub(crate) part: i64,
}

/// Holders among which units are dealt.
#[derive(Debug)]
pub(crate) enum Taker {
    /// By its position in the list of parts.
    Holder(usize),
    /// The members of a group.
    Group(Vec<Taker>),
}

/// The minimum time between two deals while demand changes.
const DEAL_PAUSE: Millis = Millis(1000);

impl Rotation {
    pub(crate) fn ends(&self) -> Millis {
        self.ends
    }

    /// Whether units must be dealt: the rotation is over, or the claims have changed (`version`).
    pub(crate) fn is_due(&self, now: Millis, version: u64) -> bool {
        self.ends <= now || (self.dealt != Some(version) && self.dealt_at.plus(DEAL_PAUSE) <= now)
    }

    /// Deals the left-over units. Returns the holders that get one. `takers` are the holders of `parts`, in the order
    /// in which ties are decided.
    pub(crate) fn deal(
        &mut self,
        now: Millis,
        period: Millis,
        version: u64,
        parts: &[UnitPart],
        takers: &[Taker],
        units: usize,
    ) -> Vec<u32> {
        if self.ends <= now {
            self.credits.iter_mut().for_each(|credit| credit.before = credit.after);
            self.ends = now.plus(period);
        }
        (self.dealt, self.dealt_at) = (Some(version), now);
        let most = parts.iter().map(|part| part.slot as usize + 1).max().unwrap_or_default();
        self.credits.resize(self.credits.len().max(most), Credit::default());
        self.credits.iter_mut().for_each(|credit| credit.after = credit.before);
        let mut credits: Vec<i64> = parts.iter().map(|part| self.credits[part.slot as usize].before).collect();
        let shares: Vec<i64> = parts.iter().map(|part| part.part).collect();
        let winners = step(&mut credits, &shares, units, UNIT, takers);
        for (part, credit) in parts.iter().zip(credits) {
            self.credits[part.slot as usize].after = credit;
        }
        winners.into_iter().map(|winner| parts[winner].slot).collect()
    }

    /// Clears a slot, so that the next holder in it starts without credit or debt.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(credit) = self.credits.get_mut(slot as usize) {
            *credit = Credit::default();
        }
    }
}

/// The whole units of a due, and the fractional part.
fn split(due: Amount) -> (f64, i64) {
    let whole = due.get().floor();
    match ((due.get() - whole) * UNIT as f64).round() as i64 {
        UNIT => (whole + 1.0, 0),
        part => (whole, part),
    }
}

/// The fractional part of a due.
pub(crate) fn part_of(due: Amount) -> i64 {
    split(due).1
}

/// The due in whole units. `extra`: whether this holder gets one of the remaining units.
pub(crate) fn whole(due: Amount, extra: bool) -> Amount {
    let (whole, part) = split(due);
    Amount::clamped(whole + if extra && part > 0 { 1.0 } else { 0.0 })
}

/// The number of left-over units. Rounding makes each fraction wrong by at most half of 2⁻²⁰.
pub(crate) fn left_over(parts: &[UnitPart]) -> usize {
    let sum = parts.iter().map(|part| part.part).sum::<i64>() + parts.len() as i64;
    usize::try_from(sum / UNIT).unwrap_or_default()
}

/// The positions of the parts in the order in which ties are decided: by id.
pub(crate) fn in_order(parts: &[UnitPart]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_unstable_by(|one, other| parts[*one].id.cmp(&parts[*other].id));
    order
}

/// One step of request counting. Each holder is credited with its share of the `units`. The holders with the most
/// credit get one unit each and pay for it. Ties go to the first of the `takers`.
///
/// If there are fewer units than the sum of the fractions, all credits are scaled down. Equal fractions get exactly
/// equal credits; otherwise the order of ties would change from step to step.
fn step(credits: &mut [i64], parts: &[i64], units: usize, unit: i64, takers: &[Taker]) -> Vec<usize> {
    let units = units.min(credits.len());
    let (sum, given) = (parts.iter().map(|part| i128::from(*part)).sum::<i128>(), units as i128 * i128::from(unit));
    if units == 0 || sum == 0 {
        return Vec::new();
    }
    for (credit, part) in credits.iter_mut().zip(parts) {
        *credit += ((i128::from(*part) * given + sum / 2) / sum) as i64;
    }
    let mut winners = Vec::with_capacity(units);
    choose(&Step { credits, parts, unit }, takers, units, &mut winners);
    winners.iter().for_each(|winner| credits[*winner] -= unit);
    winners
}

/// The fractions and credits of holders in one step.
struct Step<'a> {
    credits: &'a [i64],
    parts: &'a [i64],
    unit: i64,
}

impl Step<'_> {
    /// The sums of the fractions and of the credits of all holders in `taker`, and their number.
    fn sums(&self, taker: &Taker) -> (i64, i64, i64) {
        match taker {
            Taker::Holder(at) => (self.parts[*at], self.credits[*at], 1),
            Taker::Group(members) => members.iter().map(|member| self.sums(member)).fold(
                (0, 0, 0),
                |(part, credit, count), (more_part, more_credit, more)| {
                    (part + more_part, credit + more_credit, count + more)
                },
            ),
        }
    }

    /// The whole units that are due to `taker`, whether it is due a fraction of another one, and its credit beyond the
    /// whole ones.
    fn due(&self, taker: &Taker) -> (usize, bool, i64) {
        let (part, credit, count) = self.sums(taker);
        if let Taker::Holder(_) = taker {
            return (0, true, credit);
        }
        // As in `left_over`, each fraction may be wrong by half of 2⁻²⁰.
        let whole = (part + count) / self.unit;
        (usize::try_from(whole).unwrap_or_default(), part - whole * self.unit > count, credit - whole * self.unit)
    }
}

/// Chooses the holders that get one of `units`: each of the `takers` gets the whole units that it is due, and those
/// that are due a fraction of another one get it in the order of their credits.
fn choose(step: &Step<'_>, takers: &[Taker], units: usize, winners: &mut Vec<usize>) {
    let dues: Vec<(usize, bool, i64)> = takers.iter().map(|taker| step.due(taker)).collect();
    let whole: usize = dues.iter().map(|(whole, ..)| whole).sum();
    let mut order: Vec<usize> = (0..takers.len()).filter(|at| dues[*at].1).collect();
    order.sort_by_key(|at| Reverse(dues[*at].2));
    order.truncate(units.saturating_sub(whole));
    let mut given: Vec<usize> = dues.iter().map(|(whole, ..)| *whole).collect();
    order.iter().for_each(|at| given[*at] += 1);
    let mut left = units;
    // Holders in the order of their credits, then groups.
    let groups = (0..takers.len()).filter(|at| matches!(takers[*at], Taker::Group(_)));
    let holders = order.iter().copied().filter(|at| matches!(takers[*at], Taker::Holder(_)));
    for at in holders.chain(groups) {
        let units = given[at].min(left);
        left -= units;
        match &takers[at] {
            Taker::Holder(holder) if units > 0 => winners.push(*holder),
            Taker::Group(members) if units > 0 => choose(step, members, units, winners),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
