//! Renews the master lease, and begins a new one after an election.
//!
//! A leader of openraft that is cut off continues to believe that it leads. Here leadership counts only while a quorum
//! confirms it (a leader lease). Every heartbeat, the leader notes the time and asks a quorum whether it still leads.
//! If a quorum confirms, the lease holds until the noted time plus [`Timing::reliable`], which is a little less than the
//! time for which followers lease their votes to a leader. In that time no other peer can be elected, because the peers
//! that confirmed refuse to vote, including the leader itself ([`Ballot`](crate::election::vote::Ballot)).
//!
//! Each lease begins with an entry in the log, which gives it its term. Proposals of earlier terms that follow that
//! entry are ignored. A lease that has lapsed is never revived, even if openraft keeps its leader: the next lease has
//! the next term.
//!
//! [`Timing::reliable`]: crate::settings::timing::Timing::reliable

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leaseway_core::types::Millis;
use openraft::ServerState;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, timeout},
};

use crate::{
    election::{
        local_peer::LocalPeer,
        master_lease::{MasterLease, Mastership, PeerAddress},
    },
    log::{
        command::{Command, Listening},
        types::{Outcome, Payload, Raft, RaftState},
    },
    metrics,
    settings::Settings,
    state::machine::SharedState,
};

/// A request to end the master lease, and to begin no other one until `over`.
pub(crate) struct StepDown {
    pub(crate) ended: oneshot::Sender<()>,
    /// Resolves when the sender is dropped.
    pub(crate) over: oneshot::Receiver<Infallible>,
}

pub(crate) struct LeaseRenewal {
    pub(crate) raft: Raft,
    pub(crate) local: Arc<LocalPeer>,
    pub(crate) state: SharedState,
    pub(crate) mastership: watch::Sender<Mastership>,
    pub(crate) lease: Option<MasterLease>,
    pub(crate) step_downs: mpsc::Receiver<StepDown>,
}

impl LeaseRenewal {
    /// Returns when consensus has ended on this peer. Dropping the future ends the lease as well.
    pub(crate) async fn run(mut self) {
        let mut heartbeat = tokio::time::interval(self.local.settings.timing.heartbeat());
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.raft.server_metrics();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    self.local.failing.fail(&"consensus has stopped");
                    break;
                },
                _ = heartbeat.tick() => {}
                Some(step_down) = self.step_downs.recv() => self.step_down(step_down).await,
            }
            let ended = self.raft.metrics().borrow().running_state.clone();
            if let Err(error) = ended {
                self.local.failing.fail(&error);
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
        self.local.ballot.release();
        if ended.send(()).is_ok() {
            let _ = over.await;
        }
    }

    fn now(&self) -> Millis {
        self.local.now()
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
                self.local.discovered.hears_master.store(true, Ordering::Relaxed);
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

    /// Asks a quorum whether this peer leads. Returns the time until which no other peer can be master, once all entries
    /// that were committed before the question are applied here.
    async fn confirm(&self) -> Option<Millis> {
        let timing = self.local.settings.timing;
        let asked = self.now();
        let ask = async {
            self.local.ballot.withhold(asked.plus(timing.lease()));
            self.raft.get_read_log_id().await
        };
        let (read, _) = timeout(timing.heartbeat() * 2, self.local.ballot.in_order(ask)).await.ok()?.ok()?;
        let wait = self.raft.wait(Some(timing.heartbeat()));
        wait.applied_index_at_least(read.map(|id| id.index), "earlier entries are applied").await.ok()?;
        // A lone peer holds the lock of its directory as long as the process exists, so its lease needs no end.
        Some(if self.local.settings.is_lone() { Millis(u64::MAX) } else { asked.plus(timing.reliable()) })
    }

    /// Writes the entry that begins a new term. In a new cluster, also writes the backup or the first configuration.
    async fn begin_term(&self) -> Option<u64> {
        let Outcome::TermBegan(term) = self.write(Payload::BeginTerm).await? else { return None };
        if let Some(backup) = &self.local.settings.restored
            && self.state.read().is_blank()
        {
            tracing::info!(made_by = backup.header().peer, "restoring a backup");
            for proposal in backup.proposals() {
                self.write(Payload::Propose { term, proposals: Arc::new(vec![proposal]) }).await?;
            }
        }
        if let Some(first) = &self.local.settings.first_configuration
            && self.state.read().configuration().is_none()
        {
            let mut commands = vec![Command::Configuration(first.clone())];
            let Settings { bootstrap, take_over, listening, .. } = &*self.local.settings;
            if !bootstrap || *take_over {
                commands.push(Command::Listen(Listening { length: *listening, whole: *take_over }));
            }
            let proposals = Arc::new(vec![commands]);
            self.write(Payload::Propose { term, proposals }).await?;
        }
        Some(term)
    }

    async fn write(&self, payload: Payload) -> Option<Outcome> {
        let patience = self.local.settings.timing.heartbeat() * 10 + Duration::from_secs(1);
        let written = timeout(patience, self.raft.client_write(payload)).await.ok()?;
        Some(written.ok()?.data)
    }

    async fn follow(&mut self) {
        self.end("another peer may have been elected");
        let heard = self.heard().await;
        self.local.discovered.hears_master.store(heard.is_some(), Ordering::Relaxed);
        let of = heard.or_else(|| self.local.discovered.master());
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

    /// The master, if this peer has heard from it within three vote leases. An election begins sooner than that.
    async fn heard(&self) -> Option<PeerAddress> {
        let lately = Duration::from_millis(self.local.settings.timing.lease().0) * 3;
        let leader = move |state: &RaftState| {
            let heard = state.vote_last_modified().is_some_and(|at| at.elapsed() <= lately);
            (heard && state.vote_ref().is_committed()).then(|| state.vote_ref().leader_id().voted_for()).flatten()
        };
        let leader = self.raft.with_raft_state(leader).await.ok().flatten()?;
        let contact = self.local.liveness.get(leader).filter(|_| leader != self.local.id())?;
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

/// No clone of the lease may hold longer than it is renewed.
impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.end("this peer stops");
        self.mastership.send_replace(Mastership::Unknown);
    }
}
