//! Random faults while callers write and read the state: links are cut and restored, messages delivered seconds late,
//! peers killed, restarted and wiped, disks slow and broken. Two master leases never hold at the same time, the calls
//! are linearizable, and in the end all peers have the same state.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{
    settings::timing::Timing,
    tests::harness::{
        callers::{Callers, Mistake, judge},
        cluster::{Cluster, assigned, is_settled, until_equal},
        faults::{DiskState, HeldMessage},
        lease_watcher::LeaseWatcher,
    },
    transport::Method,
};

/// A cluster with callers and a lease watcher, to inject faults into.
pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) callers: Callers,
    pub(crate) watcher: LeaseWatcher,
    pub(crate) random: fastrand::Rng,
    pub(crate) held: Vec<HeldMessage>,
    /// The steps so far, for error messages.
    pub(crate) history: String,
}

impl Harness {
    pub(crate) async fn start(cluster: Cluster, seed: u64, load_bytes: usize) -> Harness {
        let watcher = LeaseWatcher::start(&cluster);
        cluster.master().await;
        let mut callers = Callers::start(&cluster, seed, Mistake::None);
        // Enough load for the peers to take snapshots.
        callers.add_load(1, load_bytes);
        let random = fastrand::Rng::with_seed(seed);
        Harness { cluster, callers, watcher, random, held: Vec::new(), history: format!("seed {seed}:") }
    }

    pub(crate) async fn start_peer(&mut self, name: &str) {
        let peer = self.cluster.start(name).await;
        self.watcher.watch(&peer);
        self.callers.set_running(&self.cluster);
    }

    pub(crate) fn kill_peer(&mut self, name: &str) {
        self.callers.forget(name);
        self.cluster.kill(name);
    }

    pub(crate) async fn pause(&mut self, least: u64, most: u64) {
        let pause = self.random.u64(least..most);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

struct Chaos {
    harness: Harness,
    down: Vec<String>,
    /// Running transfers, which hold their peers.
    transfers: JoinSet<()>,
}

impl Chaos {
    async fn step(&mut self) {
        let names = self.harness.cluster.names.clone();
        let victim = match self.harness.cluster.masters().first() {
            // Choose the master more often than the other peers.
            Some((master, _)) if self.harness.random.bool() => master.clone(),
            _ => names[self.harness.random.usize(..names.len())].clone(),
        };
        let other = names[self.harness.random.usize(..names.len())].clone();
        let is_down = self.down.contains(&victim);
        let delay = Duration::from_millis(self.harness.random.u64(5..150));
        let fault = self.harness.random.u8(..32);
        self.harness.history += &format!(" {fault}{victim}");
        match fault {
            0 | 1 => self.harness.cluster.isolate(&victim, true),
            2 => self.harness.cluster.cut(&victim, &other, true),
            3 | 4 => self.harness.cluster.cut_off(&victim, &other, true),
            5 => names
                .iter()
                .filter(|name| **name != victim)
                .for_each(|name| self.harness.cluster.cut_off(&victim, name, true)),
            6 => self.harness.cluster.flap(&victim).await,
            7 if !is_down => self.harness.cluster.set_log_disk(&victim, DiskState::Slow(delay)),
            8 if !is_down => self.harness.cluster.set_snapshot_disk(&victim, DiskState::Slow(delay)),
            9 if !is_down => self.harness.cluster.set_log_disk(&victim, DiskState::Broken),
            10 | 11 if !is_down => self.kill(victim),
            12 => self.wipe(victim).await,
            13 if !is_down => {
                let peer = self.harness.cluster.peer(&victim).clone();
                self.transfers.spawn(async move { drop(peer.transfer(None).await) });
            }
            14..17 => self.hand_over_late().await,
            17 => self.harness.held.push(self.harness.cluster.hold_next(&victim, &other, None)),
            18..20 => self.harness.held.drain(..).for_each(|held| held.release()),
            20..26 => self.harness.cluster.restore_links(),
            _ => {
                if let Some(name) = self.down.pop() {
                    self.harness.start_peer(&name).await;
                }
            }
        }
        self.kill_failed();
    }

    /// The master asks another peer to stand for election, and that request is late. Meanwhile the master loses the
    /// third peer, and once the request has arrived, the second.
    async fn hand_over_late(&mut self) {
        let Some((master, _)) = self.harness.cluster.masters().pop() else { return };
        let mut others: Vec<_> = self.harness.cluster.names.iter().filter(|name| **name != master).cloned().collect();
        self.harness.random.shuffle(&mut others);
        let next = others.swap_remove(0);
        let held = self.harness.cluster.hold_next(&master, &next, Some(Method::Stand));
        let peer = self.harness.cluster.peer(&master).clone();
        let transfer = {
            let next = next.clone();
            tokio::spawn(async move { peer.transfer(Some(&next)).await })
        };
        if tokio::time::timeout(Duration::from_secs(2), held.caught()).await.is_ok() {
            let lease = self.harness.cluster.timing.lease().0;
            self.harness.pause(0, 4 * lease).await;
            others.iter().for_each(|other| self.harness.cluster.cut(&master, other, true));
            self.harness.pause(0, 2 * lease).await;
            let _ = tokio::time::timeout(Duration::from_millis(50), held.deliver()).await;
            self.harness.cluster.cut(&master, &next, true);
        }
        held.release();
        self.transfers.spawn(async move { drop(transfer.await) });
    }

    fn kill(&mut self, name: String) {
        if self.harness.random.bool() {
            let peer = self.harness.cluster.peer(&name).clone();
            tokio::spawn(async move { peer.shutdown().await });
        }
        self.transfers.abort_all();
        self.harness.held.clear();
        self.harness.kill_peer(&name);
        self.harness.cluster.set_log_disk(&name, DiskState::Sound);
        self.down.push(name);
    }

    /// Wipes a data directory, unless another peer was wiped and has no vote yet: a majority has to keep theirs.
    async fn wipe(&mut self, victim: String) {
        if !self.down.is_empty()
            || !self.harness.cluster.masters().first().is_some_and(|(name, _)| is_settled(&self.harness.cluster, name))
        {
            return;
        }
        self.kill(victim.clone());
        self.down.pop();
        self.harness.cluster.wipe(&victim);
        self.harness.start_peer(&victim).await;
    }

    fn kill_failed(&mut self) {
        let failed = self.harness.cluster.running().filter(|(_, peer)| peer.failure().borrow().is_some());
        for name in failed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.kill(name);
        }
    }

    /// Restores links, disks and peers, then checks that the calls are linearizable and all peers have the same state.
    async fn end(mut self) -> Result<(usize, usize), String> {
        self.transfers.abort_all();
        self.harness.held.drain(..).for_each(|held| held.release());
        self.harness.cluster.restore_links();
        for name in self.harness.cluster.names.clone() {
            self.harness.cluster.set_log_disk(&name, DiskState::Sound);
            self.harness.cluster.set_snapshot_disk(&name, DiskState::Sound);
        }
        self.kill_failed();
        for name in std::mem::take(&mut self.down) {
            self.harness.start_peer(&name).await;
        }
        let Harness { cluster, callers, watcher, history, .. } = self.harness;
        // Commits once with all peers before the callers stop.
        cluster.propose(assigned("last", 1.0)).await;
        let judged = judge(&callers.stop(&cluster).await).map_err(|why| format!("{history}: {why}"));
        until_equal(&cluster, &cluster.names, &history).await;
        let losses: Vec<String> = cluster.running().flat_map(|(_, peer)| peer.losses()).collect();
        assert_eq!(losses, [""; 0], "{history} no directory was restored");
        let (leases, held) = watcher.stop();
        assert!(leases > 1 && held > 0, "nothing happened: {leases} leases, {held} checks");
        judged
    }
}

async fn chaos(names: &[&str], steps: usize, seed: u64) -> Result<(usize, usize), String> {
    let timing = if seed.is_multiple_of(3) { Timing::new(100, 400, 1500) } else { Timing::new(50, 200, 400) };
    let mut cluster = Cluster::with(names, timing.expect("a good timing")).await;
    cluster.bootstrap().await;
    let harness = Harness::start(cluster, seed, 100 << 10).await;
    let mut chaos = Chaos { harness, down: Vec::new(), transfers: JoinSet::new() };
    for _ in 0..steps {
        chaos.step().await;
        chaos.harness.pause(50, 400).await;
    }
    chaos.end().await
}

/// The number of seeds: the environment variable `LEASEWAY_SEEDS`, or 1.
pub(crate) fn seeds() -> u64 {
    std::env::var("LEASEWAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

/// Plants the fault that the environment variable `LEASEWAY_PLANT` names, to show that these tests find it.
#[cfg(feature = "planted")]
fn plant() {
    use leaseway_core::planted::{Fault, plant_everywhere};
    if let Ok(name) = std::env::var("LEASEWAY_PLANT") {
        plant_everywhere(Fault::named(&name).expect("the name of a planted fault"));
    }
}

async fn survive(names: &[&str], seed: u64) {
    #[cfg(feature = "planted")]
    plant();
    // Inject more faults per seed if many seeds are requested.
    let steps = if seeds() == 1 { 20 } else { 40 };
    let mut answered = (0, 0);
    for seed in seed..seed + seeds() {
        eprintln!("seed {seed}");
        let (writes, reads) = chaos(names, steps, seed).await.unwrap_or_else(|why| panic!("{why}"));
        answered = (answered.0 + writes, answered.1 + reads);
    }
    assert!(answered.0 > 0 && answered.1 > 0, "nothing happened");
    eprintln!("{} seeds: {} writes and {} reads were answered", seeds(), answered.0, answered.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_under_random_faults_have_one_master_and_linearizable_state() {
    survive(&["a", "b", "c"], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_peers_under_random_faults_have_one_master_and_linearizable_state() {
    survive(&["a", "b", "c", "d", "e"], 1001).await;
}

/// A master that is cut off is enough to make each mistake visible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_linearizability_check_finds_mistakes_of_callers() {
    for mistake in [Mistake::ReadsAnywhere, Mistake::TrustsTheUncertain, Mistake::DropsOne] {
        let mut is_found = false;
        for seed in 0..10 {
            let cluster = Cluster::three().await;
            cluster.master().await;
            let callers = Callers::start(&cluster, seed, mistake);
            let (master, _) = cluster.master().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            cluster.isolate(&master, true);
            tokio::time::sleep(Duration::from_millis(800)).await;
            cluster.isolate(&master, false);
            is_found = judge(&callers.stop(&cluster).await).is_err();
            if is_found {
                break;
            }
        }
        assert!(is_found, "{mistake:?}");
    }
}
