//! How a peer with an empty directory finds its place in a cluster.
//!
//! An empty directory alone never counts as a first start. Either all peers were told to bootstrap: then the first of
//! them by name begins a cluster, once all are there. Or there is a cluster already: then this peer asks to join under
//! the identity that was made with its directory, and the master sends it everything before it gives it a vote.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leaseway_proto::peer::Introduction;

use crate::{
    peers::{LocalPeer, Method, PeerClient},
    raft::{Member, PeerId, Raft},
    settings::Settings,
    store::StoreError,
};

/// How often the other peers are asked.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);
/// After so many attempts the log says what an operator may have to do.
const HINT_AFTER_ATTEMPTS: u32 = 20;
/// How long a peer may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Bootstrap {
    pub(crate) raft: Raft,
    pub(crate) local: Arc<LocalPeer>,
    pub(crate) client: Arc<PeerClient>,
    pub(crate) settings: Arc<Settings>,
}

/// How a peer has become a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BootstrapOutcome {
    /// A new cluster has begun, and this peer is one of its first.
    Began,
    /// An existing cluster has let it in.
    Joined,
}

impl Bootstrap {
    /// Returns once this peer belongs to a cluster and has a vote there.
    pub(crate) async fn run(&self) -> Result<BootstrapOutcome, StoreError> {
        let others: Vec<_> = self.settings.peers.iter().filter(|(name, _)| *name != self.settings.name).collect();
        let (mut told, mut asked, mut waited) = (false, 0, 0);
        loop {
            if let Some(outcome) = self.outcome() {
                return Ok(outcome);
            }
            let there = join_all(others.iter().map(|(name, address)| self.hello(name, address))).await;
            let there: Vec<Introduction> = there.into_iter().flatten().collect();
            let taken: Vec<_> = there.iter().filter(|other| !other.cluster.is_empty()).collect();
            if !taken.is_empty() {
                // A peer that is a member already, because the cluster has only just begun, does not join twice.
                join_all(taken.iter().map(|other| self.join(&other.name))).await;
                asked += 1;
                if asked == HINT_AFTER_ATTEMPTS {
                    let (name, there) = (&self.settings.name, &taken[0].name);
                    let address = self.settings.address_of(name).unwrap_or_default();
                    tracing::warn!(
                        "this peer waits until the cluster of {there} lets it in: if it was never one of them, \
                         `leaseway peers add {name} {address}` at one of them lets it in"
                    );
                }
            } else if self.may_begin(&there, others.len()) {
                self.begin(&there).await?;
            } else if there.len() == others.len() && !self.settings.bootstrap && !std::mem::replace(&mut told, true) {
                tracing::warn!(
                    "the directories of all peers are empty: if they lost what they knew, wait until everything they may \
                     have promised has ended; then, or if this is the first start of all, tell all of them to bootstrap"
                );
            }
            let waits = self.settings.bootstrap && taken.is_empty() && there.len() < others.len();
            waited += u32::from(waits);
            if waits && waited == HINT_AFTER_ATTEMPTS {
                let is_missing = |name: &str| there.iter().all(|other| other.name != name);
                let missing = others.iter().filter(|(name, _)| is_missing(name));
                let missing: Vec<_> = missing.map(|(name, address)| format!("{name} ({address})")).collect();
                let missing = missing.join(", ");
                tracing::warn!("a first start begins once all peers are there, and this one waits for {missing}");
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// For a peer that has taken part before: if it was stopped before it had a vote it asks to join again. Returns
    /// once it has one.
    pub(crate) async fn resume(&self) {
        while self.outcome().is_none() {
            if self.is_awaited() {
                let others = self.settings.peers.iter().filter(|(name, _)| *name != self.settings.name);
                join_all(others.map(|(name, _)| self.join(name))).await;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Whether a place is kept for this peer, which has no vote. A master that was deposed while it let this peer in
    /// may have told it of no membership, or of one with an earlier identity only; one that was removed has no place.
    fn is_awaited(&self) -> bool {
        let metrics = self.raft.metrics();
        let membership = metrics.borrow().membership_config.membership().clone();
        let mut nodes = membership.nodes().peekable();
        nodes.peek().is_none() || nodes.any(|(_, member)| member.name == self.settings.name)
    }

    fn outcome(&self) -> Option<BootstrapOutcome> {
        let me = self.local.handshake.peer();
        let metrics = self.raft.metrics();
        let membership = metrics.borrow().membership_config.clone();
        // The first membership is the first entry of all.
        let first = membership.log_id().is_some_and(|log_id| log_id.index == 0);
        let outcome = if first { BootstrapOutcome::Began } else { BootstrapOutcome::Joined };
        membership.voter_ids().any(|voter| voter == me).then_some(outcome)
    }

    /// Whether all peers are there and were told the same, and this is the first of them by name.
    fn may_begin(&self, there: &[Introduction], others: usize) -> bool {
        let me = self.local.handshake.introduction();
        let mine = me.bootstraps;
        if mine.is_empty() || mine.first() != Some(&self.settings.name) || there.len() != others {
            return false;
        }
        for other in there {
            if other.bootstraps.is_empty() {
                self.client
                    .liveness()
                    .report_problem(&other.name, &"its directory is empty, and it was not told to bootstrap");
            } else if other.bootstraps != mine {
                let theirs = other.bootstraps.join(", ");
                self.client
                    .liveness()
                    .report_problem(&other.name, &format!("it would begin a cluster of others: {theirs}"));
            } else if other.backup != me.backup {
                let what = "it begins with another backup, or with none: `leaseway restore` has to put the same file \
                            into the directories of all";
                self.client.liveness().report_problem(&other.name, &what);
            } else if other.take_over_ms != me.take_over_ms {
                let told = |ms: u64| {
                    if ms == 0 { "--bootstrap".to_owned() } else { format!("--take-over={}", ms as f64 / 1000.0) }
                };
                let (theirs, ours) = (told(other.take_over_ms), told(me.take_over_ms));
                let what = format!("it was told {theirs}, and this peer {ours}: tell all of them the same");
                self.client.liveness().report_problem(&other.name, &what);
            }
        }
        let agrees = |other: &Introduction| {
            other.bootstraps == mine && other.take_over_ms == me.take_over_ms && other.backup == me.backup
        };
        there.iter().all(agrees)
    }

    async fn begin(&self, there: &[Introduction]) -> Result<(), StoreError> {
        let me = Member {
            name: self.settings.name.clone(),
            address: self.settings.address_of(&self.settings.name).unwrap_or_default().to_owned(),
            advertise: self.settings.advertise.clone(),
        };
        let mut members: BTreeMap<PeerId, Member> = BTreeMap::from([(self.local.handshake.peer(), me)]);
        for other in there {
            let address = self.settings.address_of(&other.name).unwrap_or_default().to_owned();
            let member = Member { name: other.name.clone(), address, advertise: other.advertise.clone() };
            members.insert(other.peer, member);
        }
        begin(&self.local, &self.raft, members).await
    }

    async fn hello(&self, name: &str, address: &str) -> Option<Introduction> {
        let answer = self.client.call_within::<_, ()>(ANSWER_TIMEOUT, (name, address), 0, Method::Hello, &()).await;
        answer.ok().map(|(other, ())| other)
    }

    async fn join(&self, name: &str) {
        let address = self.settings.address_of(name).unwrap_or_default();
        let mine = self.settings.address_of(&self.settings.name).unwrap_or_default();
        // Errors are logged by the call; the next round tries again.
        let _ = self.client.call_within::<_, ()>(ANSWER_TIMEOUT, (name, address), 0, Method::Join, &mine).await;
    }
}

/// Begins a new cluster of these members.
pub(crate) async fn begin(local: &LocalPeer, raft: &Raft, members: BTreeMap<PeerId, Member>) -> Result<(), StoreError> {
    local.handshake.join_cluster(random())?;
    tracing::info!(peers = members.len(), "a new cluster begins");
    // Refused only if it has begun already.
    let _ = raft.initialize(members).await;
    Ok(())
}

/// Random numbers, large enough to be unique.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    u128::from_ne_bytes(bytes)
}
