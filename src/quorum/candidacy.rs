//! Decides when this peer stands for election.
//!
//! Whoever stands counts the elections up, and with that deposes a master whom it cannot hear but everybody else
//! can: openraft would let a peer that was cut off do so when it returns. So its timer is off. Here a peer that has
//! heard from nobody for as long as it has promised to stand by a master asks the others first, and stands only if a
//! majority, itself included, say that they hear from nobody either and that its log is no shorter than theirs
//! (known as pre-vote). A peer that reaches no majority never stands, however long it is alone.
//!
//! The poll is a courtesy: nothing depends on it for safety. It promises nothing, it may be outdated by the time the
//! election begins, and the votes are given or refused as ever. What safety needs of this file is that a peer does
//! not vote for itself as long as it stands by somebody else: that is looked at again in the moment in which it
//! stands, while nothing else is heard.
//!
//! Because it disturbs nobody, a poll needs no long wait as an election does: a part of a heartbeat, drawn anew each
//! time, so that two who poll at once do not go on doing so. Should they stand at once all the same, then the vote of
//! the higher identity is the higher vote, which the other one gives in to.
//!
//! Deliberately absent: [standing at the word of a master that leaves](crate::leave). It needs no poll.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use openraft::{EffectiveMembership, ServerState, error::Fatal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    formation::random,
    peers::{Call, Calls, Core, hears_nobody, promised_until, stand},
    raft::{Member, PeerId, Raft, State, Vote},
    settings::Settings,
};

pub(crate) struct Candidacy {
    pub(crate) raft: Raft,
    pub(crate) core: Arc<Core>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) settings: Arc<Settings>,
}

/// What a peer that may stand knows.
struct Prospect {
    vote: Vote,
    promised_until: Option<Instant>,
    membership: Arc<EffectiveMembership<PeerId, Member>>,
}

impl Candidacy {
    /// Until consensus has ended on this peer, which others notice and say.
    pub(crate) async fn run(self) {
        let heartbeat = self.settings.timing.heartbeat();
        while let Ok(prospect) = self.silence().await {
            if self.poll(&prospect.membership).await && self.stand(prospect.vote).await {
                tracing::info!("this peer stands for election: a majority hears from no master");
            }
            sleep(heartbeat / 2 + part_of(heartbeat)).await;
        }
    }

    /// Waits until this peer may stand, and has heard from nobody for as long as it has promised to stand by somebody,
    /// and a little longer.
    async fn silence(&self) -> Result<Prospect, Fatal<PeerId>> {
        let heartbeat = self.settings.timing.heartbeat();
        let (began, longer) = (Instant::now(), part_of(heartbeat));
        loop {
            let Some(prospect) = self.prospect().await? else {
                sleep(heartbeat).await;
                continue;
            };
            let due = prospect.promised_until.unwrap_or(began) + longer;
            if Instant::now() < due {
                sleep_until(due).await;
            } else if self.core.ballot.is_withheld(self.calls.now()) {
                // It has led until just now.
                sleep(heartbeat / 5).await;
            } else {
                return Ok(prospect);
            }
        }
    }

    /// Nothing: it leads, or has no vote.
    async fn prospect(&self) -> Result<Option<Prospect>, Fatal<PeerId>> {
        let (me, timing) = (self.core.introducer.peer(), self.settings.timing);
        let look = move |state: &State| {
            let membership = state.membership_state.effective();
            let may = state.server_state != ServerState::Leader && membership.voter_ids().any(|voter| voter == me);
            may.then(|| Prospect {
                vote: *state.vote_ref(),
                promised_until: promised_until(state, timing),
                membership: Arc::clone(membership),
            })
        };
        self.raft.with_raft_state(look).await
    }

    /// Whether a majority would vote for this peer. Who does not answer in the time that an election has would not.
    async fn poll(&self, membership: &EffectiveMembership<PeerId, Member>) -> bool {
        let me = self.core.introducer.peer();
        let mine = self.raft.data_metrics().borrow().last_log;
        let patience = self.settings.timing.election_min();
        let others = membership.voter_ids().filter(|voter| *voter != me);
        let mut answers: FuturesUnordered<_> = others
            .filter_map(|voter| Some((voter, membership.get_node(&voter)?)))
            .map(|(voter, member)| async move {
                let address = self.settings.address_of(&member.name).unwrap_or(&member.address);
                let whom = (member.name.as_str(), address);
                let answer = self.calls.call_within::<_, bool>(patience, whom, voter, Call::Poll, &mine).await;
                (voter, answer.is_ok_and(|(_, would)| would))
            })
            .collect();
        let mut poll = Poll { voters: membership.get_joint_config(), answers: BTreeMap::from([(me, true)]) };
        while poll.is_open()
            && let Some((voter, would)) = answers.next().await
        {
            poll.answers.insert(voter, would);
        }
        poll.is_won()
    }

    /// Unless somebody was heard while the others were asked.
    async fn stand(&self, before: Vote) -> bool {
        let timing = self.settings.timing;
        let still = move |state: &State| *state.vote_ref() == before && hears_nobody(state, timing);
        stand(&self.raft, &self.core.ballot, still).await
    }
}

/// Who has answered what. While the membership changes there are two sets of voters, and each needs its majority.
struct Poll<'a> {
    voters: &'a [Vec<PeerId>],
    answers: BTreeMap<PeerId, bool>,
}

impl Poll<'_> {
    fn is_won(&self) -> bool {
        self.has_majorities(|answer| answer == Some(&true))
    }

    /// Not won, and not lost either.
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

/// Drawn anew each time.
fn part_of(whole: Duration) -> Duration {
    whole.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(voters: &[Vec<PeerId>], yes: &[PeerId], no: &[PeerId]) -> (bool, bool) {
        let said = |who: &[PeerId], would| who.iter().map(|peer| (*peer, would)).collect::<Vec<_>>();
        let poll = Poll { voters, answers: [said(yes, true), said(no, false)].concat().into_iter().collect() };
        (poll.is_won(), poll.is_open())
    }

    const WON: (bool, bool) = (true, false);
    const OPEN: (bool, bool) = (false, true);
    const LOST: (bool, bool) = (false, false);

    #[test]
    fn a_poll_is_won_by_more_than_half_of_the_voters() {
        assert_eq!(poll(&[vec![1]], &[1], &[]), WON);
        assert_eq!(poll(&[vec![1, 2]], &[1], &[]), OPEN);
        assert_eq!(poll(&[vec![1, 2]], &[1], &[2]), LOST);
        assert_eq!(poll(&[vec![1, 2, 3]], &[1, 3], &[]), WON);
        assert_eq!(poll(&[vec![1, 2, 3]], &[1], &[2]), OPEN);
        assert_eq!(poll(&[vec![1, 2, 3, 4]], &[1, 2], &[3]), OPEN);
        assert_eq!(poll(&[vec![1, 2, 3, 4]], &[1, 2], &[3, 4]), LOST);
    }

    #[test]
    fn those_who_have_no_vote_do_not_count() {
        assert_eq!(poll(&[vec![1, 2, 3]], &[1, 8, 9], &[]), OPEN);
        assert_eq!(poll(&[vec![1, 2, 3]], &[1, 8, 9], &[2, 3]), LOST);
        assert_eq!(poll(&[vec![1, 2, 3]], &[1, 2], &[7, 8, 9]), WON);
    }

    #[test]
    fn while_the_membership_changes_it_takes_both_majorities() {
        assert_eq!(poll(&[vec![1, 2, 3], vec![1, 4, 5]], &[1, 2, 3], &[]), OPEN);
        assert_eq!(poll(&[vec![1, 2, 3], vec![1, 4, 5]], &[1, 2, 3], &[4, 5]), LOST);
        assert_eq!(poll(&[vec![1, 2, 3], vec![1, 4, 5]], &[1, 3, 4], &[2]), WON);
    }
}
