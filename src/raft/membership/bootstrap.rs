//! How a peer with an empty data directory begins or joins a cluster.
//!
//! If all peers were started with `--bootstrap`, the first of them by name begins a cluster once all are reachable. If
//! a cluster exists, this peer asks to join under the identity that was created with its directory. The master sends it
//! the whole state before it gives it a vote. An empty directory alone never begins a cluster.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leaseway_proto::peer::PeerInfo;

use crate::{
    election::PeerContext,
    log::{Member, PeerId, Raft, StoreError, directory::random},
    transport::{Method, client::PeerClient},
};

const RETRY_INTERVAL: Duration = Duration::from_millis(150);
/// The number of attempts after which the log says what an operator may have to do.
const HINT_AFTER_ATTEMPTS: u32 = 20;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Bootstrap {
    pub(crate) raft: Raft,
    pub(crate) context: Arc<PeerContext>,
    pub(crate) client: Arc<PeerClient>,
}

/// How this peer has become a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BootstrapOutcome {
    /// It is one of the first members of a new cluster.
    Began,
    Joined,
}

impl Bootstrap {
    /// Returns once this peer has a vote in a cluster.
    pub(crate) async fn run(&self) -> Result<BootstrapOutcome, StoreError> {
        let settings = &self.context.settings;
        let others: Vec<_> = settings.peers.iter().filter(|(name, _)| *name != settings.name).collect();
        let (mut hinted, mut joins, mut waits) = (false, 0, 0);
        loop {
            if let Some(outcome) = self.outcome() {
                return Ok(outcome);
            }
            let reachable = join_all(others.iter().map(|(name, address)| self.hello(name, address))).await;
            let reachable: Vec<PeerInfo> = reachable.into_iter().flatten().collect();
            let members: Vec<_> = reachable.iter().filter(|other| !other.cluster.is_empty()).collect();
            if let Some(first) = members.first() {
                // If this peer is one of the first members, the master ignores the request.
                join_all(members.iter().map(|other| self.join(&other.name))).await;
                joins += 1;
                if joins == HINT_AFTER_ATTEMPTS {
                    self.hint_to_add(&first.name);
                }
            } else if self.may_begin(&reachable, others.len()) {
                self.begin(&reachable).await?;
            } else if reachable.len() == others.len() && !settings.bootstrap && !std::mem::replace(&mut hinted, true) {
                tracing::warn!(
                    "the data directories of all peers are empty. If this is the first start, restart every peer with \
                     --bootstrap. If the peers have lost their data, first wait until all leases that they may have \
                     granted have expired"
                );
            }
            if settings.bootstrap && members.is_empty() && reachable.len() < others.len() {
                waits += 1;
                if waits == HINT_AFTER_ATTEMPTS {
                    hint_of_missing(&others, &reachable);
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn hint_to_add(&self, member: &str) {
        let name = &self.context.settings.name;
        let address = self.context.settings.address_of(name).unwrap_or_default();
        tracing::warn!(
            "waiting for the cluster of {member} to admit this peer: if this peer was never a member, run `leaseway \
             peers add {name} {address}` against one of the members"
        );
    }

    /// For a peer with a used directory. If it was stopped before it had a vote, it asks to join again. Returns once it
    /// has a vote.
    pub(crate) async fn resume(&self) {
        while self.outcome().is_none() {
            if self.should_join() {
                let settings = &self.context.settings;
                let others = settings.peers.iter().filter(|(name, _)| *name != settings.name);
                join_all(others.map(|(name, _)| self.join(name))).await;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Whether this peer, which has no vote, should ask to join again. If a master was deposed while it admitted this
    /// peer, this peer knows no membership, or one with an earlier identity of its name. If the peer was removed, no
    /// member has its name, and it must not ask.
    fn should_join(&self) -> bool {
        let membership = self.context.membership().unwrap_or_default();
        let mut nodes = membership.nodes().peekable();
        nodes.peek().is_none() || nodes.any(|(_, member)| member.name == self.context.settings.name)
    }

    fn outcome(&self) -> Option<BootstrapOutcome> {
        let membership = self.raft.metrics().borrow().membership_config.clone();
        // The first entry of a log is the first membership.
        let is_first = membership.log_id().is_some_and(|log_id| log_id.index == 0);
        let outcome = if is_first { BootstrapOutcome::Began } else { BootstrapOutcome::Joined };
        membership.voter_ids().any(|voter| voter == self.context.id()).then_some(outcome)
    }

    /// Whether this peer is the first by name, all peers are reachable, and all were started with the same flags.
    fn may_begin(&self, reachable: &[PeerInfo], others: usize) -> bool {
        let me = self.context.handshake.info();
        if me.bootstraps.first() != Some(&me.name) || reachable.len() != others {
            return false;
        }
        let mut agree = true;
        for other in reachable {
            if let Some(difference) = difference(&me, other) {
                self.client.liveness.report_problem(&other.name, &difference);
                agree = false;
            }
        }
        agree
    }

    async fn begin(&self, reachable: &[PeerInfo]) -> Result<(), StoreError> {
        let settings = &self.context.settings;
        let mut members: BTreeMap<PeerId, Member> = BTreeMap::from([(self.context.id(), settings.own_member())]);
        for other in reachable {
            let address = settings.address_of(&other.name).unwrap_or_default().to_owned();
            let member = Member { name: other.name.clone(), address, advertise: other.advertise.clone() };
            members.insert(other.peer, member);
        }
        begin(&self.context, &self.raft, members).await
    }

    async fn hello(&self, name: &str, address: &str) -> Option<PeerInfo> {
        let answer = self.client.call_within::<_, ()>(ANSWER_TIMEOUT, (name, address), 0, Method::Hello, &()).await;
        answer.ok().map(|(other, ())| other)
    }

    async fn join(&self, name: &str) {
        let settings = &self.context.settings;
        let address = settings.address_of(name).unwrap_or_default();
        let own = settings.address_of(&settings.name).unwrap_or_default();
        // Errors are logged by the client; the next round tries again.
        let _ = self.client.call_within::<_, ()>(ANSWER_TIMEOUT, (name, address), 0, Method::Join, &own).await;
    }
}

/// Begins a new cluster of these members.
pub(crate) async fn begin(
    context: &PeerContext,
    raft: &Raft,
    members: BTreeMap<PeerId, Member>,
) -> Result<(), StoreError> {
    context.handshake.join_cluster(random())?;
    tracing::info!(peers = members.len(), "bootstrapping a new cluster");
    // openraft refuses this only if the cluster has begun already.
    let _ = raft.initialize(members).await;
    Ok(())
}

/// Why two peers cannot begin a cluster together.
fn difference(me: &PeerInfo, other: &PeerInfo) -> Option<String> {
    if other.bootstraps.is_empty() {
        Some("its data directory is empty, but it was started without --bootstrap: if this is the first start, restart it with --bootstrap".into())
    } else if other.bootstraps != me.bootstraps {
        Some(format!(
            "its --peers ({}) differ from this peer's: use the same --peers for all peers",
            other.bootstraps.join(", ")
        ))
    } else if other.backup != me.backup {
        Some(
            "its directory has another restored backup than this peer's, or none: run `leaseway restore` with the same \
             file for the directories of all peers"
                .into(),
        )
    } else if other.take_over_ms != me.take_over_ms {
        let flag = |ms: u64| {
            if ms == 0 { "--bootstrap".to_owned() } else { format!("--take-over={}", ms as f64 / 1000.0) }
        };
        let (theirs, ours) = (flag(other.take_over_ms), flag(me.take_over_ms));
        Some(format!("it was started with {theirs}, but this peer with {ours}: use the same flag for all peers"))
    } else {
        None
    }
}

fn hint_of_missing(others: &[&(String, String)], reachable: &[PeerInfo]) {
    let is_missing = |name: &str| reachable.iter().all(|other| other.name != name);
    let missing = others.iter().filter(|(name, _)| is_missing(name));
    let missing: Vec<_> = missing.map(|(name, address)| format!("{name} ({address})")).collect();
    let missing = missing.join(", ");
    tracing::warn!("a new cluster begins once all peers are reachable; still waiting for {missing}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_begin_a_cluster_only_with_the_same_flags_and_backup() {
        let bootstraps = vec!["a".to_owned(), "b".to_owned()];
        let me = PeerInfo { bootstraps, take_over_ms: 9_000, backup: 7, ..PeerInfo::default() };
        assert_eq!(difference(&me, &me), None);
        type Change = fn(&mut PeerInfo);
        let cases: [(Change, &str); 4] = [
            (|other| other.bootstraps.clear(), "without --bootstrap"),
            (|other| other.bootstraps.push("c".into()), "a, b, c"),
            (|other| other.backup = 0, "another restored backup"),
            (|other| other.take_over_ms = 0, "--take-over=9"),
        ];
        for (change, expected) in cases {
            let mut other = me.clone();
            change(&mut other);
            let why = difference(&me, &other).expect("they differ");
            assert!(why.contains(expected), "`{expected}` is not in: {why}");
        }
    }
}
