//! The log in memory: the result of replaying the records on disk in order. Snapshots keep the log short, so all of it
//! fits, and readers never wait for the disk.

use std::{collections::VecDeque, ops::Range};

use openraft::EntryPayload;
use serde::{Deserialize, Serialize};

use crate::log::{Entry, LogId, Membership};

/// The maximum number of entries that are kept although a snapshot covers them. A peer that is a little behind gets
/// these instead of the snapshot.
const KEEP_ENTRIES: u64 = 1000;
/// The maximum size of those entries.
const KEEP_BYTES: u64 = 2 << 20;

/// One record of the log on disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Entry(Entry),
    /// Removes all entries from this index on.
    Truncate(u64),
    /// Removes all entries up to this one.
    Purge(LogId),
}

/// The first record of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentStart {
    /// Counts from 1.
    pub(crate) number: u64,
    /// The newest purged entry when the segment was begun. Stored here because earlier segments, which have the purge
    /// records, may be deleted.
    pub(crate) purged: Option<LogId>,
}

/// A record does not follow the last one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct OutOfOrder(String);

#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<(Entry, u64)>,
    purged: Option<LogId>,
    bytes: u64,
}

impl Log {
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|(entry, _)| entry.log_id).or(self.purged)
    }

    /// The id of the entry at this index, if it is known.
    pub(crate) fn id_at(&self, index: u64) -> Option<LogId> {
        match self.first() {
            Some(first) if index >= first => self.entries.get(self.position(index)).map(|(entry, _)| entry.log_id),
            _ => self.purged.filter(|purged| purged.index == index),
        }
    }

    /// The size of the entries on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The present entries of a range, up to `most` bytes, but at least one entry.
    pub(crate) fn range(&self, range: Range<u64>, most: u64) -> Vec<Entry> {
        let Some(first) = self.first() else { return Vec::new() };
        let from = range.start.max(first);
        let mut bytes = 0;
        let wanted = self.entries.range(self.position(from)..).take(range.end.saturating_sub(from) as usize);
        let fits = |(_, size): &&(Entry, u64)| {
            let fits = bytes == 0 || bytes + size <= most;
            bytes += size;
            fits
        };
        wanted.take_while(fits).map(|(entry, _)| entry.clone()).collect()
    }

    pub(crate) fn append(&mut self, entry: Entry, size: u64) -> Result<(), OutOfOrder> {
        if let Some(last) = self.last()
            && entry.log_id.index != last.index + 1
        {
            return Err(OutOfOrder(format!("entry {} follows entry {}", entry.log_id.index, last.index)));
        }
        self.bytes += size;
        self.entries.push_back((entry, size));
        Ok(())
    }

    /// Removes the entries from this index on.
    pub(crate) fn truncate(&mut self, from: u64) {
        let keep = self.first().map_or(0, |_| self.position(from));
        for (_, size) in self.entries.drain(keep..) {
            self.bytes -= size;
        }
    }

    /// Removes the entries up to this one.
    pub(crate) fn purge(&mut self, upto: LogId) {
        let removed = self.first().map_or(0, |_| self.position(upto.index.saturating_add(1)));
        for (_, size) in self.entries.drain(..removed) {
            self.bytes -= size;
        }
        self.purged = self.purged.max(Some(upto));
    }

    /// The newest membership among the entries.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.entries.iter().rev().find_map(|(entry, _)| match &entry.payload {
            EntryPayload::Membership(membership) => Some(membership),
            EntryPayload::Blank | EntryPayload::Normal(_) => None,
        })
    }

    /// The last entry that may be purged once a snapshot covers everything up to `snapshot`.
    pub(crate) fn purgeable(&self, snapshot: u64) -> Option<u64> {
        let (mut kept, mut bytes) = (0, 0);
        let mut purgeable =
            self.entries.iter().rev().filter(|(entry, _)| entry.log_id.index <= snapshot).skip_while(|(_, size)| {
                (kept, bytes) = (kept + 1, bytes + size);
                kept <= KEEP_ENTRIES && bytes <= KEEP_BYTES
            });
        purgeable.next().map(|(entry, _)| entry.log_id.index)
    }

    /// Applies a record from disk. The oldest segment may begin after a gap, which a later record shows to be purged.
    pub(crate) fn replay(&mut self, record: Record, size: u64) -> Result<(), OutOfOrder> {
        match record {
            Record::Entry(entry) if self.entries.is_empty() => {
                self.bytes += size;
                self.entries.push_back((entry, size));
            }
            Record::Entry(entry) => self.append(entry, size)?,
            Record::Truncate(from) => self.truncate(from),
            Record::Purge(upto) => self.purge(upto),
        }
        Ok(())
    }

    /// Checks, after the last record, that no entry is missing between the purged entries and the first one.
    pub(crate) fn is_whole(&self) -> Result<(), OutOfOrder> {
        let expected = self.purged.map_or(0, |purged| purged.index + 1);
        match self.first() {
            Some(first) if first != expected => {
                Err(OutOfOrder(format!("the log begins with entry {first} instead of {expected}")))
            }
            _ => Ok(()),
        }
    }

    fn first(&self) -> Option<u64> {
        self.entries.front().map(|(entry, _)| entry.log_id.index)
    }

    /// The position in the queue of the entry at this index.
    fn position(&self, index: u64) -> usize {
        let offset = index.saturating_sub(self.first().unwrap_or(index));
        (offset as usize).min(self.entries.len())
    }
}
