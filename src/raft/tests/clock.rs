//! The cluster clock: it continues over masters, is never fast, and a quiet cluster writes nothing.

use std::time::{Duration, Instant};

use leaseway_core::{Amount, Changes, ClusterTime, Epoch, Millis};

use crate::{
    handle::{RaftHandle, start},
    log::command::{Command, Listening},
    settings::Settings,
    state::State,
    tests::cluster::{Cluster, until, until_equal},
};

fn promised(epoch: u64, horizon: ClusterTime) -> Command {
    let changes = Changes {
        epoch: Epoch(epoch),
        number: 1,
        total: Amount::clamped(5.0),
        horizon: Some(horizon),
        lease: Some(Millis(60_000)),
        counted_from: None,
        wants: None,
        parts: Vec::new(),
    };
    Command::Promises { resource: "r".into(), changes }
}

fn entries(peer: &RaftHandle) -> u64 {
    peer.raft().metrics().borrow().last_log_index.unwrap_or_default()
}

async fn nothing_is_written(peer: &RaftHandle) {
    let before = entries(peer);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(entries(peer), before, "a quiet cluster writes something");
}

#[tokio::test]
async fn the_clock_is_stored_until_the_last_promise_has_ended_and_not_without_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let began = Instant::now();
    let clock: crate::state::machine::Clock = std::sync::Arc::new(move || Millis(began.elapsed().as_millis() as u64));
    let settings = Settings { bootstrap: true, ..Settings::new("a", directory.path(), clock) };
    let peer = start(settings).await.expect("it starts");
    let is_master = || matches!(&*peer.mastership().borrow(), crate::election::master_lease::Mastership::Master(_));
    until("it is master", is_master).await;
    let crate::election::master_lease::Mastership::Master(lease) = peer.mastership().borrow().clone() else {
        panic!("it was master")
    };
    nothing_is_written(&peer).await;
    let (since, before) = (Instant::now(), entries(&peer));
    let moment = lease.clock().at(Millis(began.elapsed().as_millis() as u64));
    let horizon = moment.plus(Millis(3_000));
    peer.propose(&lease, vec![promised(1, horizon)]).await.expect("it is stored");
    until("the promise has ended", || peer.read(State::clock) >= horizon).await;
    assert!(since.elapsed() >= Duration::from_millis(2_990), "never faster than time: {:?}", since.elapsed());
    let (written, seconds) = (entries(&peer) - before, since.elapsed().as_secs());
    assert!(written <= seconds + 2, "{written} entries in {seconds} s");
    nothing_is_written(&peer).await;
}

#[tokio::test]
async fn the_clock_goes_on_over_masters_and_is_never_ahead_of_time() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.bootstrap().await;
    let (_, first) = cluster.master().await;
    let began = cluster.now();
    let origin = first.clock().at(cluster.now());
    let horizon = origin.plus(Millis(3_600_000));
    cluster.propose(promised(1, horizon)).await;
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
        assert!(next.clock().at(now) >= reached, "it goes on from what was stored");
        assert!(next.clock().at(now).since(origin) <= now.since(began), "it is not ahead of time");
    }
    let names = cluster.names.clone();
    until_equal(&cluster, &names, "the clock is the same to all").await;
}

#[test]
fn a_snapshot_keeps_the_clock_and_what_ends_by_it() {
    let mut state = State::default();
    let term = state.begin_term();
    let horizon = ClusterTime(90_000);
    let listen = Command::Listen(Listening { length: Millis(60_000), whole: true });
    let proposal =
        [Command::Clock(ClusterTime(20_000)), listen, promised(1, horizon), Command::Clock(ClusterTime(30_000))];
    state.apply(term, &proposal, Millis(7)).expect("nothing to refuse");
    state.apply(term, &[Command::Clock(ClusterTime(25_000))], Millis(8)).expect("nothing to refuse");
    let restored = State::restore(state.record(Millis(9)), Millis(1_000_000));
    let of = |state: &State| {
        let until = state.promises("r").map(|promises| promises.until());
        (state.clock(), state.last_end(), until, state.listen_until(), state.listens_whole())
    };
    assert_eq!(of(&state), (ClusterTime(30_000), horizon, Some(horizon), Some(ClusterTime(80_000)), true));
    assert_eq!(of(&restored), of(&state), "however late, and on whichever clock");
}
