//! What the attacker sends, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// What the attacker has done so far.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) connections: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) acts: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) ended: AtomicU64,
}

/// The same, in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct SentCount {
    /// Connections that were made.
    pub(super) connections: u64,
    pub(super) bytes: u64,
    /// Frames, calls and connections; of long messages each 16 KiB, of long calls every 20 entries.
    pub(super) acts: u64,
    /// Calls that were answered with an error.
    pub(super) refused: u64,
    /// Connections that the server refused or ended.
    pub(super) ended: u64,
}

impl SentCount {
    pub(super) fn since(self, before: SentCount) -> SentCount {
        SentCount {
            connections: self.connections - before.connections,
            bytes: self.bytes - before.bytes,
            acts: self.acts - before.acts,
            refused: self.refused - before.refused,
            ended: self.ended - before.ended,
        }
    }
}

impl Sent {
    pub(super) fn count(&self) -> SentCount {
        let Sent { connections, bytes, acts, refused, ended } = self;
        let [connections, bytes, acts, refused, ended] =
            [connections, bytes, acts, refused, ended].map(|count| count.load(Relaxed));
        SentCount { connections, bytes, acts, refused, ended }
    }
}
