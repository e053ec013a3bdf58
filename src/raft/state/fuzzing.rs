//! Entry points for fuzzing: the decoders of files and peer messages. Each panics if an invariant breaks.

use std::path::Path;

use leaseway_core::types::Millis;
use openraft::{
    EntryPayload,
    raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest},
};

use crate::{
    log::{
        Entry, LogId, Payload, PeerId, SnapshotMeta, Types, Vote,
        codec::{self, Kind},
        memory::{Log, SegmentStart},
        segment_files,
    },
    state::{State, StoredState},
};

const NOW: Millis = Millis(1_000_000);

/// Reads any bytes as a segment of the log.
pub fn segment(bytes: &[u8]) {
    for last in [false, true] {
        let mut log = Log::default();
        if segment_files::replay(1, Path::new("fuzz"), bytes, last, &mut log).is_ok() && log.is_whole().is_ok() {
            read_back(&log);
        }
    }
}

/// Reads a segment with right checksums, whose records have any content. The script has a kind, a length and that many
/// bytes for each record.
pub fn records(mut script: &[u8]) {
    let mut bytes = Vec::new();
    codec::write_frame(&mut bytes, Kind::Segment, &codec::encode(&SegmentStart { number: 1, purged: None }));
    while let [kind, length, rest @ ..] = script {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        let kind = [Kind::Entry, Kind::Entry, Kind::Truncate, Kind::Purge, Kind::Segment][usize::from(*kind) % 5];
        codec::write_frame(&mut bytes, kind, payload);
        script = rest;
    }
    segment(&bytes);
}

/// Checks a log that was accepted.
fn read_back(log: &Log) {
    let entries = log.range(0..u64::MAX, u64::MAX);
    assert_eq!(entries.len(), log.len());
    let follows = |pair: &[Entry]| pair[0].log_id.index + 1 == pair[1].log_id.index;
    assert!(entries.windows(2).all(follows), "a hole: {entries:?}");
    apply(&entries);
}

/// Applies any entries, and checks that the state can be stored and read again.
fn apply(entries: &[Entry]) {
    let mut state = State::default();
    for entry in entries {
        match &entry.payload {
            EntryPayload::Normal(Payload::BeginTerm) => {
                state.begin_term();
            }
            EntryPayload::Normal(Payload::Propose { term, proposals }) => {
                for proposal in proposals.iter() {
                    let _ = state.apply(*term, proposal, NOW);
                }
            }
            EntryPayload::Blank | EntryPayload::Membership(_) => {}
        }
    }
    stored_and_read(&state);
}

/// Reads any bytes as a snapshot.
pub fn snapshot(bytes: &[u8]) {
    if let Ok(stored) = codec::decode::<StoredState>(bytes) {
        stored_and_read(&State::restore(stored, NOW));
    }
}

/// Checks that a stored state is read as the same state.
fn stored_and_read(state: &State) {
    let stored = codec::encode(&state.record(NOW));
    let read = codec::decode::<StoredState>(&stored).expect("what is written can be read");
    let again = codec::encode(&State::restore(read, NOW).record(NOW));
    assert_eq!(stored, again, "what is read is what was written");
}

/// Reads any bytes as a small file or a message of a peer.
pub fn messages(bytes: &[u8]) {
    let _ = codec::decode::<Vote>(bytes);
    let _ = codec::decode::<Option<LogId>>(bytes);
    let _ = codec::decode::<SnapshotMeta>(bytes);
    let _ = codec::decode::<VoteRequest<PeerId>>(bytes);
    let _ = codec::decode::<InstallSnapshotRequest<Types>>(bytes);
    if let Ok(append) = codec::decode::<AppendEntriesRequest<Types>>(bytes) {
        apply(&append.entries);
    }
    let _ = codec::read_frame(bytes, 0);
}

/// A corpus with an input of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut segment = Vec::new();
    codec::write_frame(&mut segment, Kind::Segment, &codec::encode(&SegmentStart { number: 1, purged: None }));
    let entry = codec::encode(&Entry { log_id: LogId::default(), payload: EntryPayload::Normal(Payload::BeginTerm) });
    codec::write_frame(&mut segment, Kind::Entry, &entry);
    let written = [&include_bytes!("../tests/fixtures/format-1.bin")[..]];
    let mut seeds: Vec<_> = written.iter().map(|bytes| bytes.to_vec()).collect();
    seeds.extend([segment, entry, codec::encode(&StoredState::default())]);
    seeds
}
