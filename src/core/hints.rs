//! Push hints: who should ask again now, because it matters to somebody.
//!
//! A hint carries no capacity. It goes to a holder whose lease and due are apart and whose request would change
//! something: first those who must shrink, and those whose older leases are in the way, while somebody waits or while
//! more is held than there is (in a pool whoever must shrink is hinted at once); then those who wait, while something
//! is free (rule 9 of the protocol). Only *watched* holders are hinted: those that listen.
//!
//! What is kept here is about watched holders only, beside the ledger, for a record is three cache lines and each
//! request touches all of them; the record knows its place here. Nobody is looked at when a request comes. The shell
//! asks for hints now and then, and a *pass* goes over the watched a part at a time, and only if something has changed
//! since the last pass.
//!
//! Deliberately absent: who listens (the shell knows), and how a hint travels.

use std::sync::Arc;

use slab::Slab;

use crate::{Amount, HolderKind, Millis, Sum};

/// Why somebody should ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It is due less than it has, and that is missing elsewhere.
    Shrink,
    /// It has not shown that it knows of its newest lease. The older one, which is larger, is missing elsewhere.
    Confirm,
    /// It is due more than it has, and something is free.
    Grow,
}

impl Why {
    /// All of them, in the order in which hints are given.
    pub const ALL: [Why; 3] = [Why::Shrink, Why::Confirm, Why::Grow];

    /// For metrics and transcripts.
    pub fn name(self) -> &'static str {
        match self {
            Why::Shrink => "shrink",
            Why::Confirm => "confirm",
            Why::Grow => "grow",
        }
    }
}

/// Somebody should ask again now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Client or child node.
    pub kind: HolderKind,
    /// Who.
    pub id: Arc<str>,
    /// What for.
    pub why: Why,
}

/// Two amounts are apart if they differ by more than this part of the larger.
const APART: f64 = 0.005;
/// Less than this part of the capacity is not worth a request, unless it brings whoever asks closer to its due.
const WORTH_ASKING: f64 = 0.0025;
/// Hints to one holder come no sooner after one another.
const PAUSE: Millis = Millis(200);
/// A pause doubles so often when hints change nothing: to 6.4 s.
const DOUBLINGS: u8 = 5;

/// The place of a record that is not watched.
pub(crate) const NOT_WATCHED: u32 = u32::MAX;

/// Whether the difference is worth a request.
pub(crate) fn apart(one: Amount, other: Amount) -> bool {
    (one.get() - other.get()).abs() > one.max(other).get() * APART
}

/// Whether whoever has `current` waits for more.
pub(crate) fn waits(due: Amount, current: Amount) -> bool {
    due > current && apart(due, current)
}

/// Where a holder stands, as far as hints go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) due: Amount,
    pub(crate) current: Amount,
    pub(crate) held: Amount,
}

impl Standing {
    pub(crate) fn waits(&self) -> bool {
        waits(self.due, self.current)
    }

    fn shrinks(&self) -> bool {
        self.due < self.current && apart(self.due, self.current)
    }

    fn is_in_the_way(&self) -> bool {
        self.held > self.current && apart(self.held, self.current)
    }
}

/// What standings are judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Whether what one has another cannot have. Where not, all that matters is that due and lease are apart.
    pub(crate) bounded: bool,
    /// Whether what one is due changes only for a reason that it should know of at once: in a pool, where somebody has
    /// decided so.
    pub(crate) decided: bool,
    /// Whether anybody waits, watched or not.
    pub(crate) somebody_waits: bool,
    pub(crate) capacity: Amount,
    /// What nobody holds.
    pub(crate) free: Sum,
    /// The part of it that those who have just been sent will take.
    pub(crate) spoken_for: Sum,
}

impl Room {
    /// Little of the capacity can be much for somebody: without the second clause a hundred small ones would each go
    /// without the last of what they are due until they ask by themselves.
    fn is_worth_asking_for(&self, due: Amount) -> bool {
        let left = (self.free - self.spoken_for).get();
        left > self.capacity.get() * WORTH_ASKING || left > due.get() * APART
    }

    /// Whether what somebody has too much is missing elsewhere: somebody waits, or more is held than there is.
    fn is_scarce(&self) -> bool {
        self.bounded && (self.somebody_waits || self.free.get() < -self.capacity.get() * WORTH_ASKING)
    }

    fn reason(&self, standing: &Standing) -> Option<Why> {
        if standing.shrinks() && (self.is_scarce() || !self.bounded || self.decided) {
            Some(Why::Shrink)
        } else if standing.is_in_the_way() && self.is_scarce() {
            Some(Why::Confirm)
        } else if standing.waits() && (self.is_worth_asking_for(standing.due) || !self.bounded) {
            Some(Why::Grow)
        } else {
            None
        }
    }
}

/// What is remembered of a watched holder.
#[derive(Debug)]
struct Watched {
    slot: u32,
    last: Option<Last>,
}

/// The last hint that was given to a holder.
#[derive(Debug)]
struct Last {
    at: Millis,
    why: Why,
    /// What was held then: asking for a confirmation has helped if that falls.
    held: Amount,
    /// Whether it has been answered since.
    answered: bool,
    /// How often it has been repeated in vain.
    repeated: u8,
}

impl Last {
    fn was_in_vain(&self, why: Why, held: Amount) -> bool {
        !self.answered || (self.why == Why::Confirm && why == Why::Confirm && held >= self.held)
    }
}

/// By what a change is told: of settings and watchers, and of the ledger.
pub(crate) type Version = (u64, u64);

/// The watched holders, and how far the present pass over them has come.
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    watched: Slab<Watched>,
    /// The next place to be looked at.
    cursor: usize,
    /// Places left in this pass.
    left: usize,
    /// What this pass, or the last one, saw when it began.
    seen: Option<Version>,
    /// When somebody who was passed over for now should be looked at again: so far in this pass, and after the last
    /// one.
    again: Option<Millis>,
    next_pass: Option<Millis>,
    /// The first who was passed over in this pass because others had been sent for what is free: the next begins there.
    passed_over: Option<usize>,
}

impl WatchList {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// From now on the holder in `slot` is hinted. Returns its place.
    pub(crate) fn insert(&mut self, slot: u32) -> u32 {
        self.seen = None;
        self.watched.insert(Watched { slot, last: None }) as u32
    }

    /// It is not any more. `place` may be none.
    pub(crate) fn remove(&mut self, place: u32) {
        self.watched.try_remove(place as usize);
    }

    /// Somebody new listens for the holder at this place: what the one before has not heeded is forgotten.
    pub(crate) fn begin_anew(&mut self, place: u32) {
        self.seen = None;
        if let Some(last) = self.last(place) {
            last.repeated = 0;
        }
    }

    /// Whether the holder has been hinted since it was last answered.
    pub(crate) fn is_hinted(&self, place: u32) -> bool {
        let watched = self.watched.get(place as usize);
        watched.and_then(|watched| watched.last.as_ref()).is_some_and(|last| !last.answered)
    }

    /// The holder has been answered.
    pub(crate) fn answered(&mut self, place: u32) {
        if let Some(last) = self.last(place) {
            last.answered = true;
        }
    }

    fn last(&mut self, place: u32) -> Option<&mut Last> {
        self.watched.get_mut(place as usize)?.last.as_mut()
    }

    /// When there is something to look at: at once (`now`) or later.
    pub(crate) fn next_look(&self, version: Version, now: Millis) -> Option<Millis> {
        if self.is_empty() {
            None
        } else if self.left > 0 || self.seen != Some(version) {
            Some(now)
        } else {
            self.next_pass
        }
    }

    /// The next part of a pass: at most `budget` places. Begins one if there is reason to; empty if there is none.
    pub(crate) fn look(&mut self, version: Version, now: Millis, budget: usize, part: &mut Vec<Look>) {
        part.clear();
        if self.next_look(version, now).is_none_or(|next| now < next) {
            return;
        }
        if self.left == 0 || self.seen != Some(version) {
            self.seen = Some(version);
            self.left = self.watched.capacity();
            self.again = None;
        }
        for _ in 0..budget.min(self.left) {
            let place = if self.cursor < self.watched.capacity() { self.cursor } else { 0 };
            self.cursor = place + 1;
            self.left -= 1;
            if let Some(watched) = self.watched.get(place) {
                part.push(Look { place: place as u32, slot: watched.slot });
            }
        }
    }

    /// Ends what [`look`](Self::look) began, once everybody in it has been judged.
    pub(crate) fn looked(&mut self) {
        if self.left == 0 {
            self.next_pass = self.again;
            self.cursor = self.passed_over.take().unwrap_or(self.cursor);
        }
    }

    /// Whether the holder at `place` is hinted now. No more are sent for what is free than it can serve; the others are
    /// looked at again a pause later, unless something changes before.
    pub(crate) fn judge(&mut self, place: u32, standing: &Standing, room: &mut Room, now: Millis) -> Option<Why> {
        let watched = self.watched.get_mut(place as usize)?;
        let Some(why) = room.reason(standing) else {
            if standing.waits() && room.spoken_for > Sum::ZERO {
                self.again = earlier(self.again, now.plus(PAUSE));
                self.passed_over.get_or_insert(place as usize);
            }
            return None;
        };
        let last = watched.last.as_ref();
        let in_vain = last.is_some_and(|last| last.was_in_vain(why, standing.held));
        let repeated = last.map_or(0, |last| if in_vain { last.repeated } else { 0 });
        let allowed = last.map(|last| last.at.plus(pause(repeated)));
        if let Some(allowed) = allowed.filter(|allowed| now < *allowed) {
            self.again = earlier(self.again, allowed);
            return None;
        }
        let repeated = if in_vain { (repeated + 1).min(DOUBLINGS) } else { 0 };
        watched.last = Some(Last { at: now, why, held: standing.held, answered: false, repeated });
        self.again = earlier(self.again, now.plus(pause(repeated)));
        if why == Why::Grow && room.bounded {
            room.spoken_for += standing.due.saturating_sub(standing.current);
        }
        Some(why)
    }

    /// Bytes in use, for the benchmarks.
    pub(crate) fn bytes(&self) -> usize {
        self.watched.capacity() * size_of::<(usize, Watched)>()
    }
}

/// A place to be looked at, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) place: u32,
    pub(crate) slot: u32,
}

/// How long a hint waits that has been repeated so often in vain.
fn pause(repeated: u8) -> Millis {
    Millis(PAUSE.0 << repeated)
}

fn earlier(one: Option<Millis>, other: Millis) -> Option<Millis> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_those_who_leave_are_used_again() {
        let mut list = WatchList::default();
        let stays = list.insert(7);
        let mut places = (0..1000).map(|slot| {
            let place = list.insert(slot);
            list.remove(place);
            place
        });
        let first = places.next().expect("a thousand");
        assert!(first != stays && places.all(|place| place == first));
        list.remove(NOT_WATCHED);
        assert!(!list.is_empty());
        list.remove(stays);
        assert_eq!(list.next_look((1, 1), Millis(0)), None, "there is nobody to look at");
    }
}
