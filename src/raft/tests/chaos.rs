//! Random faults while callers write and read the state: links are cut and restored, messages delivered seconds late,
//! peers killed, restarted and wiped, disks slow and broken. Two master leases never hold at the same time, the calls
//! are linearizable, and in the end all peers have the same state.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{
    handle::RaftHandle,
    settings::timing::Timing,
    tests::{
        callers::{Callers, Mistake, judge},
        cluster::{Cluster, assigned, until_equal},
        delays::{Held, hold_next},
        disks::{self, DiskState},
        lease_watcher::LeaseWatcher,
        partitions::is_settled,
    },
    transport::Method,
};

struct Chaos {
    cluster: Cluster,
    callers: Callers,
    watcher: LeaseWatcher,
    random: fastrand::Rng,
    down: Vec<String>,
    /// Running transfers, which hold their peers.
    transfers: JoinSet<()>,
    held: Vec<Held>,
    done: String,
}

impl Chaos {
    async fn step(&mut self) {
        let names = self.cluster.names.clone();
        let victim = match self.cluster.masters().first() {
            // The master is hit more often than others.
            Some((master, _)) if self.random.bool() => master.clone(),
            _ => names[self.random.usize(..names.len())].clone(),
        };
        let other = names[self.random.usize(..names.len())].clone();
        let is_down = self.down.contains(&victim);
        let what = self.random.u8(..32);
        self.done += &format!(" {what}{victim}");
        match what {
            0 | 1 => self.cluster.isolate(&victim, true),
            2 => self.cluster.cut(&victim, &other, true),
            3 | 4 => self.cluster.cut_off(&victim, &other, true),
            5 => {
                names.iter().filter(|name| **name != victim).for_each(|name| self.cluster.cut_off(&victim, name, true))
            }
            6 => self.flap(&victim).await,
            7 if !is_down => disks::set(&self.cluster.data(&victim), DiskState::Slow(self.some_time())),
            8 if !is_down => disks::set_for_snapshots(&self.cluster.data(&victim), DiskState::Slow(self.some_time())),
            9 if !is_down => disks::set(&self.cluster.data(&victim), DiskState::Broken),
            10 | 11 if !is_down => self.kill(victim),
            12 => self.wipe(victim).await,
            13 if !is_down => {
                let peer = self.cluster.peer(&victim).clone();
                self.transfers.spawn(async move { drop(peer.transfer(None).await) });
            }
            14..17 => self.hand_over_late().await,
            17 => self.held.push(hold_next(&self.cluster.address(&victim, &other), None)),
            18..20 => self.held.drain(..).for_each(|held| held.release()),
            20..26 => names.iter().for_each(|name| self.cluster.isolate(name, false)),
            _ => {
                if let Some(name) = self.down.pop() {
                    self.start(&name).await;
                }
            }
        }
        let failed = self.cluster.running().filter(|(_, peer)| peer.failure().borrow().is_some());
        for name in failed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.kill(name);
        }
    }

    fn some_time(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(5..150))
    }

    async fn flap(&self, victim: &str) {
        for round in 0..8 {
            self.cluster.isolate(victim, round % 2 == 0);
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// The master asks another peer to stand for election, and that request is late. Meanwhile the master loses the
    /// third peer, and once the request has arrived, the second.
    async fn hand_over_late(&mut self) {
        let Some((master, _)) = self.cluster.masters().pop() else { return };
        let mut others: Vec<_> = self.cluster.names.iter().filter(|name| **name != master).cloned().collect();
        self.random.shuffle(&mut others);
        let next = others.swap_remove(0);
        let held = hold_next(&self.cluster.address(&master, &next), Some(Method::Stand));
        let peer = self.cluster.peer(&master).clone();
        let transfer = {
            let next = next.clone();
            tokio::spawn(async move { peer.transfer(Some(&next)).await })
        };
        if tokio::time::timeout(Duration::from_secs(2), held.caught()).await.is_ok() {
            let lease = self.cluster.timing.lease().0;
            self.pause(0, 4 * lease).await;
            others.iter().for_each(|other| self.cluster.cut(&master, other, true));
            self.pause(0, 2 * lease).await;
            let _ = tokio::time::timeout(Duration::from_millis(50), held.deliver()).await;
            self.cluster.cut(&master, &next, true);
        }
        held.release();
        self.transfers.spawn(async move { drop(transfer.await) });
    }

    async fn pause(&mut self, least: u64, most: u64) {
        let pause = self.random.u64(least..most);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    fn kill(&mut self, name: String) {
        if self.random.bool() {
            let peer = self.cluster.peer(&name).clone();
            tokio::spawn(async move { peer.shutdown().await });
        }
        self.callers.forget(&name);
        self.transfers.abort_all();
        self.held.clear();
        self.cluster.kill(&name);
        disks::set(&self.cluster.data(&name), DiskState::Sound);
        self.down.push(name);
    }

    async fn start(&mut self, name: &str) -> RaftHandle {
        let peer = self.cluster.start(name).await;
        self.watcher.watch(&peer);
        self.callers.set_running(&self.cluster);
        peer
    }

    /// Wipes a data directory, unless another peer was wiped and has no vote yet: a majority has to keep theirs.
    async fn wipe(&mut self, victim: String) {
        if !self.down.is_empty()
            || !self.cluster.masters().first().is_some_and(|(name, _)| is_settled(&self.cluster, name))
        {
            return;
        }
        self.kill(victim.clone());
        self.down.pop();
        self.cluster.wipe(&victim);
        self.start(&victim).await;
    }

    /// Repairs everything, and judges the calls.
    async fn end(mut self, watching: std::thread::JoinHandle<(usize, usize)>) -> Result<(usize, usize), String> {
        self.transfers.abort_all();
        self.held.drain(..).for_each(|held| held.release());
        for name in self.cluster.names.clone() {
            self.cluster.isolate(&name, false);
            disks::set(&self.cluster.data(&name), DiskState::Sound);
            disks::set_for_snapshots(&self.cluster.data(&name), DiskState::Sound);
        }
        let failed = self.cluster.running().filter(|(_, peer)| peer.failure().borrow().is_some());
        for name in failed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.kill(name);
        }
        for name in std::mem::take(&mut self.down) {
            self.start(&name).await;
        }
        // Commits once with all peers before the callers stop.
        self.cluster.propose(assigned("last", 1.0)).await;
        let calls = self.callers.stop(&self.cluster).await;
        let judged = judge(&calls);
        until_equal(&self.cluster, &self.cluster.names, &self.done).await;
        let losses: Vec<String> = self.cluster.running().flat_map(|(_, peer)| peer.losses()).collect();
        assert_eq!(losses, [""; 0], "{} no directory was put back", self.done);
        let (leases, held) = self.watcher.stop(watching);
        assert!(leases > 1 && held > 0, "nothing happened: {leases} leases, {held} moments");
        judged
    }
}

async fn chaos(names: &[&str], steps: usize, seed: u64, mistake: Mistake) -> Result<(usize, usize), String> {
    let timing = if seed.is_multiple_of(3) { Timing::new(100, 400, 1500) } else { Timing::new(50, 200, 400) };
    let mut cluster = Cluster::with(names, timing.expect("a good timing")).await;
    let (watcher, watching) = LeaseWatcher::start(&cluster);
    cluster.bootstrap().await;
    for (_, peer) in cluster.running() {
        watcher.watch(peer);
    }
    cluster.master().await;
    let mut callers = Callers::start(&cluster, seed, mistake);
    // The load makes snapshots due.
    callers.add_load(1, 100 << 10);
    let random = fastrand::Rng::with_seed(seed);
    let mut chaos = Chaos {
        cluster,
        callers,
        watcher,
        random,
        down: Vec::new(),
        transfers: JoinSet::new(),
        held: Vec::new(),
        done: format!("seed {seed}:"),
    };
    for _ in 0..steps {
        chaos.step().await;
        chaos.pause(50, 400).await;
    }
    let done = chaos.done.clone();
    chaos.end(watching).await.map_err(|why| format!("{done}: {why}"))
}

/// The number of seeds: `LEASEWAY_SEEDS`.
pub(super) fn seeds() -> u64 {
    std::env::var("LEASEWAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

/// Leaves out the rule that `LEASEWAY_PLANT` names, to show that these tests notice.
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
    let mut told = (0, 0);
    for seed in seed..seed + seeds() {
        eprintln!("seed {seed}");
        let (writes, reads) = chaos(names, 40, seed, Mistake::None).await.unwrap_or_else(|why| panic!("{why}"));
        told = (told.0 + writes, told.1 + reads);
    }
    assert!(told.0 > 0 && told.1 > 0, "nothing happened");
    eprintln!("{} seeds: {} writes and {} reads were answered", seeds(), told.0, told.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_in_trouble_never_have_two_masters_and_lose_nothing() {
    survive(&["a", "b", "c"], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_peers_in_trouble_never_have_two_masters_and_lose_nothing() {
    survive(&["a", "b", "c", "d", "e"], 1001).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_judge_finds_what_callers_do_wrong() {
    for mistake in [Mistake::ReadsAnywhere, Mistake::TrustsTheUncertain, Mistake::DropsOne] {
        let mut found = false;
        for seed in 0..10 {
            found |= chaos(&["a", "b", "c"], 20, seed, mistake).await.is_err();
            if found {
                break;
            }
        }
        assert!(found, "{mistake:?}");
    }
}
