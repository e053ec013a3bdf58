//! Logs that end before the high-water mark, and torn or damaged marks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_core::types::Millis;
use openraft::{
    CommittedLeaderId, EntryPayload, Vote,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{
    handle::open::{Opened, open},
    log::{
        Entry, LogId,
        acknowledged::{Acknowledged, Known, MAX_REMEMBERED},
        codec::Kind,
        directory::{Directory, Identity},
        high_water_mark::{HighWaterMark, StoredMark, record},
    },
    settings::Settings,
    tests::harness::log_id,
};

fn entry(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

/// A data directory that belongs to a cluster.
struct UsedDirectory {
    directory: TempDir,
    runtime: Runtime,
}

impl UsedDirectory {
    fn new() -> UsedDirectory {
        let used = UsedDirectory {
            directory: tempfile::tempdir().expect("a temporary directory"),
            runtime: Builder::new_current_thread().build().expect("a runtime"),
        };
        used.join(&used.open().expect("it is new"));
        used
    }

    fn join(&self, opened: &Opened) {
        let identity = Identity { cluster: Some(7), ..opened.identity.clone() };
        opened.directory.replace("identity", Kind::Identity, &identity).expect("it is written");
    }

    fn open(&self) -> Result<Opened, String> {
        let settings = Settings::new("a", self.directory.path(), Arc::new(|| Millis(1)));
        open(&settings).map_err(|error| error.to_string())
    }

    /// Stores a vote and a cluster. Without a vote, the directory would be refused for another reason.
    fn vote(&self) {
        let mut opened = self.open().expect("it opens");
        self.join(&opened);
        self.runtime.block_on(opened.log.save_vote(&Vote::new_committed(1, 8))).expect("it is written");
    }

    fn append(&self, entries: impl Iterator<Item = Entry> + Send) {
        let mut store = self.open().expect("it opens").log;
        self.runtime.block_on(store.blocking_append(entries)).expect("it is written");
    }

    fn truncate(&self, from: u64) {
        let mut store = self.open().expect("it opens").log;
        self.runtime.block_on(store.truncate(log_id(1, from))).expect("it is written");
    }

    fn segment(&self) -> PathBuf {
        self.path("log/00000000000000000001.log")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn refused(&self) -> String {
        self.open().map(|_| ()).expect_err("a file is missing or damaged")
    }
}

fn cut(path: &Path, bytes: usize) {
    cut_to(path, &fs::read(path).expect("it can be read"), bytes);
}

fn cut_to(path: &Path, whole: &[u8], bytes: usize) {
    fs::write(path, &whole[..bytes]).expect("it can be written");
}

#[test]
fn a_log_that_ends_before_the_high_water_mark_is_refused_and_unchanged() {
    let used = UsedDirectory::new();
    used.vote();
    used.append((0..6).map(|index| entry(1, index)));
    let whole = fs::read(used.segment()).expect("it can be read");
    for length in 0..whole.len() {
        cut(&used.segment(), length);
        let why = used.refused();
        for part in ["everything up to entry 5 of term 1", "joins them as a new peer", "--take-over"] {
            assert!(why.contains(part), "cut at {length}, `{part}` is not in: {why}");
        }
        assert_eq!(fs::read(used.segment()).expect("it is there").len(), length, "cut at {length}");
        fs::write(used.segment(), &whole).expect("it can be written");
    }
    assert_eq!(used.open().expect("the log is restored").log.log().last(), Some(log_id(1, 5)));
}

#[test]
fn entries_beyond_the_high_water_mark_may_be_torn_off() {
    let used = UsedDirectory::new();
    used.vote();
    used.append((0..6).map(|index| entry(1, index)));
    let mark = fs::read(used.path("high-water-mark")).expect("it can be read");
    used.append((6..8).map(|index| entry(1, index)));
    // As after a power failure: the newest marks did not reach the disk.
    fs::write(used.path("high-water-mark"), mark).expect("it can be written");
    cut(&used.segment(), fs::read(used.segment()).expect("it can be read").len() - 3);
    assert_eq!(used.open().expect("no acknowledgement is known").log.log().last(), Some(log_id(1, 6)));
}

#[test]
fn an_interrupted_first_start_is_no_loss() {
    let used = UsedDirectory::new();
    assert!(!used.open().expect("it only belongs to a cluster").used);
    used.vote();
    assert!(used.open().expect("it has voted, and has no entries").used);
}

#[test]
fn a_truncation_lowers_the_high_water_mark_and_later_entries_raise_it() {
    let used = UsedDirectory::new();
    used.vote();
    used.append((0..6).map(|index| entry(1, index)));
    used.truncate(2);
    assert_eq!(used.open().expect("it is whole").log.log().last(), Some(log_id(1, 1)));
    used.append([entry(2, 2)].into_iter());
    let whole = fs::read(used.segment()).expect("it can be read");
    // A short cut loses the new entry. A longer one also loses the truncation before it, so that older entries return.
    for lost in 1..whole.len() {
        cut(&used.segment(), whole.len() - lost);
        assert!(used.refused().contains("everything up to entry 2 of term 2"), "{lost} bytes are lost");
        fs::write(used.segment(), &whole).expect("it can be written");
    }
}

#[test]
fn a_torn_write_leaves_the_older_slot_and_two_damaged_slots_are_refused() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::open(root.path()).expect("it opens");
    let mut mark = HighWaterMark::open(&directory, None, None, Acknowledged::default()).expect("it is written");
    for index in 1..4 {
        mark.raise(log_id(1, index)).expect("it is written");
    }
    let read = || HighWaterMark::read(&directory).map(|stored| stored.and_then(|stored| stored.last));
    assert_eq!(read().expect("it is whole"), Some(log_id(1, 3)));
    let path = directory.path("high-water-mark");
    let whole = fs::read(&path).expect("it can be read");
    assert_eq!(whole.len(), 1024);
    for (slot, older) in [(512, log_id(1, 2)), (0, log_id(1, 3))] {
        for at in
            slot..slot + record(&StoredMark { number: 3, last: Some(log_id(1, 3)), ..StoredMark::default() }).len()
        {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            fs::write(&path, &bytes).expect("it can be written");
            assert_eq!(read().expect("the other slot is intact"), Some(older), "byte {at}");
            bytes[1024 - 512 - slot + 3] ^= 0x20;
            fs::write(&path, &bytes).expect("it can be written");
            assert!(
                read().expect_err("both slots are damaged").to_string().contains("both records of the high-water mark"),
                "byte {at}"
            );
        }
    }
    cut(&path, 100);
    assert!(read().is_err());
}

#[test]
fn an_idle_second_copies_the_mark_to_both_slots() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::open(root.path()).expect("it opens");
    let acknowledged = Acknowledged::default();
    let mut mark = HighWaterMark::open(&directory, None, None, acknowledged.clone()).expect("it is written");
    let flusher = mark.flusher();
    // As the background task does every second.
    let second = || {
        if flusher.is_due() {
            flusher.flush().expect("it is written")
        }
    };
    let path = directory.path("high-water-mark");
    let both = || {
        let whole = fs::read(&path).expect("it can be read");
        let without = |slot: usize| {
            let mut bytes = whole.clone();
            bytes[slot + 20] ^= 1;
            fs::write(&path, &bytes).expect("it can be written");
            let read = HighWaterMark::read(&directory).expect("the other is whole").expect("it is there");
            fs::write(&path, &whole).expect("it can be written");
            (read.last, read.known)
        };
        [without(0), without(512)]
    };
    for index in 1..4 {
        mark.raise(log_id(1, index)).expect("it is written");
        assert_ne!(both()[0].0, both()[1].0, "a write changes one slot");
        second();
        second();
        assert_eq!(both(), [(Some(log_id(1, index)), BTreeMap::new()), (Some(log_id(1, index)), BTreeMap::new())]);
        assert!(!flusher.is_due(), "both slots are flushed");
    }
    // The entries of other peers are stored in the same way.
    acknowledged.record_stored(9, 4, Some(log_id(1, 2)));
    (0..2).for_each(|_| second());
    assert_eq!(both().map(|(_, known)| known), [acknowledged.known(), acknowledged.known()]);
    assert!(!flusher.is_due());
}

#[test]
fn a_slot_has_room_for_the_maximum_number_of_peers() {
    let most = log_id(u64::MAX, u64::MAX);
    let known = (0..MAX_REMEMBERED as u64).map(|peer| {
        let most = LogId::new(CommittedLeaderId::new(u64::MAX, u64::MAX), most.index);
        (u64::MAX - peer, Known { incarnation: u64::MAX, log: most })
    });
    let stored = StoredMark { number: u64::MAX, last: Some(most), known: known.collect() };
    assert!(record(&stored).len() <= 512, "{}", record(&stored).len());
}

/// The files of a used directory.
fn files(used: &UsedDirectory) -> Vec<(PathBuf, Vec<u8>)> {
    let names = ["identity", "vote", "high-water-mark", "log/00000000000000000001.log"];
    names.map(|name| (used.path(name), fs::read(used.path(name)).expect("it can be read"))).into()
}

#[test]
fn a_missing_truncated_or_damaged_file_is_refused_by_name() {
    let used = UsedDirectory::new();
    used.vote();
    used.append((0..3).map(|index| entry(1, index)));
    let flusher = used.open().expect("it is whole").mark;
    flusher.flush().expect("it is written");
    drop(flusher);
    for (path, whole) in files(&used) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        fs::remove_file(&path).expect("it can be removed");
        let why = used.refused();
        assert!(why.contains(&name) || why.contains("log is empty"), "without {name}: {why}");
        fs::write(&path, &whole[..whole.len() / 2 - 1]).expect("it can be written");
        let cut = used.open().map(|opened| opened.log.log().last()).ok();
        assert!(cut.is_none(), "{name} is truncated: {cut:?}");
        // The mark is in the first bytes of its slot.
        for at in (0..whole.len()).filter(|at| name != "high-water-mark" || at % 512 < 64) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).expect("it can be written");
            match used.open() {
                // One slot is damaged, or the space between the slots.
                Ok(opened) => {
                    assert_eq!((&*name, opened.log.log().last()), ("high-water-mark", Some(log_id(1, 2))), "byte {at}");
                    drop(opened);
                    // The other slot still detects a lost entry.
                    let segment = fs::read(used.segment()).expect("it can be read");
                    cut_to(&used.segment(), &segment, segment.len() - 1);
                    fs::write(&path, &bytes).expect("it can be written");
                    assert!(used.refused().contains("everything up to entry 2"), "byte {at}");
                    fs::write(used.segment(), segment).expect("it can be written");
                }
                Err(why) => assert!(why.contains(&name) && why.contains("is damaged"), "{name}, byte {at}: {why}"),
            }
        }
        fs::write(&path, &whole).expect("it can be written");
        assert!(used.open().is_ok(), "the file is restored");
    }
}

#[test]
fn a_vote_that_is_older_than_the_log_is_refused() {
    let used = UsedDirectory::new();
    used.vote();
    let older = fs::read(used.path("vote")).expect("it can be read");
    let mut opened = used.open().expect("it opens");
    used.runtime.block_on(opened.log.save_vote(&Vote::new_committed(2, 8))).expect("it is written");
    drop(opened);
    used.append((0..3).map(|index| entry(2, index)));
    assert!(used.open().is_ok());
    fs::write(used.path("vote"), older).expect("it can be written");
    assert!(used.refused().contains("the vote is older than the log"));
}

#[test]
fn the_stored_bytes_of_a_high_water_mark_have_not_changed() {
    let known = BTreeMap::from([(5, Known { incarnation: 6, log: log_id(2, 8) })]);
    let bytes = record(&StoredMark { number: 300, last: Some(log_id(2, 9)), known });
    assert_eq!(bytes[..8], [8, crate::log::codec::FORMAT, 0, 0, 13, 0, 0, 0], "kind, format, length");
    assert_eq!(bytes[16..], [251, 44, 1, 1, 2, 7, 9, 1, 5, 6, 2, 7, 8]);
}
