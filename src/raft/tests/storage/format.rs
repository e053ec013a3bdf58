//! The stored bytes of the format. `BLESS=1 cargo test -p leaseway-raft format` writes those of a new format. If a test
//! fails here, this version does not understand stored data of the same format: raise
//! [`FORMAT`](crate::log::codec::FORMAT).

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use leaseway_core::{
    lease::promises::{Changes, Part, Promises, StoredPeriod},
    policy::{
        groups::GroupChange,
        overrides::{Load, OverrideTarget, OverrideValue},
    },
    pool::{Assigned, NotedBalance, NotedCost, PoolClock, PoolNotes},
    types::{Amount, Claim, ClusterTime, Epoch, HolderKind, Millis, Token},
};
use openraft::{CommittedLeaderId, EntryPayload, Membership, Vote};

use crate::{
    log::{
        Entry, LogId, Member, Payload, SnapshotMeta, StoredMembership,
        codec::{self, FORMAT, FrameResult, Kind},
        command::{Command, Declaration, KeptOverride, LimitChanges, Listening},
        memory::{Record, SegmentStart},
        segment_files,
        snapshots::StoredSnapshot,
    },
    state::{State, StoredState},
    tests::harness::cluster::{configuration, used},
};

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(3, 99), index)
}

fn commands() -> Vec<Command> {
    let assignment =
        |kind, assigned| Command::Assignment { resource: "pool".into(), kind, holder: "one".into(), assigned };
    vec![
        Command::Configuration(configuration("resources: []")),
        Command::ForgetPromises { resource: "gone".into(), epoch: Epoch(9) },
        assignment(HolderKind::Client, Some(Assigned::Capacity(Amount::clamped(2.0)))),
        assignment(HolderKind::Node, Some(Assigned::Share(0.25))),
        assignment(HolderKind::Client, None),
        Command::Listen(Listening { length: Millis(61_060), whole: false }),
        Command::Load { resource: "pool".into(), load: Some(Load::Capacity(Amount::clamped(80.0))) },
        Command::Load { resource: "other".into(), load: Some(Load::Factor(0.5)) },
        Command::Load { resource: "third".into(), load: None },
    ]
}

fn pools() -> Vec<Command> {
    let cost = NotedCost {
        capacity: Amount::clamped(2.0),
        time: -40.0,
        request: 7.5,
        account: Some("192.0.2.1".into()),
        counted: Some((Token::new(77), 1.5)),
    };
    let clock =
        PoolClock { lived: 100.0, grown: 90.0, decayed: 0.25, speed: 1.0, time_constant: Millis::from_secs(3600) };
    let notes = PoolNotes {
        anew: true,
        clock,
        total: Amount::clamped(12.5),
        balances: vec![
            ("192.0.2.1".into(), NotedBalance::Connected(3.0, 2)),
            ("192.0.2.2".into(), NotedBalance::Away(6.5)),
            ("192.0.2.3".into(), NotedBalance::None),
        ],
        costs: vec![
            (HolderKind::Client, "one".into(), Some(cost.clone())),
            (HolderKind::Node, "leaf".into(), Some(NotedCost { account: None, counted: Some((None, 0.5)), ..cost })),
            (HolderKind::Client, "gone".into(), None),
        ],
    };
    vec![
        Command::Pool { resource: "pool".into(), notes: Box::new(notes) },
        Command::ForgetPool { resource: "old".into() },
    ]
}

fn totals() -> Vec<Command> {
    let slice = |wants, subclients, priority| Claim::new(Amount::clamped(wants), subclients, priority);
    let changes = Changes {
        epoch: Epoch(7 << 22),
        number: 1,
        total: Amount::clamped(512.25),
        horizon: Some(ClusterTime(90_000)),
        lease: Some(Millis(60_000)),
        high_water_mark: Token::new(Token::first(Epoch(7 << 22)).get() + 3),
        wants: Some([slice(80.0, 4, 0), slice(1000.0, 70_000, -3)].into_iter().collect()),
        parts: vec![Part {
            until: ClusterTime(70_000),
            before: Token::first(Epoch(7 << 22)),
            amount: Amount::clamped(12.5),
        }],
        period: None,
    };
    let period = Some(StoredPeriod { start: 1_700_000_000, carried: Amount::clamped(2.5) });
    let of_budget = Changes { number: 2, period, ..changes.clone() };
    let promises = |changes| Command::Promises { resource: "redis".into(), changes };
    vec![promises(changes), promises(of_budget), Command::Clock(ClusterTime(2_000))]
}

fn overrides() -> Vec<Command> {
    let set = KeptOverride {
        value: OverrideValue::Capacity { load: Load::Factor(0.5), above: true },
        from_unix_ms: 1_700_000_000_000,
        until_unix_ms: 1_700_000_600_000,
        by: "ada".into(),
        why: "a test".into(),
    };
    let with = |value| Some(Box::new(KeptOverride { value, ..set.clone() }));
    let amount = with(OverrideValue::Capacity { load: Load::Capacity(Amount::clamped(7.5)), above: false });
    let (minimum, maximum) = (Some(Amount::clamped(2.5)), Some(Amount::clamped(40.0)));
    let of_group = with(OverrideValue::Group(GroupChange { weight: Some(3), minimum, maximum }));
    let target = |pattern: &str| OverrideTarget { pattern: pattern.into(), group: None };
    let group = OverrideTarget { group: Some("team/search".into()), ..target("db*") };
    vec![
        Command::Override { target: target("db*"), set: amount },
        Command::Override { target: target("db*"), set: Some(Box::new(set)) },
        Command::Override { target: target("gone"), set: None },
        Command::Override { target: group, set: of_group },
    ]
}

fn limits() -> Vec<Command> {
    let some = |capacity| Some(Amount::clamped(capacity));
    let changes = |limits, at_unix| Command::Limits(LimitChanges { limits, at_unix, by: "ada".into() });
    vec![
        changes(vec![("t/a".into(), some(40.0)), ("t/b".into(), some(0.5))], 1_700_000_000),
        changes(vec![("t/b".into(), None), ("t/c".into(), some(1e6))], 1_700_000_001),
    ]
}

fn declarations() -> Vec<Command> {
    let declaration = Declaration {
        version: 1_700_000_000_123,
        text: "resources: []".into(),
        at_unix: 1_700_000_001,
        by: "gateway".into(),
    };
    let declare = |name: &str, declaration| Command::Declare { name: name.into(), declaration };
    let (one, other) = (Some(declaration.clone()), Some(Declaration { version: 7, ..declaration }));
    vec![declare("rls/shop", other), declare("rls/shop", one.clone()), declare("gone", one), declare("gone", None)]
}

fn usage() -> Vec<Command> {
    vec![used("tokens", "a (1)", 40.0), used("tokens", "a (1)", 50.0)]
}

fn all_commands() -> Vec<Command> {
    [commands(), pools(), totals(), overrides(), limits(), declarations(), usage()].concat()
}

fn membership() -> Membership<u64, Member> {
    let member =
        |name: &str| Member { name: name.into(), address: format!("{name}:1"), advertise: format!("{name}:2") };
    let members = BTreeMap::from([(99, member("a")), (98, member("b"))]);
    Membership::new(vec![members.keys().copied().collect()], members)
}

fn entries(commands: &[Command]) -> Vec<Entry> {
    let proposals = Arc::new(vec![commands.to_vec(), Vec::new()]);
    let payloads = [
        EntryPayload::Membership(membership()),
        EntryPayload::Blank,
        EntryPayload::Normal(Payload::BeginTerm),
        EntryPayload::Normal(Payload::Propose { term: 1, proposals }),
    ];
    payloads.into_iter().zip(0..).map(|(payload, index)| Entry { log_id: log_id(index), payload }).collect()
}

const IDENTITY: (&str, u64, Option<u128>) = ("a", 99, Some(1 << 100));

/// One frame of each kind, as in files.
fn everything() -> Vec<u8> {
    written(&all_commands())
}

fn written(commands: &[Command]) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::write_frame(&mut bytes, Kind::Segment, &codec::encode(&SegmentStart { number: 2, purged: Some(log_id(7)) }));
    for entry in entries(commands) {
        segment_files::write(&mut bytes, &Record::Entry(entry));
    }
    segment_files::write(&mut bytes, &Record::Truncate(2));
    segment_files::write(&mut bytes, &Record::Purge(log_id(1)));
    codec::write_frame(&mut bytes, Kind::Identity, &codec::encode(&IDENTITY));
    codec::write_frame(&mut bytes, Kind::Vote, &codec::encode(&Vote::<u64>::new_committed(3, 99)));
    let mut known = State::default();
    let term = known.begin_term();
    known.apply(term, commands, Millis(0)).expect("nothing to refuse");
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(3)),
        last_membership: StoredMembership::new(Some(log_id(0)), membership()),
        snapshot_id: "3-0".into(),
    };
    let record = known.record(Millis(0));
    let stored = StoredSnapshot { meta, state: codec::encode(&record) };
    codec::write_frame(&mut bytes, Kind::Snapshot, &codec::encode(&stored));
    bytes
}

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{FORMAT}.bin"))
}

#[test]
fn the_stored_bytes_have_not_changed() {
    let path = fixture();
    if std::env::var_os("BLESS").is_some() && !path.exists() {
        fs::write(&path, everything()).expect("it can be written");
    }
    let before = fs::read(&path).expect("there are bytes of this format");
    assert!(everything() == before, "the bytes have changed, and FORMAT has not");
}

/// Reads a file as a peer would. Returns the entries of its log and the state of its snapshot.
fn understood(bytes: &[u8]) -> (Vec<Entry>, State) {
    let (mut at, mut kinds, mut read, mut known) = (0, Vec::new(), Vec::new(), None);
    while let FrameResult::Frame { kind, payload, end } = codec::read_frame(bytes, at) {
        kinds.push(kind as u8);
        if kind == Kind::Entry {
            read.push(codec::decode::<Entry>(payload).expect("an entry"));
        }
        if kind == Kind::Snapshot {
            let stored: StoredSnapshot = codec::decode(payload).expect("a snapshot");
            known = Some(State::restore(codec::decode::<StoredState>(&stored.state).expect("a state"), Millis(0)));
        }
        at = end;
    }
    assert_eq!((at, kinds), (bytes.len(), vec![1, 2, 2, 2, 2, 3, 4, 5, 6, 7]));
    (read, known.expect("a snapshot"))
}

#[test]
fn stored_bytes_are_read() {
    let bytes = fs::read(fixture()).expect("there are bytes of this format");
    let (read, state) = understood(&bytes);
    assert_eq!(read, entries(&all_commands()));
    let EntryPayload::Normal(Payload::Propose { proposals, .. }) = &read[3].payload else { panic!("a proposal") };
    assert_eq!(proposals[0], all_commands());
    let pool = state.pool("pool").expect("it is remembered");
    assert_eq!(pool.len(), 4);
    assert_eq!(pool.notes(Millis(2000)).clock.grown, 92.0, "the clock of the pool advances");
    assert_eq!(state.assignments("pool").count(), 1, "the client's assignment was removed");
    assert_eq!(state.load("other"), Some(Load::Factor(0.5)));
    assert_eq!(state.configuration().map(|configuration| &*configuration.text), Some("resources: []"));
    let mut promises = Promises::default();
    for command in totals() {
        if let Command::Promises { changes, .. } = command {
            promises.apply(&changes, ClusterTime(0)).expect("in order");
        }
    }
    assert_eq!(state.promises("redis"), Some(&promises));
    assert_eq!((state.clock(), state.last_end()), (ClusterTime(2_000), ClusterTime(90_000)));
    let in_force = |command: &Command| match command {
        Command::Override { target, set: Some(set) } => (target.clone(), (**set).clone()),
        _ => panic!("it is in force"),
    };
    assert_eq!(state.overrides(), [in_force(&overrides()[1]), in_force(&overrides()[3])]);
    let declared: Vec<_> = state.declarations().iter().map(|(name, one)| (&**name, one.version)).collect();
    assert_eq!(declared, [("rls/shop", 1_700_000_000_123)], "the newest of a name; another was removed");
}

#[test]
fn an_unknown_format_is_refused_by_name() {
    let mut bytes = Vec::new();
    codec::write_frame(&mut bytes, Kind::Vote, b"");
    bytes[1] = FORMAT + 1;
    let checksum = crc32fast::hash(&bytes[..8]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(codec::read_frame(&bytes, 0), FrameResult::Format(found) if found == FORMAT + 1));
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("vote"), &bytes).expect("it can be written");
    let opened = crate::log::directory::Directory::open(directory.path()).expect("it opens");
    let error = opened.read::<Vote<u64>>("vote", Kind::Vote).expect_err("it is of another format");
    assert!(error.to_string().contains("use the version of Leaseway that wrote it"), "{error}");
}
