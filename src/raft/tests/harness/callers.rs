//! Callers that write and read parts of the state through the master, as the server does. [`judge`] checks that their
//! calls are linearizable.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_core::{
    lease::promises::Inherited,
    policy::overrides::Load,
    pool::Assigned,
    types::{Amount, ClusterTime, Epoch, HolderKind, Millis, Token},
};
use leaseway_sim::accounting::linearizability::{Operation, RegisterCall, Value, unexplained};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::RaftHandle,
    log::command::{Command, ProposeError},
    state::{State, machine::Clock},
    tests::harness::cluster::{Cluster, assigned, promised, set_text},
};

/// The end of all promises: later than any test runs.
const HORIZON: ClusterTime = ClusterTime(3_600_000);
const LEASE: Millis = Millis(60_000);
const CALLERS: u64 = 6;
const PAUSE: Duration = Duration::from_millis(3);

/// A planted mistake of the callers, which [`judge`] has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// They read at any peer, even without a master lease.
    ReadsAnywhere,
    /// They treat a write of unknown outcome as stored.
    TrustsTheUncertain,
    /// One write counts as acknowledged, but is never proposed.
    DropsOne,
}

pub(crate) struct Callers {
    shared: Arc<SharedCallers>,
    callers: Vec<JoinHandle<Vec<RegisterCall>>>,
    load: Vec<JoinHandle<()>>,
}

struct SharedCallers {
    peers: Mutex<BTreeMap<String, RaftHandle>>,
    stop: AtomicBool,
    clock: Clock,
    began: Instant,
    /// The last value that a caller wrote. Values are never reused.
    values: AtomicU64,
    mistake: Mistake,
    dropped: AtomicBool,
}

impl Callers {
    pub(crate) fn start(cluster: &Cluster, seed: u64, mistake: Mistake) -> Callers {
        let shared = Arc::new(SharedCallers {
            peers: Mutex::default(),
            stop: AtomicBool::new(false),
            clock: cluster.clock(),
            began: Instant::now(),
            values: AtomicU64::new(0),
            mistake,
            dropped: AtomicBool::new(false),
        });
        let work = |number: u64| {
            tokio::spawn(Arc::clone(&shared).work(fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number))))
        };
        let tasks = (0..CALLERS).map(work).collect();
        let callers = Callers { shared, callers: tasks, load: Vec::new() };
        callers.set_running(cluster);
        callers
    }

    /// Makes the callers use the peers that run now. Also call it before a peer is killed, because callers hold it.
    pub(crate) fn set_running(&self, cluster: &Cluster) {
        let running = cluster.running().map(|(name, peer)| (name.clone(), peer.clone()));
        *self.shared.peers.lock().unwrap() = running.collect();
    }

    pub(crate) fn forget(&self, name: &str) {
        self.shared.peers.lock().unwrap().remove(name);
    }

    /// Adds callers that propose at full speed commands with `bytes` in the log and nothing in the state.
    pub(crate) fn add_load(&mut self, callers: usize, bytes: usize) {
        self.load.extend((0..callers).map(|_| tokio::spawn(Arc::clone(&self.shared).work_load(bytes))));
    }

    /// Stops the callers. Returns all calls, and a last read of each register at a master.
    pub(crate) async fn stop(self, cluster: &Cluster) -> Vec<RegisterCall> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut calls = Vec::new();
        for one in self.callers {
            calls.extend(one.await.expect("no caller panics"));
        }
        for one in self.load {
            one.await.expect("no caller panics");
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

    /// Returns the operation and whether it is certainly stored, or `None` if it is certainly not.
    async fn write(&self, of: Register, random: &mut fastrand::Rng) -> Option<(Operation, bool)> {
        let (peer, lease) = self.master(random)?;
        let (value, begins_epoch) = (self.new_value(), random.u8(..8) == 0);
        let (operation, commands) = peer.read(|state| {
            let found = of.read(state);
            of.write(state, found, value, begins_epoch)
        });
        if self.mistake == Mistake::DropsOne && value > 20 && !self.dropped.swap(true, Ordering::SeqCst) {
            return Some((operation, true));
        }
        let (done, result) = oneshot::channel();
        // The handle is dropped meanwhile, so that the peer can be killed.
        peer.submit(&lease, commands, |outcome| drop(done.send(outcome)));
        drop((peer, lease));
        match result.await.unwrap_or(Err(ProposeError::Uncertain)) {
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
            let (done, result) = oneshot::channel();
            let client = "b".repeat(bytes);
            peer.submit(&lease, vec![assigned(&client, 0.0)], |outcome| drop(done.send(outcome)));
            drop((peer, lease));
            if !matches!(result.await, Ok(Ok(()))) {
                sleep(PAUSE).await;
            }
        }
    }
}

/// Parts of the state as registers.
#[derive(Debug, Clone, Copy)]
enum Register {
    Assignment(&'static str),
    /// The configuration in force.
    InForce,
    /// The promises of a resource, which are numbered.
    Promised(&'static str),
    /// The effects of two commands of one proposal, which must always be equal.
    Twins,
}

const REGISTERS: [Register; 6] = [
    Register::Assignment("x"),
    Register::Assignment("y"),
    Register::InForce,
    Register::Promised("q"),
    Register::Promised("s"),
    Register::Twins,
];

fn amount(value: u64) -> Amount {
    Amount::clamped(value as f64)
}

fn capacity_of(state: &State, holder: &str) -> Value {
    match state.assigned("r", HolderKind::Client, &holder.into())? {
        Assigned::Capacity(amount) => Some(amount.get() as u64),
        other => panic!("{other:?} was never assigned"),
    }
}

fn claimable_from(epoch: Epoch, value: u64) -> Option<Token> {
    Token::new(Token::first(epoch).get() + value)
}

impl Register {
    /// Reads the value, and asserts that it comes from one write.
    fn read(self, state: &State) -> Value {
        match self {
            Register::Assignment(holder) => capacity_of(state, holder),
            Register::InForce => {
                let versions: Vec<u64> = state.configurations().map(|one| one.version).collect();
                assert!(versions.windows(2).all(|two| two[1] == two[0] + 1), "{versions:?}");
                state.configuration().and_then(|one| one.text.parse().ok())
            }
            Register::Promised(resource) => {
                let promises = state.promises(resource)?;
                let (epoch, _) = promises.newest()?;
                let value = promises.total().get() as u64;
                let record = promises.record(ClusterTime(0));
                assert_eq!(
                    (record.lease, record.high_water_mark),
                    (Some(LEASE), claimable_from(epoch, value)),
                    "a mix of two writes"
                );
                assert_eq!(promises.until(), HORIZON, "the horizon of another write");
                Some(value)
            }
            Register::Twins => {
                let (one, other) = (capacity_of(state, "twin"), state.load("twin"));
                assert_eq!(other, one.map(|value| Load::Capacity(amount(value))), "half of a proposal is applied");
                one
            }
        }
    }

    /// The commands that write `value`, given that the register holds `found`. `begins_epoch`: use a later epoch if the
    /// register has epochs.
    fn write(self, state: &State, found: Value, value: u64, begins_epoch: bool) -> (Operation, Vec<Command>) {
        let write = Operation::Write(Some(value));
        match self {
            Register::Assignment(holder) => (write, vec![assigned(holder, value as f64)]),
            Register::InForce => (write, vec![set_text(value.to_string())]),
            Register::Promised(resource) => {
                let newest = state.promises(resource).and_then(|promises| promises.newest());
                let (epoch, number, operation) = match newest {
                    Some((epoch, number)) if !begins_epoch => {
                        (epoch, number + 1, Operation::Exchange(found, Some(value)))
                    }
                    // Applied even if earlier epochs have promised more meanwhile.
                    Some((epoch, _)) => (Epoch(epoch.0 + Inherited::EPOCHS_APART), 1, write),
                    None => (Epoch(1), 1, write),
                };
                let mut command = promised(resource, epoch.0, number, value as f64, HORIZON);
                if let Command::Promises { changes, .. } = &mut command {
                    changes.high_water_mark = claimable_from(epoch, value);
                }
                (operation, vec![command])
            }
            Register::Twins => {
                let load = Command::Load { resource: "twin".into(), load: Some(Load::Capacity(amount(value))) };
                (write, vec![assigned("twin", value as f64), load])
            }
        }
    }
}

/// The number of writes and reads if linearizable registers explain all calls; otherwise the unexplained call.
pub(crate) fn judge(calls: &[RegisterCall]) -> Result<(usize, usize), String> {
    if let Some(call) = unexplained(calls) {
        let near = |other: &&RegisterCall| {
            other.register == call.register
                && other.answered.is_none_or(|end| end + 200_000_000 > call.asked)
                && call.answered.is_none_or(|end| other.asked < end)
        };
        let mut of: Vec<&RegisterCall> = calls.iter().filter(near).collect();
        of.sort_by_key(|call| call.asked);
        let calls: Vec<String> = of.iter().map(ToString::to_string).collect();
        let register = REGISTERS[call.register];
        return Err(format!("no order explains {call}, of {register:?}, among\n{}", calls.join("\n")));
    }
    let answered = calls.iter().filter(|call| call.answered.is_some());
    let reads = answered.clone().filter(|call| matches!(call.operation, Operation::Read(_))).count();
    Ok((answered.count() - reads, reads))
}
