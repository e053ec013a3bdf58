//! Operators that write and read assignments at any peer of the root. Their calls must be linearizable.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseway_client::{Channel, Transport};
use leaseway_proto::pools::{
    Assigned, GetClientCapacityRequest, Holder, SetClientCapacityRequest, assigned::Amount, pools_client::PoolsClient,
};
use leaseway_sim::accounting::linearizability::{Operation, RegisterCall, Value};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// A pool without clients, used only for these assignments.
const POOL: &str = "pool-registers";
const OPERATORS: usize = 8;
const REGISTERS: usize = 3;

/// The pause between two calls of one operator, and the timeout of a call.
const PAUSE: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(1);

/// The amount that encodes the first value, and the step between values. Both are small, so that all assignments fit
/// into the pool.
const LEAST: f64 = 20.0;
const UNIT: f64 = 1e-3;

pub(crate) struct Operators {
    leave: watch::Sender<bool>,
    at_work: Vec<JoinHandle<Vec<RegisterCall>>>,
}

impl Operators {
    /// `peers` are the admin addresses.
    pub(crate) fn gather(peers: &[SocketAddr], transport: &Transport, seed: u64, runtime: &Handle) -> Operators {
        let _inside = runtime.enter();
        let (leave, _) = watch::channel(false);
        let (newest, began) = (Arc::<AtomicU64>::default(), Instant::now());
        let operator = |number: u64| RegisterOperator {
            peers: peers
                .iter()
                .map(|peer| transport.connect_lazy(&peer.to_string(), |to| to.connect_timeout(DEADLINE)))
                .map(|channel| PoolsClient::new(channel.expect("a socket address makes a URI, and there is no token")))
                .collect(),
            turn: number as usize,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number)),
            newest: Arc::clone(&newest),
            began,
        };
        let at_work = (0..OPERATORS as u64).map(|number| runtime.spawn(operator(number).work(leave.subscribe())));
        Operators { at_work: at_work.collect(), leave }
    }

    /// Stops all operators. Returns their calls.
    pub(crate) async fn leave(self) -> Vec<RegisterCall> {
        self.leave.send_replace(true);
        let mut calls = Vec::new();
        for one in self.at_work {
            calls.extend(one.await.expect("an operator of ours does not panic"));
        }
        calls
    }
}

struct RegisterOperator {
    peers: Vec<PoolsClient<Channel>>,
    /// The index of the peer to ask next. It changes at random and after a failed call.
    turn: usize,
    random: fastrand::Rng,
    /// The newest value of all operators.
    newest: Arc<AtomicU64>,
    began: Instant,
}

impl RegisterOperator {
    async fn work(mut self, left: watch::Receiver<bool>) -> Vec<RegisterCall> {
        let mut calls = Vec::new();
        while !*left.borrow() {
            let register = self.random.usize(..REGISTERS);
            let write = self.random.bool().then(|| self.newest.fetch_add(1, Ordering::Relaxed) + 1);
            let asked = self.now();
            let answer = timeout(DEADLINE, self.call(register, write)).await.ok().flatten();
            let answered = answer.is_some().then(|| self.now());
            let operation = match (write, answer) {
                (Some(value), _) => Operation::Write(Some(value)),
                (None, found) => Operation::Read(found.flatten()),
            };
            calls.push(RegisterCall { register, operation, asked, answered });
            if answer.is_none() || self.random.u8(..16) == 0 {
                self.turn += 1;
            }
            sleep(PAUSE).await;
        }
        calls
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The value that was read or written. `None` without an answer, or after an error.
    async fn call(&mut self, register: usize, write: Option<u64>) -> Option<Value> {
        let peer = self.turn % self.peers.len();
        let holder = Some(Holder { id: format!("register:{register}"), ..Holder::default() });
        let resource_id = POOL.to_owned();
        if let Some(value) = write {
            let assigned = Some(Assigned { amount: Some(Amount::Capacity(LEAST + value as f64 * UNIT)) });
            let request = SetClientCapacityRequest { resource_id, holder, assigned };
            return self.peers[peer].set_client_capacity(request).await.ok().map(|_| Some(value));
        }
        let request = GetClientCapacityRequest { resource_id, holder };
        let found = self.peers[peer].get_client_capacity(request).await.ok()?.into_inner();
        Some(match found.assigned.and_then(|assigned| assigned.amount) {
            Some(Amount::Capacity(amount)) => Some(((amount - LEAST) / UNIT).round() as u64),
            _ => None,
        })
    }
}
