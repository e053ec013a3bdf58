//! The clock of the cluster: it goes on over masters, never faster than time, and a quiet cluster writes nothing.

use std::time::{Duration, Instant};

use leaseway_core::{Amount, Changes, ClusterTime, Epoch, Millis};

use crate::{
    Fact, Facts, Listening, Quorum, Settings, start,
    tests::world::{World, agree, until},
};

fn promised(epoch: u64, horizon: ClusterTime) -> Fact {
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
    Fact::Promises { resource: "r".into(), changes }
}

fn entries(peer: &Quorum) -> u64 {
    peer.raft().metrics().borrow().last_log_index.unwrap_or_default()
}

async fn nothing_is_written(peer: &Quorum) {
    let before = entries(peer);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(entries(peer), before, "a quiet cluster writes something");
}

#[tokio::test]
async fn the_clock_is_stored_until_the_last_promise_has_ended_and_not_without_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let began = Instant::now();
    let clock: crate::Clock = std::sync::Arc::new(move || Millis(began.elapsed().as_millis() as u64));
    let settings = Settings { bootstrap: true, ..Settings::new("a", directory.path(), clock) };
    let peer = start(settings).await.expect("it starts");
    let reigns = || matches!(&*peer.mastership().borrow(), crate::Mastership::Master(_));
    until("it is master", reigns).await;
    let crate::Mastership::Master(reign) = peer.mastership().borrow().clone() else { panic!("it was master") };
    nothing_is_written(&peer).await;
    let (since, before) = (Instant::now(), entries(&peer));
    let moment = reign.clock().at(Millis(began.elapsed().as_millis() as u64));
    let horizon = moment.plus(Millis(3_000));
    peer.propose(&reign, vec![promised(1, horizon)]).await.expect("it is stored");
    until("the promise has ended", || peer.read(Facts::clock) >= horizon).await;
    assert!(since.elapsed() >= Duration::from_millis(2_990), "never faster than time: {:?}", since.elapsed());
    let (written, seconds) = (entries(&peer) - before, since.elapsed().as_secs());
    assert!(written <= seconds + 2, "{written} entries in {seconds} s");
    nothing_is_written(&peer).await;
}

#[tokio::test]
async fn the_clock_goes_on_over_masters_and_is_never_ahead_of_time() {
    let mut world = World::new(&["a", "b", "c"]).await;
    world.bootstrap().await;
    let (_, first) = world.master().await;
    let began = world.now();
    let origin = first.clock().at(world.now());
    let horizon = origin.plus(Millis(3_600_000));
    world.propose(promised(1, horizon)).await;
    let mut reached = origin;
    for _ in 0..3 {
        let (master, reign) = world.master().await;
        let stored = reached.plus(Millis(1_000));
        until("it advances", || world.peer(&master).read(Facts::clock) >= stored).await;
        reached = world.peer(&master).read(Facts::clock);
        world.kill(&master);
        world.start(&master).await;
        let (_, next) = world.master().await;
        assert!(next.number() > reign.number());
        let now = world.now();
        assert!(next.clock().at(now) >= reached, "it goes on from what was stored");
        assert!(next.clock().at(now).since(origin) <= now.since(began), "it is not ahead of time");
    }
    let names = world.names.clone();
    agree(&world, &names, "the clock is the same to all").await;
}

#[test]
fn a_snapshot_keeps_the_clock_and_what_ends_by_it() {
    let mut facts = Facts::default();
    let reign = facts.begin_reign();
    let horizon = ClusterTime(90_000);
    let listen = Fact::Listen(Listening { length: Millis(60_000), whole: true });
    let proposal = [Fact::Clock(ClusterTime(20_000)), listen, promised(1, horizon), Fact::Clock(ClusterTime(30_000))];
    facts.apply(reign, &proposal, Millis(7)).expect("nothing to refuse");
    facts.apply(reign, &[Fact::Clock(ClusterTime(25_000))], Millis(8)).expect("nothing to refuse");
    let restored = Facts::restore(facts.record(Millis(9)), Millis(1_000_000));
    let of = |facts: &Facts| {
        let until = facts.promises("r").map(|promises| promises.until());
        (facts.clock(), facts.last_end(), until, facts.listen_until(), facts.listens_whole())
    };
    assert_eq!(of(&facts), (ClusterTime(30_000), horizon, Some(horizon), Some(ClusterTime(80_000)), true));
    assert_eq!(of(&restored), of(&facts), "however late, and on whichever clock");
}
