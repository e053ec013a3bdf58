//! The packed form of an engine, see [`PackedResource`].

use super::{Pacing, ResourceEngine, commits::Commits, note_writer::NoteWriter};
use crate::{
    resource::{PackedContext, PackedResource, Resource},
    types::Millis,
};

/// An engine without pending answers, between inputs.
pub struct PackedEngine {
    resource: PackedResource,
    /// The last change that the quorum has stored. Absent if promises are not kept.
    stored: Option<u64>,
    pacing: Pacing,
    idle_since: Option<Millis>,
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
            stored: self.commits.map(|commits| commits.stored()),
            pacing: self.pacing,
            idle_since: self.idle_since,
        }
    }

    /// The reverse of [`pack`](Self::pack). `keeps_notes` and `idle_after`: as in [`Setup`](super::Setup).
    pub fn unpack(
        packed: PackedEngine,
        context: PackedContext,
        keeps_notes: bool,
        idle_after: Millis,
    ) -> ResourceEngine<T> {
        let PackedEngine { resource, stored, pacing, idle_since } = packed;
        ResourceEngine {
            resource: Resource::unpack(resource, context),
            commits: stored.map(Commits::after),
            waiting: None,
            pacing,
            note_writer: keeps_notes.then(NoteWriter::default),
            is_pool: false,
            idle_after,
            idle_since,
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
