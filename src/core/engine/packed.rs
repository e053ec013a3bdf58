//! The packed form of an engine, see [`PackedResource`].

use std::num::NonZeroU64;

use super::{Pacing, ResourceEngine, commits::Commits, note_writer::NoteWriter};
use crate::{
    resource::{PackedContext, PackedResource, Renewal, Renewed, Resource},
    types::{Millis, Now},
};

/// An engine without pending answers, between inputs. Numbers are one more than they stand for, so that their absence
/// takes no space.
pub struct PackedEngine {
    resource: PackedResource,
    /// The last change that the quorum has stored. Absent if promises are not kept.
    stored: Option<NonZeroU64>,
    last_visit: Option<NonZeroU64>,
    idle_since: Option<NonZeroU64>,
}

impl PackedEngine {
    /// Answers a client that echoes a lease and has nothing else to say, if that is possible without a round: see
    /// [`PackedResource::renew`]. `may_decide`: as in [`Moment`](super::Moment).
    pub fn renew(&mut self, renewal: &Renewal<'_>, now: Now, may_decide: bool) -> Option<Renewed> {
        if may_decide { self.resource.renew(renewal, now) } else { None }
    }

    /// When the next tick has something to do, after a lease was renewed.
    pub fn next_tick(&self, now: Millis) -> Millis {
        self.resource.next_expiry().unwrap_or(now).max(now)
    }
}

impl<T> ResourceEngine<T> {
    /// Whether it has only state that the packed form keeps.
    pub fn can_pack(&self, now: Millis) -> bool {
        self.waiting.is_none()
            && self.woken_at.is_none()
            && self.commits.as_ref().is_none_or(Commits::is_empty)
            && self.note_writer.as_ref().is_none_or(NoteWriter::is_unused)
            && self.resource.can_pack(now)
    }

    /// Packs the engine. Call it only if the engine [can be packed](Self::can_pack).
    pub fn pack(self) -> PackedEngine {
        PackedEngine {
            resource: self.resource.pack(),
            stored: self.commits.map(|commits| nonzero(commits.stored())),
            last_visit: self.pacing.last_visit.map(|at| nonzero(at.0)),
            idle_since: self.idle_since.map(|at| nonzero(at.0)),
        }
    }

    /// The reverse of [`pack`](Self::pack). `keeps_notes` and `idle_after`: as in [`Setup`](super::Setup).
    pub fn unpack(
        packed: PackedEngine,
        context: PackedContext,
        keeps_notes: bool,
        idle_after: Millis,
    ) -> ResourceEngine<T> {
        let PackedEngine { resource, stored, last_visit, idle_since } = packed;
        let at = |packed: NonZeroU64| Millis(packed.get() - 1);
        ResourceEngine {
            resource: Resource::unpack(resource, context),
            commits: stored.map(|stored| Commits::after(stored.get() - 1)),
            waiting: None,
            pacing: Pacing { last_visit: last_visit.map(at) },
            note_writer: keeps_notes.then(NoteWriter::default),
            is_pool: false,
            idle_after,
            idle_since: idle_since.map(at),
            woken_at: None,
            #[cfg(feature = "planted")]
            twin: None,
        }
    }

    /// When the next [`tick`](Self::tick) has something to do, unless another input comes before.
    pub fn next_tick(&self, now: Millis) -> Millis {
        let is_empty = self.resource.holders() == 0 && self.resource.next_expiry().is_none();
        if is_empty {
            return self.idle_since.map_or(now.plus(Millis(1000)), |since| since.plus(self.idle_after)).max(now);
        }
        self.resource.next_expiry().unwrap_or(now).max(now)
    }
}

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(number)
}
