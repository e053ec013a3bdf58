//! Measures a cluster with a large state; a smaller run is a test: the master keeps its lease.
//!
//! `cargo test --release -p leaseway-raft measure_a_million -- --ignored --nocapture`

#![allow(clippy::print_stdout)] // the figures are the output

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_core::{
    pool::Assigned,
    types::{Amount, ClusterTime, HolderKind, Millis},
};

use crate::{
    election::master_lease::MasterLease,
    handle::RaftHandle,
    log::{codec, command::Command},
    settings::timing::Timing,
    state::State,
    tests::harness::cluster::{Cluster, assigned, is_settled, promised, until, until_equal},
};

/// The maximum number of assignments of a pool.
const ASSIGNMENTS_PER_POOL: usize = 100_000;
/// The number of commands in a proposal.
const BATCH: usize = 1000;

fn assignment(number: usize) -> Command {
    Command::Assignment {
        resource: format!("pool-{}", number / ASSIGNMENTS_PER_POOL).into(),
        kind: HolderKind::Client,
        holder: format!("client-{number:07}").into(),
        assigned: Some(Assigned::Capacity(Amount::clamped(number as f64))),
    }
}

fn promise(number: usize) -> Command {
    promised(&format!("resource-{number:07}"), 1, 1, number as f64, ClusterTime(3_600_000))
}

/// Repeats a small proposal, and measures the renewals of the master lease.
struct Probe {
    stop: Arc<AtomicBool>,
    proposals: tokio::task::JoinHandle<Duration>,
    watching: std::thread::JoinHandle<(u64, Duration)>,
}

impl Probe {
    fn start(cluster: &Cluster, peer: RaftHandle, lease: MasterLease) -> Probe {
        let (stop, clock) = (Arc::<AtomicBool>::default(), cluster.clock());
        let proposals = tokio::spawn({
            let (stop, lease) = (Arc::clone(&stop), lease.clone());
            async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    peer.propose(&lease, vec![assigned("probe", 1.0)]).await.expect("it stays master");
                    longest = longest.max(began.elapsed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                longest
            }
        });
        let watching = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let (mut least, mut gap, mut renewed, mut until) =
                    (u64::MAX, Duration::ZERO, Instant::now(), Millis(0));
                while !stop.load(Ordering::SeqCst) {
                    let now = lease.until();
                    if now > until {
                        (gap, renewed, until) = (gap.max(renewed.elapsed()), Instant::now(), now);
                    }
                    least = least.min(now.since(clock()).0);
                    std::thread::sleep(Duration::from_micros(500));
                }
                (least, gap.max(renewed.elapsed()))
            }
        });
        Probe { stop, proposals, watching }
    }

    /// Prints the duration of the slowest small proposal, the longest time between two renewals of the master lease,
    /// and the shortest time that was left of the lease.
    async fn end(self, of: &str) {
        self.stop.store(true, Ordering::SeqCst);
        let longest = self.proposals.await.unwrap_or_else(|why| panic!("{of}: {why}"));
        let (least, gap) = self.watching.join().expect("the thread does not panic");
        println!("{of}: a small proposal took {longest:?} at most; a renewal came after {gap:?}; {least} ms were left");
    }
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() / 256
}

async fn measure_steps(count: usize, timing: Timing, command: fn(usize) -> Command) {
    let mut cluster = Cluster::with(&["a", "b", "c"], timing).await;
    cluster.bootstrap().await;
    let (master, lease) = cluster.master().await;
    let peer = cluster.peer(&master).clone();
    let probe = Probe::start(&cluster, peer.clone(), lease.clone());
    let began = Instant::now();
    for first in (0..count).step_by(BATCH) {
        let commands = (first..count.min(first + BATCH)).map(command).collect();
        peer.propose(&lease, commands).await.expect("it stays master");
    }
    println!("{count} commands: stored after {:?}; resident with three peers: {} MiB", began.elapsed(), resident());
    probe.end("while they are stored").await;
    let probe = Probe::start(&cluster, peer.clone(), lease.clone());
    let copying = Instant::now();
    let copy = peer.read(State::clone);
    let copied = copying.elapsed();
    let bytes = codec::encode(&copy.record(Millis(0)));
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

    let away = cluster.others(&master).swap_remove(0);
    cluster.kill(&away);
    cluster.wipe(&away);
    let probe = Probe::start(&cluster, peer.clone(), lease.clone());
    let began = Instant::now();
    cluster.start(&away).await;
    until("it has a vote", || is_settled(&cluster, &master)).await;
    println!("a peer that had lost its directory has a vote after {:?}", began.elapsed());
    probe.end("while it catches up").await;
    until_equal(&cluster, &cluster.names, "after it has caught up").await;

    drop(peer);
    cluster.names.clone().iter().for_each(|name| cluster.kill(name));
    let began = Instant::now();
    for name in cluster.names.clone() {
        let began = Instant::now();
        cluster.start(&name).await;
        println!("{name} has read its directory after {:?}", began.elapsed());
    }
    let (master, _) = cluster.master().await;
    println!("all have started again, and {master} is master, after {:?}", began.elapsed());
    until_equal(&cluster, &cluster.names, "after they have started again").await;
}

/// Master leases are long, so that the output shows which length would have sufficed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes"]
async fn measure_a_million() {
    for command in [assignment, promise] {
        let timing = Timing::new(50, 4000, 8000).expect("a good timing");
        measure_steps(1_000_000, timing, command).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_keeps_its_lease_while_a_large_state_is_stored_snapshot_and_sent() {
    // Timeouts long enough for a loaded machine.
    let timing = Timing::new(100, 1000, 2000).expect("a good timing");
    measure_steps(8_000, timing, |number| if number % 2 == 0 { assignment(number) } else { promise(number) }).await;
}
