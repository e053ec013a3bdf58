//! The cluster clock continues over masters and is never fast. A quiet cluster writes nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_core::types::{ClusterTime, Millis};

use crate::{
    handle::{RaftHandle, start},
    log::command::{Command, Listening},
    settings::Settings,
    state::{State, machine::Clock},
    tests::cluster::{Cluster, lone_master, promised, until, until_equal},
};

fn entries(peer: &RaftHandle) -> u64 {
    peer.raft().metrics().borrow().last_log_index.unwrap_or_default()
}

async fn assert_nothing_is_written(peer: &RaftHandle) {
    let before = entries(peer);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(entries(peer), before, "a quiet cluster writes entries");
}

#[tokio::test]
async fn the_clock_is_stored_only_while_a_promise_is_in_force() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let began = Instant::now();
    let clock: Clock = Arc::new(move || Millis(began.elapsed().as_millis() as u64));
    let settings = Settings { bootstrap: true, ..Settings::new("a", directory.path(), clock) };
    let peer = start(settings).await.expect("it starts");
    let lease = lone_master(&peer).await;
    assert_nothing_is_written(&peer).await;
    let (since, before) = (Instant::now(), entries(&peer));
    let moment = lease.clock().at(Millis(began.elapsed().as_millis() as u64));
    let horizon = moment.plus(Millis(3_000));
    peer.propose(&lease, vec![promised("r", 1, 1, 5.0, horizon)]).await.expect("it is stored");
    until("the promise has ended", || peer.read(State::clock) >= horizon).await;
    assert!(since.elapsed() >= Duration::from_millis(2_990), "the clock is fast: {:?}", since.elapsed());
    let (written, seconds) = (entries(&peer) - before, since.elapsed().as_secs());
    assert!(written <= seconds + 2, "{written} entries in {seconds} s");
    assert_nothing_is_written(&peer).await;
}

#[tokio::test]
async fn the_clock_continues_over_masters_and_is_never_fast() {
    let mut cluster = Cluster::three().await;
    let (_, first) = cluster.master().await;
    let began = cluster.now();
    let origin = first.clock().at(cluster.now());
    let horizon = origin.plus(Millis(3_600_000));
    cluster.propose(promised("r", 1, 1, 5.0, horizon)).await;
    let mut reached = origin;
    for _ in 0..3 {
        let (master, lease) = cluster.master().await;
        let stored = reached.plus(Millis(1_000));
        until("it advances", || cluster.peer(&master).read(State::clock) >= stored).await;
        reached = cluster.peer(&master).read(State::clock);
        cluster.kill(&master);
        cluster.start(&master).await;
        let (_, next) = cluster.master().await;
        assert!(next.term() > lease.term());
        let now = cluster.now();
        assert!(next.clock().at(now) >= reached, "it continues from the stored time");
        assert!(next.clock().at(now).since(origin) <= now.since(began), "it is fast");
    }
    let names = cluster.names.clone();
    until_equal(&cluster, &names, "all peers have the same clock").await;
}

#[test]
fn a_snapshot_keeps_the_clock_and_the_ends_of_promises() {
    let mut state = State::default();
    let term = state.begin_term();
    let horizon = ClusterTime(90_000);
    let listen = Command::Listen(Listening { length: Millis(60_000), whole: true });
    let proposal = [
        Command::Clock(ClusterTime(20_000)),
        listen,
        promised("r", 1, 1, 5.0, horizon),
        Command::Clock(ClusterTime(30_000)),
    ];
    state.apply(term, &proposal, Millis(7)).expect("nothing to refuse");
    state.apply(term, &[Command::Clock(ClusterTime(25_000))], Millis(8)).expect("nothing to refuse");
    let restored = State::restore(state.record(Millis(9)), Millis(1_000_000));
    let of = |state: &State| {
        let until = state.promises("r").map(|promises| promises.until());
        (state.clock(), state.last_end(), until, state.listen_until(), state.listens_whole())
    };
    assert_eq!(of(&state), (ClusterTime(30_000), horizon, Some(horizon), Some(ClusterTime(80_000)), true));
    assert_eq!(of(&restored), of(&state), "restored later, on another clock");
}
