//! Very many facts: how long each step takes with them, and that mastership lasts meanwhile.
//!
//! `cargo test --release -p leaseway-quorum measure_a_million -- --ignored --nocapture`

#![allow(clippy::print_stdout)] // the figures are the output

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_core::{Amount, Assigned, Changes, ClusterTime, Epoch, HolderKind, Millis};

use crate::{
    Fact, Facts, Mastership, Quorum, Reign, Timing,
    tests::{
        partitions::is_settled,
        world::{World, agree, assigned, until},
    },
};

/// As many assignments as a pool may have.
const OF_A_POOL: usize = 100_000;
/// In one proposal.
const AT_ONCE: usize = 1000;

fn assignment(number: usize) -> Fact {
    Fact::Assignment {
        resource: format!("pool-{}", number / OF_A_POOL).into(),
        kind: HolderKind::Client,
        holder: format!("client-{number:07}").into(),
        assigned: Some(Assigned::Capacity(Amount::clamped(number as f64))),
    }
}

fn promise(number: usize) -> Fact {
    let changes = Changes {
        epoch: Epoch(1),
        number: 1,
        total: Amount::clamped(number as f64),
        horizon: Some(ClusterTime(3_600_000)),
        lease: Some(Millis(60_000)),
        counted_from: None,
        wants: None,
        parts: Vec::new(),
    };
    Fact::Promises { resource: format!("resource-{number:07}").into(), changes }
}

/// Proposes a small fact again and again, and looks at the reign.
struct Probe {
    stop: Arc<AtomicBool>,
    proposals: tokio::task::JoinHandle<Duration>,
    looks: std::thread::JoinHandle<(u64, Duration)>,
}

impl Probe {
    fn start(world: &World, peer: Quorum, reign: Reign) -> Probe {
        let (stop, clock) = (Arc::<AtomicBool>::default(), world.clock());
        let proposals = tokio::spawn({
            let (stop, reign) = (Arc::clone(&stop), reign.clone());
            async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    peer.propose(&reign, vec![assigned("probe", 1.0)]).await.expect("it stays master");
                    longest = longest.max(began.elapsed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                longest
            }
        });
        let looks = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let (mut least, mut gap, mut renewed, mut until) =
                    (u64::MAX, Duration::ZERO, Instant::now(), Millis(0));
                while !stop.load(Ordering::SeqCst) {
                    let now = reign.until();
                    if now > until {
                        (gap, renewed, until) = (gap.max(renewed.elapsed()), Instant::now(), now);
                    }
                    least = least.min(now.since(clock()).0);
                    std::thread::sleep(Duration::from_micros(500));
                }
                (least, gap.max(renewed.elapsed()))
            }
        });
        Probe { stop, proposals, looks }
    }

    /// The longest that a small proposal took; the least that was left of the reign, in milliseconds; the longest
    /// between two renewals of it.
    async fn end(self, of: &str) -> (Duration, u64, Duration) {
        self.stop.store(true, Ordering::SeqCst);
        let longest = self.proposals.await.unwrap_or_else(|why| panic!("{of}: {why}"));
        let (least, gap) = self.looks.join().expect("it looks");
        println!("{of}: a small proposal took {longest:?} at most; a renewal came after {gap:?}; {least} ms were left");
        (longest, least, gap)
    }
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() / 256
}

async fn multitude(count: usize, timing: Timing, fact: fn(usize) -> Fact) {
    let mut world = World::with(&["a", "b", "c"], timing).await;
    world.bootstrap().await;
    let (master, reign) = world.master().await;
    let peer = world.peer(&master).clone();
    let probe = Probe::start(&world, peer.clone(), reign.clone());
    let began = Instant::now();
    for first in (0..count).step_by(AT_ONCE) {
        let facts = (first..count.min(first + AT_ONCE)).map(fact).collect();
        peer.propose(&reign, facts).await.expect("it stays master");
    }
    println!("{count} facts: stored after {:?}; resident with three peers: {} MiB", began.elapsed(), resident());
    probe.end("while they are stored").await;
    let probe = Probe::start(&world, peer.clone(), reign.clone());
    tokio::time::sleep(Duration::from_secs(2)).await;
    probe.end("while nothing else is done").await;

    let probe = Probe::start(&world, peer.clone(), reign.clone());
    let copying = Instant::now();
    let copy = peer.read(Facts::clone);
    let copied = copying.elapsed();
    let bytes = copy.record(Millis(0)).encode();
    println!("a copy takes {copied:?}, encoding it {:?}: {} bytes", copying.elapsed() - copied, bytes.len());
    drop((copy, bytes));
    for _ in 0..3 {
        let before = peer.raft().metrics().borrow().snapshot;
        peer.raft().trigger().snapshot().await.expect("it runs");
        let began = Instant::now();
        until("there is a snapshot", || peer.raft().metrics().borrow().snapshot > before).await;
        println!("a snapshot: {:?}", began.elapsed());
    }
    probe.end("while snapshots are built").await;

    let away = world.names.iter().find(|name| **name != master).expect("there are three").clone();
    world.kill(&away);
    world.wipe(&away);
    let probe = Probe::start(&world, peer.clone(), reign.clone());
    let began = Instant::now();
    world.start(&away).await;
    until("it has a vote", || is_settled(&world, &master)).await;
    println!("a peer that had lost its directory has a vote after {:?}", began.elapsed());
    probe.end("while it catches up").await;
    agree(&world, &world.names, "after it has caught up").await;

    drop(peer);
    for name in world.names.clone() {
        world.kill(&name);
    }
    let began = Instant::now();
    for name in world.names.clone() {
        let began = Instant::now();
        world.start(&name).await;
        println!("{name} has read its directory after {:?}", began.elapsed());
    }
    let (master, _) = world.master().await;
    println!("all have started again, and {master} is master, after {:?}", began.elapsed());
    assert!(matches!(&*world.peer(&master).mastership().borrow(), Mastership::Master(_)));
    agree(&world, &world.names, "after they have started again").await;
}

/// Mastership lasts, so that it can be seen for how long it would have had to.
fn patient() -> Timing {
    Timing::new(50, 4000, 8000).expect("a good timing")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes"]
async fn measure_a_million_assignments() {
    multitude(1_000_000, patient(), assignment).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes"]
async fn measure_a_million_promises() {
    multitude(1_000_000, patient(), promise).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_facts_are_stored_and_cut_off_and_caught_up_with_under_one_master() {
    // Slow enough for a machine that runs other tests, too.
    let timing = Timing::new(100, 1000, 2000).expect("a good timing");
    multitude(10_000, timing, assignment).await;
    multitude(10_000, timing, promise).await;
}
