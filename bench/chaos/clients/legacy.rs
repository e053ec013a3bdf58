//! Clients of the protocol of 2016: they know no tokens, send one request at a time, and believe in a lease until its
//! expiry time.

use std::{
    net::SocketAddr,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use leaseway_client::{LeaseChange, Transport};
use leaseway_proto::doorman::Lease;
use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::timeout_at};

use crate::chaos::{
    clients::{SCARCE, draw},
    raw_client::{CapacityRequest, Grant, RawClient},
};

/// After a request without an answer.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
pub(crate) struct LegacyClientsArgs {
    pub(crate) number: usize,
    pub(crate) seed: u64,
    pub(crate) refresh: Duration,
    pub(crate) lease: Duration,
}

pub(crate) struct LegacyClients {
    leave: watch::Sender<bool>,
    clients: Vec<JoinHandle<Vec<LeaseChange>>>,
}

impl LegacyClients {
    /// Client ids begin with `name`.
    pub(crate) fn gather(
        name: &str,
        of: LegacyClientsArgs,
        transport: &Transport,
        peers: &[SocketAddr],
        runtime: &Handle,
    ) -> LegacyClients {
        let _inside = runtime.enter();
        let (leave, _) = watch::channel(false);
        let client = |n: usize| LegacyClient {
            peers: peers.iter().map(|peer| RawClient::to(transport, *peer)).collect(),
            turn: n,
            request: CapacityRequest {
                client: format!("{name}:{n}").into(),
                resource: SCARCE.into(),
                wants: f64::NAN,
                drops_late: false,
            },
            random: fastrand::Rng::with_seed(of.seed.wrapping_add(n as u64)),
            refresh: of.refresh,
            length: of.lease,
            has: None,
            records: Vec::new(),
        };
        let clients = (0..of.number).map(|n| runtime.spawn(client(n).live(leave.subscribe()))).collect();
        LegacyClients { leave, clients }
    }

    /// Stops all clients. Returns their records.
    pub(crate) async fn leave(self) -> Vec<LeaseChange> {
        self.leave.send_replace(true);
        let mut entries = Vec::new();
        for client in self.clients {
            entries.extend(client.await.expect("a client of ours does not panic"));
        }
        entries
    }
}

struct LegacyClient {
    peers: Vec<RawClient>,
    /// The peer to ask. It changes after each request without an answer.
    turn: usize,
    request: CapacityRequest,
    random: fastrand::Rng,
    refresh: Duration,
    length: Duration,
    /// The lease, and when it ends by the wall clock.
    has: Option<(Grant, Instant)>,
    records: Vec<LeaseChange>,
}

impl LegacyClient {
    async fn live(mut self, mut left: watch::Receiver<bool>) -> Vec<LeaseChange> {
        while !*left.borrow() {
            let pause = if self.refresh().await { self.refresh } else { PAUSE };
            let _ = timeout_at((Instant::now() + pause).into(), left.wait_for(|left| *left)).await;
            self.expire();
        }
        if let Some((grant, _)) = self.has.take() {
            self.note(Instant::now(), 0.0);
            let peer = self.turn % self.peers.len();
            self.peers[peer].release(&self.request, &grant).await;
        }
        self.records
    }

    /// Asks one peer. Fields that this client does not know are dropped from the lease.
    async fn refresh(&mut self) -> bool {
        self.request.wants = draw(&mut self.random);
        let has = self.has.as_ref().map(|(grant, _)| grant.lease);
        let asking = self.turn % self.peers.len();
        let Some(mut grant) = self.peers[asking].ask(&self.request, has, self.length).await else {
            self.turn += 1;
            return false;
        };
        let Lease { expiry_time, refresh_interval, capacity, .. } = grant.lease;
        grant.lease = Lease { expiry_time, refresh_interval, capacity, ..Lease::default() };
        let ends = grant.at + until(expiry_time.unwrap_or(0));
        self.expire();
        self.note(grant.at, capacity.unwrap_or(0.0));
        self.has = Some((grant, ends));
        true
    }

    fn expire(&mut self) {
        if let Some((_, ends)) = self.has.take_if(|(_, ends)| *ends <= Instant::now()) {
            self.note(ends, 0.0);
        }
    }

    fn note(&mut self, at: Instant, capacity: f64) {
        self.records.push(self.request.entry(at, capacity));
    }
}

/// The time until a wall-clock time in seconds.
fn until(expiry_unix: i64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(expiry_unix.unsigned_abs()).saturating_sub(now)
}
