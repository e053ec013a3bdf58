//! How a master hands its mastership to another peer (Raft's leadership transfer), for maintenance or because it leaves.
//!
//! The keeper ends the master lease and begins no other while this goes on. The next master has every entry that was
//! acknowledged: this peer waits until it has them, and no proposal counts without a master lease.
//!
//! A peer that is asked to stand breaks its vote lease, so a request that arrives late must not count in a later master lease,
//! which may rest on that lease. Two rules ensure this, each alone is enough:
//! - This peer first votes for the next master in a later term. It never reigns again in the term of the vote that the
//!   request names, and after a failed hand-over there is an election.
//! - The request names the last entry of the master lease that ends ([`StandRequest`]). A later master lease begins with an entry of its
//!   own, so a peer that has confirmed one either has that entry and refuses the request, or lacks it and cannot win an
//!   election, because the entry is committed.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use leaseway_core::planted::{self, Fault};
use openraft::{ServerState, raft::VoteRequest};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    error::ChangeError,
    lease_renewal::StepDown,
    master_lease::{Mastership, PeerAddress},
    members::Members,
    peers::{Method, StandRequest, vote_leased_until},
    raft::{PeerId, RaftMetrics, RaftState, Vote},
};

/// How long the next master may take to have what there is now, while this one still reigns.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// What has become of a mastership that was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// The peer that reigns now.
    pub master: PeerAddress,
    /// How long no peer did, as far as the one before can tell.
    pub took: Duration,
}

/// Hands mastership to the peer of this name, or to the one with the longest log.
pub(crate) async fn transfer(members: &Members, to: Option<&str>) -> Result<Transferred, ChangeError> {
    let _one = members.changing.lock().await;
    members.check_master()?;
    let (next, name) = members.successor(to).await?;
    members.can_give_its_vote().await?;
    members.caught_up(next, &name, CATCH_UP_TIMEOUT).await?;
    if !members.answers(next).await {
        return Err(ChangeError::Silent { name });
    }
    let before = members.state.read().term();
    let stopping = || ChangeError::Failed("this peer stops".into());
    let (ended, has_ended) = oneshot::channel();
    let (paused, over) = oneshot::channel();
    members.step_down.send(StepDown { ended, over }).await.map_err(|_| stopping())?;
    has_ended.await.map_err(|_| stopping())?;
    let began = Instant::now();
    hand_over(members, next).await;
    drop(paused);
    let patience = members.settings.timing.certainly_over() * 4 + Duration::from_secs(1);
    let no_master = |_| ChangeError::Failed("no master is known yet; there will be one once a majority answers".into());
    let master = timeout(patience, settled(members, before, &name)).await.map_err(no_master)??;
    Ok(Transferred { master, took: began.elapsed() })
}

/// The next master, once it has begun its master lease.
async fn settled(members: &Members, before: u64, wanted: &str) -> Result<PeerAddress, ChangeError> {
    loop {
        match &*members.mastership.borrow() {
            Mastership::Master(_) => return Err(ChangeError::NotTaken { name: wanted.to_owned() }),
            Mastership::Follower { of: Some(master) } if members.state.read().term() > before => {
                return Ok(master.clone());
            }
            Mastership::Follower { .. } | Mastership::Unknown => {}
        }
        sleep(members.settings.timing.heartbeat() / 10).await;
    }
}

/// Asks a peer to start an election, and waits until another peer leads. The master lease of this peer has ended, and its
/// ballot is released. It stays up meanwhile, because its vote is needed.
pub(crate) async fn hand_over(members: &Members, next: PeerId) {
    let Some(request) = give_vote(members, next).await else { return };
    let Some(member) = members.members().remove(&next) else { return };
    let peer = (member.name.as_str(), members.address_of(&member));
    let patience = members.settings.timing.heartbeat() * 2;
    let started = members.client.call_within::<_, bool>(patience, peer, next, Method::Stand, &request).await;
    if let Ok((_, true)) = started {
        tracing::info!(to = member.name, "mastership is handed over");
    }
    let me = members.local.handshake.peer();
    let succeeded = |metrics: &RaftMetrics| metrics.current_leader.is_some_and(|leader| leader != me);
    let patience = members.settings.timing.certainly_over() * 2;
    let _ = members.raft.wait(Some(patience)).metrics(succeeded, "another peer leads").await;
}

/// Votes for the next master in a later term, so that this peer leads no longer, once the next master has all entries.
/// `None` if this peer leads no longer anyway, or the next master lacks entries.
async fn give_vote(members: &Members, next: PeerId) -> Option<StandRequest> {
    members.can_give_its_vote().await.ok()?;
    let log = members.local.log.clone();
    let leads = move |state: &RaftState| {
        let request = StandRequest { master: *state.vote_ref(), last: log.log().last() };
        (state.server_state == ServerState::Leader && request.master.is_committed()).then_some(request)
    };
    let request = members.raft.with_raft_state(leads).await.ok()??;
    // It cannot take long: nothing is added after the master lease.
    let patience = members.settings.timing.heartbeat() * 4;
    if !members.has_entries(next, request.last.map(|id| id.index), patience).await {
        return None;
    }
    if planted::is(Fault::StaleHandOver) {
        return Some(request);
    }
    let successor = Vote::new(request.master.leader_id().term + 1, next);
    let given = members.raft.vote(VoteRequest::new(successor, request.last)).await.ok()?;
    given.vote_granted.then_some(request)
}

impl Members {
    /// Lets a peer finish the change that stays in it. This one is to go: it would lose its place by an entry that no
    /// other may have yet, and that no election would pass by.
    pub(crate) async fn make_way(&self, voters: &BTreeSet<PeerId>) -> Result<(), ChangeError> {
        let members = self.members();
        let mut living = voters.iter().filter(|voter| self.is_alive(**voter)).filter_map(|voter| members.get(voter));
        let Some(next) = living.next() else { return Ok(()) };
        transfer(self, Some(&next.name)).await.map(drop)
    }

    /// Which peer is to be master next: a voter that is alive.
    async fn successor(&self, to: Option<&str>) -> Result<(PeerId, String), ChangeError> {
        let name = match to {
            Some(name) => name.to_owned(),
            None => {
                let next = self.most_complete_that_answers().await.ok_or(ChangeError::Alone)?;
                self.members().remove(&next).ok_or(ChangeError::Alone)?.name
            }
        };
        if name == self.settings.name {
            return Err(ChangeError::IsMasterAlready { name });
        }
        let of_name = self.ids_of(&name);
        if of_name.is_empty() {
            return Err(ChangeError::Unknown { name, known: self.names() });
        }
        let Some(voter) = self.voters().into_iter().find(|voter| of_name.contains(voter)) else {
            return Err(ChangeError::NoVote { name });
        };
        if self.is_alive(voter) { Ok((voter, name)) } else { Err(ChangeError::Silent { name }) }
    }

    /// openraft gives no vote for one lease after this peer was elected.
    async fn can_give_its_vote(&self) -> Result<(), ChangeError> {
        let timing = self.settings.timing;
        let leased = self.raft.with_raft_state(move |state: &RaftState| vote_leased_until(state, timing)).await;
        if let Some(until) = leased.map_err(|error| ChangeError::Failed(error.to_string()))? {
            sleep_until(until + Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Of the other voters that answer now, the one with the longest log; without any, the first that does not.
    async fn most_complete_that_answers(&self) -> Option<PeerId> {
        let candidates = self.by_completeness();
        for candidate in &candidates {
            if self.answers(*candidate).await {
                return Some(*candidate);
            }
        }
        candidates.first().copied()
    }

    pub(crate) fn most_complete(&self) -> Option<PeerId> {
        self.by_completeness().first().copied()
    }

    /// The other voters: first those that are alive, since the log of one that was just lost may be as long as any; of
    /// these the one with the longest log.
    fn by_completeness(&self) -> Vec<PeerId> {
        let metrics = self.raft.metrics().borrow().clone();
        let log = |voter: PeerId| metrics.replication.as_ref()?.get(&voter).copied().flatten().map(|last| last.index);
        let mut others: Vec<_> = metrics.membership_config.voter_ids().filter(|voter| *voter != metrics.id).collect();
        others.sort_by_key(|voter| Reverse((self.is_alive(*voter), log(*voter))));
        others
    }
}
