//! Leadership transfer: a master hands mastership to another peer, for maintenance or because it leaves.
//!
//! The master waits until the next master has all entries, then ends its lease and pauses lease renewal. No proposal
//! counts without a lease, so the next master has every entry that was acknowledged. The master then votes for the next
//! one and asks it to stand for election at once.
//!
//! A peer that stands for election breaks its vote lease. So a late request to stand must have no effect in a later
//! term, whose master lease may rest on that vote lease. Two rules ensure this, and each of them is sufficient:
//! - The master first votes for the next master in a later Raft term. It never leads again in the Raft term that the
//!   request names; after a failed transfer there is an election.
//! - The request names the last entry of the term that ends ([`StandRequest`]), and a later term begins with an entry.
//!   A peer that has confirmed a later lease either has that entry and refuses the request, or lacks it and cannot win
//!   an election, because the entry is committed.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use leaseway_core::planted::{self, Fault};
use openraft::{ServerState, raft::VoteRequest};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    election::{
        master_lease::{Mastership, PeerAddress, StepDown},
        vote::{StandRequest, vote_leased_until},
    },
    log::{PeerId, RaftMetrics, RaftState, Vote},
    membership::members::{ChangeError, Members},
    transport::Method,
};

/// The time limit for the next master to catch up, while this one still leads.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// A finished transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transferred {
    /// The new master.
    pub master: PeerAddress,
    /// The time without a master, as measured by the former master.
    pub took: Duration,
}

/// Transfers mastership to the peer of this name, or to the one with the longest log.
pub(crate) async fn transfer(members: &Members, to: Option<&str>) -> Result<Transferred, ChangeError> {
    let _one = members.changing.lock().await;
    members.check_master()?;
    let (next, name) = members.successor(to).await?;
    members.wait_until_free_to_vote().await?;
    members.wait_until_caught_up(next, &name, CATCH_UP_TIMEOUT).await?;
    if !members.answers(next).await {
        return Err(ChangeError::Silent { name });
    }
    let before = members.state.read().term();
    let stopping = || ChangeError::Failed("this peer is stopping".into());
    let (ended, has_ended) = oneshot::channel();
    let (paused, over) = oneshot::channel();
    members.step_down.send(StepDown { ended, over }).await.map_err(|_| stopping())?;
    has_ended.await.map_err(|_| stopping())?;
    let began = Instant::now();
    hand_over(members, next).await;
    drop(paused);
    let patience = members.context.settings.timing.certainly_over() * 4 + Duration::from_secs(1);
    let no_master =
        |_| ChangeError::Failed("the next master is not known yet: it will be elected once a majority answers".into());
    let master = timeout(patience, settled(members, before, &name)).await.map_err(no_master)??;
    Ok(Transferred { master, took: began.elapsed() })
}

/// The next master, once its lease has begun.
async fn settled(members: &Members, before: u64, wanted: &str) -> Result<PeerAddress, ChangeError> {
    loop {
        match &*members.context.mastership.borrow() {
            Mastership::Master(_) => return Err(ChangeError::NotTaken { name: wanted.to_owned() }),
            Mastership::Follower { of: Some(master) } if members.state.read().term() > before => {
                return Ok(master.clone());
            }
            Mastership::Follower { .. } | Mastership::Unknown => {}
        }
        sleep(members.context.settings.timing.heartbeat() / 10).await;
    }
}

/// Asks a peer to start an election, and waits until another peer leads. The master lease of this peer must have ended,
/// and its ballot must be released. This peer has to stay up meanwhile, because its vote is needed.
async fn hand_over(members: &Members, next: PeerId) {
    let Some(request) = give_vote(members, next).await else { return };
    let Some(member) = members.members().remove(&next) else { return };
    let peer = (member.name.as_str(), members.context.settings.address_of_member(&member));
    let patience = members.context.settings.timing.heartbeat() * 2;
    let started = members.client.call_within::<_, bool>(patience, peer, next, Method::Stand, &request).await;
    if let Ok((_, true)) = started {
        tracing::info!(to = member.name, "mastership handed over: the next master stands for election");
    }
    let me = members.context.id();
    let succeeded = |metrics: &RaftMetrics| metrics.current_leader.is_some_and(|leader| leader != me);
    let patience = members.context.settings.timing.certainly_over() * 2;
    let _ = members.raft.wait(Some(patience)).metrics(succeeded, "another peer leads").await;
}

/// Waits until the next master has all entries, then votes for it in a later Raft term, so that this peer stops
/// leading. `None` if this peer does not lead, or the next master does not catch up.
async fn give_vote(members: &Members, next: PeerId) -> Option<StandRequest> {
    members.wait_until_free_to_vote().await.ok()?;
    let log = members.context.log.clone();
    let leads = move |state: &RaftState| {
        let request = StandRequest { master: *state.vote_ref(), last: log.log().last() };
        (state.server_state == ServerState::Leader && request.master.is_committed()).then_some(request)
    };
    let request = members.raft.with_raft_state(leads).await.ok()??;
    // This is quick, because nothing is proposed after the lease has ended.
    let patience = members.context.settings.timing.heartbeat() * 4;
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
    /// Transfers mastership to one of these voters, so that it finishes a change that removes this peer. If this peer
    /// finished the change, the last entry might exist only on this peer when it leaves, and no other peer could be
    /// elected without that entry.
    pub(crate) async fn transfer_to_one_of(&self, voters: &BTreeSet<PeerId>) -> Result<(), ChangeError> {
        let members = self.members();
        let mut living = voters.iter().filter(|voter| self.is_alive(**voter)).filter_map(|voter| members.get(voter));
        let Some(next) = living.next() else { return Ok(()) };
        transfer(self, Some(&next.name)).await.map(drop)
    }

    /// The next master: the named peer, or the one with the longest log. It has to be a voter that is alive.
    async fn successor(&self, to: Option<&str>) -> Result<(PeerId, String), ChangeError> {
        let name = match to {
            Some(name) => name.to_owned(),
            None => {
                let next = self.most_complete_voter().await.ok_or(ChangeError::Alone)?;
                self.members().remove(&next).ok_or(ChangeError::Alone)?.name
            }
        };
        if name == self.context.settings.name {
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

    /// Waits until openraft can vote again: it does not vote for one vote lease after this peer was elected.
    async fn wait_until_free_to_vote(&self) -> Result<(), ChangeError> {
        let timing = self.context.settings.timing;
        let leased = self.raft.with_raft_state(move |state: &RaftState| vote_leased_until(state, timing)).await;
        if let Some(until) = leased.map_err(|error| ChangeError::Failed(error.to_string()))? {
            sleep_until(until + Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// The voter with the longest log among those that answer now; if none answers, the one with the longest log.
    async fn most_complete_voter(&self) -> Option<PeerId> {
        let candidates = self.by_completeness();
        for candidate in &candidates {
            if self.answers(*candidate).await {
                return Some(*candidate);
            }
        }
        candidates.first().copied()
    }

    /// The other voters by liveness, then by length of the log. A peer that was just lost may have the longest log.
    fn by_completeness(&self) -> Vec<PeerId> {
        let metrics = self.raft.metrics().borrow().clone();
        let log = |voter: PeerId| metrics.replication.as_ref()?.get(&voter).copied().flatten().map(|last| last.index);
        let mut others: Vec<_> = metrics.membership_config.voter_ids().filter(|voter| *voter != metrics.id).collect();
        others.sort_by_key(|voter| Reverse((self.is_alive(*voter), log(*voter))));
        others
    }
}

/// Transfers mastership if this peer leads, and shuts consensus down. Lease renewal has been stopped before. With two
/// peers left of more, the successor lacks a majority and is elected only when the others' vote leases end.
pub(crate) async fn leave(members: &Members) {
    // The lease has ended once all senders are gone. Only then may this peer vote for another.
    let mut mastership = members.context.mastership.clone();
    while mastership.changed().await.is_ok() {}
    let state = members.raft.metrics().borrow().state;
    if state == ServerState::Leader
        && let Some(next) = members.by_completeness().first().copied()
    {
        members.context.ballot.release();
        hand_over(members, next).await;
    }
    let _ = timeout(Duration::from_secs(2), members.raft.shutdown()).await;
}
