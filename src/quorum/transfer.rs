//! How a master hands its mastership to another peer and stays a peer itself, for maintenance.
//!
//! The keeper ends the reign and begins no other while this goes on, so that the vote of this peer may be given away.
//! The next master has every entry that was acknowledged: entries under way arrive before it is asked to stand, and no
//! proposal counts without a reign. If it is not elected, the keeper begins a new reign here.

use std::{collections::BTreeSet, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    error::ChangeError,
    keeper::Resignation,
    leave::{hand_over, most_complete},
    members::Members,
    peers::vote_leased_until,
    raft::{PeerId, State},
    reign::{Mastership, PeerAddress},
};

/// How long the next master may take to have what there is now, while this one still reigns.
const CATCH_UP: Duration = Duration::from_secs(5);

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
    let (next, name) = members.successor(to)?;
    members.can_give_its_vote().await?;
    members.caught_up(next, &name, CATCH_UP).await?;
    let before = members.facts.read().reign();
    let stopping = || ChangeError::Failed("this peer stops".into());
    let (ended, has_ended) = oneshot::channel();
    let (paused, over) = oneshot::channel();
    members.keeper.send(Resignation { ended, over }).await.map_err(|_| stopping())?;
    has_ended.await.map_err(|_| stopping())?;
    let began = Instant::now();
    // What was under way when the reign ended. It cannot be long: nothing is added any more.
    if members.caught_up_within(next, members.settings.timing.heartbeat() * 4).await {
        hand_over(members, next).await;
    }
    drop(paused);
    let patience = members.settings.timing.certainly_over() * 4 + Duration::from_secs(1);
    let no_master = |_| ChangeError::Failed("no master is known yet; there will be one once a majority answers".into());
    let master = timeout(patience, settled(members, before, &name)).await.map_err(no_master)??;
    Ok(Transferred { master, took: began.elapsed() })
}

/// The next master, once it has begun its reign.
async fn settled(members: &Members, before: u64, wanted: &str) -> Result<PeerAddress, ChangeError> {
    loop {
        match &*members.mastership.borrow() {
            Mastership::Master(_) => return Err(ChangeError::NotTaken { name: wanted.to_owned() }),
            Mastership::Follower { of: Some(master) } if members.facts.read().reign() > before => {
                return Ok(master.clone());
            }
            Mastership::Follower { .. } | Mastership::Unknown => {}
        }
        sleep(members.settings.timing.heartbeat() / 10).await;
    }
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
    fn successor(&self, to: Option<&str>) -> Result<(PeerId, String), ChangeError> {
        let name = match to {
            Some(name) => name.to_owned(),
            None => self.most_complete_peer().ok_or(ChangeError::Alone)?,
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
        let leased = self.raft.with_raft_state(move |state: &State| vote_leased_until(state, timing)).await;
        if let Some(until) = leased.map_err(|error| ChangeError::Failed(error.to_string()))? {
            sleep_until(until + Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn most_complete_peer(&self) -> Option<String> {
        let (next, _) = most_complete(&self.raft.metrics().borrow())?;
        self.members().remove(&next).map(|member| member.name)
    }
}
