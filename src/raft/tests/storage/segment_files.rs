//! The log on disk: compared with a model in memory, and with damaged files.

use std::{fs, path::PathBuf, sync::Arc};

use leaseway_core::types::Millis;
use openraft::{
    EntryPayload, RaftLogReader as _, Vote,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _},
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    handle::{
        open::{StartError, open},
        start,
    },
    log::{
        Entry, LogId, Payload, StoreError,
        directory::Directory,
        disk_thread::{Disk, FailureLatch},
        high_water_mark::HighWaterMark,
        memory::{Log, Record},
        segment_files::Segments,
        snapshots::Snapshots,
        store::LogStore,
    },
    settings::Settings,
    tests::harness::{
        cluster::{Cluster, lone_master},
        log_id,
    },
};

/// A few entries fill a segment.
const SMALL_SEGMENT_BYTES: u64 = 150;

fn entry(term: u64, index: u64) -> Entry {
    let payload = if index.is_multiple_of(3) { EntryPayload::Blank } else { EntryPayload::Normal(Payload::BeginTerm) };
    Entry { log_id: log_id(term, index), payload }
}

#[derive(Debug, Clone)]
enum Step {
    Append(u8),
    Truncate(prop::sample::Index),
    Purge(prop::sample::Index),
    Skip(u8),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..9u8).prop_map(Step::Append),
        2 => any::<prop::sample::Index>().prop_map(Step::Truncate),
        2 => any::<prop::sample::Index>().prop_map(Step::Purge),
        1 => (1..5u8).prop_map(Step::Skip),
        3 => Just(Step::Restart),
    ]
}

/// The model: the simplest possible log.
#[derive(Debug, Default)]
struct Naive {
    entries: Vec<Entry>,
    purged: Option<LogId>,
}

impl Naive {
    fn next(&self) -> u64 {
        let last = self.entries.last().map(|entry| entry.log_id).or(self.purged);
        last.map_or(0, |last| last.index + 1)
    }
}

/// Opens a log with small segments.
fn open_small(directory: &TempDir) -> (Segments, Log) {
    Segments::open_with(directory.path(), None, SMALL_SEGMENT_BYTES).expect("it opens")
}

fn contents(log: &Log) -> (Vec<Entry>, Option<LogId>) {
    (log.range(0..u64::MAX, u64::MAX), log.purged())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_reopened_log_equals_the_model(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (mut segments, mut log) = open_small(&directory);
        let (mut naive, mut term) = (Naive::default(), 1);
        for step in steps {
            match step {
                Step::Append(count) => {
                    let records: Vec<_> = (0..u64::from(count)).map(|n| entry(term, naive.next() + n)).collect();
                    for entry in &records {
                        log.append(entry.clone(), 50).expect("in order");
                        naive.entries.push(entry.clone());
                    }
                    let records: Vec<_> = records.into_iter().map(Record::Entry).collect();
                    segments.append(&records, log.purged()).expect("it is written");
                }
                Step::Truncate(at) if !naive.entries.is_empty() => {
                    let at = at.index(naive.entries.len());
                    let from = naive.entries[at].log_id.index;
                    naive.entries.truncate(at);
                    log.truncate(from);
                    segments.append(&[Record::Truncate(from)], log.purged()).expect("it is written");
                    term += 1;
                }
                Step::Purge(at) if !naive.entries.is_empty() => {
                    let upto = naive.entries[at.index(naive.entries.len())].log_id;
                    naive.entries.retain(|entry| entry.log_id > upto);
                    naive.purged = Some(upto);
                    purge(&mut segments, &mut log, upto);
                }
                // Install a snapshot that is ahead of the log.
                Step::Skip(by) => {
                    let upto = log_id(term, naive.next() + u64::from(by));
                    (naive.entries, naive.purged) = (Vec::new(), Some(upto));
                    purge(&mut segments, &mut log, upto);
                }
                Step::Restart => {
                    drop(segments);
                    (segments, log) = open_small(&directory);
                }
                Step::Truncate(_) | Step::Purge(_) => {}
            }
            prop_assert_eq!(contents(&log), (naive.entries.clone(), naive.purged));
            prop_assert_eq!(log.last().map_or(0, |last| last.index + 1), naive.next());
            prop_assert_eq!(log.len(), naive.entries.len());
            prop_assert_eq!(log.bytes() == 0, naive.entries.is_empty());
        }
        drop(segments);
        let (_, log) = open_small(&directory);
        prop_assert_eq!(contents(&log), (naive.entries, naive.purged));
    }
}

fn purge(segments: &mut Segments, log: &mut Log, upto: LogId) {
    segments.append(&[Record::Purge(upto)], log.purged()).expect("it is written");
    log.purge(upto);
    segments.drop_purged(upto).expect("they are deleted");
}

/// Three segments of several entries each.
fn some_log() -> (TempDir, Vec<PathBuf>, Vec<Entry>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut segments, _) = open_small(&directory);
    let entries: Vec<_> = (0..24).map(|index| entry(1, index)).collect();
    for entry in &entries {
        segments.append(&[Record::Entry(entry.clone())], None).expect("it is written");
    }
    let mut files: Vec<_> =
        fs::read_dir(directory.path()).expect("a directory").map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3);
    (directory, files, entries)
}

#[test]
fn segments_without_entries_are_deleted() {
    let (directory, files, _) = some_log();
    let (mut segments, mut log) = open_small(&directory);
    purge(&mut segments, &mut log, log_id(1, 22));
    assert!(fs::read_dir(directory.path()).expect("a directory").count() < files.len());
    drop(segments);
    let (_, log) = open_small(&directory);
    assert_eq!(contents(&log), (vec![entry(1, 23)], Some(log_id(1, 22))));
}

#[test]
fn a_torn_last_write_loses_only_that_write() {
    let (directory, files, entries) = some_log();
    let last = files.last().expect("at least three");
    let whole = fs::read(last).expect("it can be read");
    for length in 0..whole.len() {
        fs::write(last, &whole[..length]).expect("it can be written");
        let (mut segments, log) = open_small(&directory);
        let left = contents(&log).0;
        assert_eq!(left[..], entries[..left.len()], "torn at {length}");
        let next = entry(9, left.len() as u64);
        segments.append(&[Record::Entry(next.clone())], None).expect("it goes on");
        drop(segments);
        let (_, log) = open_small(&directory);
        assert_eq!(contents(&log).0.last(), Some(&next), "torn at {length}");
        for file in fs::read_dir(directory.path()).expect("a directory").map(|file| file.unwrap().path()) {
            if !files.contains(&file) {
                fs::remove_file(file).expect("it can be removed");
            }
        }
    }
}

#[test]
fn a_damaged_byte_is_refused_at_any_position() {
    let (directory, files, _) = some_log();
    for file in &files {
        let whole = fs::read(file).expect("it can be read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(file, &bytes).expect("it can be written");
            match Segments::open_with(directory.path(), None, SMALL_SEGMENT_BYTES) {
                Err(StoreError::Damaged { path, offset, .. }) => {
                    assert_eq!(path, *file);
                    assert!(offset as usize <= at, "{offset} is beyond the damage at {at}");
                }
                other => panic!("byte {at} of {} is damaged: {:?}", file.display(), other.map(|_| ())),
            }
        }
        fs::write(file, &whole).expect("it can be written");
    }
    open_small(&directory);
}

#[test]
fn a_segment_that_is_missing_or_ends_too_early_is_refused() {
    let (directory, files, _) = some_log();
    let refused = |what: &str| {
        let error = Segments::open_with(directory.path(), None, SMALL_SEGMENT_BYTES).map(|_| ()).expect_err(what);
        assert!(matches!(error, StoreError::Damaged { .. }), "{what}: {error}");
    };
    for file in &files[..2] {
        let whole = fs::read(file).expect("it can be read");
        fs::remove_file(file).expect("it can be removed");
        refused("a segment is missing");
        fs::write(file, &whole[..whole.len() - 1]).expect("it can be written");
        refused("a segment in the middle is torn");
        fs::write(file, &whole).expect("it can be written");
    }
    open_small(&directory);
}

#[tokio::test]
async fn a_directory_of_another_process_or_peer_is_refused() {
    let cluster = Cluster::new(&[]).await;
    let settings = || Settings { bootstrap: true, ..Settings::new("alone", cluster.data("alone"), cluster.clock()) };
    let peer = start(settings()).await.expect("it starts");
    lone_master(&peer).await;
    let in_use = start(settings()).await.map(|_| ()).expect_err("it is in use");
    assert!(matches!(in_use, StartError::Store(StoreError::InUse { .. })), "{in_use}");
    drop(peer);
    let other = Settings { name: "other".into(), ..settings() };
    let error = start(other).await.map(|_| ()).expect_err("it belongs to another peer");
    assert!(matches!(error, StartError::Store(StoreError::OtherPeer { .. })), "{error}");
    start(settings()).await.expect("the directory is unchanged");
}

#[test]
fn completed_writes_are_on_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = Settings::new("a", directory.path(), Arc::new(|| Millis(1)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let vote = Vote::new_committed(3, 8);
    runtime.block_on(async {
        let mut store = open(&settings).expect("it opens").log;
        store.blocking_append((0..10).map(|index| entry(1, index))).await.expect("it is written");
        store.save_vote(&vote).await.expect("it is written");
        store.truncate(log_id(1, 6)).await.expect("it is written");
        store.blocking_append((6..8).map(|index| entry(2, index))).await.expect("it is written");
        // As in a new process: everything in memory is lost.
        drop(store);
        let mut store = open(&settings).expect("it opens").log;
        let there = store.try_get_log_entries(0..100).await.expect("they are in memory");
        assert_eq!(there, [(0..6).map(|index| entry(1, index)).collect(), vec![entry(2, 6), entry(2, 7)]].concat());
        assert_eq!(store.read_vote().await.expect("it is in memory"), Some(vote));
        let limited = store.limited_get_log_entries(2, 5).await.expect("they are in memory");
        assert_eq!(limited.first(), Some(&entry(1, 2)));
    });
    let (mut segments, mut log) = Segments::open(&directory.path().join("log"), None).expect("it opens");
    purge(&mut segments, &mut log, log_id(1, 4));
    drop(segments);
    let (_, log) = Segments::open(&directory.path().join("log"), None).expect("it opens");
    assert_eq!(contents(&log), (vec![entry(1, 5), entry(2, 6), entry(2, 7)], Some(log_id(1, 4))));
    let error = open(&settings).map(|_| ()).expect_err("purged entries must be in a snapshot");
    assert!(error.to_string().contains("the snapshot is missing"), "{error}");
}

#[test]
fn a_stored_vote_for_this_peer_is_read_as_not_committed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = Arc::new(Directory::open(directory.path()).expect("it opens"));
    let (segments, _) = Segments::open(&directory.path().join("log"), None).expect("it opens");
    let failing = FailureLatch::new();
    let mark = HighWaterMark::open(&root, None, None, Default::default()).expect("it opens");
    let snapshots = Snapshots::new(Arc::clone(&root), failing.clone());
    let disk = Disk::start(root, segments, mark, None, failing);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for (of, committed) in [(7, false), (8, true)] {
        let vote = Some(Vote::new_committed(3, of));
        let mut store = LogStore::new(Log::default(), vote, disk.clone(), snapshots.clone(), 7);
        assert_eq!(
            runtime.block_on(store.read_vote()).expect("it is in memory").map(|vote| vote.committed),
            Some(committed)
        );
    }
}
