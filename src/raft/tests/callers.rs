//! Callers that write and read the state through any peer that is master, as the server does. [`judge`] checks whether
//! a linearizable register could have given their answers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_history::{Operation, RegisterCall, unexplained};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::RaftHandle,
    log::command::ProposeError,
    state::machine::Clock,
    tests::{
        cluster::{Cluster, assigned},
        registers::{REGISTERS, Register},
    },
};

const CALLERS: u64 = 6;
const PAUSE: Duration = Duration::from_millis(3);

/// A mistake of the callers, which the judge has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// They read at any peer, whether or not its master lease holds.
    ReadsAnywhere,
    /// They take a write of unknown outcome for a stored one.
    TrustsTheUncertain,
    /// One write counts as acknowledged, but is never proposed.
    DropsOne,
}

pub(super) struct Callers {
    shared: Arc<SharedCallers>,
    at_work: Vec<JoinHandle<Vec<RegisterCall>>>,
    ballast: Vec<JoinHandle<()>>,
}

struct SharedCallers {
    peers: Mutex<BTreeMap<String, RaftHandle>>,
    stop: AtomicBool,
    clock: Clock,
    began: Instant,
    /// The last value that was written.
    values: AtomicU64,
    mistake: Mistake,
    dropped: AtomicBool,
    /// The number of stored proposals of `work_load`.
    heavy: AtomicUsize,
}

impl Callers {
    pub(super) fn start(cluster: &Cluster, seed: u64, mistake: Mistake) -> Callers {
        let shared = Arc::new(SharedCallers {
            peers: Mutex::default(),
            stop: AtomicBool::new(false),
            clock: cluster.clock(),
            began: Instant::now(),
            values: AtomicU64::new(0),
            mistake,
            dropped: AtomicBool::new(false),
            heavy: AtomicUsize::new(0),
        });
        let work = |number: u64| {
            tokio::spawn(Arc::clone(&shared).work(fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number))))
        };
        let at_work = (0..CALLERS).map(work).collect();
        let callers = Callers { shared, at_work, ballast: Vec::new() };
        callers.set_running(cluster);
        callers
    }

    /// Makes the callers use the peers that run now. Also call it before a peer is killed, because callers hold it.
    pub(super) fn set_running(&self, cluster: &Cluster) {
        let running = cluster.running().map(|(name, peer)| (name.clone(), peer.clone()));
        *self.shared.peers.lock().unwrap() = running.collect();
    }

    pub(super) fn forget(&self, name: &str) {
        self.shared.peers.lock().unwrap().remove(name);
    }

    /// Adds callers that propose at full speed commands with `bytes` in the log and nothing in the state.
    pub(super) fn add_load(&mut self, callers: usize, bytes: usize) {
        self.ballast.extend((0..callers).map(|_| tokio::spawn(Arc::clone(&self.shared).work_load(bytes))));
    }

    pub(super) fn loaded(&self) -> usize {
        self.shared.heavy.load(Ordering::Relaxed)
    }

    /// Stops the callers. Returns all calls, and a last read of each register at a master.
    pub(super) async fn stop(self, cluster: &Cluster) -> Vec<RegisterCall> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut calls = Vec::new();
        for one in self.at_work {
            calls.extend(one.await.expect("what is read is whole"));
        }
        for one in self.ballast {
            one.await.expect("nothing panics");
        }
        let asked = self.shared.now();
        let (name, _) = cluster.master().await;
        for (register, of) in REGISTERS.iter().enumerate() {
            let found = cluster.peer(&name).read(|state| of.read(state));
            calls.push(RegisterCall {
                register,
                operation: Operation::Read(found),
                asked,
                answered: Some(self.shared.now()),
            });
        }
        calls
    }
}

impl SharedCallers {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("no test takes centuries")
    }

    fn new_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A peer that may decide; any of them if there are several.
    fn master(&self, random: &mut fastrand::Rng) -> Option<(RaftHandle, MasterLease)> {
        let peers = self.peers.lock().unwrap();
        let lease = |peer: &RaftHandle| match &*peer.mastership().borrow() {
            Mastership::Master(lease) if lease.holds((self.clock)()) => Some(lease.clone()),
            _ => None,
        };
        let masters: Vec<_> = peers.values().filter_map(|peer| Some((peer.clone(), lease(peer)?))).collect();
        random.choice(masters)
    }

    fn any(&self, random: &mut fastrand::Rng) -> Option<RaftHandle> {
        random.choice(self.peers.lock().unwrap().values().cloned().collect::<Vec<_>>())
    }

    async fn work(self: Arc<Self>, mut random: fastrand::Rng) -> Vec<RegisterCall> {
        let mut calls = Vec::new();
        while !self.stop.load(Ordering::SeqCst) {
            sleep(PAUSE).await;
            let register = random.usize(..REGISTERS.len());
            let of = REGISTERS[register];
            let asked = self.now();
            if random.bool() {
                let peer = match self.mistake {
                    Mistake::ReadsAnywhere => self.any(&mut random),
                    _ => self.master(&mut random).map(|(peer, _)| peer),
                };
                let Some(peer) = peer else { continue };
                let found = peer.read(|state| of.read(state));
                calls.push(RegisterCall {
                    register,
                    operation: Operation::Read(found),
                    asked,
                    answered: Some(self.now()),
                });
            } else if let Some((operation, stored)) = self.write(of, &mut random).await {
                calls.push(RegisterCall { register, operation, asked, answered: stored.then(|| self.now()) });
            }
        }
        calls
    }

    /// `None` if it is certainly not stored. The flag is whether it certainly is.
    async fn write(&self, of: Register, random: &mut fastrand::Rng) -> Option<(Operation, bool)> {
        let (peer, lease) = self.master(random)?;
        let (value, anew) = (self.new_value(), random.u8(..8) == 0);
        let (operation, commands) = peer.read(|state| {
            let found = of.read(state);
            of.write(state, found, value, anew)
        });
        if self.mistake == Mistake::DropsOne && value > 20 && !self.dropped.swap(true, Ordering::SeqCst) {
            return Some((operation, true));
        }
        let (result, told) = oneshot::channel();
        // Nothing holds the peer meanwhile, so that it can be killed.
        peer.submit(&lease, commands, |told| drop(result.send(told)));
        drop((peer, lease));
        match told.await.unwrap_or(Err(ProposeError::Uncertain)) {
            Ok(()) => Some((operation, true)),
            Err(ProposeError::Uncertain) => Some((operation, self.mistake == Mistake::TrustsTheUncertain)),
            Err(_) => None,
        }
    }

    async fn work_load(self: Arc<Self>, bytes: usize) {
        let mut random = fastrand::Rng::new();
        while !self.stop.load(Ordering::SeqCst) {
            let Some((peer, lease)) = self.master(&mut random) else {
                sleep(PAUSE).await;
                continue;
            };
            let (result, told) = oneshot::channel();
            let client = "b".repeat(bytes);
            peer.submit(&lease, vec![assigned(&client, 0.0)], |told| drop(result.send(told)));
            drop((peer, lease));
            match told.await {
                Ok(Ok(())) => drop(self.heavy.fetch_add(1, Ordering::Relaxed)),
                _ => sleep(PAUSE).await,
            }
        }
    }
}

/// The number of writes and reads if linearizable registers explain all calls; otherwise the unexplained call.
pub(super) fn judge(calls: &[RegisterCall]) -> Result<(usize, usize), String> {
    if let Some(call) = unexplained(calls) {
        let near = |other: &&RegisterCall| {
            other.register == call.register
                && other.answered.is_none_or(|end| end + 200_000_000 > call.asked)
                && call.answered.is_none_or(|end| other.asked < end)
        };
        let mut of: Vec<&RegisterCall> = calls.iter().filter(near).collect();
        of.sort_by_key(|call| call.asked);
        let told: Vec<String> = of.iter().map(ToString::to_string).collect();
        let register = REGISTERS[call.register];
        return Err(format!("no order explains {call}, of {register:?}, among\n{}", told.join("\n")));
    }
    let answered = calls.iter().filter(|call| call.answered.is_some());
    let reads = answered.clone().filter(|call| matches!(call.operation, Operation::Read(_))).count();
    Ok((answered.count() - reads, reads))
}
