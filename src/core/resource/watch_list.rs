//! The watch list: decides which holders should ask again now.
//!
//! A hint tells a holder to refresh its lease early. It carries no capacity. A holder is hinted if its lease differs
//! from its due and its request would change something (rule 9). Holders that must shrink, or still have to confirm a
//! smaller lease, are hinted first, while others wait for more or more is held than the capacity. (In a pool, a holder
//! that must shrink is hinted immediately.) Then follow holders that wait for more, while capacity is free. Only
//! *watched* holders are hinted: those with an open stream of hints.
//!
//! The state of watched holders is stored outside the ledger, because every request touches the three cache lines of a
//! ledger record. The record has only the holder's position in this list, and a request visits no other holder. The
//! caller asks for hints periodically. A *pass* then visits the watched holders, a bounded number with each call. It
//! begins only if something has changed since the last pass.
//!
//! The server manages streams and delivers hints.

use std::sync::Arc;

use slab::Slab;

use crate::types::{Amount, HolderKind, Millis, Sum};

/// Why a holder should ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HintReason {
    /// Its due is less than its lease, and others need the difference.
    Shrink,
    /// It has not confirmed its newest lease. An older, larger one still counts as held, and others need the
    /// difference.
    Confirm,
    /// Its due is more than its lease, and capacity is free.
    Grow,
}

impl HintReason {
    /// In order of precedence.
    pub const ALL: [HintReason; 3] = [HintReason::Shrink, HintReason::Confirm, HintReason::Grow];

    pub fn name(self) -> &'static str {
        match self {
            HintReason::Shrink => "shrink",
            HintReason::Confirm => "confirm",
            HintReason::Grow => "grow",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    pub kind: HolderKind,
    pub id: Arc<str>,
    pub reason: HintReason,
}

/// A difference is visible if it exceeds this fraction of the larger amount.
const VISIBLE_PART: f64 = 0.005;
/// A smaller fraction of the capacity is not worth a request, unless it visibly brings the holder closer to its due.
const WORTH_ASKING: f64 = 0.0025;
/// Minimum time between two hints to one holder.
const HINT_PAUSE: Millis = Millis(200);
/// The pause doubles at most this many times while hints have no effect: up to 6.4 s.
const MAX_DOUBLINGS: u8 = 5;

/// Whether the difference is worth a request.
pub(crate) fn differs_visibly(one: Amount, other: Amount) -> bool {
    (one.get() - other.get()).abs() > one.max(other).get() * VISIBLE_PART
}

/// Whether a holder that has `current` waits for more.
pub(crate) fn waits(due: Amount, current: Amount) -> bool {
    due > current && differs_visibly(due, current)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HintCandidate {
    pub(crate) due: Amount,
    pub(crate) current: Amount,
    pub(crate) held: Amount,
}

impl HintCandidate {
    pub(crate) fn waits(&self) -> bool {
        waits(self.due, self.current)
    }

    fn shrinks(&self) -> bool {
        self.due < self.current && differs_visibly(self.due, self.current)
    }

    fn blocks_others(&self) -> bool {
        self.held > self.current && differs_visibly(self.held, self.current)
    }
}

/// The state of the resource on which hints depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HintContext {
    /// Whether holders share the capacity. If not, a hint only depends on the difference between due and lease.
    pub(crate) bounded: bool,
    /// Whether a holder should learn of a smaller due immediately. This is so in a pool, whose manager has decided it.
    pub(crate) decided: bool,
    /// Whether any holder waits, watched or not.
    pub(crate) any_waits: bool,
    pub(crate) capacity: Amount,
    /// Capacity that no holder holds.
    pub(crate) free: Sum,
    /// The part of it that holders hinted in this pass will take.
    pub(crate) reserved: Sum,
}

impl HintContext {
    /// Whether free capacity is worth a request. A small fraction of the capacity can be much for one holder: without
    /// the second condition, a hundred small holders would all lack the last bit of their dues until their next
    /// refresh.
    fn is_worth_asking_for(&self, due: Amount) -> bool {
        let left = (self.free - self.reserved).get();
        left > self.capacity.get() * WORTH_ASKING || left > due.get() * VISIBLE_PART
    }

    /// Whether others need the excess of a holder: some holder waits, or more is held than the capacity.
    fn is_scarce(&self) -> bool {
        self.bounded && (self.any_waits || self.free.get() < -self.capacity.get() * WORTH_ASKING)
    }

    fn reason(&self, candidate: &HintCandidate) -> Option<HintReason> {
        if candidate.shrinks() && (self.is_scarce() || !self.bounded || self.decided) {
            Some(HintReason::Shrink)
        } else if candidate.blocks_others() && self.is_scarce() {
            Some(HintReason::Confirm)
        } else if candidate.waits() && (self.is_worth_asking_for(candidate.due) || !self.bounded) {
            Some(HintReason::Grow)
        } else {
            None
        }
    }
}

#[derive(Debug)]
struct Watched {
    slot: u32,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    at: Millis,
    why: HintReason,
    /// The held amount at the time of the hint. If it falls, the hint to confirm had an effect.
    held: Amount,
    /// Whether the holder was answered since.
    answered: bool,
    /// The number of repetitions without effect.
    repeated: u8,
}

impl Last {
    fn was_in_vain(&self, why: HintReason, held: Amount) -> bool {
        !self.answered || (self.why == HintReason::Confirm && why == HintReason::Confirm && held >= self.held)
    }
}

/// Change counters: of settings and watchers, and of the ledger.
pub(crate) type Version = (u64, u64);

/// The watched holders, and the progress of the current pass.
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    watched: Slab<Watched>,
    /// The next position to visit.
    cursor: usize,
    /// Places left in this pass.
    left: usize,
    /// The version at the start of the current or last pass.
    pass_version: Option<Version>,
    /// The earliest end of a pause that hints of this pass must wait for. `next_pass`: the same, for the last pass.
    revisit_at: Option<Millis>,
    next_pass: Option<Millis>,
    /// The first holder in this pass that was not hinted because free capacity was used up. The next pass begins there.
    passed_over: Option<usize>,
}

impl WatchList {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Adds the holder in `slot`. Returns its position.
    pub(crate) fn insert(&mut self, slot: u32) -> u32 {
        self.pass_version = None;
        self.watched.insert(Watched { slot, last: None }) as u32
    }

    /// Removes a holder. `position` may be [`NOT_WATCHED`].
    pub(crate) fn remove(&mut self, position: u32) {
        self.watched.try_remove(position as usize);
    }

    /// Resets the hint state of a holder that has a new listener.
    pub(crate) fn reset(&mut self, position: u32) {
        self.pass_version = None;
        if let Some(last) = self.last(position) {
            last.repeated = 0;
        }
    }

    /// Whether the holder has been hinted since it was last answered.
    pub(crate) fn is_hinted(&self, position: u32) -> bool {
        let watched = self.watched.get(position as usize);
        watched.and_then(|watched| watched.last.as_ref()).is_some_and(|last| !last.answered)
    }

    pub(crate) fn answered(&mut self, position: u32) {
        if let Some(last) = self.last(position) {
            last.answered = true;
        }
    }

    fn last(&mut self, position: u32) -> Option<&mut Last> {
        self.watched.get_mut(position as usize)?.last.as_mut()
    }

    /// When the next pass or part is due: immediately (`now`) or later. `None`: not before the next change.
    pub(crate) fn next_visit(&self, version: Version, now: Millis) -> Option<Millis> {
        if self.is_empty() {
            None
        } else if self.left > 0 || self.pass_version != Some(version) {
            Some(now)
        } else {
            self.next_pass
        }
    }

    /// Whether all holders were visited since the last change, and none was hinted recently.
    pub(crate) fn can_pack(&self, version: Version, now: Millis) -> bool {
        let is_settled = |last: &Last| last.answered && last.at.plus(pause(last.repeated)) <= now;
        self.next_visit(version, now).is_none()
            && self.watched.iter().all(|(_, watched)| watched.last.as_ref().is_none_or(is_settled))
    }

    /// Records that all holders were visited at this version.
    pub(crate) fn end_pass(&mut self, version: Version) {
        (self.pass_version, self.left) = (Some(version), 0);
    }

    /// The next part of a pass: at most `budget` positions. Begins a pass if something has changed; otherwise the part
    /// is empty.
    pub(crate) fn next_part(&mut self, version: Version, now: Millis, budget: usize, part: &mut Vec<Visit>) {
        part.clear();
        if self.next_visit(version, now).is_none_or(|next| now < next) {
            return;
        }
        if self.left == 0 || self.pass_version != Some(version) {
            self.pass_version = Some(version);
            self.left = self.watched.capacity();
            self.revisit_at = None;
        }
        for _ in 0..budget.min(self.left) {
            let position = if self.cursor < self.watched.capacity() { self.cursor } else { 0 };
            self.cursor = position + 1;
            self.left -= 1;
            if let Some(watched) = self.watched.get(position) {
                part.push(Visit { position: position as u32, slot: watched.slot });
            }
        }
    }

    /// Ends a part, once all of its holders have been judged.
    pub(crate) fn end_part(&mut self) {
        if self.left == 0 {
            self.next_pass = self.revisit_at;
            self.cursor = self.passed_over.take().unwrap_or(self.cursor);
        }
    }

    /// Whether to hint the holder at `position` now. Only as many holders are hinted as free capacity can serve. The
    /// others are visited again after a pause, or after a change.
    pub(crate) fn judge(
        &mut self,
        position: u32,
        candidate: &HintCandidate,
        context: &mut HintContext,
        now: Millis,
    ) -> Option<HintReason> {
        let watched = self.watched.get_mut(position as usize)?;
        let Some(why) = context.reason(candidate) else {
            if candidate.waits() && context.reserved > Sum::ZERO {
                self.revisit_at = earlier(self.revisit_at, now.plus(HINT_PAUSE));
                self.passed_over.get_or_insert(position as usize);
            }
            return None;
        };
        let last = watched.last.as_ref();
        let in_vain = last.is_some_and(|last| last.was_in_vain(why, candidate.held));
        let repeated = last.map_or(0, |last| if in_vain { last.repeated } else { 0 });
        let allowed = last.map(|last| last.at.plus(pause(repeated)));
        if let Some(allowed) = allowed.filter(|allowed| now < *allowed) {
            self.revisit_at = earlier(self.revisit_at, allowed);
            return None;
        }
        let repeated = if in_vain { (repeated + 1).min(MAX_DOUBLINGS) } else { 0 };
        watched.last = Some(Last { at: now, why, held: candidate.held, answered: false, repeated });
        self.revisit_at = earlier(self.revisit_at, now.plus(pause(repeated)));
        if why == HintReason::Grow && context.bounded {
            context.reserved += candidate.due.saturating_sub(candidate.current);
        }
        Some(why)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.watched.capacity() * size_of::<(usize, Watched)>()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) position: u32,
    pub(crate) slot: u32,
}

/// The pause after this many repetitions without effect.
fn pause(repeated: u8) -> Millis {
    Millis(HINT_PAUSE.0 << repeated)
}

fn earlier(one: Option<Millis>, other: Millis) -> Option<Millis> {
    Some(one.map_or(other, |one| one.min(other)))
}
