//! Decides whether this peer is master.
//!
//! openraft's own idea of a leader is not enough: one that is cut off goes on believing that it is. Here it counts
//! only what a quorum has confirmed. Every heartbeat: note the time, ask a quorum, and if it says "you are still the
//! leader", the reign holds for a little less than followers stand by a leader (`Timing::reliable`), counted from
//! *before* they were asked. In that time nobody else can be elected: whoever has confirmed refuses to vote, this
//! peer included ([`Ballot`](crate::peers::Ballot)).
//!
//! A reign begins with an entry of its own in the log. It numbers the reign, and what was proposed under an
//! earlier one is ignored after it, whenever it arrives. A reign that has lapsed is never revived, even if openraft
//! kept its leader: it is followed by a new one.

use std::{sync::Arc, time::Duration};

use leaseway_core::Millis;
use openraft::ServerState;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, timeout},
};

use crate::{
    facts::Fact,
    machine::SharedFacts,
    metrics,
    peers::Core,
    raft::{Command, Outcome, Raft, State},
    reign::{Mastership, PeerAddress, Reign},
    settings::Settings,
    stored::StoredFact,
};

pub(crate) struct Keeper {
    pub(crate) raft: Raft,
    pub(crate) core: Arc<Core>,
    pub(crate) facts: SharedFacts,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mastership: watch::Sender<Mastership>,
    pub(crate) reign: Option<Reign>,
}

impl Keeper {
    /// Until consensus has ended on this peer. Whoever drops this earlier ends the reign.
    pub(crate) async fn run(mut self) {
        let mut heartbeat = tokio::time::interval(self.settings.timing.heartbeat());
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.raft.server_metrics();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    self.core.failing.fail(&"consensus has stopped");
                    break;
                },
                _ = heartbeat.tick() => {}
            }
            let ended = self.raft.metrics().borrow().running_state.clone();
            if let Err(error) = ended {
                self.core.failing.fail(&error);
                break;
            }
            let leads = changes.borrow_and_update().state == ServerState::Leader;
            if leads {
                self.reign().await;
            } else {
                self.follow().await;
            }
        }
    }

    fn now(&self) -> Millis {
        (self.core.clock)()
    }

    async fn reign(&mut self) {
        let confirmed = self.confirm().await;
        if let Some(reign) = &self.reign {
            // Another peer may have reigned meanwhile, and openraft may have made this one its leader again.
            let newest = self.facts.read().reign() == reign.number();
            let extended = match confirmed {
                Some(until) => newest && reign.extend(self.now(), until),
                None => newest && reign.holds(self.now()),
            };
            if extended {
                return;
            }
            self.end("a quorum did not confirm it in time");
        }
        if confirmed.is_some()
            && let Some(number) = self.accede().await
            && let Some(until) = self.confirm().await
            && self.facts.read().reign() == number
        {
            let now = self.now();
            let reign = Reign::new(number, now, until);
            if reign.holds(now) {
                tracing::info!(reign = number, "this peer is the master");
                metrics::mastership(number, true);
                self.reign = Some(reign.clone());
                self.core.hearsay.heard_itself(true);
                self.mastership.send_replace(Mastership::Master(reign));
            }
        }
        if self.reign.is_none() {
            // Elected, but not confirmed: nobody decides.
            self.mastership.send_if_modified(|before| {
                let known = !matches!(before, Mastership::Unknown);
                *before = Mastership::Unknown;
                known
            });
        }
    }

    /// Until when nobody else can be master, if a quorum says so. Then everything that was decided before is applied
    /// here, too.
    async fn confirm(&self) -> Option<Millis> {
        let timing = self.settings.timing;
        let asked = self.now();
        let ask = async {
            self.core.ballot.withhold(asked.plus(timing.lease()));
            self.raft.get_read_log_id().await
        };
        let (read, _) = timeout(timing.heartbeat() * 2, self.core.ballot.begin(ask)).await.ok()?.ok()?;
        let wait = self.raft.wait(Some(timing.heartbeat()));
        wait.applied_index_at_least(read.map(|id| id.index), "everything earlier").await.ok()?;
        // Nobody else can be master of a lone peer's cluster: the lock of its directory says so for as long as it
        // lives, however long it is kept from running.
        Some(if self.settings.is_lone() { Millis(u64::MAX) } else { asked.plus(timing.reliable()) })
    }

    /// A new reign begins in the log. If there is no configuration yet it begins with the first one.
    async fn accede(&self) -> Option<u64> {
        let Outcome::Acceded(number) = self.write(Command::Accede).await? else { return None };
        if let Some(first) = &self.settings.first_configuration
            && self.facts.read().configuration().is_none()
        {
            let mut facts = vec![StoredFact::Configuration(first.clone())];
            let Settings { bootstrap, take_over, listening, .. } = &*self.settings;
            if !bootstrap || *take_over {
                facts.push(StoredFact::from(&Fact::Listen { length: *listening, whole: *take_over }));
            }
            let proposals = Arc::new(vec![facts]);
            self.write(Command::Propose { reign: number, proposals }).await?;
        }
        Some(number)
    }

    async fn write(&self, command: Command) -> Option<Outcome> {
        let patience = self.settings.timing.heartbeat() * 10 + Duration::from_secs(1);
        let written = timeout(patience, self.raft.client_write(command)).await.ok()?;
        Some(written.ok()?.data)
    }

    async fn follow(&mut self) {
        self.end("another peer was elected, or may be");
        let heard = self.heard().await;
        self.core.hearsay.heard_itself(heard.is_some());
        let of = heard.or_else(|| self.core.hearsay.master());
        self.mastership.send_if_modified(|before| {
            if let Mastership::Follower { of: same } = before
                && *same == of
            {
                return false;
            }
            match &of {
                Some(master) => tracing::info!(master = master.name, "this peer follows a master"),
                None => tracing::info!("this peer knows of no master"),
            }
            *before = Mastership::Follower { of };
            true
        });
        crate::metrics::mastership(self.facts.read().reign(), false);
    }

    /// The master whom this peer has heard lately: for longer than any election takes to begin.
    async fn heard(&self) -> Option<PeerAddress> {
        let lately = Duration::from_millis(self.settings.timing.lease().0) * 3;
        let leader = move |state: &State| {
            let heard = state.vote_last_modified().is_some_and(|at| at.elapsed() <= lately);
            (heard && state.vote_ref().is_committed()).then(|| state.vote_ref().leader_id().voted_for()).flatten()
        };
        let leader = self.raft.with_raft_state(leader).await.ok().flatten()?;
        let contact = self.core.contacts.get(leader).filter(|_| leader != self.core.introducer.peer())?;
        Some(PeerAddress { name: contact.name, advertise: contact.advertise })
    }

    fn end(&mut self, why: &str) {
        if let Some(reign) = self.reign.take() {
            reign.end();
            tracing::info!(reign = reign.number(), why, "this peer is no longer the master");
            metrics::mastership(reign.number(), false);
            self.mastership.send_replace(Mastership::Unknown);
        }
    }
}

/// However it ends, whoever still has the reign must not go on.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.end("this peer stops");
        self.mastership.send_replace(Mastership::Unknown);
    }
}
