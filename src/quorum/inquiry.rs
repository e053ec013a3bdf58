//! What a peer does that hears from no master: it asks the others, who may hear from one.
//!
//! So a peer that was just started can say who is master at once, before consensus has told it anything; and one that
//! will not hear from any master again learns why. Nothing depends on what is heard here for safety: no peer decides,
//! votes or follows by it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leaseway_proto::peer::Place;
use tokio::{sync::watch, time::Instant};

use crate::{
    absence::Absence,
    peers::{Calls, Core, hears_a_master},
    raft::Member,
    reign::{Mastership, PeerAddress},
    settings::Settings,
};

/// How often the others are asked at first...
const SOON: Duration = Duration::from_millis(200);
/// ... and after so many times.
const EAGER: u32 = 25;
const LATER: Duration = Duration::from_secs(1);
/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// A peer that says that this one is none may be a little behind: it must have been said so often in a row.
const CERTAIN: u32 = 10;

/// What others say, as long as this peer hears from no master itself.
#[derive(Debug, Default)]
pub(crate) struct Hearsay(Mutex<News>);

#[derive(Debug, Default)]
struct News {
    master: Option<PeerAddress>,
    absence: Option<Absence>,
    /// It needs no hearsay.
    has_heard_itself: bool,
}

impl Hearsay {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn master(&self) -> Option<PeerAddress> {
        self.lock().master.clone()
    }

    pub(crate) fn absence(&self) -> Option<Absence> {
        self.lock().absence.clone()
    }

    pub(crate) fn has_heard_itself(&self) -> bool {
        self.lock().has_heard_itself
    }

    pub(crate) fn heard_itself(&self, heard: bool) {
        self.lock().has_heard_itself = heard;
    }

    /// What is new is said once.
    fn conclude(&self, absence: Option<Absence>) {
        let before = std::mem::replace(&mut self.lock().absence, absence.clone());
        match absence {
            Some(absence) if before.as_ref().map(Absence::reason) != Some(absence.reason()) => {
                tracing::error!(reason = absence.reason(), "{absence}");
            }
            None if before.is_some() => tracing::info!("this peer takes part again"),
            _ => {}
        }
    }
}

pub(crate) struct Inquiry {
    pub(crate) core: Arc<Core>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mastership: watch::Sender<Mastership>,
    /// The peers that its directory knows of.
    pub(crate) members: Vec<Member>,
}

/// What the others have said about this peer, in one go.
#[derive(Debug, Default)]
struct Verdict {
    takes_part: bool,
    /// Removed or replaced.
    is_none: Option<Absence>,
    is_stranger: Option<Absence>,
    /// A peer of its cluster has answered.
    has_kin: bool,
}

impl Verdict {
    /// What follows from it, given what was known before, and whether it was said often enough.
    fn conclusion(self, before: Option<Absence>, is_certain: bool) -> Option<Absence> {
        match self {
            Verdict { takes_part: true, .. } => None,
            Verdict { is_none: Some(absence), .. } if is_certain => Some(absence),
            Verdict { is_stranger: Some(absence), has_kin: false, .. } => Some(absence),
            // That is not said any more.
            Verdict { has_kin: true, .. } if matches!(before, Some(Absence::OtherCluster { .. })) => None,
            // Silence changes nothing.
            _ => before,
        }
    }
}

impl Inquiry {
    /// For as long as this peer runs.
    pub(crate) async fn run(self) {
        let (mut asked, mut said) = (0, 0);
        let mut restored = None;
        loop {
            if self.hears_a_master(&mut restored).await {
                (asked, said) = (0, 0);
                self.core.hearsay.lock().master = None;
                self.core.hearsay.conclude(None);
            } else {
                let verdict = self.ask().await;
                asked += 1;
                said = if verdict.is_none.is_some() && !verdict.takes_part { said + 1 } else { 0 };
                let before = self.core.hearsay.absence();
                self.core.hearsay.conclude(verdict.conclusion(before, said >= CERTAIN));
            }
            tokio::time::sleep(if asked < EAGER { SOON } else { LATER }).await;
        }
    }

    /// A vote that comes from the disk looks as if its master had just been heard of: `restored` is when it was read,
    /// and only what was heard later counts.
    async fn hears_a_master(&self, restored: &mut Option<Instant>) -> bool {
        if matches!(*self.mastership.borrow(), Mastership::Master(_)) {
            return true;
        }
        let Some(raft) = self.core.raft.get() else { return false };
        let timing = self.settings.timing;
        let heard =
            raft.with_raft_state(move |state| (hears_a_master(state, timing), state.vote_last_modified())).await;
        let Ok((hears, Some(at))) = heard else { return false };
        hears && *restored.get_or_insert(at) != at
    }

    /// Asks everybody who is known, and passes on at once who is master.
    async fn ask(&self) -> Verdict {
        let others = self.others();
        let asking = others.iter().map(|(name, address)| async move {
            (name, tokio::time::timeout(PATIENCE, self.calls.hello((name, address))).await)
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        let (mut verdict, mut named) = (self.own_verdict(), false);
        while let Some((name, answer)) = asking.next().await {
            let Ok(answer) = answer else { continue };
            match answer {
                Ok((other, heard)) => {
                    verdict.has_kin |= !other.cluster.is_empty();
                    if let Some(heard) = heard {
                        self.judge(name, heard.place(), &mut verdict);
                        // It may have been the master until just now, and others stand by that life of it.
                        if heard.master != self.settings.name {
                            named = true;
                            self.pass_on(PeerAddress { name: heard.master, advertise: heard.advertise });
                        }
                    }
                }
                Err(error) if error.is_of_another_cluster() => {
                    verdict.is_stranger = Some(Absence::OtherCluster { by: name.clone() });
                }
                Err(_) => {}
            }
        }
        if !named {
            self.core.hearsay.lock().master = None;
        }
        verdict
    }

    /// A peer that belongs to no cluster yet waits to be taken in: that is no absence.
    fn judge(&self, by: &str, place: Place, verdict: &mut Verdict) {
        let by = by.to_owned();
        match place {
            _ if self.core.introducer.cluster().is_none() => {}
            Place::Unspecified => {}
            Place::Member => verdict.takes_part = true,
            Place::Removed => verdict.is_none = Some(Absence::Removed { by }),
            Place::Replaced => verdict.is_none = Some(Absence::Replaced { by }),
        }
    }

    /// What its own log says: the others may have sent it its dismissal.
    fn own_verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        if let Some(raft) = self.core.raft.get() {
            let membership = raft.metrics().borrow().membership_config.clone();
            if membership.nodes().next().is_some() {
                let place = self.core.place_of(raft, self.core.introducer.peer(), &self.settings.name);
                self.judge("its own log", place, &mut verdict);
                verdict.takes_part = false;
            }
        }
        verdict
    }

    fn pass_on(&self, master: PeerAddress) {
        self.core.hearsay.lock().master = Some(master.clone());
        self.mastership.send_if_modified(|before| {
            let unknown = matches!(before, Mastership::Unknown | Mastership::Follower { of: None });
            if unknown {
                tracing::info!(master = master.name, "others hear from a master");
                *before = Mastership::Follower { of: Some(master) };
            }
            unknown
        });
    }

    /// Names and addresses of all peers that settings, directory or log know of. The settings know best where one is.
    fn others(&self) -> BTreeMap<String, String> {
        let mut members = self.members.clone();
        if let Some(raft) = self.core.raft.get() {
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

    fn removed() -> Option<Absence> {
        Some(Absence::Removed { by: "a".into() })
    }

    fn stranger() -> Option<Absence> {
        Some(Absence::OtherCluster { by: "b".into() })
    }

    fn concluded(verdict: Verdict, before: Option<Absence>, is_certain: bool) -> Option<&'static str> {
        verdict.conclusion(before, is_certain).map(|absence| absence.reason())
    }

    #[test]
    fn a_peer_that_is_still_counted_in_takes_part_whatever_others_say() {
        let verdict = || Verdict { takes_part: true, is_none: removed(), is_stranger: stranger(), has_kin: true };
        assert_eq!(concluded(verdict(), removed(), true), None);
    }

    #[test]
    fn that_a_peer_is_none_must_be_said_often_and_stays_when_all_are_silent() {
        let verdict = || Verdict { is_none: removed(), has_kin: true, ..Verdict::default() };
        assert_eq!(concluded(verdict(), None, false), None);
        assert_eq!(concluded(verdict(), None, true), Some("removed"));
        assert_eq!(concluded(Verdict::default(), removed(), false), Some("removed"));
        assert_eq!(concluded(Verdict::default(), None, false), None, "a majority is away, and may come back");
    }

    #[test]
    fn one_stranger_among_kin_is_the_stranger() {
        let verdict = |has_kin| Verdict { is_stranger: stranger(), has_kin, ..Verdict::default() };
        assert_eq!(concluded(verdict(false), None, false), Some("other_cluster"));
        assert_eq!(concluded(verdict(true), None, false), None);
        assert_eq!(concluded(verdict(true), stranger(), false), None);
    }
}
