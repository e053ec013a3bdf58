//! A peer that hears from no master asks the other peers whether they do.
//!
//! So a peer that was just started can name the master at once, before consensus has told it anything; and a peer that
//! no master will contact again learns why. Safety does not depend on these answers: no peer decides, votes or follows
//! by them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leaseway_proto::peer::Place;
use tokio::{sync::watch, time::Instant};

use crate::{
    ineligible::Ineligible,
    master_lease::{Mastership, PeerAddress},
    peers::{Calls, LocalPeer, follows_live_master},
    raft::Member,
    settings::Settings,
};

/// How often the others are asked at first …
const SOON: Duration = Duration::from_millis(200);
/// … and after so many times.
const EAGER: u32 = 25;
const LATER: Duration = Duration::from_secs(1);
/// How long a peer may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// So many answers in a row must say that this peer is no member: one peer's log may be a little behind.
const CONFIRMATIONS: u32 = 10;

pub(crate) struct Inquiry {
    pub(crate) local: Arc<LocalPeer>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mastership: watch::Sender<Mastership>,
    /// The members in its directory.
    pub(crate) members: Vec<Member>,
}

/// The answers of one round.
#[derive(Debug, Default)]
struct Verdict {
    takes_part: bool,
    /// A peer says that this one was removed or replaced.
    expelled: Option<Ineligible>,
    other_cluster: Option<Ineligible>,
    /// A peer of this peer's cluster has answered.
    own_cluster_answered: bool,
}

impl Verdict {
    /// What follows from it, given what was concluded before, and whether it was said often enough in a row.
    fn conclusion(self, before: Option<Ineligible>, is_certain: bool) -> Option<Ineligible> {
        match self {
            Verdict { takes_part: true, .. } => None,
            Verdict { expelled: Some(ineligible), .. } if is_certain => Some(ineligible),
            Verdict { other_cluster: Some(ineligible), own_cluster_answered: false, .. } => Some(ineligible),
            // No peer says so any more.
            Verdict { own_cluster_answered: true, .. } if matches!(before, Some(Ineligible::OtherCluster { .. })) => {
                None
            }
            // Silence changes nothing.
            _ => before,
        }
    }
}

impl Inquiry {
    pub(crate) async fn run(self) {
        let (mut asked, mut said) = (0, 0);
        let mut restored = None;
        loop {
            if self.hears_a_master(&mut restored).await {
                (asked, said) = (0, 0);
                self.local.hearsay.set_master(None);
                self.local.hearsay.set_ineligible(None);
            } else {
                let verdict = self.ask().await;
                asked += 1;
                said = if verdict.expelled.is_some() && !verdict.takes_part { said + 1 } else { 0 };
                let before = self.local.hearsay.ineligible();
                self.local.hearsay.set_ineligible(verdict.conclusion(before, said >= CONFIRMATIONS));
            }
            tokio::time::sleep(if asked < EAGER { SOON } else { LATER }).await;
        }
    }

    /// A vote read from disk looks as if its master had just been heard from: `restored` is when it was read, and only
    /// later messages count.
    async fn hears_a_master(&self, restored: &mut Option<Instant>) -> bool {
        if matches!(*self.mastership.borrow(), Mastership::Master(_)) {
            return true;
        }
        let Some(raft) = self.local.raft.get() else { return false };
        let timing = self.settings.timing;
        let heard =
            raft.with_raft_state(move |state| (follows_live_master(state, timing), state.vote_last_modified())).await;
        let Ok((hears, Some(at))) = heard else { return false };
        hears && *restored.get_or_insert(at) != at
    }

    /// Asks all known peers, and publishes the first answer that names a master at once.
    async fn ask(&self) -> Verdict {
        let others = self.others();
        let asking = others.iter().map(|(name, address)| async move {
            (name, tokio::time::timeout(TIMEOUT, self.calls.hello((name, address))).await)
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        let (mut verdict, mut named) = (self.own_verdict(), false);
        while let Some((name, answer)) = asking.next().await {
            let Ok(answer) = answer else { continue };
            match answer {
                Ok((other, heard)) => {
                    verdict.own_cluster_answered |= !other.cluster.is_empty();
                    if let Some(heard) = heard {
                        self.record_place(name, heard.place(), &mut verdict);
                        // This peer may have been master until just now, before a restart: the others may not know yet.
                        if heard.master != self.settings.name {
                            named = true;
                            self.publish(PeerAddress { name: heard.master, advertise: heard.advertise });
                        }
                    }
                }
                Err(error) if error.is_of_another_cluster() => {
                    verdict.other_cluster = Some(Ineligible::OtherCluster { by: name.clone() });
                }
                Err(_) => {}
            }
        }
        if !named {
            self.local.hearsay.set_master(None);
        }
        verdict
    }

    /// A peer that belongs to no cluster yet waits to join: that is no ineligible.
    fn record_place(&self, by: &str, place: Place, verdict: &mut Verdict) {
        let by = by.to_owned();
        match place {
            _ if self.local.introducer.cluster().is_none() => {}
            Place::Unspecified => {}
            Place::Member => verdict.takes_part = true,
            Place::Removed => verdict.expelled = Some(Ineligible::Removed { by }),
            Place::Replaced => verdict.expelled = Some(Ineligible::Replaced { by }),
        }
    }

    /// What this peer's own log says: the entry that removed it may have arrived.
    fn own_verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some(raft) = self.local.raft.get() {
            let membership = raft.metrics().borrow().membership_config.clone();
            if membership.nodes().next().is_some() {
                let place = self.local.place_of(raft, self.local.introducer.peer(), &self.settings.name);
                self.record_place("its own log", place, &mut verdict);
                verdict.takes_part = false;
            }
        }
        verdict
    }

    fn publish(&self, master: PeerAddress) {
        self.local.hearsay.set_master(Some(master.clone()));
        self.mastership.send_if_modified(|before| {
            let unknown = matches!(before, Mastership::Unknown | Mastership::Follower { of: None });
            if unknown {
                tracing::info!(master = master.name, "others hear from a master");
                *before = Mastership::Follower { of: Some(master) };
            }
            unknown
        });
    }

    /// Names and addresses of all peers in settings, directory or log. An address in the settings takes precedence.
    fn others(&self) -> BTreeMap<String, String> {
        let mut members = self.members.clone();
        if let Some(raft) = self.local.raft.get() {
            let membership = raft.metrics().borrow().membership_config.clone();
            members.extend(membership.nodes().map(|(_, member)| member.clone()));
        }
        let known = members.into_iter().filter(|member| !member.address.is_empty());
        let mut others: BTreeMap<String, String> = known.map(|member| (member.name, member.address)).collect();
        others.extend(self.settings.peers.iter().cloned());
        others.remove(&self.settings.name);
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed() -> Option<Ineligible> {
        Some(Ineligible::Removed { by: "a".into() })
    }

    fn stranger() -> Option<Ineligible> {
        Some(Ineligible::OtherCluster { by: "b".into() })
    }

    fn concluded(verdict: Verdict, before: Option<Ineligible>, is_certain: bool) -> Option<&'static str> {
        verdict.conclusion(before, is_certain).map(|ineligible| ineligible.reason())
    }

    #[test]
    fn one_answer_that_counts_it_as_a_member_outweighs_all_others() {
        let verdict =
            || Verdict { takes_part: true, expelled: removed(), other_cluster: stranger(), own_cluster_answered: true };
        assert_eq!(concluded(verdict(), removed(), true), None);
    }

    #[test]
    fn a_removal_must_be_confirmed_often_and_stays_when_all_are_silent() {
        let verdict = || Verdict { expelled: removed(), own_cluster_answered: true, ..Verdict::default() };
        assert_eq!(concluded(verdict(), None, false), None);
        assert_eq!(concluded(verdict(), None, true), Some("removed"));
        assert_eq!(concluded(Verdict::default(), removed(), false), Some("removed"));
        assert_eq!(concluded(Verdict::default(), None, false), None, "a majority is away, and may come back");
    }

    #[test]
    fn a_peer_of_another_cluster_does_not_count_while_one_of_the_own_cluster_answers() {
        let verdict =
            |own_cluster_answered| Verdict { other_cluster: stranger(), own_cluster_answered, ..Verdict::default() };
        assert_eq!(concluded(verdict(false), None, false), Some("other_cluster"));
        assert_eq!(concluded(verdict(true), None, false), None);
        assert_eq!(concluded(verdict(true), stranger(), false), None);
    }
}
