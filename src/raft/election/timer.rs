//! Decides when this peer starts an election, after a pre-vote.
//!
//! An election raises the Raft term and so deposes a master, even one that all other peers hear. openraft would start
//! an election when a peer returns after it was cut off. So openraft's election timer is off. Here a peer whose vote
//! lease has ended first holds a pre-vote. It starts an election only if a majority, including itself, has leased its
//! votes to nobody and has no longer log. A peer that cannot reach a majority never starts an election.
//!
//! Safety does not depend on the pre-vote, which may be outdated when the election begins. But a peer must not vote for
//! itself while its vote is leased. This is checked again when the election starts, while no message reaches openraft.
//!
//! A pre-vote disturbs nobody, so the pause between two is short: part of a heartbeat, with jitter, so that two peers
//! do not keep asking at the same time. If two peers do start elections at the same time, the one with the higher
//! identity wins.
//!
//! An election that a leaving master asks for needs no pre-vote: see [`transfer`](crate::membership::transfer).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use openraft::{EffectiveMembership, ServerState, error::Fatal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    election::{
        PeerContext,
        vote::{is_free_to_vote, start_election, vote_leased_until},
    },
    log::{Member, PeerId, Raft, RaftState, Vote, directory::random},
    transport::{Method, client::PeerClient},
};

pub(crate) struct ElectionTimer {
    pub(crate) raft: Raft,
    pub(crate) context: Arc<PeerContext>,
    pub(crate) client: Arc<PeerClient>,
}

/// The state of a peer that may start an election.
struct Candidate {
    vote: Vote,
    vote_leased_until: Option<Instant>,
    membership: Arc<EffectiveMembership<PeerId, Member>>,
}

impl ElectionTimer {
    /// Returns when consensus has ended on this peer, which the lease renewal reports.
    pub(crate) async fn run(self) {
        let heartbeat = self.context.settings.timing.heartbeat();
        while let Ok(candidate) = self.wait_until_eligible().await {
            if self.pre_vote(&candidate.membership).await && self.start_election(candidate.vote).await {
                tracing::info!("this peer starts an election: a majority hears from no master");
            }
            sleep(heartbeat / 2 + jitter(heartbeat)).await;
        }
    }

    /// Waits until this peer may start an election and its vote lease has ended, plus jitter.
    async fn wait_until_eligible(&self) -> Result<Candidate, Fatal<PeerId>> {
        let heartbeat = self.context.settings.timing.heartbeat();
        let (began, longer) = (Instant::now(), jitter(heartbeat));
        loop {
            let Some(candidate) = self.candidate().await? else {
                sleep(heartbeat).await;
                continue;
            };
            let due = candidate.vote_leased_until.unwrap_or(began) + longer;
            if Instant::now() < due {
                sleep_until(due).await;
            } else if self.context.ballot.is_withheld(self.client.now()) {
                // This peer was master until just now.
                sleep(heartbeat / 5).await;
            } else {
                return Ok(candidate);
            }
        }
    }

    /// `None` if this peer leads or has no vote.
    async fn candidate(&self) -> Result<Option<Candidate>, Fatal<PeerId>> {
        let (me, timing) = (self.context.id(), self.context.settings.timing);
        let read = move |state: &RaftState| {
            let membership = state.membership_state.effective();
            let may = state.server_state != ServerState::Leader && membership.voter_ids().any(|voter| voter == me);
            may.then(|| Candidate {
                vote: *state.vote_ref(),
                vote_leased_until: vote_leased_until(state, timing),
                membership: Arc::clone(membership),
            })
        };
        self.raft.with_raft_state(read).await
    }

    /// Whether a majority would vote for this peer. A peer that does not answer in time counts as no.
    async fn pre_vote(&self, membership: &EffectiveMembership<PeerId, Member>) -> bool {
        let me = self.context.id();
        let mine = self.raft.data_metrics().borrow().last_log;
        let patience = self.context.settings.timing.election_min();
        let others = membership.voter_ids().filter(|voter| *voter != me);
        let mut answers: FuturesUnordered<_> = others
            .filter_map(|voter| Some((voter, membership.get_node(&voter)?)))
            .map(|(voter, member)| async move {
                let peer = (member.name.as_str(), self.context.settings.address_of_member(member));
                let answer = self.client.call_within::<_, bool>(patience, peer, voter, Method::Poll, &mine).await;
                (voter, answer.is_ok_and(|(_, would)| would))
            })
            .collect();
        let mut pre_vote = PreVote { voters: membership.get_joint_config(), answers: BTreeMap::from([(me, true)]) };
        while pre_vote.is_open()
            && let Some((voter, would)) = answers.next().await
        {
            pre_vote.answers.insert(voter, would);
        }
        pre_vote.is_won()
    }

    /// Starts an election unless a message of a master or candidate arrived during the pre-vote.
    async fn start_election(&self, before: Vote) -> bool {
        let timing = self.context.settings.timing;
        let still = move |state: &RaftState| *state.vote_ref() == before && is_free_to_vote(state, timing);
        start_election(&self.raft, &self.context.ballot, still).await
    }
}

/// The answers of a pre-vote. A joint membership has two sets of voters and needs a majority of each.
struct PreVote<'a> {
    voters: &'a [Vec<PeerId>],
    answers: BTreeMap<PeerId, bool>,
}

impl PreVote<'_> {
    fn is_won(&self) -> bool {
        self.has_majorities(|answer| answer == Some(&true))
    }

    fn is_open(&self) -> bool {
        !self.is_won() && self.has_majorities(|answer| answer != Some(&false))
    }

    fn has_majorities(&self, counts: impl Fn(Option<&bool>) -> bool) -> bool {
        self.voters.iter().all(|voters| {
            let voters: BTreeSet<_> = voters.iter().collect();
            voters.iter().filter(|voter| counts(self.answers.get(voter))).count() > voters.len() / 2
        })
    }
}

/// A random part of a duration.
fn jitter(whole: Duration) -> Duration {
    whole.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pre_vote(voters: &[Vec<PeerId>], yes: &[PeerId], no: &[PeerId]) -> (bool, bool) {
        let answers = |of: &[PeerId], would| of.iter().map(|peer| (*peer, would)).collect::<Vec<_>>();
        let pre_vote =
            PreVote { voters, answers: [answers(yes, true), answers(no, false)].concat().into_iter().collect() };
        (pre_vote.is_won(), pre_vote.is_open())
    }

    #[test]
    fn a_pre_vote_needs_a_majority_of_each_set_of_voters() {
        const WON: (bool, bool) = (true, false);
        const OPEN: (bool, bool) = (false, true);
        const LOST: (bool, bool) = (false, false);
        let joint = [vec![1, 2, 3], vec![1, 4, 5]];
        type Case<'a> = (&'a [Vec<PeerId>], &'a [PeerId], &'a [PeerId], (bool, bool));
        let cases: [Case<'_>; 13] = [
            (&[vec![1]], &[1], &[], WON),
            (&[vec![1, 2]], &[1], &[], OPEN),
            (&[vec![1, 2]], &[1], &[2], LOST),
            (&[vec![1, 2, 3]], &[1, 3], &[], WON),
            (&[vec![1, 2, 3]], &[1], &[2], OPEN),
            (&[vec![1, 2, 3, 4]], &[1, 2], &[3], OPEN),
            (&[vec![1, 2, 3, 4]], &[1, 2], &[3, 4], LOST),
            // Peers without a vote do not count.
            (&[vec![1, 2, 3]], &[1, 8, 9], &[], OPEN),
            (&[vec![1, 2, 3]], &[1, 8, 9], &[2, 3], LOST),
            (&[vec![1, 2, 3]], &[1, 2], &[7, 8, 9], WON),
            (&joint, &[1, 2, 3], &[], OPEN),
            (&joint, &[1, 2, 3], &[4, 5], LOST),
            (&joint, &[1, 3, 4], &[2], WON),
        ];
        for (voters, yes, no, expected) in cases {
            assert_eq!(pre_vote(voters, yes, no), expected, "{voters:?}, yes: {yes:?}, no: {no:?}");
        }
    }
}
