//! Backups: their content, damaged files, and clusters that begin with one.

use std::sync::Arc;

use leaseway_core::{
    policy::{
        groups::GroupChange,
        overrides::{Load, OverrideTarget, OverrideValue},
    },
    pool::{Assigned, NotedBalance, NotedCost, PoolClock, PoolNotes},
    types::{Amount, ClusterTime, HolderKind, Millis, Token},
};

use crate::{
    log::command::{Command, Declaration, KeptOverride, LimitChanges},
    settings::Settings,
    state::{
        State,
        backup::{Backup, BackupError, BackupHeader, RestoreError},
    },
    tests::harness::cluster::{Cluster, assigned, set_text, texts, until, used},
};

/// Every kind of command, with more notes of a pool than one record holds.
fn state() -> State {
    let mut state = State::default();
    let term = state.begin_term();
    let set = KeptOverride {
        value: OverrideValue::Capacity { load: Load::Factor(0.5), above: false },
        from_unix_ms: 1,
        until_unix_ms: 90_000,
        by: "ada".into(),
        why: "a replica \"is\" down\n".into(),
    };
    let change = GroupChange { maximum: Some(Amount::clamped(40.0)), ..GroupChange::default() };
    let of_group = KeptOverride { value: OverrideValue::Group(change), ..set.clone() };
    let target = |pattern: &str| OverrideTarget { pattern: pattern.into(), group: None };
    let group = OverrideTarget { group: Some("team/search".into()), ..target("api") };
    let over = KeptOverride { from_unix_ms: 0, until_unix_ms: 20_000, ..set.clone() };
    let cost = NotedCost {
        capacity: Amount::clamped(0.1),
        time: 1.5,
        request: -2.0,
        account: Some("acme".into()),
        counted: Some((Token::new(u64::MAX), 3.25)),
    };
    let notes = PoolNotes {
        anew: true,
        clock: PoolClock { lived: 1.0, grown: 2.0, decayed: 3.0, speed: 4.0, time_constant: Millis(5) },
        total: Amount::clamped(7.0),
        balances: (0..4500).map(|n| (Arc::from(format!("c{n:04}")), NotedBalance::Connected(1.5, 2))).collect(),
        costs: vec![(HolderKind::Node, "n".into(), Some(cost))],
    };
    let node = Command::Assignment {
        resource: "p".into(),
        kind: HolderKind::Node,
        holder: "east".into(),
        assigned: Some(Assigned::Share(0.25)),
    };
    let limits = (0..5000).map(|n| (Arc::from(format!("t{n:04}")), Some(Amount::clamped(f64::from(n))))).collect();
    let limits = LimitChanges { limits, at_unix: 7, by: "ada".into() };
    let declaration =
        Declaration { version: 1_700_000_000_000, text: "resources: []".into(), at_unix: 8, by: "gateway".into() };
    let all = vec![
        set_text("first"),
        set_text("second"),
        Command::Limits(limits),
        Command::Declare { name: "rls/shop".into(), declaration: Some(declaration) },
        Command::Override { target: target("old"), set: Some(Box::new(over)) },
        Command::Override { target: target("db*"), set: Some(Box::new(set)) },
        Command::Override { target: group, set: Some(Box::new(of_group)) },
        Command::Load { resource: "p".into(), load: Some(Load::Capacity(Amount::clamped(3.0))) },
        assigned("x", 2.0),
        node,
        Command::Pool { resource: "p".into(), notes: Box::new(notes) },
        used("tokens", "a (1)", 40.0),
    ];
    state.apply(term, &all, Millis(0)).expect("nothing to refuse");
    state
}

fn backup() -> Backup {
    Backup::of(&state(), BackupHeader::new("0.1.0", 30, Millis(61_000)), Millis(0))
}

/// The state of a cluster that begins with a backup.
fn restored(backup: &Backup) -> State {
    let mut state = State::default();
    let term = state.begin_term();
    for proposal in backup.proposals() {
        assert!(
            state.is_blank(),
            "the state must be blank before the last proposal, so that the next master starts over"
        );
        state.apply(term, &proposal, Millis(0)).expect("nothing to refuse");
    }
    state
}

#[test]
fn a_backup_restores_the_state_except_promises_and_begins_a_learning_period() {
    let backup = Backup::read(&backup().to_bytes()).expect("it was written just now");
    assert_eq!(backup, self::backup());
    let (before, after) = (state().record(Millis(0)), restored(&backup));
    let record = after.record(Millis(0));
    assert_eq!(
        (&record.assignments, &record.loads, &record.pools, &record.limits, &record.declarations, &record.usage),
        (&before.assignments, &before.loads, &before.pools, &before.limits, &before.declarations, &before.usage)
    );
    let overrides: Vec<_> =
        after.overrides().iter().map(|(target, one)| (&*target.pattern, one.until_unix_ms)).collect();
    assert_eq!(overrides, [("db*", 90_000), ("api", 90_000)], "the other override had ended when the backup was made");
    let configuration = after.configuration().expect("it had one");
    assert_eq!((&*configuration.text, configuration.version), ("second", 2));
    assert_eq!((after.listen_until(), after.listens_whole()), (Some(ClusterTime(61_000)), true));
    let longer = restored(&backup.believed_for(Millis(90_000)));
    assert_eq!(longer.listen_until(), Some(ClusterTime(90_000)));
}

#[test]
fn a_damaged_backup_is_refused_with_its_line() {
    let bytes = backup().to_bytes();
    let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
    for end in (0..bytes.len()).step_by(997).chain([bytes.len() - 2, bytes.len() - 20]) {
        let error = Backup::read(&bytes[..end]).expect_err("its end is missing");
        assert!(matches!(error, BackupError::Damaged { .. } | BackupError::NoBackup), "{end}: {error}");
    }
    for position in (0..bytes.len() - 1).step_by(499) {
        let mut changed = bytes.clone();
        changed[position] ^= 1;
        assert!(Backup::read(&changed).is_err(), "byte {position}");
    }
    let text = String::from_utf8(bytes).expect("JSON");
    let without_one: String =
        text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 2).map(|(_, l)| l).collect();
    let error = Backup::read(without_one.as_bytes()).expect_err("a record is missing");
    assert!(matches!(&error, BackupError::Damaged { line, .. } if *line == lines - 1), "{error}");
    assert_eq!(Backup::read(b"resources: []\n"), Err(BackupError::NoBackup));
    let newer = text.replacen("\"leaseway_backup\":1", "\"leaseway_backup\":2", 1);
    assert_eq!(Backup::read(newer.as_bytes()), Err(BackupError::Newer { found: 2 }));
}

/// Written by format 1. These bytes must not change.
const FORMAT_1: &str = include_str!("../fixtures/backup-1.jsonl");

#[test]
fn backups_of_format_1_are_read() {
    let mut small = state().record(Millis(0));
    small.pools[0].1.balances.truncate(1);
    small.limits.truncate(1);
    small.limits[0].limits.truncate(2);
    let small = State::restore(small, Millis(0));
    let written = Backup::of(&small, BackupHeader::new("0.1.0", 30, Millis(61_000)), Millis(0));
    if std::env::var_os("BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/backup-1.jsonl");
        std::fs::write(path, written.to_bytes()).expect("it can be written");
    }
    assert_eq!(Backup::read(FORMAT_1.as_bytes()), Ok(written));
}

#[test]
fn a_backup_is_placed_only_into_an_empty_directory() {
    let temporary = tempfile::tempdir().expect("a directory");
    let data = temporary.path().join("a/b");
    assert_eq!(Backup::pending(&data).expect("it can be read"), None);
    backup().put_into(&data).expect("it is made");
    assert_eq!(Backup::pending(&data).expect("it can be read"), Some(backup()));
    assert!(matches!(backup().put_into(&data), Err(RestoreError::NotEmpty(_))), "the directory already has a backup");
}

fn begins_with(settings: Settings, backup: Backup) -> Settings {
    let listening = backup.believed();
    Settings { bootstrap: true, take_over: true, listening, restored: Some(Arc::new(backup)), ..settings }
}

#[tokio::test]
async fn a_cluster_begins_with_a_backup_once_all_peers_have_the_same() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let other = backup().believed_for(Millis(62_000));
    for (name, backup) in [("a", backup()), ("b", backup()), ("c", other)] {
        backup.put_into(&cluster.data(name)).expect("it is empty");
        let settings = begins_with(cluster.settings(name), backup);
        cluster.start_with(settings).await.expect("it starts");
    }
    let begun = |cluster: &Cluster| cluster.running().any(|(_, peer)| peer.cluster().is_some());
    tokio::time::sleep(cluster.timing.certainly_over() * 4).await;
    assert!(!begun(&cluster), "c has another backup");
    cluster.kill("c");
    cluster.wipe("c");
    backup().put_into(&cluster.data("c")).expect("it is empty");
    let settings = begins_with(cluster.settings("c"), backup());
    cluster.start_with(settings).await.expect("it starts");
    let (first, _) = cluster.master().await;
    until("all peers have the state", || cluster.running().all(|(_, peer)| texts(peer) == ["second"])).await;
    until("the placed backups are deleted", || {
        cluster.names.iter().all(|name| Backup::pending(&cluster.data(name)).is_ok_and(|placed| placed.is_none()))
    })
    .await;
    cluster.propose(set_text("third")).await;
    cluster.kill(&first);
    cluster.master().await;
    until("the next master restores nothing", || cluster.running().all(|(_, peer)| texts(peer) == ["second", "third"]))
        .await;
    let versions =
        cluster.running().next().expect("two run").1.read(|state| state.configuration().map(|one| one.version));
    assert_eq!(versions, Some(3), "versions continue");
}
