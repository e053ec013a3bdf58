//! Adds and removes peers. Runs on every peer, but only the master acts.
//!
//! There is one change at a time, and each of its steps is an entry in the log. A new peer becomes a learner, catches
//! up, gets a vote, and replaces the earlier identity of its name. If a master dies in between, the next one finishes
//! the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use openraft::{
    ChangeMembers,
    error::{ClientWriteError, RaftError},
};
use tokio::{
    sync::{Mutex, mpsc},
    time::{sleep, timeout},
};

use crate::{
    election::{
        PeerContext,
        master_lease::{MasterLease, Mastership, StepDown},
    },
    log::{Member, PeerId, Raft, RaftMetrics},
    state::machine::SharedState,
    transport::{Method, client::PeerClient},
};

/// The time limit for a new peer to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval of checks for a change that an earlier master left half done.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit of each step of a change.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
const LOST: &str = "mastership was lost during the change, which may have taken effect: check `leaseway peers list`";

/// Why the membership or the master was not changed. The membership is unchanged unless the error says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("this peer is not the master: ask {}", master.as_deref().unwrap_or("again once there is one"))]
    NotMaster { master: Option<String> },
    /// A lone peer has no peer listener.
    #[error(
        "no peer can join, because this server has no listener for peers: restart it with the same --data and with \
         `--id {name} --peers {name}=HOST:PORT`, where HOST:PORT is its address for other peers. It keeps its \
         promises. Then add the other peers"
    )]
    Lone { name: String },
    #[error("cannot add the peer {name:?} at {address}: {why}")]
    NotThere { name: String, address: String, why: String },
    #[error("{name:?} is already a running peer: stop it or remove it first")]
    Alive { name: String },
    #[error("there is no peer {name:?}; the peers are {known}")]
    Unknown { name: String, known: String },
    #[error("{name:?} is the master: run `leaseway transfer`, then remove it")]
    IsMaster { name: String },
    #[error("this is the only peer with a vote, so no other can be master: add one with `leaseway peers add`")]
    Alone,
    #[error("{name:?} is already the master")]
    IsMasterAlready { name: String },
    #[error("{name:?} has no vote yet: it can be master once it has caught up")]
    NoVote { name: String },
    #[error("{name:?} is down or cut off: choose another peer, or restart it first")]
    Silent { name: String },
    #[error("{name:?} was not elected in time, and this peer is master again: try again or choose another peer")]
    NotTaken { name: String },
    /// Without a majority there would be no master.
    #[error(
        "only {there} of the remaining peers answer, but a majority needs {needed}: first restart the peers that are \
         down"
    )]
    NoMajority { there: usize, needed: usize },
    /// The peer was added as a learner, and remains one until it is added again or removed.
    #[error("{name:?} has not caught up within {seconds} s; it continues to catch up, so try again later")]
    Behind { name: String, seconds: u64 },
    /// Mastership was lost, or a quorum did not answer.
    #[error("the change failed: {0}")]
    Failed(String),
}

pub(crate) struct Members {
    pub(crate) raft: Raft,
    pub(crate) context: Arc<PeerContext>,
    pub(crate) client: Arc<PeerClient>,
    pub(crate) state: SharedState,
    pub(crate) step_down: mpsc::Sender<StepDown>,
    /// Allows one change at a time.
    pub(crate) changing: Mutex<()>,
}

impl Members {
    /// Admits known peers that have lost their directories, and finishes changes that an earlier master left half done.
    /// Returns when consensus ends.
    pub(crate) async fn run(self: Arc<Self>, mut joins: mpsc::Receiver<(PeerId, Member)>) {
        loop {
            match timeout(CHECK_INTERVAL, joins.recv()).await {
                Ok(Some((peer, member))) => self.rejoin(peer, member).await,
                Ok(None) => return,
                Err(_) => self.finish_change().await,
            }
        }
    }

    async fn rejoin(&self, peer: PeerId, member: Member) {
        // A joining peer repeats its request to all peers.
        if self.check_master().is_err() || self.voters().contains(&peer) {
            return;
        }
        let name = member.name.clone();
        let result = if self.ids_of(&name).is_empty() {
            Err(ChangeError::Unknown { name: name.clone(), known: self.names() })
        } else {
            self.admit(peer, member).await
        };
        match result {
            Ok(()) => self.context.liveness.clear_problems(&name),
            Err(error) => self.context.liveness.report_problem(&name, &error),
        }
    }

    /// Finishes a change whose master died midway: leaves a joint membership, or removes the old identity of a replaced
    /// voter.
    async fn finish_change(&self) {
        let Ok(one) = self.changing.try_lock() else { return };
        let Ok(lease) = self.check_master() else { return };
        let membership = self.raft.metrics().borrow().membership_config.membership().clone();
        let finished = match membership.get_joint_config().as_slice() {
            [_, .., voters] if !voters.contains(&self.context.id()) => {
                drop(one);
                self.transfer_to_one_of(voters).await
            }
            [_, .., voters] => self.step(&lease, self.raft.change_membership(voters.clone(), false)).await,
            _ => self.remove_nodes(&lease, &self.replaced()).await,
        };
        if let Err(error) = finished {
            tracing::warn!(%error, "cannot finish a membership change that another master began; retrying");
        }
    }

    /// Earlier identities of voters that are alive: silent learners of the same name.
    fn replaced(&self) -> BTreeSet<PeerId> {
        let (members, voters) = (self.members(), self.voters());
        let (voting, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            members.into_iter().partition(|(peer, _)| voters.contains(peer));
        // While the voter is silent, a learner with its name may be its new identity.
        let returned =
            |member: &Member| voting.iter().any(|(peer, voter)| voter.name == member.name && self.is_alive(*peer));
        let others = others.into_iter().filter(|(peer, member)| returned(member) && !self.is_alive(*peer));
        others.map(|(peer, _)| peer).collect()
    }

    /// Adds a new peer, or a known one under a new identity.
    pub(crate) async fn add(&self, name: &str, address: &str) -> Result<(), ChangeError> {
        self.check_master()?;
        let there = self.client.call_within::<_, ()>(STEP_TIMEOUT, (name, address), 0, Method::Hello, &()).await;
        let (other, ()) = there.map_err(|error| ChangeError::NotThere {
            name: name.to_owned(),
            address: address.to_owned(),
            why: match error.is_of_another_cluster() {
                true => "its data directory belongs to another cluster; start it with an empty directory".into(),
                false => error.to_string(),
            },
        })?;
        let member = Member { name: name.to_owned(), address: address.to_owned(), advertise: other.advertise };
        self.admit(other.peer, member).await
    }

    /// Adds the peer as a learner, and gives it a vote once it has caught up. Removes an earlier identity of the same
    /// name, which must be silent.
    async fn admit(&self, peer: PeerId, member: Member) -> Result<(), ChangeError> {
        let _one = self.changing.lock().await;
        let lease = self.check_master()?;
        let name = member.name.clone();
        let before = self.ids_of(&name).into_iter().filter(|other| *other != peer).collect::<BTreeSet<_>>();
        if before.iter().any(|other| self.is_alive(*other)) {
            return Err(ChangeError::Alive { name });
        }
        tracing::info!(peer = name, replaces = before.len(), "a peer joins");
        self.step(&lease, self.raft.add_learner(peer, member, false)).await?;
        self.wait_until_caught_up(peer, &name, CATCH_UP_TIMEOUT).await?;
        let mut voters = self.voters();
        voters.retain(|other| !before.contains(other));
        voters.insert(peer);
        self.step(&lease, self.raft.change_membership(voters, false)).await?;
        self.remove_nodes(&lease, &before).await?;
        tracing::info!(peer = name, "a peer has joined");
        Ok(())
    }

    /// Removes a peer for good. It may be added again with an empty directory.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let lease = self.check_master()?;
        if name == self.context.settings.name {
            return Err(ChangeError::IsMaster { name: name.to_owned() });
        }
        let _one = self.changing.lock().await;
        let removed = self.ids_of(name);
        if removed.is_empty() {
            return Err(ChangeError::Unknown { name: name.to_owned(), known: self.names() });
        }
        let voters = self.voters();
        if voters.iter().any(|voter| removed.contains(voter)) {
            let left: BTreeSet<_> = voters.difference(&removed).copied().collect();
            self.check_majority(&left).await?;
            self.step(&lease, self.raft.change_membership(left, false)).await?;
        }
        self.remove_nodes(&lease, &removed).await?;
        tracing::info!(peer = name, "a peer was removed");
        Ok(())
    }

    /// Checks that a majority of the remaining voters answers now, each under the identity that has the vote. Recent
    /// contact is not enough, because a peer may have lost its directory since.
    async fn check_majority(&self, left: &BTreeSet<PeerId>) -> Result<(), ChangeError> {
        let (me, members) = (self.context.id(), self.members());
        let mut answers: FuturesUnordered<_> = left
            .iter()
            .filter(|voter| members.contains_key(voter))
            .map(|voter| async move { *voter == me || self.answers(*voter).await })
            .collect();
        let (mut there, needed) = (0, left.len() / 2 + 1);
        while there < needed {
            let Some(is_there) = answers.next().await else { return Err(ChangeError::NoMajority { there, needed }) };
            there += usize::from(is_there);
        }
        Ok(())
    }

    /// Whether a member answers now under its identity.
    pub(crate) async fn answers(&self, peer: PeerId) -> bool {
        let Some(member) = self.members().remove(&peer) else { return false };
        let address = (member.name.as_str(), self.context.settings.address_of_member(&member));
        self.client.call_within::<_, ()>(ANSWER_TIMEOUT, address, peer, Method::Hello, &()).await.is_ok()
    }

    /// Asks the master for the history of its resources. None if this peer is the master, or does not reach it.
    pub(crate) async fn ask_history(&self, request: Vec<u8>) -> Option<Vec<u8>> {
        let master = self.raft.metrics().borrow().current_leader.filter(|master| *master != self.context.id())?;
        let member = self.members().remove(&master)?;
        let peer = (member.name.as_str(), self.context.settings.address_of_member(&member));
        let asked = self.client.call_within(ANSWER_TIMEOUT, peer, master, Method::History, &request).await;
        asked.ok().map(|(_, answer)| answer)
    }

    /// Removes the learners among these that are still members.
    async fn remove_nodes(&self, lease: &MasterLease, peers: &BTreeSet<PeerId>) -> Result<(), ChangeError> {
        let left: BTreeSet<_> = self.members().into_keys().filter(|peer| peers.contains(peer)).collect();
        if !left.is_empty() {
            self.step(lease, self.raft.change_membership(ChangeMembers::RemoveNodes(left), false)).await?;
        }
        Ok(())
    }

    pub(crate) async fn wait_until_caught_up(
        &self,
        peer: PeerId,
        name: &str,
        limit: Duration,
    ) -> Result<(), ChangeError> {
        let last = self.raft.metrics().borrow().last_log_index;
        let caught_up = tokio::select! {
            caught_up = self.has_entries(peer, last, limit) => caught_up,
            () = self.replaced_by_another(peer, name) => {
                let why = "the peer has lost its data directory meanwhile and has a new identity; try again";
                return Err(ChangeError::Failed(why.into()));
            }
        };
        self.check_master()?;
        if caught_up { Ok(()) } else { Err(ChangeError::Behind { name: name.to_owned(), seconds: limit.as_secs() }) }
    }

    /// Returns once another identity of its name was heard from.
    async fn replaced_by_another(&self, peer: PeerId, name: &str) {
        while !self.context.liveness.is_replaced(peer, name) {
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Whether the peer receives all entries up to `last` within `limit`.
    pub(crate) async fn has_entries(&self, peer: PeerId, last: Option<u64>, limit: Duration) -> bool {
        let has_all = |metrics: &RaftMetrics| match &metrics.replication {
            Some(replication) => replication.get(&peer).is_some_and(|at| at.map(|id| id.index) >= last),
            None => true,
        };
        self.raft.wait(Some(limit)).metrics(has_all, "a peer catches up").await.is_ok()
    }

    /// Runs one step of a change that was decided under `lease`. Under a later lease the decision may be outdated.
    async fn step<T>(
        &self,
        lease: &MasterLease,
        change: impl Future<Output = Result<T, RaftError<PeerId, ClientWriteError<PeerId, Member>>>>,
    ) -> Result<(), ChangeError> {
        if !lease.holds(self.client.now()) {
            return Err(self.check_master().err().unwrap_or(ChangeError::Failed(LOST.into())));
        }
        match timeout(STEP_TIMEOUT, change).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.forward_to_leader::<Member>().is_some() => Err(ChangeError::Failed(LOST.into())),
            Ok(Err(error)) => Err(ChangeError::Failed(error.to_string())),
            Err(_) => {
                Err(ChangeError::Failed("a quorum did not answer in time; the change may still take effect".into()))
            }
        }
    }

    pub(crate) fn check_master(&self) -> Result<MasterLease, ChangeError> {
        match &*self.context.mastership.borrow() {
            Mastership::Master(lease) if lease.holds(self.client.now()) => Ok(lease.clone()),
            Mastership::Follower { of: Some(master) } => {
                Err(ChangeError::NotMaster { master: Some(master.name.clone()) })
            }
            _ => Err(ChangeError::NotMaster { master: None }),
        }
    }

    /// Whether the peer was heard from within two vote leases, in which a running peer answers several times.
    pub(crate) fn is_alive(&self, peer: PeerId) -> bool {
        let lease = self.context.settings.timing.lease();
        let recent = |at| self.client.now().since(at) < lease.plus(lease);
        peer == self.context.id() || self.context.liveness.get(peer).is_some_and(|contact| recent(contact.at))
    }

    pub(crate) fn members(&self) -> BTreeMap<PeerId, Member> {
        let metrics = self.raft.metrics();
        let membership = metrics.borrow().membership_config.clone();
        membership.nodes().map(|(peer, member)| (*peer, member.clone())).collect()
    }

    pub(crate) fn voters(&self) -> BTreeSet<PeerId> {
        self.raft.metrics().borrow().membership_config.voter_ids().collect()
    }

    pub(crate) fn ids_of(&self, name: &str) -> BTreeSet<PeerId> {
        self.members().into_iter().filter(|(_, member)| member.name == name).map(|(peer, _)| peer).collect()
    }

    pub(crate) fn names(&self) -> String {
        let names: BTreeSet<String> = self.members().into_values().map(|member| member.name).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}
