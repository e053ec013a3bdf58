//! What is missing from the log, and what a torn floor still says.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_core::Millis;
use openraft::{
    EntryPayload, Vote,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::segments::log_id;
use crate::{
    Settings,
    open::{Opened, open},
    raft::Entry,
    store::{
        directory::{Directory, Identity},
        floor::{Floor, StoredFloor, record},
        frame::Kind,
    },
};

fn entry(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

/// A directory that belongs to a cluster.
struct UsedDirectory {
    directory: TempDir,
    runtime: Runtime,
}

impl UsedDirectory {
    fn new() -> UsedDirectory {
        let world = UsedDirectory {
            directory: tempfile::tempdir().expect("a temporary directory"),
            runtime: Builder::new_current_thread().build().expect("a runtime"),
        };
        world.join(&world.open().expect("it is new"));
        world
    }

    fn join(&self, opened: &Opened) {
        let identity = Identity { cluster: Some(7), ..opened.identity.clone() };
        opened.directory.replace("identity", Kind::Identity, &identity).expect("it is written");
    }

    fn open(&self) -> Result<Opened, String> {
        let settings = Settings::new("a", self.directory.path(), Arc::new(|| Millis(1)));
        open(&settings).map_err(|error| error.to_string())
    }

    /// Everything but the log: without a vote there would be another reason to refuse.
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
        self.open().map(|_| ()).expect_err("something is missing")
    }
}

fn cut(path: &Path, bytes: usize) {
    let whole = fs::read(path).expect("it can be read");
    fs::write(path, &whole[..bytes]).expect("it can be written");
}

#[test]
fn a_log_that_ends_before_what_was_acknowledged_is_refused_wherever_it_ends_and_is_not_touched() {
    let world = UsedDirectory::new();
    world.vote();
    world.append((0..6).map(|index| entry(1, index)));
    let whole = fs::read(world.segment()).expect("it can be read");
    for length in 0..whole.len() {
        cut(&world.segment(), length);
        let why = world.refused();
        for part in ["everything up to entry 5 of term 1", "will join them as a new one", "--take-over"] {
            assert!(why.contains(part), "cut at {length}, `{part}` is not in: {why}");
        }
        assert_eq!(fs::read(world.segment()).expect("it is there").len(), length, "cut at {length}");
        fs::write(world.segment(), &whole).expect("it can be written");
    }
    assert_eq!(world.open().expect("all is as it was").log.log().last(), Some(log_id(1, 5)));
}

#[test]
fn what_was_written_beyond_the_floor_may_be_torn_off() {
    let world = UsedDirectory::new();
    world.vote();
    world.append((0..6).map(|index| entry(1, index)));
    let floor = fs::read(world.path("floor")).expect("it can be read");
    world.append((6..8).map(|index| entry(1, index)));
    // As after a loss of power: the newest floors never came to the disk.
    fs::write(world.path("floor"), floor).expect("it can be written");
    cut(&world.segment(), fs::read(world.segment()).expect("it can be read").len() - 3);
    assert_eq!(world.open().expect("no acknowledgement is known").log.log().last(), Some(log_id(1, 6)));
}

#[test]
fn a_directory_without_its_log_is_refused_whatever_else_is_gone() {
    for gone in [&[][..], &["vote"], &["vote", "floor"], &["floor"]] {
        let world = UsedDirectory::new();
        world.vote();
        world.append((0..3).map(|index| entry(1, index)));
        fs::remove_dir_all(world.path("log")).expect("it can be removed");
        gone.iter().for_each(|file| fs::remove_file(world.path(file)).expect("it can be removed"));
        for _ in 0..2 {
            let why = world.refused();
            assert!(why.contains("--take-over"), "without {gone:?}: {why}");
        }
    }
}

#[test]
fn a_start_that_was_cut_short_before_the_first_entry_is_no_loss() {
    let world = UsedDirectory::new();
    assert!(!world.open().expect("it belongs to a cluster, and nothing was promised").used);
    world.vote();
    assert!(world.open().expect("it has voted, and was given nothing yet").used);
}

#[test]
fn a_directory_of_a_version_without_floors_goes_on_and_gets_one() {
    let world = UsedDirectory::new();
    world.vote();
    world.append((0..3).map(|index| entry(1, index)));
    fs::remove_file(world.path("floor")).expect("it can be removed");
    assert!(world.open().expect("its log is there").used);
    cut(&world.segment(), 60);
    assert!(world.refused().contains("everything up to entry 2 of term 1"));
}

#[test]
fn a_truncation_takes_the_floor_back_and_what_follows_raises_it() {
    let world = UsedDirectory::new();
    world.vote();
    world.append((0..6).map(|index| entry(1, index)));
    world.truncate(2);
    assert_eq!(world.open().expect("it is whole").log.log().last(), Some(log_id(1, 1)));
    world.append([entry(2, 2)].into_iter());
    let whole = fs::read(world.segment()).expect("it can be read");
    // Without the new entry, and without the truncation: the log is longer then, and older.
    for lost in 1..whole.len() {
        cut(&world.segment(), whole.len() - lost);
        assert!(world.refused().contains("everything up to entry 2 of term 2"), "{lost} bytes are lost");
        fs::write(world.segment(), &whole).expect("it can be written");
    }
}

#[test]
fn a_write_that_was_torn_leaves_the_older_floor_and_two_are_damage() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::open(root.path()).expect("it opens");
    let mut floor = Floor::open(&directory, None, None).expect("it is written");
    for index in 1..4 {
        floor.raise(log_id(1, index)).expect("it is written");
    }
    let read = || Floor::read(&directory).map(|stored| stored.and_then(|stored| stored.last));
    assert_eq!(read().expect("it is whole"), Some(log_id(1, 3)));
    let path = directory.path("floor");
    let whole = fs::read(&path).expect("it can be read");
    assert_eq!(whole.len(), 1024);
    for (slot, older) in [(512, log_id(1, 2)), (0, log_id(1, 3))] {
        for at in slot..slot + record(StoredFloor { number: 3, last: Some(log_id(1, 3)) }).len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            fs::write(&path, &bytes).expect("it can be written");
            assert_eq!(read().expect("the other is whole"), Some(older), "byte {at}");
            bytes[1024 - 512 - slot + 3] ^= 0x20;
            fs::write(&path, &bytes).expect("it can be written");
            assert!(read().expect_err("neither is").to_string().contains("neither of its two"), "byte {at}");
        }
    }
    cut(&path, 100);
    assert!(read().is_err());
}

#[test]
fn the_stored_bytes_of_a_floor_have_not_changed() {
    let bytes = record(StoredFloor { number: 300, last: Some(log_id(2, 9)) });
    assert_eq!(bytes[..8], [8, crate::codec::COMMON, 0, 0, 7, 0, 0, 0], "kind, format, length");
    assert_eq!(bytes[16..], [251, 44, 1, 1, 2, 7, 9]);
}
