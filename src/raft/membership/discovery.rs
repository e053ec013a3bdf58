//! Discovery: a peer that gets no heartbeats asks the other peers for the master.
//!
//! This lets a starting peer name the master before consensus runs, and a removed peer learns why no master contacts
//! it. Safety does not depend on the answers: they affect no decision, vote or log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leaseway_proto::peer::MemberStatus;
use tokio::{sync::watch, time::Instant};

use crate::{
    election::{
        PeerContext,
        master_lease::{Mastership, PeerAddress},
        vote::follows_live_master,
    },
    log::{Member, Membership, PeerId},
    membership::ineligible::{Eligibility, Ineligible},
    transport::client::PeerClient,
};

/// The interval of the first rounds.
const FAST_INTERVAL: Duration = Duration::from_millis(200);
const FAST_ROUNDS: u32 = 25;
/// The interval of later rounds.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of consecutive rounds in which this peer must not be a member. The log of one peer may be a little
/// behind.
const REQUIRED_CONFIRMATIONS: u32 = 10;

pub(crate) struct Discovery {
    pub(crate) context: Arc<PeerContext>,
    pub(crate) client: Arc<PeerClient>,
    pub(crate) mastership: watch::Sender<Mastership>,
    pub(crate) eligibility: Arc<Eligibility>,
    /// The members in the data directory.
    pub(crate) members: Vec<Member>,
}

/// The answers of one round.
#[derive(Debug, Default)]
struct Answers {
    /// Whether a peer has answered that this one is a member.
    is_member: bool,
    /// Set if a peer has answered that this one was removed or replaced, or belongs to another cluster.
    removed: Option<Ineligible>,
    other_cluster: Option<Ineligible>,
    own_cluster_answered: bool,
}

impl Answers {
    /// `is_certain`: enough consecutive rounds had the same answers.
    fn conclusion(self, before: Option<Ineligible>, is_certain: bool) -> Option<Ineligible> {
        match self {
            Answers { is_member: true, .. } => None,
            Answers { removed: Some(why), .. } if is_certain => Some(why),
            Answers { other_cluster: Some(why), own_cluster_answered: false, .. } => Some(why),
            Answers { own_cluster_answered: true, .. } if matches!(before, Some(Ineligible::OtherCluster { .. })) => {
                None
            }
            // No answers: keep the previous conclusion.
            _ => before,
        }
    }
}

impl Discovery {
    pub(crate) async fn run(self) {
        let (mut rounds, mut confirmations) = (0, 0);
        let mut restored = None;
        loop {
            if self.gets_heartbeats(&mut restored).await {
                (rounds, confirmations) = (0, 0);
                self.context.discovered.set_master(None);
                self.eligibility.set(None);
            } else {
                let answers = self.ask().await;
                rounds += 1;
                let is_removed = answers.removed.is_some() && !answers.is_member;
                confirmations = if is_removed { confirmations + 1 } else { 0 };
                let before = self.eligibility.get();
                self.eligibility.set(answers.conclusion(before, confirmations >= REQUIRED_CONFIRMATIONS));
            }
            tokio::time::sleep(if rounds < FAST_ROUNDS { FAST_INTERVAL } else { SLOW_INTERVAL }).await;
        }
    }

    /// openraft counts reading the vote from disk as a message of the master. `restored` is the time of that read; only
    /// later messages count.
    async fn gets_heartbeats(&self, restored: &mut Option<Instant>) -> bool {
        if matches!(*self.mastership.borrow(), Mastership::Master(_)) {
            return true;
        }
        let Some(raft) = self.context.raft.get() else { return false };
        let timing = self.context.settings.timing;
        let heard =
            raft.with_raft_state(move |state| (follows_live_master(state, timing), state.vote_last_modified())).await;
        let Ok((hears, Some(at))) = heard else { return false };
        hears && *restored.get_or_insert(at) != at
    }

    /// Asks all known peers, and publishes the first master that is named.
    async fn ask(&self) -> Answers {
        let others = self.others();
        let asking = others.iter().map(|(name, address)| async move {
            (name, tokio::time::timeout(ANSWER_TIMEOUT, self.client.hello((name, address))).await)
        });
        let mut pending: FuturesUnordered<_> = asking.collect();
        let (mut answers, mut named) = (self.own_answers(), false);
        while let Some((name, answer)) = pending.next().await {
            let Ok(answer) = answer else { continue };
            match answer {
                Ok((other, master)) => {
                    answers.own_cluster_answered |= !other.cluster.is_empty();
                    if let Some(master) = master {
                        self.record_status(name, master.caller(), &mut answers);
                        // This peer may have been master before its restart, and the others may not know better.
                        if master.name != self.context.settings.name {
                            named = true;
                            self.publish(PeerAddress { name: master.name, advertise: master.advertise });
                        }
                    }
                }
                Err(error) if error.is_of_another_cluster() => {
                    answers.other_cluster = Some(Ineligible::OtherCluster { by: name.clone() });
                }
                Err(_) => {}
            }
        }
        if !named {
            self.context.discovered.set_master(None);
        }
        answers
    }

    /// A peer that belongs to no cluster yet waits to join. It does not count as removed.
    fn record_status(&self, by: &str, status: MemberStatus, answers: &mut Answers) {
        let by = by.to_owned();
        match status {
            _ if self.context.handshake.cluster().is_none() => {}
            MemberStatus::Unspecified => {}
            MemberStatus::Member => answers.is_member = true,
            MemberStatus::Removed => answers.removed = Some(Ineligible::Removed { by }),
            MemberStatus::Replaced => answers.removed = Some(Ineligible::Replaced { by }),
        }
    }

    /// The status according to this peer's own log, which may have the entry that removed it.
    fn own_answers(&self) -> Answers {
        let mut answers = Answers::default();
        if let Some(membership) = self.context.membership()
            && membership.nodes().next().is_some()
        {
            let status = status_of(&membership, self.context.id(), &self.context.settings.name);
            self.record_status("its own log", status, &mut answers);
            answers.is_member = false;
        }
        answers
    }

    fn publish(&self, master: PeerAddress) {
        self.context.discovered.set_master(Some(master.clone()));
        self.mastership.send_if_modified(|before| {
            let unknown = matches!(before, Mastership::Unknown | Mastership::Follower { of: None });
            if unknown {
                tracing::info!(master = master.name, "learned the master from peers");
                *before = Mastership::Follower { of: Some(master) };
            }
            unknown
        });
    }

    /// Names and addresses of all peers in the settings, the data directory or the log. Addresses in the settings take
    /// precedence.
    fn others(&self) -> BTreeMap<String, String> {
        let mut members = self.members.clone();
        if let Some(membership) = self.context.membership() {
            members.extend(membership.nodes().map(|(_, member)| member.clone()));
        }
        let known = members.into_iter().filter(|member| !member.address.is_empty());
        let mut others: BTreeMap<String, String> = known.map(|member| (member.name, member.address)).collect();
        others.extend(self.context.settings.peers.iter().cloned());
        others.remove(&self.context.settings.name);
        others
    }
}

/// Whether a peer is a member according to this membership.
pub(crate) fn status_of(membership: &Membership, peer: PeerId, name: &str) -> MemberStatus {
    if membership.get_node(&peer).is_some() {
        MemberStatus::Member
    } else if membership.nodes().any(|(_, member)| member.name == name) {
        MemberStatus::Replaced
    } else {
        MemberStatus::Removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed() -> Option<Ineligible> {
        Some(Ineligible::Removed { by: "a".into() })
    }

    fn other_cluster() -> Option<Ineligible> {
        Some(Ineligible::OtherCluster { by: "b".into() })
    }

    fn concluded(answers: Answers, before: Option<Ineligible>, is_certain: bool) -> Option<&'static str> {
        answers.conclusion(before, is_certain).map(|why| why.reason())
    }

    #[test]
    fn one_answer_that_this_peer_is_a_member_outweighs_all_others() {
        let answers = || Answers {
            is_member: true,
            removed: removed(),
            other_cluster: other_cluster(),
            own_cluster_answered: true,
        };
        assert_eq!(concluded(answers(), removed(), true), None);
    }

    #[test]
    fn a_removal_must_be_confirmed_and_persists_without_answers() {
        let answers = || Answers { removed: removed(), own_cluster_answered: true, ..Answers::default() };
        assert_eq!(concluded(answers(), None, false), None);
        assert_eq!(concluded(answers(), None, true), Some("removed"));
        assert_eq!(concluded(Answers::default(), removed(), false), Some("removed"));
        assert_eq!(concluded(Answers::default(), None, false), None, "a majority is down, and may come back");
    }

    #[test]
    fn an_answer_of_the_own_cluster_outweighs_another_cluster() {
        let answers = |own_cluster_answered| Answers {
            other_cluster: other_cluster(),
            own_cluster_answered,
            ..Answers::default()
        };
        assert_eq!(concluded(answers(false), None, false), Some("other_cluster"));
        assert_eq!(concluded(answers(true), None, false), None);
        assert_eq!(concluded(answers(true), other_cluster(), false), None);
    }
}
