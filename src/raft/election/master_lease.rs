//! The master lease (a leader lease): the right of one peer to decide, for a limited time.
//!
//! A leader of openraft that is cut off continues to believe that it leads. Here leadership counts only while a quorum
//! confirms it. At every heartbeat, [`LeaseRenewal`] notes the time and asks a quorum whether this peer still leads. If
//! the quorum confirms, the lease holds until the noted time plus [`Timing::reliable`], which is a little less than the
//! time for which followers lease their votes to a leader. No other peer can be elected in that time, because the peers
//! that confirmed refuse to vote, including the leader itself ([`Ballot`](crate::election::vote::Ballot)).
//!
//! Each lease begins with an entry in the log, which gives it its term. Proposals of earlier terms that follow that
//! entry are ignored. A lease that has lapsed is never revived, even if openraft keeps its leader: the next lease has
//! the next term.
//!
//! [`Timing::reliable`]: crate::settings::timing::Timing::reliable

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leaseway_core::{
    planted::{self, Fault},
    types::{ClusterClock, ClusterTime, Millis},
};
use openraft::ServerState;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, timeout},
};

use crate::{
    election::PeerContext,
    log::{
        Outcome, Payload, Raft, RaftState,
        command::{Command, Listening},
    },
    metrics,
    settings::Settings,
    state::machine::SharedState,
};

#[derive(Debug, Clone)]
pub enum Mastership {
    /// This peer is master as long as the lease [holds](MasterLease::holds).
    Master(MasterLease),
    /// Another peer is master, or the master is unknown.
    Follower {
        /// The master, if this peer knows it.
        of: Option<PeerAddress>,
    },
    /// Consensus has not begun, a quorum has not confirmed this peer yet, or its master lease has just ended.
    Unknown,
}

/// A peer and its address for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    pub name: String,
    pub advertise: String,
}

/// A lease that has ended never holds again. The next one has a higher term.
#[derive(Clone)]
pub struct MasterLease(Arc<LeaseState>);

struct LeaseState {
    term: u64,
    since: Millis,
    clock: ClusterClock,
    /// The end of the lease, exclusive. Zero once it has ended.
    until: AtomicU64,
    over: watch::Sender<bool>,
}

impl MasterLease {
    /// `stored` is the cluster clock in the log up to the entry that begins the term.
    pub(crate) fn new(term: u64, since: Millis, until: Millis, stored: ClusterTime) -> MasterLease {
        let (clock, until, over) =
            (ClusterClock::new(stored, since), AtomicU64::new(until.0), watch::Sender::new(false));
        MasterLease(Arc::new(LeaseState { term, since, clock, until, over }))
    }

    /// Each lease of a cluster has a higher term than those before. Not the Raft term.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// The beginning, on this peer's clock.
    pub fn since(&self) -> Millis {
        self.0.since
    }

    /// The cluster clock of this term.
    pub fn clock(&self) -> ClusterClock {
        self.0.clock
    }

    /// Whether this peer may decide at `now`, a time on its own clock. At any time at most one peer may.
    /// The first call that finds the lease lapsed ends it.
    pub fn holds(&self, now: Millis) -> bool {
        let until = self.0.until.load(Ordering::Acquire);
        if now.0 < until || until != 0 && planted::is(Fault::OldMasterGoesOn) {
            return true;
        }
        // The exchange fails if the lease was extended meanwhile. Then `now` is outdated, and false is a safe answer.
        if until != 0 && self.0.until.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.0.over.send_replace(true);
        }
        false
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.until.load(Ordering::Acquire) == 0
    }

    #[cfg(test)]
    pub(crate) fn until(&self) -> Millis {
        Millis(self.0.until.load(Ordering::Acquire))
    }

    /// Extends the lease. False if it has lapsed.
    pub(crate) fn extend(&self, now: Millis, until: Millis) -> bool {
        if !self.holds(now) {
            return false;
        }
        let extend = |before: u64| (before != 0).then_some(before.max(until.0));
        self.0.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, extend).is_ok()
    }

    pub(crate) fn end(&self) {
        self.0.until.store(0, Ordering::Release);
        self.0.over.send_replace(true);
    }

    pub(crate) async fn ended(&self) {
        let mut over = self.0.over.subscribe();
        // The sender lives as long as `self`.
        let _ = over.wait_for(|over| *over).await;
    }
}

impl fmt::Debug for MasterLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.0.until.load(Ordering::Acquire);
        f.debug_struct("MasterLease").field("term", &self.0.term).field("until", &until).finish_non_exhaustive()
    }
}

/// A request to end the master lease. This peer may not begin another one before `over` resolves.
pub(crate) struct StepDown {
    pub(crate) ended: oneshot::Sender<()>,
    /// Resolves when the sender is dropped.
    pub(crate) over: oneshot::Receiver<Infallible>,
}

pub(crate) struct LeaseRenewal {
    pub(crate) raft: Raft,
    pub(crate) context: Arc<PeerContext>,
    pub(crate) state: SharedState,
    pub(crate) mastership: watch::Sender<Mastership>,
    pub(crate) lease: Option<MasterLease>,
    pub(crate) step_downs: mpsc::Receiver<StepDown>,
}

impl LeaseRenewal {
    /// Returns when consensus has ended on this peer. Dropping the future ends the lease as well.
    pub(crate) async fn run(mut self) {
        let mut heartbeat = tokio::time::interval(self.context.settings.timing.heartbeat());
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.raft.server_metrics();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    self.context.failing.fail(&"consensus has stopped");
                    break;
                },
                _ = heartbeat.tick() => {}
                Some(step_down) = self.step_downs.recv() => self.step_down(step_down).await,
            }
            let ended = self.raft.metrics().borrow().running_state.clone();
            if let Err(error) = ended {
                self.context.failing.fail(&error);
                break;
            }
            let leads = changes.borrow_and_update().state == ServerState::Leader;
            if leads {
                self.renew_or_begin().await;
            } else {
                self.follow().await;
            }
        }
    }

    /// No confirmation is under way at this point, so the ballot stays released.
    async fn step_down(&mut self, StepDown { ended, over }: StepDown) {
        self.end("mastership is being transferred");
        self.context.ballot.release();
        if ended.send(()).is_ok() {
            let _ = over.await;
        }
    }

    fn now(&self) -> Millis {
        self.context.now()
    }

    async fn renew_or_begin(&mut self) {
        let confirmed = self.confirm().await;
        if let Some(lease) = &self.lease {
            // Another peer may have been master meanwhile, and openraft may have elected this one again.
            let newest = self.state.read().term() == lease.term();
            let extended = match confirmed {
                Some(until) => newest && lease.extend(self.now(), until),
                None => newest && lease.holds(self.now()),
            };
            if extended {
                return;
            }
            self.end("a quorum did not confirm it in time");
        }
        if confirmed.is_some()
            && let Some(term) = self.begin_term().await
            && let Some(until) = self.confirm().await
            && self.state.read().term() == term
        {
            let (stored, now) = (self.state.read().clock(), self.now());
            let lease = MasterLease::new(term, now, until, stored);
            if lease.holds(now) {
                tracing::info!(term, "this peer is the master");
                metrics::mastership(term, true);
                self.lease = Some(lease.clone());
                self.context.discovered.gets_heartbeats.store(true, Ordering::Relaxed);
                self.mastership.send_replace(Mastership::Master(lease));
            }
        }
        if self.lease.is_none() {
            // openraft has elected this peer, but no quorum confirms it, so there is no master.
            self.mastership.send_if_modified(|before| {
                let known = !matches!(before, Mastership::Unknown);
                *before = Mastership::Unknown;
                known
            });
        }
    }

    /// Asks a quorum whether this peer leads. Returns the time until which no other peer can be master, once all
    /// entries that were committed before the question are applied here.
    async fn confirm(&self) -> Option<Millis> {
        let timing = self.context.settings.timing;
        let asked = self.now();
        let ask = async {
            self.context.ballot.withhold(asked.plus(timing.lease()));
            self.raft.get_read_log_id().await
        };
        let (read, _) = timeout(timing.heartbeat() * 2, self.context.ballot.in_order(ask)).await.ok()?.ok()?;
        let wait = self.raft.wait(Some(timing.heartbeat()));
        wait.applied_index_at_least(read.map(|id| id.index), "earlier entries are applied").await.ok()?;
        // A lone peer holds the lock of its directory as long as the process exists, so its lease needs no end.
        Some(if self.context.settings.is_lone() { Millis(u64::MAX) } else { asked.plus(timing.reliable()) })
    }

    /// Writes the entry that begins a new term. In a new cluster, also writes the backup or the first configuration.
    async fn begin_term(&self) -> Option<u64> {
        let Outcome::TermBegan(term) = self.write(Payload::BeginTerm).await? else { return None };
        if let Some(backup) = &self.context.settings.restored
            && self.state.read().is_blank()
        {
            tracing::info!(made_by = backup.header().peer, "restoring a backup");
            for proposal in backup.proposals() {
                self.write(Payload::Propose { term, proposals: Arc::new(vec![proposal]) }).await?;
            }
        }
        if let Some(first) = &self.context.settings.first_configuration
            && self.state.read().configuration().is_none()
        {
            let mut commands = vec![Command::Configuration(first.clone())];
            let Settings { bootstrap, take_over, listening, .. } = &*self.context.settings;
            if !bootstrap || *take_over {
                commands.push(Command::Listen(Listening { length: *listening, whole: *take_over }));
            }
            let proposals = Arc::new(vec![commands]);
            self.write(Payload::Propose { term, proposals }).await?;
        }
        Some(term)
    }

    async fn write(&self, payload: Payload) -> Option<Outcome> {
        let patience = self.context.settings.timing.heartbeat() * 10 + Duration::from_secs(1);
        let written = timeout(patience, self.raft.client_write(payload)).await.ok()?;
        Some(written.ok()?.data)
    }

    async fn follow(&mut self) {
        self.end("another peer may have been elected");
        let live = self.live_master().await;
        self.context.discovered.gets_heartbeats.store(live.is_some(), Ordering::Relaxed);
        let of = live.or_else(|| self.context.discovered.master());
        self.mastership.send_if_modified(|before| {
            if let Mastership::Follower { of: same } = before
                && *same == of
            {
                return false;
            }
            match &of {
                Some(master) => tracing::info!(master = master.name, "this peer follows a master"),
                None => tracing::info!("this peer knows no master"),
            }
            *before = Mastership::Follower { of };
            true
        });
        metrics::mastership(self.state.read().term(), false);
    }

    /// The master, if a message of it arrived within the last three vote leases. An election begins earlier.
    async fn live_master(&self) -> Option<PeerAddress> {
        let recent = Duration::from_millis(self.context.settings.timing.lease().0) * 3;
        let leader = move |state: &RaftState| {
            let heard = state.vote_last_modified().is_some_and(|at| at.elapsed() <= recent);
            (heard && state.vote_ref().is_committed()).then(|| state.vote_ref().leader_id().voted_for()).flatten()
        };
        let leader = self.raft.with_raft_state(leader).await.ok().flatten()?;
        let contact = self.context.liveness.get(leader).filter(|_| leader != self.context.id())?;
        Some(PeerAddress { name: contact.name, advertise: contact.advertise })
    }

    fn end(&mut self, why: &str) {
        if let Some(lease) = self.lease.take() {
            lease.end();
            tracing::info!(term = lease.term(), why, "this peer is no longer the master");
            metrics::mastership(lease.term(), false);
            self.mastership.send_replace(Mastership::Unknown);
        }
    }
}

/// Ends the lease, because nobody renews it any more.
impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.end("this peer is stopping");
        self.mastership.send_replace(Mastership::Unknown);
    }
}
