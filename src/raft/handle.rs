//! The handle to a running peer.

pub(crate) mod maintenance;
pub(crate) mod open;
pub(crate) mod peer;
pub(crate) mod proposals;
pub(crate) mod service;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use leaseway_core::types::Millis;
use tokio::sync::{oneshot, watch};

use crate::{
    election::master_lease::{MasterLease, Mastership},
    handle::{
        open::StartError,
        peer::{Running, StateOrigin},
    },
    log::{
        command::{Command, ProposeError},
        disk_thread::Failure,
    },
    membership::{
        ineligible::Ineligible,
        members::{ChangeError, Members},
        report::{self, PeerReport},
        transfer::{Transferred, transfer},
    },
    settings::Settings,
    state::{
        State,
        backup::{BackedUpPeer, Backup, BackupHeader},
    },
};

/// A running peer. When the last clone is dropped, the peer stops as if it had been killed.
#[derive(Clone)]
pub struct RaftHandle(Arc<Running>);

/// Starts a peer on threads of its own. When this returns, its data directory has been read and its listener accepts.
/// The peer goes on to find the others and a master.
pub async fn start(settings: Settings) -> Result<RaftHandle, StartError> {
    open::check(&settings)?;
    let (started, result) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Threads)?;
    thread::Builder::new()
        .name("raft".into())
        .spawn(move || runtime.block_on(peer::run(Arc::new(settings), started)))
        .map_err(StartError::Threads)?;
    let running =
        result.await.unwrap_or_else(|_| Err(StartError::Failed(Failure("its thread has panicked".into()))))?;
    Ok(RaftHandle(Arc::new(running)))
}

impl RaftHandle {
    /// The master as far as this peer knows it. The receiver is notified of every change.
    pub fn mastership(&self) -> watch::Receiver<Mastership> {
        self.0.context.mastership.clone()
    }

    /// Proposes commands, which are applied as a whole or not at all. `Ok` means that a majority of the peers has them
    /// on disk, and that they are applied here. Many concurrent proposals cost little more than one. Concurrent
    /// proposals of one caller are applied in the order in which they were first polled.
    pub async fn propose(&self, lease: &MasterLease, commands: Vec<Command>) -> Result<(), ProposeError> {
        proposals::propose(&self.0.proposals, lease, commands).await
    }

    /// As [`propose`](Self::propose), without waiting. `done` is called with the result on a thread of this peer. If
    /// the peer stops, `done` is dropped.
    pub fn submit(
        &self,
        lease: &MasterLease,
        commands: Vec<Command>,
        done: impl FnOnce(Result<(), ProposeError>) + Send + 'static,
    ) {
        proposals::submit(&self.0.proposals, lease, commands, Box::new(done));
    }

    /// Reads the state as applied here. No entry is applied meanwhile, so be brief.
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.0.state.read())
    }

    /// All members as this peer sees them; empty before consensus has begun.
    pub fn peers(&self) -> Vec<PeerReport> {
        let context = &self.0.context;
        context.raft.get().map_or_else(Vec::new, |raft| report::peers(raft, context))
    }

    #[cfg(test)]
    pub(crate) fn raft(&self) -> &crate::log::Raft {
        self.0.context.raft.get().expect("consensus has begun")
    }

    /// A backup of the state as this peer knows it. `believed` is a lower bound for the time that the backup's header
    /// gives: the longest time for which clients may still hold leases.
    pub fn backup(&self, program: &str, at_unix: i64, believed: Millis) -> Backup {
        let now = self.0.context.now();
        let peers = self.peers().into_iter();
        self.read(|state| {
            let longest = state.promised().filter_map(|resource| state.promises(resource));
            let longest = longest.map(|promises| promises.longest_left(state.clock())).max().unwrap_or(Millis(0));
            let listening = state.listen_until().map_or(Millis(0), |until| until.since(state.clock()));
            let believed = believed.max(longest).max(listening);
            let mut header = BackupHeader::new(program, at_unix, believed);
            header.cluster = self.cluster().unwrap_or_default();
            header.peer = self.name().to_owned();
            let peer = |peer: PeerReport| BackedUpPeer { name: peer.name, peer_address: peer.address };
            header.members = peers.map(peer).collect();
            Backup::of(state, header, now)
        })
    }

    /// Adds the peer that runs at `address` with an empty data directory. Returns once it has caught up and has a vote.
    /// Only on the master.
    pub async fn add(&self, name: &str, address: &str) -> Result<(), ChangeError> {
        let (name, address) = (name.to_owned(), address.to_owned());
        let lone = ChangeError::Lone { name: self.name().to_owned() };
        self.change(lone, |members| async move { members.add(&name, &address).await }).await
    }

    /// Removes a peer for good. Only on the master.
    pub async fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        let lone = ChangeError::Lone { name: self.name().to_owned() };
        self.change(lone, |members| async move { members.remove(&name).await }).await
    }

    /// Transfers mastership to a peer, or to the one with the longest log. Returns once the next master has its lease.
    /// Only on the master.
    pub async fn transfer(&self, to: Option<&str>) -> Result<Transferred, ChangeError> {
        let to = to.map(str::to_owned);
        self.change(ChangeError::Alone, |members| async move { transfer(&members, to.as_deref()).await }).await
    }

    /// Runs a change on the thread of this peer, where it is completed even if the caller is dropped. `lone` is the
    /// error of a lone peer.
    async fn change<T: Send + 'static, F: Future<Output = Result<T, ChangeError>> + Send + 'static>(
        &self,
        lone: ChangeError,
        change: impl FnOnce(Arc<Members>) -> F,
    ) -> Result<T, ChangeError> {
        if self.0.context.settings.is_lone() {
            return Err(lone);
        }
        let members = self.0.members.get().cloned().ok_or(ChangeError::NotMaster { master: None })?;
        let changed = self.0.runtime.spawn(change(members)).await;
        changed.unwrap_or_else(|_| Err(ChangeError::Failed("this peer is stopping".into())))
    }

    pub fn name(&self) -> &str {
        &self.0.context.settings.name
    }

    /// The id of its cluster in hexadecimal; `None` before it belongs to one.
    pub fn cluster(&self) -> Option<String> {
        self.cluster_number().map(|cluster| format!("{cluster:032x}"))
    }

    /// The id of its cluster, a random number.
    pub fn cluster_number(&self) -> Option<u128> {
        self.0.context.handshake.cluster()
    }

    /// Where the state comes from. [`StateOrigin::Empty`] may become [`StateOrigin::Joined`].
    pub fn origin(&self) -> StateOrigin {
        *self.0.origin.borrow()
    }

    /// The bound address of its peer listener, with the real port.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr
    }

    /// Why this peer cannot vote or lead, if so.
    pub fn ineligible(&self) -> Option<Ineligible> {
        let failed = self.0.context.failing.get().map(Ineligible::Failed);
        failed.or_else(|| self.0.eligibility.get())
    }

    /// The longest time for which a former master may still grant leases after a new master lease has begun; see
    /// [`Timing`](crate::settings::timing::Timing). Zero for a lone peer.
    pub fn overlap(&self) -> Millis {
        let settings = &self.0.context.settings;
        if settings.is_lone() { Millis(0) } else { settings.timing.overlap() }
    }

    /// Reports of committed entries that other peers have lost, since this peer started. Causes: a data directory was
    /// restored from an older copy, or a disk has dropped writes.
    pub fn losses(&self) -> Vec<String> {
        self.0.context.acknowledged.reports()
    }

    /// Whether this peer is master or gets heartbeats from the master. Otherwise it may know the master from other
    /// peers, but does not count for a majority yet.
    pub fn gets_heartbeats(&self) -> bool {
        self.0.context.discovered.gets_heartbeats.load(Ordering::Relaxed)
    }

    /// Why consensus has ended on this peer, usually because its disk has failed. It neither leads nor votes until it
    /// is restarted.
    pub fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.0.context.failing.watch()
    }

    /// The duration of the slowest disk write of the last minute, including one under way.
    pub fn slowest_flush(&self) -> Duration {
        self.0.flushes.slowest(Instant::now())
    }

    /// Answers other peers that [ask for the history](Self::ask_history) of this one. The answer must be shorter than a
    /// megabyte.
    pub fn answer_history(&self, answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) {
        self.0.context.history.set(answer);
    }

    /// Asks the master for the history of its resources. None if this peer is the master, or does not reach it.
    pub async fn ask_history(&self, request: Vec<u8>) -> Option<Vec<u8>> {
        let members = self.0.members.get().cloned()?;
        let asked = self.0.runtime.spawn(async move { members.ask_history(request).await });
        asked.await.ok().flatten()
    }

    /// Stops cleanly. A master transfers mastership first. Nothing is in flight when this returns.
    pub async fn shutdown(&self) {
        let (done, has_left) = oneshot::channel();
        let _ = self.0.leave.send(done);
        // The sender is dropped once the peer has left.
        let _ = has_left.await;
    }
}
