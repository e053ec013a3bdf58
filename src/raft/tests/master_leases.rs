//! Master leases, proposals under them, and the cluster clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_core::{
    lease::promises::Refused,
    types::{Amount, ClusterTime, Epoch, Millis},
};

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::{RaftHandle, start},
    log::command::{Command, Listening, ProposeError},
    settings::Settings,
    state::{State, machine::Clock},
    tests::harness::cluster::{Cluster, assigned, lone_master, promised, set_text, texts, until, until_equal},
};

#[test]
fn a_lapsed_master_lease_never_holds_again() {
    let lease = MasterLease::new(7, Millis(10), Millis(100), ClusterTime(0));
    assert!(lease.holds(Millis(99)) && lease.extend(Millis(99), Millis(200)));
    assert!(lease.holds(Millis(199)) && !lease.holds(Millis(200)));
    assert!(!lease.holds(Millis(150)), "even if the caller read the clock before the end");
    assert!(!lease.extend(Millis(150), Millis(300)) && !lease.holds(Millis(150)) && lease.is_over());
    let lease = MasterLease::new(7, Millis(10), Millis(100), ClusterTime(0));
    assert!(lease.extend(Millis(20), Millis(60)) && lease.holds(Millis(99)), "a shorter confirmation changes nothing");
    assert!(!lease.extend(Millis(100), Millis(200)) && !lease.holds(Millis(50)), "nobody has called it meanwhile");
}

fn promises(epoch: u64, number: u64, total: f64) -> Command {
    promised("r", epoch, number, total, ClusterTime(1000))
}

fn refused(why: Refused) -> ProposeError {
    ProposeError::Refused { resource: "r".into(), why }
}

#[test]
fn a_proposal_is_applied_as_a_whole_or_not_at_all() {
    let mut state = State::default();
    let term = state.begin_term();
    let mut apply = |of: u64, proposal: &[Command]| {
        let before = state.record(Millis(0));
        let result = state.apply(of, proposal, Millis(5));
        assert!(result.is_ok() || state.record(Millis(0)) == before, "a refused proposal has changed the state");
        (result, state.record(Millis(0)))
    };
    apply(term, &[promises(4, 1, 1.0), promises(4, 2, 1.0)]).0.expect("in order");
    let gap = refused(Refused::Gap { epoch: Epoch(4), expected: 4, got: 5 });
    assert_eq!(apply(term, &[assigned("x", 1.0), promises(4, 3, 2.0), promises(4, 5, 2.0)]).0, Err(gap));
    let first =
        ProposeError::Refused { resource: "s".into(), why: Refused::Gap { epoch: Epoch(4), expected: 1, got: 2 } };
    let other = promised("s", 4, 2, 1.0, ClusterTime(1000));
    assert_eq!(apply(term, &[other]).0, Err(first), "each resource has numbers of its own");
    let older = refused(Refused::OlderEpoch { newest: Epoch(4), got: Epoch(3) });
    assert_eq!(apply(term, &[set_text("text"), promises(3, 1, 2.0)]).0, Err(older));
    assert_eq!(apply(term - 1, &[set_text("text")]).0, Err(ProposeError::Deposed));
    assert_eq!(apply(term + 1, &[set_text("text")]).0, Err(ProposeError::Deposed));
    // A forgotten resource starts over, even within a proposal. Promises of a later epoch stay.
    let forget = |epoch| Command::ForgetPromises { resource: "r".into(), epoch: Epoch(epoch) };
    apply(term, &[forget(3), promises(4, 3, 2.0)]).0.expect("promises of later epochs stay");
    apply(term, &[forget(4), promises(2, 1, 2.0)]).0.expect("the promises are forgotten");
}

#[test]
fn only_the_newest_configurations_are_kept() {
    let mut state = State::default();
    let term = state.begin_term();
    for round in 0..40 {
        state.apply(term, &[set_text(format!("{round}"))], Millis(0)).expect("nothing to refuse");
    }
    let versions: Vec<u64> = state.configurations().map(|configuration| configuration.version).collect();
    assert_eq!(versions, (9..=40).collect::<Vec<_>>());
    assert_eq!(State::restore(state.record(Millis(0)), Millis(0)).configuration(), state.configuration());
}

#[tokio::test]
async fn proposals_in_one_entry_keep_their_order_and_their_own_results() {
    let cluster = Cluster::three().await;
    let (name, lease) = cluster.master().await;
    let peer = cluster.peer(&name).clone();
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let proposals = [promises(7, 1, 1.0), promises(7, 3, 9.0), set_text("text"), promises(7, 2, 2.0)];
    for (index, proposal) in proposals.into_iter().enumerate() {
        let done = done.clone();
        peer.submit(&lease, vec![proposal], move |result| done.send((index, result)).expect("the test waits"));
    }
    let gap = refused(Refused::Gap { epoch: Epoch(7), expected: 2, got: 3 });
    for expected in [(0, Ok(())), (1, Err(gap)), (2, Ok(())), (3, Ok(()))] {
        assert_eq!(results.recv().await, Some(expected));
    }
    assert_eq!(texts(&peer), ["text"]);
    let newest = peer.read(|state| state.promises("r").map(|promises| (promises.newest(), promises.total())));
    assert_eq!(newest, Some((Some((Epoch(7), 2)), Amount::clamped(2.0))));
    let former = MasterLease::new(lease.term() - 1, Millis(0), Millis(0), ClusterTime(0));
    assert!(!former.holds(Millis(1)));
    peer.submit(&former, vec![set_text("late")], move |result| done.send((4, result)).expect("the test waits"));
    assert_eq!(results.recv().await, Some((4, Err(ProposeError::Deposed))));
    assert_eq!(texts(&peer), ["text"]);
}

#[tokio::test]
async fn a_paused_master_has_no_lease_when_it_resumes() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let slept = Arc::new(AtomicU64::new(0));
    for name in ["a", "b", "c"] {
        let (clock, slept) = (cluster.clock(), Arc::clone(&slept));
        let clock: Clock = Arc::new(move || clock().plus(Millis(slept.load(Ordering::SeqCst))));
        let settings = Settings { bootstrap: true, clock, ..cluster.settings(name) };
        cluster.start_with(settings).await.expect("it starts");
    }
    let (_, lease) = cluster.master().await;
    slept.store(10_000, Ordering::SeqCst);
    assert!(!lease.holds(cluster.now().plus(Millis(10_000))));
    // Some peer is master again, under a later lease.
    let later = |mastership: &Mastership| matches!(mastership, Mastership::Master(next) if next.term() > lease.term());
    until("there is a master again", || cluster.running().any(|(_, peer)| later(&peer.mastership().borrow()))).await;
    assert!(!lease.holds(cluster.now()), "the lease has come back");
}

#[tokio::test]
async fn a_proposal_that_is_too_large_is_refused_at_once() {
    let mut cluster = Cluster::new(&["a"]).await;
    cluster.bootstrap().await;
    let (name, lease) = cluster.master().await;
    let text: Arc<str> = "x".repeat(5 << 20).into();
    let result = cluster.peer(&name).propose(&lease, vec![set_text(text)]).await;
    assert!(matches!(result, Err(ProposeError::TooLarge { .. })), "{result:?}");
    assert!(texts(cluster.peer(&name)).is_empty());
}

#[tokio::test]
async fn an_isolated_master_steps_down_and_pending_proposals_are_uncertain() {
    let cluster = Cluster::three().await;
    let (first, lease) = cluster.master().await;
    let peer = cluster.peer(&first).clone();
    cluster.isolate(&first, true);
    assert_eq!(peer.propose(&lease, vec![set_text("lost")]).await, Err(ProposeError::Uncertain));
    assert!(!lease.holds(cluster.now()));
    assert_eq!(peer.propose(&lease, vec![set_text("never")]).await, Err(ProposeError::Deposed));
    cluster.isolate(&first, false);
    cluster.propose(set_text("after")).await;
    until("all agree", || cluster.running().all(|(_, peer)| texts(peer).last().map(String::as_str) == Some("after")))
        .await;
    let of_all: Vec<_> = cluster.running().map(|(_, peer)| texts(peer)).collect();
    assert!(of_all.iter().all(|of_one| *of_one == of_all[0] && !of_one.contains(&"never".to_owned())), "{of_all:?}");
}

fn entries(peer: &RaftHandle) -> u64 {
    peer.raft().metrics().borrow().last_log_index.unwrap_or_default()
}

async fn assert_nothing_is_written(peer: &RaftHandle) {
    let before = entries(peer);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(entries(peer), before, "a quiet cluster writes entries");
}

#[tokio::test]
async fn the_cluster_clock_is_stored_only_while_a_promise_is_in_force() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let began = Instant::now();
    let clock: Clock = Arc::new(move || Millis(began.elapsed().as_millis() as u64));
    let settings = Settings { bootstrap: true, ..Settings::new("a", directory.path(), clock) };
    let peer = start(settings).await.expect("it starts");
    let lease = lone_master(&peer).await;
    assert_nothing_is_written(&peer).await;
    let (since, before) = (Instant::now(), entries(&peer));
    let moment = lease.clock().at(Millis(began.elapsed().as_millis() as u64));
    let horizon = moment.plus(Millis(1_500));
    peer.propose(&lease, vec![promised("r", 1, 1, 5.0, horizon)]).await.expect("it is stored");
    until("the promise has ended", || peer.read(State::clock) >= horizon).await;
    assert!(since.elapsed() >= Duration::from_millis(1_490), "the clock is fast: {:?}", since.elapsed());
    let (written, seconds) = (entries(&peer) - before, since.elapsed().as_secs());
    assert!(written <= seconds + 2, "{written} entries in {seconds} s");
    assert_nothing_is_written(&peer).await;
}

#[tokio::test]
async fn the_cluster_clock_continues_across_masters_and_is_never_fast() {
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
