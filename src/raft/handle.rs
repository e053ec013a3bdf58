//! The handle to a running peer.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leaseway_core::Millis;
use tokio::sync::{oneshot, watch};

use crate::{
    backup::{BackedUpPeer, Backup, BackupHeader},
    command::Command,
    error::{ChangeError, StartError},
    ineligible::Ineligible,
    master_lease::{MasterLease, Mastership},
    open, proposals,
    propose_error::ProposeError,
    report::{self, PeerReport},
    run::{self, Request, Running, StateOrigin},
    settings::Settings,
    state::State,
    store::disk::Failure,
    transfer::Transferred,
};

/// A peer that takes part in a quorum. When the last clone is dropped it stops as if it had been killed.
#[derive(Clone)]
pub struct RaftHandle(Arc<HandleInner>);

struct HandleInner {
    settings: Arc<Settings>,
    running: Running,
}

/// Starts a peer on threads of its own. When this returns its directory has been read and checked and its listener
/// accepts; finding the others and a master goes on.
pub async fn start(settings: Settings) -> Result<RaftHandle, StartError> {
    open::check(&settings)?;
    let settings = Arc::new(settings);
    let (started, result) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Threads)?;
    let of_thread = Arc::clone(&settings);
    thread::Builder::new()
        .name("raft".into())
        .spawn(move || runtime.block_on(run::run(of_thread, started)))
        .map_err(StartError::Threads)?;
    let running =
        result.await.unwrap_or_else(|_| Err(StartError::Failed(Failure("its thread has panicked".into()))))?;
    Ok(RaftHandle(Arc::new(HandleInner { settings, running })))
}

impl RaftHandle {
    /// Which peer decides, and every change of that.
    pub fn mastership(&self) -> watch::Receiver<Mastership> {
        self.0.running.mastership.clone()
    }

    /// Adds commands, all of them or none. `Ok`: a majority of the peers has them on disk, and they are applied here.
    /// Many concurrent proposals cost little more than one. Proposals of a caller that does not wait in between are
    /// applied in the order in which they were first polled.
    pub async fn propose(&self, lease: &MasterLease, commands: Vec<Command>) -> Result<(), ProposeError> {
        proposals::propose(&self.0.running.proposals, lease, commands).await
    }

    /// As [`propose`](Self::propose), without waiting: `done` is told what has become of it, on a thread of this peer;
    /// if the peer stops it is dropped.
    pub fn submit(
        &self,
        lease: &MasterLease,
        commands: Vec<Command>,
        done: impl FnOnce(Result<(), ProposeError>) + Send + 'static,
    ) {
        proposals::submit(&self.0.running.proposals, lease, commands, Box::new(done));
    }

    /// Reads the state that are applied here. Nothing is applied meanwhile: be brief.
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.0.running.state.read())
    }

    /// The peers, as this one sees them; none before it knows of any.
    pub fn peers(&self) -> Vec<PeerReport> {
        let local = &self.0.running.local;
        local.raft.get().map_or_else(Vec::new, |raft| report::peers(raft, local, &self.0.settings))
    }

    /// Consensus itself, once it has begun here.
    #[cfg(test)]
    pub(crate) fn raft(&self) -> &crate::raft::Raft {
        self.0.running.local.raft.get().expect("it has begun")
    }

    /// What is worth keeping elsewhere, as far as this peer knows it. `believed`: for how long leases may be that its
    /// promises do not tell of.
    pub fn backup(&self, program: &str, at_unix: i64, believed: Millis) -> Backup {
        let now = (self.0.settings.clock)();
        let peers = self.peers().into_iter();
        self.read(|state| {
            let longest = state.promised().filter_map(|resource| state.promises(resource));
            let longest = longest.map(|promises| promises.until().since(state.clock())).max().unwrap_or(Millis(0));
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

    /// Adds the peer that runs at `address` with an empty directory: it gets everything, then a vote. Only on the
    /// master.
    pub async fn add(&self, name: &str, address: &str) -> Result<(), ChangeError> {
        let (name, address) = (name.to_owned(), address.to_owned());
        self.change(|done| Request::Add { name, address, done }).await
    }

    /// Removes a peer for good. Only on the master.
    pub async fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.change(|done| Request::Remove { name, done }).await
    }

    /// Hands mastership to a peer, or to the one with most of the log, and stays a peer. Returns once the next
    /// master reigns. Only on the master.
    pub async fn transfer(&self, to: Option<&str>) -> Result<Transferred, ChangeError> {
        let to = to.map(str::to_owned);
        self.change(|done| Request::Transfer { to, done }).await
    }

    async fn change<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, ChangeError>>) -> Request,
    ) -> Result<T, ChangeError> {
        let (done, result) = oneshot::channel();
        let _ = self.0.running.requests.send(request(done));
        result.await.unwrap_or_else(|_| Err(ChangeError::Failed("this peer stops".into())))
    }

    /// What this peer is called.
    pub fn name(&self) -> &str {
        &self.0.settings.name
    }

    /// The cluster it belongs to, in hexadecimal; none before it belongs to one.
    pub fn cluster(&self) -> Option<String> {
        self.cluster_number().map(|cluster| format!("{cluster:032x}"))
    }

    /// The number of that cluster, which was drawn at random when it began.
    pub fn cluster_number(&self) -> Option<u128> {
        self.0.running.local.handshake.cluster()
    }

    /// Where the state come from. [`StateOrigin::Empty`] may become [`StateOrigin::Joined`].
    pub fn origin(&self) -> StateOrigin {
        self.0.running.origin.get()
    }

    /// Where this peer listens to the others, if it does. A port of zero was replaced by the real one.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.0.running.listening
    }

    /// Why this peer takes no part, if it does not.
    pub fn ineligible(&self) -> Option<Ineligible> {
        let failed = self.0.running.failing.get().map(Ineligible::Failed);
        failed.or_else(|| self.0.running.local.discovered.ineligible())
    }

    /// For how long after the beginning of a master lease former masters may have given leases; see [`Timing`](crate::Timing).
    /// A lone peer has no other master before it but itself.
    pub fn overlap(&self) -> Millis {
        let settings = &self.0.settings;
        if settings.is_lone() { Millis(0) } else { settings.timing.overlap() }
    }

    /// Committed data that other peers have lost, in words, as this peer has noticed since it was started: a directory
    /// that was restored from an older copy, or a disk that has dropped writes.
    pub fn losses(&self) -> Vec<String> {
        self.0.running.local.acknowledged.noticed()
    }

    /// Whether this peer is master, or has heard from the master directly of late. Otherwise it only repeats what other
    /// peers say about the master, and may not count for a majority yet.
    pub fn hears_master(&self) -> bool {
        self.0.running.local.discovered.hears_master()
    }

    /// Why consensus has ended on this peer, if it has: mostly because its disk failed. It has given up its mastership,
    /// votes no more, and does not come back without a restart.
    pub fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.0.running.failing.watch()
    }

    /// How long the slowest write to the disk of the last minute took, one under way included.
    pub fn slowest_flush(&self) -> Duration {
        self.0.running.flushes.slowest(Instant::now())
    }

    /// Stops cleanly. A master hands its mastership over, so that there is another within one lease at most. Nothing is
    /// under way when this returns.
    pub async fn shutdown(&self) {
        let (done, gone) = oneshot::channel();
        let _ = self.0.running.requests.send(Request::Leave { done });
        // The sender is dropped when the peer has left, or if it had left before.
        let _ = gone.await;
    }
}
